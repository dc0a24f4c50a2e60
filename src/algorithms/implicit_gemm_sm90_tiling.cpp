// Which tilings fit, what they take of the chip, and their names.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <regex>
#include <set>

#include "src/algorithms/implicit_gemm_sm90.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90 {
namespace {

using i64 = std::int64_t;

int parts(const Problem& p) { return std::max(1, tf32_parts(p)); }

}  // namespace

i64 patch_height(const Tiling& t, const Problem& p) {
  return (t.height - 1) * p.stride_h + (p.r - 1) * p.dilation_h + 1;
}

i64 patch_width(const Tiling& t, const Problem& p) {
  return p.stride_w * (t.width + (p.s - 1) * p.dilation_w / p.stride_w);
}

bool turns_16_bits(const Tiling& t, const Problem& p) { return t.turned && p.dtype != DType::f32; }
bool reads_input(const Tiling& t, const Problem& p) { return t.fetch || turns_16_bits(t, p); }
int pixels_turned_at_once(const Problem& p) { return p.w % 2 == 0 ? 2 : 1; }

int slot_bytes(const Tiling& t, const Problem& p) {
  const int kElement = size_of(p.dtype);
  if (t.fetch) return round_up(t.pixels(), 64) * t.k_block * kElement;
  if (t.im2col) return t.pixels() * t.k_block * kElement;
  return static_cast<int>(patch_width(t, p) * patch_height(t, p)) * t.k_block * kElement;
}

namespace {

int stage_bytes(const Tiling& t, const Problem& p) { return t.channels * t.k_block * size_of(p.dtype); }

int staging_bytes(const Tiling& t, const Problem& p) {
  const bool turned = t.turned && p.dtype == DType::f32;
  if (plain_stores(p) || turned || t.direct || t.split > 1) return 0;
  const int consumers = 2, sharers = t.cooperative ? 2 : 1, element = size_of(p.dtype);
  if (t.staged > 0) return consumers * round_up(t.pixels() / sharers * t.unit() * t.staged * element, 1024);
  const int channels = t.channels / (t.pixels_on_m ? 1 : sharers);
  int pixels = t.pixels() / (t.pixels_on_m ? sharers : 1);
  if (pool_window(p) > 0) pixels = pooled_extent(t.width, p) * pooled_extent(t.height, p);
  int mine = channels * pixels * element;
  if (pool_window(p) == 3) mine = channels / 64 * round_up(pixels * 64 * element, 1024);
  if (p.layout == Layout::nchw && !fetch::whole_images(t, p))
    mine = channels * (pixels * element + (t.planes ? 0 : 16));
  return consumers * round_up(mine, 1024);
}

int weight_blocks(const Tiling& t, const Problem& p) {
  return static_cast<int>(p.r * p.s * ceil_div(padded_channels(p), t.k_block));
}

// Pixels and weights, as they come and as they are multiplied.
int operand_bytes(const Tiling& t, const Problem& p) {
  const int stages = t.resident ? weight_blocks(t, p) : t.stages;
  const int raw_bytes = turns_16_bits(t, p)
                            ? t.raws * round_up(t.k_block * raw_pitch(t, p), 128)
                            : t.raws * raw_width(t, p) * static_cast<int>(patch_height(t, p)) * t.k_block * 4;
  return t.slots * parts(p) * round_up(slot_bytes(t, p), 1024) +
         stages * parts(p) * round_up(stage_bytes(t, p), 1024) + raw_bytes;
}

// Of a tile whose sum blocks share: its sums, lines of them padded as in kernels/sm90/epilogue_split.cuh.
int split_sum_bytes(const Tiling& t, const Problem& p) {
  const bool nchw = p.layout == Layout::nchw, along = t.pixels_on_m != nchw;
  const int line = nchw ? t.pixels() : t.channels, lines = nchw ? t.channels : t.pixels();
  return lines * (line + (along ? 8 : 4)) * 4;
}

}  // namespace

int best_k_block(i64 c, int most) {
  int best = most;
  for (const int block : {most / 2, most / 4}) {
    if (round_up(c, block) < round_up(c, best)) best = block;
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

bool deepens(const Problem& p) {
  const bool strides = (p.stride_h > 1 || p.stride_w > 1) && p.r >= p.stride_h && p.s >= p.stride_w;
  if (!strides || p.dilation_h != 1 || p.dilation_w != 1 || p.c > 8 || p.c * p.stride_h * p.stride_w > 64)
    return false;
  constexpr i64 kMost = i64{1} << 30;  // pixels that the step before the kernel counts
  const Problem inner = deepened(p);
  return inner.n * inner.h * inner.w <= kMost;
}

Problem deepened(const Problem& p) {
  Problem q = p;
  q.c = p.c * p.stride_h * p.stride_w;
  q.r = ceil_div(p.r, p.stride_h), q.s = ceil_div(p.s, p.stride_w);
  q.h = p.p() + q.r - 1, q.w = p.q() + q.s - 1;
  q.stride_h = q.stride_w = 1;
  q.pad_top = q.pad_bottom = q.pad_left = q.pad_right = 0;
  return q;
}

bool thins(const Problem& p) {
  const bool pads = p.pad_top != 0 || p.pad_bottom != 0 || p.pad_left != 0 || p.pad_right != 0;
  return p.layout == Layout::nchw && p.r == 1 && p.s == 1 && !pads && (p.stride_h > 1 || p.stride_w > 1) &&
         p.p() * p.q() > 1;
}

Problem thinned(const Problem& p) {
  Problem q = p;
  q.h = p.p(), q.w = p.q();
  q.stride_h = q.stride_w = 1;
  return q;
}

int pool_window(const Problem& p) {
  return p.epilogue.pool.kind == PoolKind::none ? 0 : static_cast<int>(p.epilogue.pool.size_h);
}

int pooled_extent(int pixels, const Problem& p) {
  return pool_window(p) == 0 ? pixels : (pixels - pool_window(p)) / 2 + 1;
}

bool plain_stores(const Problem& p) { return p.layout == Layout::nhwc && p.k * size_of(p.dtype) % 16 != 0; }

bool stores_by_map(const Tiling& t, const Problem& p) {
  if (p.layout == Layout::nchw) return t.planes;
  return !plain_stores(p) && !t.direct && t.split == 1;
}

int tf32_parts(const Problem& p) { return p.dtype != DType::f32 ? 0 : p.math == Math::f32 ? 2 : 1; }

bool prepares(const Tiling& t, const Problem& p) { return tf32_parts(p) == 2 || t.turned || t.fetch; }
int threads(const Tiling& t, const Problem& p) { return prepares(t, p) ? 512 : 384; }

std::string to_string(const Tiling& t) {
  char text[96];
  const char* mode = t.cooperative ? "co" : "pp";
  const char* side = t.pixels_on_m ? "_px" : "";
  const std::string ring = t.resident ? "r" : std::to_string(t.stages);
  const std::string end = (t.raws > 0 ? "_r" + std::to_string(t.raws) : "") + (t.direct ? "_ds" : "") +
                          (t.staged > 0 ? "_u" + std::to_string(t.staged) : "") +
                          (t.split > 1 ? "_sk" + std::to_string(t.split) : "");
  if (t.im2col) {
    std::snprintf(text, sizeof text, "%s_%dx%d_k%d_%s%s_s%d%s%s",
                  t.fetch    ? "fetch"
                  : t.planes ? "planes"
                             : "im2col",
                  t.channels, t.width, t.k_block, mode, side, t.slots, t.resident ? "_wr" : "", end.c_str());
  } else {
    std::snprintf(text, sizeof text, "%s_%dx%dx%d_k%d_%s%s_s%d_w%s%s",
                  t.shift    ? "shift"
                  : t.turned ? "turned"
                             : "patch",
                  t.channels, t.width, t.height, t.k_block, mode, side, t.slots, ring.c_str(), end.c_str());
  }
  return text;
}

Tiling parse_tiling(std::string_view name) {
  static const std::regex patch(
      R"((patch|shift|turned)_(\d{1,3})x(\d{1,3})x(\d{1,3})_k(\d\d?)_(pp|co)(_px)?_s(\d)_w(r|\d\d?)(_r(\d))?(_ds)?(_sk([2-8]))?)"),
      im2col(
          R"((im2col|planes|fetch)_(\d{1,3})x(\d{1,3})_k(\d\d?)_(pp|co)(_px)?_s(\d)(_wr)?(_u([1-9]))?(_sk([2-8]))?)");
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
    t.direct = m[12].matched;
    t.split = m[13].matched ? number(14) : 1;
  } else if (name.size() < 80 && std::regex_match(begin, end, m, im2col)) {
    t.im2col = true;
    t.planes = m[1] == "planes", t.fetch = m[1] == "fetch";
    t.channels = number(2), t.width = number(3), t.height = 1, t.k_block = number(4);
    t.cooperative = m[5] == "co", t.pixels_on_m = m[6].matched, t.slots = number(7);
    t.resident = m[8].matched;
    t.stages = t.resident ? 0 : t.slots;
    t.staged = m[9].matched ? number(10) : 0;
    t.split = m[11].matched ? number(12) : 1;
  } else {
    throw Error(Status::bad_problem, "implicit_gemm_sm90 has no config '" + std::string(name) +
                                         "'; one looks like patch_64x8x32_k64_pp_s2_w8 or "
                                         "im2col_128x256_k64_co_s4");
  }
  return t;
}

int raw_width(const Tiling& t, const Problem& p) {
  const i64 lead = round_up(p.pad_left, 4) - p.pad_left, patch = t.width + (p.s - 1) * p.dilation_w;
  if (patch + lead <= 32) return patch + lead <= 16 ? 16 : 32;
  return static_cast<int>(ceil_div(patch + lead, 4) | 1) * 4;
}

bool raw_whole(const Tiling& t, const Problem& p) {
  return turns_16_bits(t, p) && pooled_extent(t.height, p) >= p.y_h();
}

int raw_pitch(const Tiling& t, const Problem& p) {
  constexpr i64 kTooMuch = 1 << 20;
  const i64 bytes = p.w * 2 * (raw_whole(t, p) ? p.h : std::min(patch_height(t, p), p.h));
  return static_cast<int>(std::min(raw_whole(t, p) ? bytes : round_up(bytes + 14, 16), kTooMuch));
}

int shared_bytes(const Tiling& t, const Problem& p) {
  if (t.shift) return shift::shared_bytes(t, p);
  const int stages = t.resident ? weight_blocks(t, p) : t.stages;
  const int barriers = 8 * ((prepares(t, p) ? 3 : 2) * t.slots + 2 * stages + 2 + 2 * t.raws);
  return operand_bytes(t, p) + staging_bytes(t, p) + barriers + 1024;
}

std::string unfit(const Tiling& t, const Problem& p) {
  if (t.shift) return shift::unfit(t, p);
  const int n = t.n(), sums = t.m_blocks() * t.n_blocks() * n;
  const int row = t.k_block * size_of(p.dtype);
  if (row != 32 && row != 64 && row != 128) return "channels are taken by 32, 64 or 128 bytes";
  if (t.m_blocks() < 1 || t.m() % (t.cooperative ? 128 : 64) != 0) return "its M side is no multiple of 64";
  if (n % 8 != 0 || n < 8 || n > 256) return "its N side is no multiple of 8 up to 256";
  // With cooperating consumers of 16-bit elements the rest fits in the registers that the sums leave.
  const bool many = t.staged > 0 || (t.planes && t.pixels_on_m && !t.cooperative);
  if (sums > (many ? 320 : 256)) return "its sums need too many registers a thread";
  if (t.channels > 256) return "more than 256 channels a tile";
  if (!t.im2col && t.width % 8 != 0) return "a patch is a multiple of 8 pixels wide";
  if (!t.im2col && t.pixels_on_m && t.width != 8) return "a patch with pixels on M is 8 wide";
  if (!t.im2col && p.stride_w != 1 && !turns_16_bits(t, p)) return "halo patches serve a horizontal stride 1";
  if (!t.im2col && patch_height(t, p) > 256) return "a patch is at most 256 pixels high";
  if (!t.im2col && patch_width(t, p) > 256) return "a patch is at most 256 pixels wide";
  if (t.planes) {
    const bool pointwise =
        p.r == 1 && p.s == 1 && p.stride_h == 1 && p.stride_w == 1 && p.p() == p.h && p.q() == p.w;
    if (p.layout != Layout::nchw || !pointwise) return "planes serve NCHW, 1x1 filters, stride 1, no padding";
    if (p.dtype == DType::f32) return "the matrix units take 32-bit channels side by side only";
    if (p.h * p.w % 8 != 0 || p.c % 8 != 0) return "planes need a multiple of 8 pixels and of 8 channels";
    if (t.pixels() % 64 != 0 || t.k_block != 64) return "planes are taken by 64 pixels and channels";
  }
  if (t.fetch) {
    if (const std::string why = fetch::unfit(t, p); !why.empty()) return why;
  }
  if (!t.turned && t.raws > 0) return "turned patches alone come through buffers of their own";
  if (t.turned && p.layout != Layout::nchw) return "NCHW alone is turned on the way";
  if (turns_16_bits(t, p)) {
    if (t.pixels_on_m || (t.k_block != 64 && (t.k_block != 32 || t.raws == 0)))
      return "16-bit patches are turned by 64 channels, from buffers of their own also by 32, with the "
             "weights on M";
    if (sums > 200 && p.epilogue.residual)
      return "a residual and so many sums leave too few registers to the warps that turn";
    if (t.raws > 0 && t.channels > 128)
      return "warps that turn from buffers leave registers for up to 128 channels";
    if (t.raws > 0 && p.c % 8 != 0) return "the copy engine brings whole rows of a multiple of 8 channels";
    if (p.stride_w > 2) return "16-bit patches are turned with horizontal strides up to 2";
  } else if (t.turned) {
    if (p.stride_h != 1) return "patches of stride 1 alone are turned";
    if (t.pixels_on_m || t.k_block != 32) return "patches are turned by 32 channels, with the weights on M";
    if (p.w % 4 != 0)
      return "the copy engine takes rows of a multiple of 4 pixels, not " + std::to_string(p.w);
    if (raw_width(t, p) > 256) return "a patch is at most 256 pixels wide";
  }
  if (t.im2col && ((p.s - 1) * p.dilation_w > 127 || (p.r - 1) * p.dilation_h > 127))
    return "the copy engine gathers filters of an extent up to 128";
  if (t.im2col && (p.pad_top > 127 || p.pad_left > 127 || p.pad_bottom > 127 || p.pad_right > 127))
    return "the copy engine gathers with padding up to 127";
  if (t.im2col && !t.fetch && (p.stride_h > 8 || p.stride_w > 8))
    return "the copy engine gathers with strides up to 8";
  if (p.layout == Layout::nchw && t.pixels_on_m && !t.planes)
    return "NCHW output needs the weights on M, but for planes";
  // 512 threads start with 128 registers each, where an instruction's sums must fit with some others.
  if (prepares(t, p) && n > 200) return "warps that prepare pixels leave registers for an N side up to 200";
  if (p.dtype == DType::f32 && t.pixels_on_m && !plain_stores(p) && n % 32 != 0)
    return "32-bit channels are stored by 32";
  if (plain_stores(p) && !t.pixels_on_m) return "a K that is no multiple of 16 bytes needs the pixels on M";
  if (p.epilogue.pool.kind != PoolKind::none) {
    if (t.im2col || t.pixels_on_m || plain_stores(p)) return "pooling needs halo patches with weights on M";
    if (pool_window(p) == 2 && t.height % 4 != 0) return "pooling needs a multiple of 4 rows";
    if (pool_window(p) == 3 && (t.height % 2 != 1 || t.height < 3))
      return "windows of 3 need an odd number of rows";
    if (pool_window(p) == 3 && p.dtype == DType::f32) return "windows of 3 are pooled in 16 bits";
  }
  if (t.direct) {
    if (p.layout != Layout::nhwc || p.dtype != DType::f32 || plain_stores(p))
      return "direct stores are of 32-bit NHWC, K a multiple of 4";
    if (t.im2col || t.pixels_on_m || t.turned || p.epilogue.pool.kind != PoolKind::none || t.split > 1)
      return "direct stores are of halo patches with weights on M, neither pooled nor split";
  }
  if (t.staged > 0) {
    if (!t.pixels_on_m || !t.im2col || !t.cooperative || p.dtype == DType::f32 || p.layout != Layout::nhwc ||
        plain_stores(p) || t.split > 1 || p.epilogue.residual)
      return "stores in turn are of gathered 16-bit NHWC, pixels on M, no residual";
    if (t.unit() < 16 || t.staged >= n / t.unit()) return "a tile has not so many stores";
  }
  if (sums > 256 && p.epilogue.activation == Activation::gelu)
    return "gelu and so many sums need too many registers";
  if (t.split > 1) {
    if (!t.cooperative || t.resident || t.planes || t.shift)
      return "a split sum needs cooperating consumers and streamed weights, no planes";
    if (t.split != 2 && t.split != 4 && t.split != 8) return "a sum is split in 2, 4 or 8";
    if (ceil_div(padded_channels(p), t.k_block) < t.split) return "too few channels to split their sum";
    if (p.epilogue.pool.kind != PoolKind::none) return "split sums are not pooled";
    if (split_sum_bytes(t, p) > operand_bytes(t, p))
      return "too few buffers for the sums to take their place";
  }
  // A buffer is freed only once the products after its own are under way.
  const bool one_slot_does = !t.im2col && ceil_div(padded_channels(p), t.k_block) <= t.split;
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
  if (t.im2col) return k * ceil_div(p.n * p.p() * p.q(), fetch::step(t, p));
  if (pool_window(p) > 0)
    return k * p.n * ceil_div(p.y_w(), pooled_extent(t.width, p)) *
           ceil_div(p.y_h(), pooled_extent(t.height, p));
  return k * p.n * ceil_div(p.q(), t.width) * ceil_div(p.p(), t.height);
}

i64 blocks(const Tiling& t, const Problem& p) { return tiles(t, p) * t.split; }

bool turns_input(const Tiling& t, const Problem& p) {
  if (t.planes || t.fetch || t.shift || t.turned) return false;
  return p.c != padded_channels(p) || (p.layout == Layout::nchw && p.c > 1 && p.h * p.w > 1);
}

}  // namespace faltung::sm90
