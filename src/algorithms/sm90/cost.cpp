#include "src/algorithms/sm90/cost.hpp"

#include <algorithm>
#include <cmath>

#include "src/algorithms/sm90/bring.hpp"
#include "src/algorithms/sm90/fitted.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90 {
namespace {

using namespace fitted;

// The products of lines: no instruction takes less than some cycles, and what shared memory moves beside
// their second operands, rows that are read for all of their taps and what is loaded, slows them down.
double line_cycles(const Tiling& t, const KernelConfig& c, const Traffic& w, double instructions) {
  const double products = instructions * std::max(columns(c) / 2.0, kLeast);
  if (c.parts == 2) return products * kLinesApart;
  const double reads = w.blocks * w.row / 32 * t.sharers() * (lines::rows_a_thread(t) + c.r - 1) * kRowRead;
  const bool shared = t.cooperative() && t.split == 1;
  return (products + kReads * reads + kFills * w.loaded / kShared) * (shared ? kTilesShared : 1);
}

Traffic traffic_of(const Tiling& t, const KernelConfig& c, const Problem& p) {
  Traffic w;
  w.parts = c.parts;
  w.blocks = std::ceil(static_cast<double>(channel_blocks(t, p)) * depths_met(t, p) / t.split);
  w.taps = static_cast<double>(p.r * p.s);
  w.fills = w.blocks * (t.flat() ? w.taps : 1);
  w.row = row_bytes(c);
  w.pixel_rows = w.fills * (static_cast<double>(slot_bytes(c)) / w.row);
  w.weight_rows = t.resident() ? 0 : w.blocks * w.taps * t.channels * c.parts;
  w.loaded = w.pixel_rows * w.row + w.weight_rows * weight_row_bytes(c);
  const double instructions = w.blocks * w.taps * w.row / 32 * t.m_blocks() * t.n_blocks() * halves(c) *
                              t.sharers() / t.groups * (c.parts == 2 ? 3 : 1);
  // In parts what goes through registers serves six instructions.
  const bool through_registers = t.bring == Bring::planes && c.through_registers() && c.parts == 1;
  w.operands = instructions * (columns(c) / 4.0 + (through_registers ? kThroughRegisters : kFirstOperand));
  w.products = std::max(instructions * columns(c) / 2.0, w.operands);
  if (t.groups > 1) w.products = std::max(w.products, instructions * kLeast);
  // Of one narrow block of sums, by turns, each instruction waits for the one before.
  if (!t.cooperative() && t.m_blocks() * t.n_blocks() * t.groups == 1 && columns(c) <= 32)
    w.products = std::max(w.products, instructions * kAlone);
  if (t.bring == Bring::lines) {
    w.products = line_cycles(t, c, w, instructions);
  } else if (sums_apart(c)) {
    // Another consumer's products fill some of the pause.
    w.products *= kApart;
    w.products += w.blocks * w.taps / taps_together(c) * (t.cooperative() ? kPause / 2 : kPause);
  }
  return w;
}

// Where fewer than four pixels of NCHW lie together, as many more loads and stores.
double apart(const KernelConfig& c) { return c.nchw ? 0.5 + 2.0 / std::min(4, c.pixels_a_store) : 1; }

double epilogue_cycles(const Tiling& t, const KernelConfig& c) {
  const bool runs = t.bring == Bring::planes || t.bring == Bring::lines;
  const double rows = c.nchw && !runs ? kRows : 1;
  const bool whole = runs || t.stores == Stores::direct;
  const double singly = !whole && c.element == Element::f32 ? kSingly : 1;
  const double zeros = t.apart > 1 ? kStoreApart : 1;
  const double sums = c.stats ? t.channels * t.pixels() * kChannelSum / t.sharers() : 0;
  return kEpilogue + sums +
         t.channels * t.pixels() * c.element_bytes() / 2 * kStore / t.sharers() * rows * singly * zeros;
}

// Of a split sum, and of its load that nothing hides.
double split_cycles(const Tiling& t, const KernelConfig& c) {
  return kSplit + t.channels * t.pixels() * 4 * kAdd * apart(c) + (t.flat() ? 0 : kLoadFirst);
}

double operations_of(const Problem& p) {
  return 2.0 * static_cast<double>(p.n * p.p() * p.q() * p.k) *
         static_cast<double>(p.c / p.groups * p.r * p.s);
}

// What costs otherwise in tiles of flat pixels.
struct Rates {
  double port = 1;
  double cool = kCool, l2 = kL2, pixel_row = kBoxRow, weight_row = kBoxRow, load_more = kLoadMore;
  double bandwidth = kBandwidth, end = 0;
  bool flat = false;
};
Rates rates_of(const Tiling& t, const KernelConfig& c, const Problem& p) {
  Rates r;
  const bool one_tap = t.bring == Bring::patch && p.r * p.s == 1;
  const double operations = operations_of(p);
  if (t.bring == Bring::im2col) r.pixel_row = kGatherRow;
  r.flat = (t.bring == Bring::im2col || one_tap) && !c.nchw && c.element_bytes() == 2 &&
           row_bytes(c) == 128 && t.split == 1 && t.groups == 1 && !is_volume(p) && !brings_residual(t, p) &&
           operations >= flat::kLeast && operations <= flat::kMost;
  if (t.bring == Bring::im2col && c.element == Element::f32 && c.parts == 1 && row_bytes(c) == 128 &&
      t.split == 1 && t.groups == 1 && operations <= flat::kMostTf32) {
    r.cool = flat::kCoolTf32, r.port = flat::kPortTf32;
  }
  if (!r.flat) return r;
  r.cool = flat::kCool, r.l2 = flat::kL2, r.pixel_row = flat::kPixelRow, r.weight_row = flat::kWeightRow;
  r.load_more = flat::kLoadMore, r.bandwidth = flat::kBandwidth;
  r.end = t.cooperative() ? flat::kEndTogether : flat::kEndInTurn;
  return r;
}

// What is stored in parts of a sector counts as more bytes; pixels that strides skip are not read.
double bytes_ms(const Tiling& t, const KernelConfig& c, const Problem& p, const Rates& rates,
                const Chip& chip) {
  const int element = c.element_bytes();
  const auto results = static_cast<double>(output_planes(p) * p.k * p.y_h() * p.y_w());
  double bytes = min_bytes(p);
  if (rates.flat) {
    const double read = std::min(1.0, static_cast<double>(p.r) / static_cast<double>(p.stride_h)) *
                        std::min(1.0, static_cast<double>(p.s) / static_cast<double>(p.stride_w));
    bytes -= (1 - read) * static_cast<double>(bytes_of(p, x_shape(p)));
  }
  double ms = bytes / rates.bandwidth;
  if (c.nchw && !t.flat() && t.width * element < 32 && !whole_images(t, p))
    ms += results * element / kPartial;
  const bool rows = t.bring == Bring::turned || t.bring == Bring::lines;
  if (rows && p.y_w() * element % 32 != 0 && !whole_images(t, p)) ms += results * 64 / t.width / kSector;
  return ms / chip.memory;
}

// Of what goes through registers the weights that stay, for which every block waits once.
double kept_cycles(const KernelConfig& c) {
  if (!c.through_registers()) return 0;
  return static_cast<double>(c.kept_weights * stage_stride(c)) / kL2;
}

// Of 32 bits, of all that is counted, the share that it takes.
double of_32_bits(const Tiling& t, const KernelConfig& c, const Problem& p) {
  const bool gathered = t.bring == Bring::im2col, turned = t.bring == Bring::turned;
  if (c.parts == 1) {
    if (gathered && !t.cooperative()) return parts::kGatheredInTurn;
    return turned && t.split > 1 && t.row_slots > 0 ? parts::kTurnedSplit : 1;
  }
  const bool one_tap = p.r * p.s == 1;
  if (gathered) {
    if (t.pixel_slots <= 2 && (t.split > 1 || !t.cooperative())) return parts::kTwoBuffers;
    return one_tap && t.split == 1 ? 1 : parts::kGathered;
  }
  // In launches that keep the chip's clock, rows of 128 bytes.
  if (one_tap || operations_of(p) > flat::kMost || row_bytes(c) < 128) return 1;
  if (turned) return t.cooperative() ? parts::kTurned : 1;
  return t.bring == Bring::patch && t.stores != Stores::direct && t.split == 1 ? parts::kPatch : 1;
}

// Multiprocessors with a block; where weights stay as many for each tile's channels.
double at_work(const Tiling& t, const Problem& p, const Chip& chip) {
  const auto k_tiles = static_cast<int>(ceil_div(p.k, t.channels)), units = chip.multiprocessors;
  return keeps_channels(t, p) && k_tiles <= units ? units / k_tiles * k_tiles : units;
}

}  // namespace

// A tile takes the longest of its products, its loads, what shared memory moves and what warps make ready;
// with two consumers in turn a tile's epilogue hides behind the next one's products.
Estimate estimate(const Tiling& t, const Problem& p, const Chip& chip) {
  if (t.bring == Bring::shift) return shift::estimate(t, p, chip);
  const KernelConfig c = kernel_config(t, p);
  const Traffic w = traffic_of(t, c, p);
  const double count = static_cast<double>(blocks(t, p)), multiprocessors = at_work(t, p, chip);
  const double few = std::clamp(count / multiprocessors, kFewBlocks, 1.0);
  const Rates rates = rates_of(t, c, p);
  const double load =
      few * std::max(w.loaded / rates.l2, w.pixel_rows * rates.pixel_row + w.weight_rows * rates.weight_row);
  const double preparation = bringer(t.bring).preparation(t, p, w);
  double tile = std::max({w.products, load, preparation, rates.port * (w.operands + w.loaded / kShared)});
  // A buffer is filled again once its products are through; those of turned patches are warps' own.
  if (t.bring != Bring::turned)
    tile = std::max(
        tile, (w.fills * (kLoadFirst + rates.load_more * few) + w.products + (c.affine ? preparation : 0)) /
                  t.pixel_slots);
  if (!t.resident() && c.element_bytes() == 2) tile *= kStreamed;
  // Of narrow rows a stage of weights holds few products, and each waits for its barriers.
  if (!t.resident() && (t.bring == Bring::patch || t.bring == Bring::im2col) && w.row < 128)
    tile = std::max(tile, w.blocks * w.taps * w.row * (t.flat() ? kNarrowGathered : kNarrowStage));
  const double epilogue = epilogue_cycles(t, c);
  // Asked for when a tile begins, a residual is there no sooner; with two areas it was asked for a tile
  // before.
  const double begun = brings_residual(t, p) && t.result_areas == 1 ? std::max(tile, few * kResidual) : tile;
  const bool staged = t.bring == Bring::planes && c.element != Element::f32;
  const int drained = staged ? std::max(0, kEnoughPlanes - t.pixel_slots) : 0;
  const double waves = std::ceil(count / multiprocessors);
  const double tiles = t.split > 1 ? waves * (tile + split_cycles(t, c))
                       : t.cooperative()
                           ? waves * (begun + (kExposed + kDrained * drained) * epilogue)
                           : waves * std::max(tile, (epilogue + w.products + begun - tile) / 2) + epilogue;
  const double cycles = tiles + rates.end * epilogue;
  const double busy = std::min(1.0, waves * w.products * std::min(1.0, count / multiprocessors) / cycles);
  // Nothing hides it.
  const double first = (reads_input(t, p) ? preparation / w.blocks
                        : c.affine        ? preparation / w.fills
                                          : 0) +
                       kept_cycles(c);
  const double arithmetic =
      (cycles + kLatency + first) / (kClock * chip.pace * (1 + rates.cool * (1 - busy)));
  const double bytes = bytes_ms(t, c, p, rates, chip);
  Estimate e;
  const double across = t.pixels_on_m() && brings_residual(t, p) ? kAcross : 1;
  e.ms = overlapped_ms(arithmetic, bytes, kOverlap) * across + (turns_input(t, p) ? turning_ms(p, chip) : 0) +
         (c.stats ? kSumChannels : 0);
  if (staged && t.channels == 256 && t.pixels() == 128) e.ms *= kTallOfPlanes;
  if (c.nchw && tf32_parts(p) == 1 && w.taps == 1 && t.bring != Bring::planes) e.ms *= kOneOfPlanes;
  // No block has another tile, and all buffers fill at once.
  if (t.bring == Bring::im2col && !t.cooperative() && !t.resident() && t.split == 1 && w.taps == 1 &&
      waves <= 1 && !c.nchw && c.element_bytes() == 2 && w.row == 128 && operations_of(p) < flat::kLeast)
    e.ms *= kFewFlat;
  if (c.element == Element::f32) e.ms *= of_32_bits(t, c, p);
  e.bound = bytes > arithmetic                          ? Bound::bytes
            : waves <= 1 && 2 * count < multiprocessors ? Bound::latency
                                                        : Bound::arithmetic;
  return e;
}

double overlapped_ms(double arithmetic, double bytes, double lost) {
  return std::max(arithmetic, bytes) + lost * std::min(arithmetic, bytes) + kLaunch;
}

double splitting(const Tiling& t, const Problem& p, const Traffic& w) {
  if (reads_affine(p)) return w.pixel_rows * w.row / (kScaled * prepare_warps(kernel_config(t, p)));
  return w.parts == 2 ? w.pixel_rows * w.row / kPrepare : 0;
}

double cache_bytes(int shared_bytes) {
  int shared = kMostShared;
  for (const int step : kSharedSteps) shared = shared_bytes <= step ? step + 1024 : shared;
  return kCacheAndShared - shared;
}

double room(const Tiling& t) { return t.sums() <= 64 ? 72 : t.sums() <= 104 ? 48 : 32; }

double cache_lines(double rows, double row, double to_next) {
  using reading::kLine;
  return std::min(rows * (row + kLine - 2), rows * to_next + kLine - 2) / kLine;
}

double turning_ms(const Problem& p, const Chip& chip) {
  const int element = size_of(p.dtype);
  const double images = static_cast<double>(p.n * p.d * p.h * p.w * element);
  const double bytes = images * static_cast<double>(p.c + padded_channels(p));
  const double ms = bytes / (fitted::steps::kTurn * chip.memory) + 2 * kLaunch;
  return ms + (padded_channels(p) * element <= 32 ? fitted::steps::kFewChannels : 0);
}

double gather_step_ms(double bytes, const Chip& chip) {
  return fitted::steps::kGatherLaunch + bytes / (fitted::steps::kGather * chip.memory);
}
double few_lines_ms(double bytes, double lines, const Chip& chip) {
  return std::max(
      0.0, bytes / (lines * fitted::steps::kGatherLine) - bytes / (fitted::steps::kGather * chip.memory));
}
double skipped_ms(double bytes, const Chip& chip) { return bytes / (fitted::steps::kSkip * chip.memory); }
double packing_ms(double bytes, const Chip& chip) {
  return bytes == 0 ? 0 : 2 * kLaunch + 2 * bytes / (fitted::steps::kTurn * chip.memory);
}
double zeros_ms(double bytes, const Chip& chip) { return bytes / (fitted::steps::kBetween * chip.memory); }
double spread_ms(double bytes, const Chip& chip) {
  return fitted::steps::kGatherLaunch + bytes / (fitted::steps::kSpread * chip.memory);
}

}  // namespace faltung::sm90
