// What tilings there are, which fit, and how long they should take.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <regex>
#include <set>

#include "src/algorithms/implicit_gemm_sm90.hpp"
#include "src/problem/dtype.hpp"

namespace faltung::sm90 {
namespace {

using i64 = std::int64_t;

i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }
int round_up(int a, int b) { return (a + b - 1) / b * b; }

int parts(const Problem& p) { return std::max(1, tf32_parts(p)); }

// Of one part.
int slot_bytes(const Tiling& t, const Problem& p) {
  const int kElement = size_of(p.dtype);
  if (t.im2col) return t.pixels() * t.k_block * kElement;
  const i64 width = t.width + (p.s - 1) * p.dilation_w, height = t.height + (p.r - 1) * p.dilation_h;
  return static_cast<int>(width * height) * t.k_block * kElement;
}
int stage_bytes(const Tiling& t, const Problem& p) { return t.channels * t.k_block * size_of(p.dtype); }

int staging_bytes(const Tiling& t, const Problem& p) {
  if (plain_stores(p) || t.turned) return 0;
  const int consumers = 2, pool = p.epilogue.pool.kind == PoolKind::none ? 1 : 4;
  const int sharers = t.cooperative ? 2 : 1, element = size_of(p.dtype);
  int mine = t.channels * t.pixels() / sharers / pool * element;
  if (p.layout == Layout::nchw) {
    mine = t.channels / (t.pixels_on_m ? 1 : sharers) *
           (t.pixels() / (t.pixels_on_m ? sharers : 1) / pool * element + 16);
  }
  return consumers * round_up(mine, 1024);
}

int weight_blocks(const Tiling& t, const Problem& p) {
  return static_cast<int>(p.r * p.s * ceil_div(padded_channels(p), t.k_block));
}

}  // namespace

int best_k_block(i64 c, int most) {
  int best = most;
  for (const int block : {most / 2, most / 4}) {
    if (ceil_div(c, block) * block < ceil_div(c, best) * best) best = block;
  }
  return best;
}

i64 padded_channels(const Problem& p) {
  const i64 unit = 16 / size_of(p.dtype);
  return (p.c + unit - 1) / unit * unit;
}

bool folds(const Problem& p) { return p.s > 1 && p.c <= 8 && p.c * p.s <= 64; }

Problem folded(const Problem& p) {
  Problem q = p;
  q.w = p.q(), q.c = p.c * p.s, q.s = 1;
  q.stride_w = q.dilation_w = 1;
  q.pad_left = q.pad_right = 0;
  return q;
}

bool plain_stores(const Problem& p) { return p.layout == Layout::nhwc && p.k * size_of(p.dtype) % 16 != 0; }

int tf32_parts(const Problem& p) { return p.dtype != DType::f32 ? 0 : p.math == Math::f32 ? 2 : 1; }

std::string to_string(const Tiling& t) {
  char text[96];
  const char* mode = t.cooperative ? "co" : "pp";
  const char* side = t.pixels_on_m ? "_px" : "";
  const std::string ring = t.resident ? "r" : std::to_string(t.stages);
  if (t.im2col) {
    std::snprintf(text, sizeof text, "%s_%dx%d_k%d_%s%s_s%d%s", t.planes ? "planes" : "im2col", t.channels,
                  t.width, t.k_block, mode, side, t.slots, t.resident ? "_wr" : "");
  } else {
    std::snprintf(text, sizeof text, "%s_%dx%dx%d_k%d_%s%s_s%d_w%s%s",
                  t.shift    ? "shift"
                  : t.turned ? "turned"
                             : "patch",
                  t.channels, t.width, t.height, t.k_block, mode, side, t.slots, ring.c_str(),
                  t.raws > 0 ? ("_r" + std::to_string(t.raws)).c_str() : "");
  }
  return text;
}

Tiling parse_tiling(std::string_view name) {
  static const std::regex patch(
      R"((patch|shift|turned)_(\d{1,3})x(\d{1,3})x(\d{1,3})_k(\d\d?)_(pp|co)(_px)?_s(\d)_w(r|\d\d?)(_r(\d))?)"),
      im2col(R"((im2col|planes)_(\d{1,3})x(\d{1,3})_k(\d\d?)_(pp|co)(_px)?_s(\d)(_wr)?)");
  std::cmatch m;
  Tiling t;
  const auto number = [&](std::size_t i) { return std::stoi(m[i].str()); };
  const char *begin = name.data(), *end = name.data() + name.size();
  if (name.size() < 80 && std::regex_match(begin, end, m, patch)) {
    t.shift = m[1] == "shift", t.turned = m[1] == "turned";
    t.channels = number(2), t.width = number(3), t.height = number(4), t.k_block = number(5);
    t.cooperative = m[6] == "co", t.pixels_on_m = m[7].matched, t.slots = number(8);
    t.resident = m[9] == "r";
    t.stages = t.resident ? 0 : number(9);
    t.raws = m[10].matched ? number(11) : 0;
  } else if (name.size() < 80 && std::regex_match(begin, end, m, im2col)) {
    t.im2col = true;
    t.planes = m[1] == "planes";
    t.channels = number(2), t.width = number(3), t.height = 1, t.k_block = number(4);
    t.cooperative = m[5] == "co", t.pixels_on_m = m[6].matched, t.slots = number(7);
    t.resident = m[8].matched;
    t.stages = t.resident ? 0 : t.slots;
  } else {
    throw Error(Status::bad_problem, "implicit_gemm_sm90 has no config '" + std::string(name) +
                                         "'; one looks like patch_64x8x32_k64_pp_s2_w8 or "
                                         "im2col_128x256_k64_co_s4");
  }
  return t;
}

int raw_width(const Tiling& t, const Problem& p) {
  const i64 lead = ceil_div(p.pad_left, 4) * 4 - p.pad_left, patch = t.width + (p.s - 1) * p.dilation_w;
  return static_cast<int>(ceil_div(patch + lead, 4) | 1) * 4;
}

int shared_bytes(const Tiling& t, const Problem& p) {
  if (t.shift) return shift::shared_bytes(t, p);
  const int stages = t.resident ? weight_blocks(t, p) : t.stages;
  const int barriers = 8 * ((tf32_parts(p) > 0 ? 3 : 2) * t.slots + 2 * stages + 2 + 2 * t.raws);
  const i64 raw_rows = t.height + (p.r - 1) * p.dilation_h;
  const int raw_bytes = t.raws * raw_width(t, p) * static_cast<int>(raw_rows) * t.k_block * size_of(p.dtype);
  return t.slots * parts(p) * round_up(slot_bytes(t, p), 1024) +
         stages * parts(p) * round_up(stage_bytes(t, p), 1024) + staging_bytes(t, p) + raw_bytes + barriers +
         1024;
}

std::string unfit(const Tiling& t, const Problem& p) {
  if (t.shift) return shift::unfit(t, p);
  const int n = t.n(), sums = t.m_blocks() * t.n_blocks() * n;
  const int row = t.k_block * size_of(p.dtype);
  if (row != 32 && row != 64 && row != 128) return "channels are taken by 32, 64 or 128 bytes";
  if (t.m_blocks() < 1 || t.m() % (t.cooperative ? 128 : 64) != 0) return "its M side is no multiple of 64";
  if (n % 8 != 0 || n < 8 || n > 256) return "its N side is no multiple of 8 up to 256";
  if (sums > 256) return "its sums need more than 128 registers a thread";
  if (t.channels > 256) return "more than 256 channels a tile";
  if (!t.im2col && t.width % 8 != 0) return "a patch is a multiple of 8 pixels wide";
  if (!t.im2col && t.pixels_on_m && t.width != 8) return "a patch with pixels on M is 8 wide";
  if (!t.im2col && (p.stride_h != 1 || p.stride_w != 1)) return "halo patches serve stride 1";
  if (!t.im2col && t.height + (p.r - 1) * p.dilation_h > 256) return "a patch is at most 256 pixels high";
  if (!t.im2col && t.width + (p.s - 1) * p.dilation_w > 256) return "a patch is at most 256 pixels wide";
  if (t.planes) {
    const bool pointwise =
        p.r == 1 && p.s == 1 && p.stride_h == 1 && p.stride_w == 1 && p.p() == p.h && p.q() == p.w;
    if (p.layout != Layout::nchw || !pointwise) return "planes serve NCHW, 1x1 filters, stride 1, no padding";
    if (p.dtype == DType::f32) return "the matrix units take 32-bit channels side by side only";
    if (p.h * p.w % 8 != 0 || p.c % 8 != 0) return "planes need a multiple of 8 pixels and of 8 channels";
    if (t.pixels() % 64 != 0 || t.k_block != 64 || t.pixels_on_m)
      return "planes are taken by 64 pixels and channels";
  }
  if (t.turned != (t.raws > 0)) return "turned patches, and they alone, come through buffers of their own";
  if (t.turned) {
    if (p.layout != Layout::nchw || p.dtype != DType::f32) return "32-bit NCHW alone is turned on the way";
    if (t.pixels_on_m || t.k_block != 32) return "patches are turned by 32 channels, with the weights on M";
    if (p.w % 4 != 0)
      return "the copy engine takes rows of a multiple of 4 pixels, not " + std::to_string(p.w);
    if (raw_width(t, p) > 256) return "a patch is at most 256 pixels wide";
  }
  if (t.im2col && ((p.s - 1) * p.dilation_w > 127 || (p.r - 1) * p.dilation_h > 127))
    return "the copy engine gathers filters of an extent up to 128";
  if (t.im2col && (p.pad_top > 127 || p.pad_left > 127 || p.pad_bottom > 127 || p.pad_right > 127))
    return "the copy engine gathers with padding up to 127";
  if (t.im2col && (p.stride_h > 8 || p.stride_w > 8)) return "the copy engine gathers with strides up to 8";
  if (p.layout == Layout::nchw && t.pixels_on_m) return "NCHW output needs the weights on M";
  // 512 threads start with 128 registers each, where an instruction's sums must fit with some others.
  if (p.dtype == DType::f32 && n > 200) return "32-bit elements leave registers for an N side up to 200";
  if (p.dtype == DType::f32 && t.pixels_on_m && !plain_stores(p) && n % 32 != 0)
    return "32-bit channels are stored by 32";
  if (plain_stores(p) && !t.pixels_on_m) return "a K that is no multiple of 16 bytes needs the pixels on M";
  if (p.epilogue.pool.kind != PoolKind::none) {
    if (t.im2col || t.pixels_on_m || plain_stores(p)) return "pooling needs halo patches with weights on M";
    if (t.height % 4 != 0) return "pooling needs a multiple of 4 rows";
  }
  // A buffer is freed only once the products after its own are under way.
  const bool one_slot_does = !t.im2col && ceil_div(padded_channels(p), t.k_block) == 1;
  if (t.slots < (one_slot_does ? 1 : 2) || (!t.resident && t.stages < 2)) return "too few buffers";
  if (t.resident && weight_blocks(t, p) > 64) return "too many weights to keep";
  if (shared_bytes(t, p) > kSharedLimit) {
    return "it needs " + std::to_string(shared_bytes(t, p)) + " bytes of shared memory, a block has " +
           std::to_string(kSharedLimit);
  }
  return "";
}

i64 tiles(const Tiling& t, const Problem& p) {
  const i64 k = ceil_div(p.k, t.channels);
  if (t.shift) return k * p.n * ceil_div(p.p(), t.height);
  if (t.planes) return k * p.n * ceil_div(p.p() * p.q(), t.pixels());
  if (t.im2col) return k * ceil_div(p.n * p.p() * p.q(), t.pixels());
  return k * p.n * ceil_div(p.q(), t.width) * ceil_div(p.p(), t.height);
}

std::vector<Tiling> tilings(const Problem& p) {
  std::vector<Tiling> all;
  std::set<std::string> names;
  const int k_block = best_k_block(padded_channels(p), 128 / size_of(p.dtype));
  // As many buffers as fit, in steps that matter; and the weights resident where they fit.
  const auto add = [&](Tiling t) {
    t.k_block = t.planes ? 64 : t.turned ? 32 : k_block;
    const auto keep = [&](const Tiling& fitting) {
      if (unfit(fitting, p).empty() && names.insert(to_string(fitting)).second) all.push_back(fitting);
    };
    if (t.im2col) {
      t.height = 1;
      for (t.slots = 8; t.slots >= 2; --t.slots) {
        t.stages = t.slots;
        if (unfit(t, p).empty()) break;
      }
      keep(t);
    } else {
      for (t.slots = 2; t.slots <= (t.turned ? 2 : 3); ++t.slots) {
        for (t.stages = t.slots == 2 ? 12 : 8; t.stages >= 2; --t.stages) {
          if (unfit(t, p).empty()) break;
        }
        if (t.stages >= (t.slots == 2 ? 3 : 5)) keep(t);
      }
    }
    if (ceil_div(p.k, t.channels) <= 4) {
      t.resident = true;
      t.stages = 0;
      for (t.slots = t.im2col ? 6 : 3; t.slots >= 1; --t.slots) {
        if (unfit(t, p).empty()) break;
      }
      if (t.slots >= (t.im2col ? 3 : 1)) keep(t);
    }
  };
  const i64 height = p.p();
  const auto even_height = [&](int limit) {  // rows that divide the image evenly
    const i64 parts = ceil_div(height, limit);
    return static_cast<int>(ceil_div(height, parts));
  };
  const bool pool = p.epilogue.pool.kind != PoolKind::none;
  for (const bool cooperative : {false, true}) {
    for (const int m_blocks : {1, 2}) {
      const int m = 64 * m_blocks * (cooperative ? 2 : 1);
      const int limit = 256 / m_blocks;
      Tiling t;
      t.cooperative = cooperative;
      // Weights on M.
      t.channels = m;
      if (m < 2 * p.k || m == 64) {
        for (const int width : {8, 16, 32}) {
          const int most = limit / width;
          std::set<int> heights = {most, even_height(most), even_height(std::max(4, most / 2))};
          if (p.dtype == DType::f32) heights.insert({most / 2, most * 3 / 4});
          if (pool) {
            std::set<int> rounded;
            for (const int h : heights) rounded.insert(std::min(most / 4 * 4, round_up(h, 4)));
            heights = rounded;
          }
          for (const int h : heights) {
            if (h * 8 < 32) continue;
            t.width = width, t.height = h;
            add(t);
            t.turned = p.dtype == DType::f32 && p.layout == Layout::nchw;
            for (t.raws = t.turned ? 3 : 0; t.raws > 0; --t.raws) add(t);
            t.turned = false;
          }
        }
        t.im2col = true;
        for (const int pixels : {256, 192, 128, 64}) {
          t.width = pixels;
          if (pixels > limit) continue;
          add(t);
          if (p.layout == Layout::nchw) {
            t.planes = true;
            add(t);
            t.planes = false;
          }
        }
        t.im2col = false;
      }
      // Pixels on M.
      t.pixels_on_m = true;
      std::set<int> columns = {64, 128, 160, 192, 256};
      if (p.k < 64) columns = {static_cast<int>((p.k + 7) / 8 * 8)};
      for (const int n : columns) {
        if (n > limit || n >= 2 * std::max<i64>(p.k, 32)) continue;
        t.channels = n;
        t.im2col = false;
        t.width = 8, t.height = m / 8;
        add(t);
        t.im2col = true;
        t.width = m;
        add(t);
      }
    }
  }
  for (const Tiling& t : shift::tilings(p)) all.push_back(t);
  return all;
}

// A tile takes the longest of its products, its loads and, for 32-bit elements, their preparation; with two
// consumers in turn a tile's epilogue hides behind the next one's products. The constants are fitted to some
// 5000 kernels timed on an H200 (docs/performance/h200.md): cycles and bytes of one multiprocessor,
// milliseconds.
Estimate estimate(const Tiling& t, const Problem& p, int multiprocessors) {
  if (t.shift) return shift::estimate(t, p, multiprocessors);
  constexpr double kClock = 1.58e6;             // cycles a millisecond, under load
  constexpr double kFirstOperand = 16;          // cycles to read the 64 rows of one instruction
  constexpr double kL2 = 54, kRowCycles = 3.1;  // bytes a cycle; at least so long a row of a box
  constexpr double kFewBlocks = 0.27;           // the share of a load's time when few blocks load
  constexpr double kPrepare = 16;               // bytes a cycle rounded to tf32
  constexpr double kHasty = 1.13;               // streamed weights that serve few pixels: slower by so much
  constexpr double kLoadLatency = 2100;         // cycles until planes are there
  constexpr double kPrepared = 1000;            // cycles until the low parts of gathered pixels are there
  constexpr double kPartial = 1.0e9;  // bytes a ms: stores of half a sector, NCHW's rows of 8 pixels
  constexpr double kRawRow = 12.4, kShared = 128;      // cycles, and bytes a cycle: turned patches
  constexpr double kEpilogue = 1450, kStore = 0.069;   // cycles a tile, and a 16-bit element
  constexpr double kRows = 1.6, kSingly = 4.3;         // storing NCHW, and 32-bit elements, by so much slower
  constexpr double kExposed = 0.52;                    // of the epilogue where two consumers share a tile
  constexpr double kLatency = 1200;                    // cycles, once
  constexpr double kBandwidth = 6e9, kOverlap = 0.55;  // bytes a ms; what is lost of the shorter of the two
  constexpr double kLaunch = 0.0008, kTurn = 2.65e9;   // ms; bytes a ms of a step that turns the input
  const int element = size_of(p.dtype), sharers = t.cooperative ? 2 : 1;
  const double blocks = static_cast<double>(ceil_div(padded_channels(p), t.k_block));
  const double taps = static_cast<double>(p.r * p.s), row = t.k_block * element;
  const double instructions =
      blocks * taps * row / 32 * t.m_blocks() * t.n_blocks() * sharers * (tf32_parts(p) == 2 ? 3 : 1);
  const bool hasty = !t.im2col && !t.resident && element == 2 && t.m_blocks() * t.n() * t.n_blocks() <= 128;
  const double products =
      instructions * std::max(t.n() / 2.0, t.n() / 4.0 + kFirstOperand) * (hasty ? kHasty : 1);
  const double slot_rows = slot_bytes(t, p) / row;
  const double stage_rows = t.resident ? 0 : t.channels * parts(p);
  const double rows = blocks * (t.im2col ? taps * (slot_rows + stage_rows) : slot_rows + taps * stage_rows);
  const double count = static_cast<double>(tiles(t, p));
  double load =
      std::max(rows * row / kL2, rows * kRowCycles) * std::clamp(count / multiprocessors, kFewBlocks, 1.0);
  if (t.planes) load = std::max(load, blocks * kLoadLatency / t.slots);
  double preparation = tf32_parts(p) > 0 ? blocks * (t.im2col ? taps : 1) * slot_rows * row / kPrepare : 0;
  if (t.im2col && parts(p) == 2) preparation = std::max(preparation, blocks * taps * kPrepared);
  if (t.turned) {
    // Rows of NCHW come slowly, whatever part of 128 bytes they are; and shared memory is written by them,
    // read twice (two channels share a bank) and written again, while the matrix units read.
    const double raw_rows = static_cast<double>(t.height + (p.r - 1) * p.dilation_h) * t.k_block,
                 raw_row = raw_width(t, p) * element;
    const double shared =
        blocks * (3 * raw_rows * raw_row + 1.3 * parts(p) * slot_rows * row + taps * stage_rows * row) /
        kShared;
    preparation = std::max(blocks * raw_rows * std::ceil(raw_row / 128) * kRawRow,
                           instructions * (t.n() / 4.0 + kFirstOperand) + shared);
  }
  const double tile = std::max({products, load, preparation});
  const double epilogue = kEpilogue + t.channels * t.pixels() * element / 2 * kStore / sharers *
                                          (p.layout == Layout::nchw ? kRows : 1) *
                                          (p.dtype == DType::f32 ? kSingly : 1);
  const double waves = std::ceil(count / multiprocessors);
  const double cycles = t.cooperative ? waves * (tile + kExposed * epilogue)
                                      : waves * std::max(tile, (epilogue + products) / 2) + epilogue;
  const double arithmetic = (cycles + kLatency) / kClock;
  double bytes = min_bytes(p) / kBandwidth;
  const bool in_part = p.layout == Layout::nchw && !t.im2col && t.width * element < 32;
  if (in_part) bytes += static_cast<double>(p.n * p.k * p.y_h() * p.y_w() * element) / kPartial;
  Estimate e;
  e.ms = std::max(arithmetic, bytes) + kOverlap * std::min(arithmetic, bytes) + kLaunch;
  if (turns_input(t, p)) {
    const double images = static_cast<double>(p.n * p.h * p.w * element);
    e.ms += images * static_cast<double>(p.c + padded_channels(p)) / kTurn + 2 * kLaunch;
  }
  e.bound_by = bytes > arithmetic                          ? "bytes"
               : waves <= 1 && 2 * count < multiprocessors ? "latency"
                                                           : "arithmetic";
  return e;
}

bool turns_input(const Tiling& t, const Problem& p) {
  if (t.planes || t.shift || t.turned) return false;
  return p.c != padded_channels(p) || (p.layout == Layout::nchw && p.c > 1 && p.h * p.w > 1);
}

}  // namespace faltung::sm90
