// Tilings of NCHW as it is: windows of a strip of rows, and sums for each horizontal tap
// (kernels/sm90/shift_gemm.cu).
#include <algorithm>
#include <cmath>

#include "src/algorithms/implicit_gemm_sm90.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90::shift {
namespace {

using i64 = std::int64_t;

constexpr int kConsumers = 2, kLag = 16;  // as in the kernel

int window_bytes(const Tiling& t, const Problem& p) {
  return static_cast<int>(t.height + (p.r - 1) * p.dilation_h) * t.k_block * t.width * 2;
}
int stage_bytes(const Tiling& t) { return t.channels * t.k_block * 2; }
int shrink(const Problem& p) { return p.epilogue.pool.kind == PoolKind::none ? 1 : 2; }
i64 channel_blocks(const Tiling& t, const Problem& p) { return ceil_div(padded_channels(p), t.k_block); }
i64 reach_right(const Problem& p) { return (p.s - 1) * p.dilation_w - p.pad_left; }

}  // namespace

i64 windows(const Tiling& t, const Problem& p) { return ceil_div(std::max(p.q(), p.w), t.width); }

bool stores_in_bulk(const Problem& p) { return p.epilogue.pool.kind == PoolKind::none && p.q() % 8 == 0; }

int shared_bytes(const Tiling& t, const Problem& p) {
  const int rows = t.height / kConsumers;
  const int stages = t.resident ? static_cast<int>(p.r * p.s * channel_blocks(t, p)) : t.stages;
  const bool walks = windows(t, p) > 1;
  const int lag = walks ? kLag : 0, pitch = ((t.width + lag) * 2 / shrink(p) / 16 | 1) * 16;
  const bool brings = stores_in_bulk(p) && p.epilogue.residual;
  const int staging = stores_in_bulk(p) ? rows * t.channels * (t.width + lag * (brings ? 2 : 1)) * 2
                                        : rows / shrink(p) * t.channels * pitch;
  const i64 carried = std::max<i64>(1, p.s - p.pad_left / p.dilation_w);
  const int carry = walks ? rows * 2 * static_cast<int>(carried) * 32 * 8 : 0;
  return t.slots * round_up(window_bytes(t, p), 1024) + stages * round_up(stage_bytes(t), 1024) +
         kConsumers * (round_up(staging, 1024) + carry + (brings ? 8 : 0)) + 16 * (t.slots + stages) + 1024;
}

std::string unfit(const Tiling& t, const Problem& p) {
  if (p.layout != Layout::nchw) return "shifted sums serve NCHW";
  if (p.dtype == DType::f32) return "the matrix units take 32-bit channels side by side only";
  if (p.stride_h != 1 || p.stride_w != 1) return "shifted sums serve stride 1";
  if (p.w % 8 != 0) return "the copy engine takes rows of a multiple of 8 pixels, not " + std::to_string(p.w);
  if (p.pad_left > 2 || reach_right(p) > 2 || p.s > 5)
    return "sums are shifted by two columns at most to either side";
  if (t.channels != 64 || t.pixels_on_m) return "shifted sums have 64 channels on M";
  if (t.width != 16 && t.width != 32 && t.width != 64) return "a window is 16, 32 or 64 pixels wide";
  if (t.height < 2 || t.height % 2 != 0) return "two consumers share a window's rows";
  if (t.n() > 256) return "its N side is more than 256";
  if (p.s * t.n() / 2 > 192) return "the sums of its horizontal taps need more than 192 registers a thread";
  if (t.k_block != 16 && t.k_block != 32 && t.k_block != 64) return "channels are taken by 16, 32 or 64";
  if (t.height + (p.r - 1) * p.dilation_h > 256) return "a window is at most 256 rows high";
  if (pool_window(p) == 3) return "a window's rows are pooled by twos";
  if (p.epilogue.pool.kind != PoolKind::none && t.height % 4 != 0)
    return "pooling needs a multiple of 4 rows";
  if (!t.cooperative && (!t.resident || channel_blocks(t, p) > 1))
    return "consumers that take turns need resident weights and all channels in one block";
  if (t.slots < 2 || (!t.resident && t.stages < 4)) return "too few buffers";
  if (t.resident && p.r * p.s * channel_blocks(t, p) > 25) return "too many weights to keep";
  if (shift::shared_bytes(t, p) > kSharedLimit) {
    return "it needs " + std::to_string(shift::shared_bytes(t, p)) + " bytes of shared memory, a block has " +
           std::to_string(kSharedLimit);
  }
  return "";
}

std::vector<Tiling> tilings(const Problem& p) {
  std::vector<Tiling> all;
  Tiling t;
  t.shift = true;
  t.k_block = best_k_block(padded_channels(p), 64);
  for (const int width : {64, 32, 16}) {
    if (width > 16 && width >= 2 * p.w) continue;
    if (width == 16 && p.w > 48) continue;
    t.width = width;
    const int most = static_cast<int>(std::min<i64>(256, 384 / p.s)) / width;  // rows of a consumer
    for (int rows = most; rows >= std::max(1, most - most / 2); --rows) {
      t.height = rows * kConsumers;
      t.cooperative = false;
      t.resident = true;
      t.stages = 0;
      for (t.slots = 3; t.slots >= 2 && !shift::unfit(t, p).empty();) --t.slots;
      if (t.slots >= 2 && ceil_div(p.k, t.channels) <= 16) all.push_back(t);
      t.cooperative = true;
      t.resident = false;
      t.slots = 2;
      for (t.stages = 12; t.stages >= 4 && !shift::unfit(t, p).empty();) --t.stages;
      if (t.stages >= 4) all.push_back(t);
    }
  }
  return all;
}

// As the other tilings' estimate; a strip is its windows one after the other. The constants are fitted to 190
// kernels timed on an H200 (docs/performance/h200.md).
Estimate estimate(const Tiling& t, const Problem& p, int multiprocessors) {
  constexpr double kClock = 1.65e6,
                   kFirstOperand = 16;           // cycles a millisecond; to read an instruction's 64 rows
  constexpr double kStreamed = 1.13;             // products with weights that are streamed, by so much slower
  constexpr double kL2 = 47, kRowCycles = 1.54;  // bytes a cycle; cycles a row of a box
  constexpr double kWindow = 1220, kRow = 309;   // cycles of an epilogue: a window, a consumer's row of it
  constexpr double kSingly = 0.18;               // cycles a result that the copy engine does not store
  constexpr double kResidual = 1.35;  // cycles an element of it that the copy engine does not bring
  constexpr double kExposed = 0.67;   // of the epilogue where weights are streamed
  constexpr double kLatency = 1500;   // cycles, once
  constexpr double kBandwidth = 3.05e9,
                   kOverlap = 0.45;  // bytes a ms; what is lost of the shorter of the two
  constexpr double kLaunch = 0.0008;
  const double blocks = static_cast<double>(channel_blocks(t, p)), taps = static_cast<double>(p.r * p.s);
  const double products = blocks * taps * t.k_block / 16 * kConsumers *
                          std::max(t.n() / 2.0, t.n() / 4.0 + kFirstOperand) * (t.resident ? 1 : kStreamed);
  const double slot_rows = static_cast<double>(window_bytes(t, p)) / (t.width * 2);
  const double stage_rows = t.resident ? 0 : taps * t.channels;
  const bool bulk = stores_in_bulk(p), reads_residual = p.epilogue.residual && !bulk;
  const double residual_rows = p.epilogue.residual && bulk ? t.height * t.channels : 0;
  const double load = (blocks * slot_rows + residual_rows) * (kRowCycles + t.width * 2 / kL2) +
                      blocks * stage_rows * t.k_block * 2 / kL2;
  const double epilogue = kWindow + kRow * t.height / kConsumers +
                          (bulk ? 0 : kSingly * t.channels * t.n() / (shrink(p) * shrink(p))) +
                          (reads_residual ? kResidual * t.channels * t.n() : 0);
  const double tile = std::max(products, load);
  const double window =
      t.cooperative ? tile + kExposed * epilogue : std::max(tile, epilogue + products / kConsumers);
  const double waves = std::ceil(static_cast<double>(tiles(t, p)) / multiprocessors);
  const double cycles = waves * static_cast<double>(windows(t, p)) * window + epilogue;
  const double arithmetic = (cycles + kLatency) / kClock, bytes = min_bytes(p) / kBandwidth;
  Estimate e;
  e.ms = std::max(arithmetic, bytes) + kOverlap * std::min(arithmetic, bytes) + kLaunch;
  e.bound_by = bytes > arithmetic ? "bytes" : "arithmetic";
  return e;
}

}  // namespace faltung::sm90::shift
