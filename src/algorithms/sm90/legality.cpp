// Which tilings can compute a problem: the chip's limits, then whom a way of bringing pixels, of storing
// results and of splitting sums serves. The first limit that is broken is said.
#include "kernels/sm90/params.h"
#include "src/algorithms/sm90/bring.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90 {
namespace {

using std::string;
using i64 = std::int64_t;

// Numbers that a name may have, but no tile: nothing below divides by zero or overflows.
string unfit_numbers(const Tiling& t) {
  if (t.channels > 256) return "more than 256 channels a tile";
  if (t.width > 512 || t.height > 512) return "a tile is at most 512 pixels wide or high";
  if (t.groups > 8 || t.channels % t.groups != 0 || t.k_block % t.groups != 0)
    return "a tile has up to 8 groups, of as many channels each";
  if (t.phases > kMostPhases) return "more than " + std::to_string(kMostPhases) + " phases";
  if (t.pixel_slots > 64 || t.weight_slots > 64 || t.row_slots > 64) return "more than 64 buffers";
  const bool window = !t.flat() && t.bring != Bring::shift;
  if (window && t.width % 8 != 0) return "a patch is a multiple of 8 pixels wide";
  return "";
}

// The matrix units' operands, and the sums that a thread has room for.
string unfit_products(const Tiling& t, const Problem& p) {
  const int n = t.n(), row = t.k_block * size_of(p.dtype);
  if (row != 32 && row != 64 && row != 128) return "channels are taken by 32, 64 or 128 bytes";
  if (t.m_blocks() < 1 || t.m() % (64 * t.sharers()) != 0) return "its M side is no multiple of 64";
  if (n % 8 != 0 || n < 8 || n > 256) return "its N side is no multiple of 8 up to 256";
  // With cooperating consumers of 16-bit elements the rest fits in the registers that the sums leave.
  const bool many = t.store_slots > 0 || (t.bring == Bring::planes && !planes::in_registers(p) &&
                                          t.pixels_on_m() && !t.cooperative());
  if (t.sums() > (many ? 160 : 128)) return "its sums need too many registers a thread";
  if (const Activation a = p.epilogue.activation;
      t.sums() > 128 && (a == Activation::gelu || a == Activation::prelu))
    return string(name(a)) + " and so many sums need too many registers";
  // Stored a value at a time, they have a bias and a slope of each of their channels in registers, too.
  const bool each_channels = t.pixels_on_m() && p.dtype == DType::f32 && p.layout == Layout::nhwc;
  if (has_slopes(p) && each_channels && t.sums() >= 128)
    return "prelu's slopes and so many sums need too many registers";
  if (p.layout == Layout::nchw && t.pixels_on_m() && t.bring != Bring::planes && t.bring != Bring::lines)
    return "NCHW output needs the weights on M, but for planes and lines";
  if (t.bring != Bring::turned && t.row_slots > 0)
    return "turned patches alone come through buffers of their own";
  return "";
}

// A tile is of one group or of whole ones, and no block of channels reaches into another's.
string unfit_groups(const Tiling& t, const Problem& p) {
  if (t.groups > 1 && (!t.pixels_on_m() || t.bring == Bring::planes || t.bring == Bring::lines))
    return "several groups a tile need the pixels on M, no planes";
  if (p.groups == 1) return t.groups == 1 ? "" : "there are no groups of which a tile has several";
  const i64 c = group_channels(p), k = group_results(p), element = size_of(p.dtype);
  if (p.c != padded_channels(p) || c * element % 16 != 0)
    return "the copy engine takes groups of a multiple of 16 bytes of channels";
  if (t.bring == Bring::fetch) return "fetched planes have no groups";
  if (t.groups == 1) {
    if (k % t.channels != 0) return "a tile's channels are of one group, which has " + std::to_string(k);
    if (c % t.k_block != 0) return "channels are taken of one group, which has " + std::to_string(c);
    return "";
  }
  if (t.channels != k * t.groups || t.k_block != c * t.groups)
    return "a tile has whole groups, of " + std::to_string(c) + " and " + std::to_string(k) + " channels";
  if (c * element % 32 != 0) return "products are of 32 bytes of a group's channels";
  if (tf32_parts(p) == 2) return "groups side by side are not multiplied in parts";
  return "";
}

string unfit_stores(const Tiling& t, const Problem& p, const KernelConfig& c) {
  const bool plain = plain_stores(p), f32 = p.dtype == DType::f32, nchw = p.layout == Layout::nchw;
  const bool window = !t.flat() && !t.pixels_on_m();
  if (f32 && t.pixels_on_m() && !nchw && !plain && t.channels % 32 != 0)
    return "32-bit channels are stored by 32";
  if (plain && !t.pixels_on_m()) return "a K that is no multiple of 16 bytes needs the pixels on M";
  if (p.epilogue.pool.kind != PoolKind::none) {
    if (!window || plain) return "pooling needs halo patches with weights on M";
    if (pool_window(p) == 2 && t.height % 4 != 0) return "pooling needs a multiple of 4 rows";
    if (pool_window(p) == 3 && (t.height % 2 != 1 || t.height < 3))
      return "windows of 3 need an odd number of rows";
    if (pool_window(p) == 3 && f32) return "windows of 3 are pooled in 16 bits";
  }
  if (t.stores == Stores::direct) {
    if (nchw || !f32 || plain) return "direct stores are of 32-bit NHWC, K a multiple of 4";
    if (!window || t.bring == Bring::turned || p.epilogue.pool.kind != PoolKind::none || t.split > 1)
      return "direct stores are of halo patches with weights on M, neither pooled nor split";
  }
  if (t.store_slots > 0) {
    const bool gathered = t.flat() && t.pixels_on_m() && t.cooperative();
    if (!gathered || f32 || nchw || plain || t.split > 1 || p.epilogue.residual)
      return "stores in turn are of gathered 16-bit NHWC, pixels on M, no residual";
    const int unit = unit_channels(c);
    if (unit < 16 || t.store_slots >= t.n() / unit) return "a tile has not so many stores";
  }
  if (t.result_areas > 1 && (t.result_areas > 2 || !brings_residual(t, p)))
    return "two areas for results are of a residual that the copy engine brings";
  return "";
}

// Slices of tensors lie in NHWC, as the copy engine takes them.
string unfit_pitch(const Tiling& t, const Problem& p, const KernelConfig&) {
  if (!has_pitch(p)) return "";
  const i64 element = size_of(p.dtype);
  if (p.layout == Layout::nchw) return "slices of tensors are of NHWC";
  if (p.x_pitch == 0) return "";
  if (t.bring != Bring::patch && t.bring != Bring::im2col)
    return "a slice of x is brought by the copy engine";
  if (p.c != padded_channels(p) || p.x_pitch * element % 16 != 0)
    return "a slice of x and what it lies in are a multiple of 16 bytes of channels";
  return "";
}

string unfit_apart(const Tiling& t, const Problem&, const KernelConfig& c) {
  if (!sums_apart(c)) return "";
  if (columns(c) % 8 != 0) return "its N side has no halves of a multiple of 8";
  // What warps that prepare leave.
  const bool read = t.bring == Bring::turned && t.row_slots == 0;
  return t.sums() > 96 || sum_registers(c) > (read ? 128 : 192) ? "its sums need too many registers a thread"
                                                                : "";
}

string unfit_filter(const Tiling& t, const Problem& p, const KernelConfig&) {
  if (!t.filter_as_it_is()) return "";
  if (p.dtype == DType::f32) return "the matrix units take 32-bit channels side by side only";
  if (t.channels % 64 != 0) return "the filter as it is comes by 64 channels";
  return "";
}

string unfit_phases(const Tiling& t, const Problem& p, const KernelConfig&) {
  if (!t.phased()) return "";
  if (t.bring != Bring::patch || t.resident() || t.split > 1)
    return "strides of backward_data need halo patches and streamed weights, no split sum";
  if (p.layout == Layout::nchw || !stores_by_map(t, p))
    return "pixels of strides are stored by the copy engine";
  if (p.epilogue.residual || p.epilogue.pool.kind != PoolKind::none)
    return "results of strides take neither a residual nor a pool";
  return "";
}

string unfit_apart_in_output(const Tiling& t, const Problem& p, const KernelConfig& c) {
  if (t.apart == 1) return "";
  const bool whole = (c.way == Way::planes && p.q() % 4 == 0) || (c.way == Way::images && t.flat());
  if (t.apart != 2 || p.dtype == DType::f32 || p.layout != Layout::nchw || p.groups > 1 || !whole)
    return "every second pixel is stored of 16-bit planes, or of whole images of gathered tiles";
  return "";
}

string unfit_split(const Tiling& t, const Problem& p, const KernelConfig& c) {
  if (t.split == 1) return "";
  if (!t.cooperative() || t.resident() || t.bring == Bring::planes)
    return "a split sum needs cooperating consumers and streamed weights, no planes";
  if (t.split != 2 && t.split != 4 && t.split != 8) return "a sum is split in 2, 4 or 8";
  if (channel_blocks(t, p) < t.split) return "too few channels to split their sum";
  if (p.epilogue.pool.kind != PoolKind::none) return "split sums are not pooled";
  if (split_bytes(c) > operand_bytes(c)) return "too few buffers for the sums to take their place";
  return "";
}

string unfit_slots(const Tiling& t, const Problem& p, const KernelConfig&) {
  // A buffer is freed only once the products after its own are under way.
  const bool one_slot_does = !t.flat() && sum_blocks(t, p) <= t.split;
  if (t.pixel_slots < (one_slot_does ? 1 : 2) || (!t.resident() && t.weight_slots < 2))
    return "too few buffers";
  if (t.resident() && t.bring != Bring::lines && p.r * p.s * sum_blocks(t, p) > 64)
    return "too many weights to keep";
  return "";
}

string unfit_volume(const Tiling& t, const Problem& p) {
  if (!is_volume(p)) return "";
  if (t.bring != Bring::patch && t.bring != Bring::im2col && t.bring != Bring::shift)
    return "volumes come as patches or windows of their planes, or are gathered by the copy engine";
  return "";
}

string unfit_memory(const Tiling&, const Problem&, const KernelConfig& c) {
  const long long bytes = shared_bytes(c);
  if (bytes <= kSharedLimit) return "";
  return "it needs " + std::to_string(bytes) + " bytes of shared memory, a block has " +
         std::to_string(kSharedLimit);
}

}  // namespace

string unfit_shape(const Tiling& t, const Problem& p) {
  string why = unfit_numbers(t);
  if (why.empty()) why = unfit_volume(t, p);
  if (t.bring == Bring::shift) {
    if (why.empty() && (t.filter_as_it_is() || t.phased()))
      why = "shifted sums take packed weights, stride 1";
    if (why.empty()) why = unfit_groups(t, p);
    return why.empty() ? shift::unfit(t, p) : why;
  }
  if (why.empty()) why = unfit_products(t, p);
  if (why.empty()) why = unfit_groups(t, p);
  if (why.empty()) why = bringer(t.bring).unfit(t, p);
  if (!why.empty()) return why;
  const KernelConfig config = kernel_config(t, p);
  // 512 threads start with 128 registers each, where an instruction's sums must fit with some others.
  if (config.prepares() && !idle_warps_prepare(config) && columns(config) > 200)
    return "warps that prepare pixels leave registers for an N side up to 200";
  for (const auto check :
       {unfit_pitch, unfit_stores, unfit_apart, unfit_filter, unfit_phases, unfit_apart_in_output}) {
    if (why = check(t, p, config); !why.empty()) break;
  }
  return why;
}

string unfit_buffers(const Tiling& t, const Problem& p, const KernelConfig& c) {
  string why;
  if (t.bring != Bring::shift) why = unfit_split(t, p, c);
  if (why.empty() && t.bring != Bring::shift) why = unfit_slots(t, p, c);
  return why.empty() ? unfit_memory(t, p, c) : why;
}

string unfit(const Tiling& t, const Problem& p) {
  const string why = unfit_shape(t, p);
  return why.empty() ? unfit_buffers(t, p, kernel_config(t, p)) : why;
}

const Bringer& bringer(Bring bring) {
  static constexpr Bringer kPatch = {patch::unfit, patch::fill, splitting};
  static constexpr Bringer kIm2col = {im2col::unfit, im2col::fill, im2col::preparation};
  static constexpr Bringer kPlanes = {planes::unfit, planes::fill, planes::preparation};
  static constexpr Bringer kFetch = {fetch::unfit, nullptr, fetch::preparation};
  static constexpr Bringer kTurned = {turned::unfit, turned::fill, turned::preparation};
  static constexpr Bringer kLines = {lines::unfit, lines::fill, lines::preparation};
  static constexpr Bringer kShift = {shift::unfit, nullptr, nullptr};
  switch (bring) {
    case Bring::patch:
      return kPatch;
    case Bring::im2col:
      return kIm2col;
    case Bring::planes:
      return kPlanes;
    case Bring::fetch:
      return kFetch;
    case Bring::turned:
      return kTurned;
    case Bring::lines:
      return kLines;
    case Bring::shift:
      break;
  }
  return kShift;
}

}  // namespace faltung::sm90
