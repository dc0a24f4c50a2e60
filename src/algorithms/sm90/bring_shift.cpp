// NCHW as it is, by windows of a strip of rows, and a set of sums for each horizontal tap, which the epilogue
// shifts as it adds them (kernels/sm90/shift_gemm.cu).
#include <algorithm>
#include <cmath>

#include "src/algorithms/sm90/bring.hpp"
#include "src/algorithms/sm90/fitted.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90::shift {
namespace {

using i64 = std::int64_t;

i64 reach_right(const Problem& p) { return (p.s - 1) * p.dilation_w - p.pad_left; }

std::string unfit_problem(const Problem& p) {
  if (p.layout != Layout::nchw) return "shifted sums serve NCHW";
  if (p.dtype == DType::f32) return "the matrix units take 32-bit channels side by side only";
  if (strides(p)) return "shifted sums serve stride 1";
  if (p.w % 8 != 0) return "the copy engine takes rows of a multiple of 8 pixels, not " + std::to_string(p.w);
  if (p.pad_left > 2 || reach_right(p) > 2 || p.s > 5)
    return "sums are shifted by two columns at most to either side";
  if (pool_window(p) == 3) return "a window's rows are pooled by twos";
  return "";
}

}  // namespace

i64 windows(const Tiling& t, const Problem& p) { return ceil_div(std::max(p.q(), p.w), t.width); }

bool stores_in_bulk(const Problem& p) { return p.epilogue.pool.kind == PoolKind::none && p.q() % 8 == 0; }

std::string unfit(const Tiling& t, const Problem& p) {
  if (const std::string why = unfit_problem(p); !why.empty()) return why;
  if (t.channels != 64 || t.pixels_on_m()) return "shifted sums have 64 channels on M";
  if (t.width != 16 && t.width != 32 && t.width != 64) return "a window is 16, 32 or 64 pixels wide";
  if (t.height < 2 || t.height % 2 != 0) return "two consumers share a window's rows";
  if (t.n() > 256) return "its N side is more than 256";
  if (p.s * t.n() / 2 > 192) return "the sums of its horizontal taps need more than 192 registers a thread";
  if (t.k_block != 16 && t.k_block != 32 && t.k_block != 64) return "channels are taken by 16, 32 or 64";
  if (t.height + (p.r - 1) * p.dilation_h > 256) return "a window is at most 256 rows high";
  if (p.epilogue.pool.kind != PoolKind::none && t.height % 4 != 0)
    return "pooling needs a multiple of 4 rows";
  if (!t.cooperative() && (!t.resident() || sum_blocks(t, p) > 1))
    return "consumers that take turns need resident weights and all channels in one block";
  if (t.pixel_slots < 2 || (!t.resident() && t.weight_slots < 4)) return "too few buffers";
  if (t.resident() && p.r * p.s * sum_blocks(t, p) > 25) return "too many weights to keep";
  if (t.split > 1 || t.row_slots > 0 || t.store_slots > 0 || t.result_areas > 1 || t.stores == Stores::direct)
    return "shifted sums are neither split nor stored another way";
  return "";
}

void list(Lister& lister) {
  const Problem& p = lister.problem();
  if (!unfit_problem(p).empty()) return;
  Tiling t;
  t.bring = Bring::shift;
  t.k_block = best_k_block(group_channels(p), 64);
  const auto fits = [&] { return sm90::unfit(t, p).empty(); };
  for (const int width : {64, 32, 16}) {
    if (width > 16 && width >= 2 * p.w) continue;
    if (width == 16 && p.w > 48) continue;
    t.width = width;
    const int most = static_cast<int>(std::min<i64>(256, 384 / p.s)) / width;  // rows of a consumer
    for (int rows = most; rows >= std::max(1, most - most / 2); --rows) {
      t.height = rows * kConsumers;
      t.schedule = Schedule::ping_pong, t.weights_in = WeightsIn::resident;
      t.weight_slots = 0;
      for (t.pixel_slots = 3; t.pixel_slots >= 2 && !fits();) --t.pixel_slots;
      if (t.pixel_slots >= 2 && ceil_div(p.k, t.channels) <= 16) lister.keep(t);
      t.schedule = Schedule::cooperative, t.weights_in = WeightsIn::ring;
      t.pixel_slots = 2;
      for (t.weight_slots = 12; t.weight_slots >= 4 && !fits();) --t.weight_slots;
      if (t.weight_slots >= 4) lister.keep(t);
    }
  }
}

// As the other tilings' estimate; a strip is its windows one after the other.
Estimate estimate(const Tiling& t, const Problem& p, const Chip& chip) {
  using namespace fitted::shifting;
  const KernelConfig c = kernel_config(t, p);
  const double blocks = static_cast<double>(channel_blocks(t, p)) * depths_met(t, p),
               taps = static_cast<double>(p.r * p.s);
  const double products = blocks * taps * t.k_block / 16 * kConsumers *
                          std::max(t.n() / 2.0, t.n() / 4.0 + fitted::kFirstOperand) *
                          (t.resident() ? 1 : kStreamed);
  const double slot_rows = static_cast<double>(slot_bytes(c)) / (t.width * 2);
  const double stage_rows = t.resident() ? 0 : taps * t.channels;
  const bool bulk = stores_in_bulk(p), reads_residual = p.epilogue.residual && !bulk;
  const double residual_rows = p.epilogue.residual && bulk ? t.height * t.channels : 0;
  const double load = (blocks * slot_rows + residual_rows) * (kRowCycles + t.width * 2 / kL2) +
                      blocks * stage_rows * t.k_block * 2 / kL2;
  const double epilogue = kWindow + kRow * t.height / kConsumers +
                          (bulk ? 0 : kSingly * t.channels * t.n() / (shrink(c) * shrink(c))) +
                          (reads_residual ? kResidual * t.channels * t.n() : 0);
  const double tile = std::max(products, load);
  const double window =
      t.cooperative() ? tile + kExposed * epilogue : std::max(tile, epilogue + products / kConsumers);
  const double waves = std::ceil(static_cast<double>(tiles(t, p)) / chip.multiprocessors);
  const double cycles = waves * static_cast<double>(windows(t, p)) * window + epilogue;
  const double arithmetic = (cycles + fitted::kLatency) / (kClock * chip.pace),
               bytes = min_bytes(p) / (kBandwidth * chip.memory);
  Estimate e;
  e.ms = overlapped_ms(arithmetic, bytes, kOverlap);
  e.bound = bytes > arithmetic ? Bound::bytes : Bound::arithmetic;
  return e;
}

}  // namespace faltung::sm90::shift
