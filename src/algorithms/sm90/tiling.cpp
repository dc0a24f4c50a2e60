// A tiling's name, and what it comes to for a problem.
#include "src/algorithms/sm90/tiling.hpp"

#include <algorithm>
#include <limits>

#include "src/algorithms/sm90/bring.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90 {
namespace {

using i64 = std::int64_t;

// What does not fit an argument is refused elsewhere; here it must only stay large.
int saturated(i64 value) { return static_cast<int>(std::min<i64>(value, std::numeric_limits<int>::max())); }

i64 image(const Problem& p) { return p.z() * p.p() * p.q(); }

// An image a tile, of which the planes of every second channel alone begin at a multiple of 16 bytes. Of
// smaller ones most of what is brought would be weights; and contiguous results meet a residual an element at
// a time.
bool is_alternating(const Tiling& t, const Problem& p) {
  constexpr i64 kFewest = 128;  // pixels
  return t.bring == Bring::fetch && image(p) > kFewest && image(p) % 8 == 4 && !strides(p) &&
         round_up(image(p), 8) == t.pixels() && p.c % t.k_block == 0 && !p.epilogue.residual;
}

Way way(const Tiling& t, const Problem& p) {
  if (t.bring == Bring::shift) return Way::shift;
  if (t.split > 1) return Way::split;
  if (plain_stores(p)) return Way::plain;
  if (p.dtype == DType::f32) {
    if (t.bring == Bring::turned || t.bring == Bring::planes || t.bring == Bring::lines) return Way::pairs;
    return t.stores == Stores::direct ? Way::direct : Way::values;
  }
  if (t.bring == Bring::planes) return Way::planes;
  if (whole_images(t, p)) return Way::images;
  return p.layout == Layout::nchw ? Way::rows : Way::bulk;
}

// NCHW: the most pixels, up to 16 bytes, that lie together and aligned whatever the tile.
int pixels_a_store(const Tiling& t, const Problem& p) {
  int v = 16 / size_of(p.dtype);
  const auto divides = [&](int by) {
    return t.flat() ? image(p) % by == 0 : p.y_w() % by == 0 && pooled_extent(t.width, p) % by == 0;
  };
  while (!divides(v)) v /= 2;
  return v;
}

// Whether a consumer may keep its results in registers until they are stored, beside the sums that they were:
// kernels/sm90/channel_sums.cuh.
bool keeps_results(const KernelConfig& c) {
  const bool way = c.way == Way::bulk || c.way == Way::rows || c.way == Way::planes;
  const bool room = c.tile.sums() <= 128 && (c.affine || !c.prepares());
  return way && room && c.pooling == Pooling::none && !c.tile.phased() && !c.volume;
}

void add_pool(KernelConfig& c, const Pool& pool) {
  if (pool.kind == PoolKind::none) return;
  c.pooling = pool.kind == PoolKind::max ? Pooling::max : Pooling::average;
  c.pool_window = saturated(pool.size_h);
  c.pool_pad = saturated(pool.pad_top);
  c.pool_end_h = saturated(pool.pad_bottom), c.pool_end_w = saturated(pool.pad_right);
}

}  // namespace

std::string to_string(const Tiling& t) { return config_name(t); }

void refuse_tiling(std::string_view name) {
  throw Error(Status::bad_problem, "implicit_gemm_sm90 has no config '" + std::string(name) +
                                       "'; one looks like patch_bt64x8x32_k64_pp_xs2_ws8 or "
                                       "im2col_bt128x256_k64_co_st4");
}

Tiling parse_tiling(std::string_view name) {
  Tiling t;
  if (!parse_config(name, t)) refuse_tiling(name);
  return t;
}

KernelConfig kernel_config(const Tiling& t, const Problem& p) {
  KernelConfig c;
  c.tile = t;
  c.grouped = p.groups > 1;
  c.element = p.dtype == DType::f32 ? Element::f32 : p.dtype == DType::bf16 ? Element::bf16 : Element::f16;
  c.parts = std::max(1, tf32_parts(p));
  c.nchw = p.layout == Layout::nchw;
  c.r = saturated(p.r), c.s = saturated(p.s);
  c.dilation_h = saturated(p.dilation_h), c.dilation_w = saturated(p.dilation_w);
  if (!t.flat()) c.stride_h = saturated(p.stride_h), c.stride_w = saturated(p.stride_w);
  c.volume = is_volume(p);
  c.t = saturated(p.t), c.dilation_d = saturated(p.dilation_d);
  if (t.resident())
    c.kept_weights =
        saturated(p.r * p.s * (t.bring == Bring::lines ? lines::kept_blocks(p) : sum_blocks(t, p)));
  c.bias = p.epilogue.bias, c.residual = p.epilogue.residual;
  c.slopes = has_slopes(p);
  c.relu = activation_of(p.epilogue).kind == Activation::relu;
  c.f32_bias = p.epilogue.bias_element == BiasElement::f32;
  c.residual_after = p.epilogue.residual_order == ResidualOrder::after_activation;
  c.gates = p.training == Training::drelu;
  add_pool(c, p.epilogue.pool);
  c.way = way(t, p);
  c.mapped = t.bring == Bring::shift ? shift::stores_in_bulk(p) : stores_by_map(t, p);
  c.whole_sectors = !plain_stores(p);
  if (c.nchw) c.pixels_a_store = pixels_a_store(t, p);
  if (t.apart > 1) c.pixels_a_store = p.q() % 4 == 0 ? 4 : p.q() % 2 == 0 ? 2 : 1;
  c.even_images = c.way == Way::images && (t.flat() ? image(p) : p.q()) % 2 == 0;
  if (t.bring == Bring::turned || t.bring == Bring::shift || t.bring == Bring::lines)
    c.pad_left = saturated(p.pad_left);
  if (t.bring == Bring::shift) c.walks = shift::windows(t, p) > 1;
  if (t.bring == Bring::fetch) fetch::specialise(c, t, p);
  if (t.bring == Bring::turned) turned::specialise(c, t, p);
  c.affine = reads_affine(p) && (t.bring == Bring::patch || t.bring == Bring::im2col);
  c.affine_relu = c.affine && p.affine == Affine::affine_relu;
  c.affine_pads = c.affine && pads(p);
  c.stats = p.training == Training::stats && keeps_results(c);
  return c;
}

i64 padded_channels(const Problem& p) { return round_up(p.c, 16 / size_of(p.dtype)); }
i64 group_channels(const Problem& p) { return padded_channels(p) / p.groups; }
i64 group_results(const Problem& p) { return p.k / p.groups; }
i64 channel_blocks(const Tiling& t, const Problem& p) {
  return ceil_div(group_channels(p) * t.groups, t.k_block);
}
i64 sum_blocks(const Tiling& t, const Problem& p) { return channel_blocks(t, p) * p.t; }

Depth depth_of(const Problem& p) {
  return {saturated(p.d), saturated(p.z()), saturated(p.pad_front), saturated(p.stride_d)};
}

double depths_met(const Tiling& t, const Problem& p) {
  const Depth depth = depth_of(p);
  const i64 plane = p.p() * p.q();
  const int more = t.flat() ? saturated((t.pixels() - 1 + plane / 2) / plane) : 0;  // planes of a tile
  double met = 0;
  for (int z = 0; z < depth.out; ++z) {
    const Span taps = taps_between(depth, z, z + more, saturated(p.t), saturated(p.dilation_d));
    met += taps.end - taps.first;
  }
  return met / depth.out;
}

int tf32_parts(const Problem& p) { return p.dtype != DType::f32 ? 0 : p.math == Math::f32 ? 2 : 1; }
Factors factors(const Problem& p) {
  const int parts = tf32_parts(p);
  return parts == 0 ? Factors::whole : parts == 1 ? Factors::tf32 : Factors::tf32_parts;
}

int pool_window(const Problem& p) {
  return p.epilogue.pool.kind == PoolKind::none ? 0 : static_cast<int>(p.epilogue.pool.size_h);
}
int pooled_extent(int pixels, const Problem& p) { return windows_within(pixels, pool_window(p)); }

bool plain_stores(const Problem& p) {
  const i64 element = size_of(p.dtype);
  return p.layout == Layout::nhwc && (p.k * element % 16 != 0 || y_pitch(p) * element % 16 != 0);
}

bool pads(const Problem& p) {
  return p.pad_top != 0 || p.pad_bottom != 0 || p.pad_left != 0 || p.pad_right != 0;
}
bool strides(const Problem& p) { return p.stride_h != 1 || p.stride_w != 1; }
bool takes_every_pixel(const Problem& p) {
  return !is_volume(p) && p.r * p.s == 1 && !strides(p) && !pads(p);
}

bool turns_16_bits(const Tiling& t, const Problem& p) {
  return t.bring == Bring::turned && p.dtype != DType::f32;
}

bool reads_input(const Tiling& t, const Problem& p) {
  return (t.bring == Bring::fetch && !alternates(t, p)) || turns_16_bits(t, p);
}

bool turns_input(const Tiling& t, const Problem& p) {
  if (t.bring != Bring::patch && t.bring != Bring::im2col) return false;  // the others take NCHW as it is
  return p.c != padded_channels(p) || (p.layout == Layout::nchw && p.c > 1 && p.d * p.h * p.w > 1);
}

bool stores_by_map(const Tiling& t, const Problem& p) {
  if (p.layout == Layout::nchw) return t.bring == Bring::planes && !planes::in_registers(p) && t.apart == 1;
  return !plain_stores(p) && t.stores == Stores::staged && t.split == 1;
}

bool brings_residual(const Tiling& t, const Problem& p) {
  return stores_by_map(t, p) && p.epilogue.residual && p.dtype != DType::f32;
}

bool whole_images(const Tiling& t, const Problem& p) {
  constexpr i64 kSmallestPlane = 16;  // smaller ones would make many short copies
  const bool contiguous = p.layout == Layout::nchw && p.dtype != DType::f32 && p.k % 8 == 0;
  if (!contiguous || image(p) < kSmallestPlane || p.epilogue.pool.kind != PoolKind::none) return false;
  switch (t.bring) {
    case Bring::fetch:
      return image(p) <= t.pixels() && (image(p) % 4 != 0 || is_alternating(t, p));
    case Bring::im2col:
      return round_up(t.pixels() / image(p) * image(p), 8) == t.pixels() && image(p) % 4 != 0 &&
             !t.pixels_on_m() && t.split == 1;
    case Bring::patch:
    case Bring::turned:
      return p.z() == 1 && t.width >= p.q() && t.height >= p.p() && p.q() % 8 != 0;
    case Bring::planes:
    case Bring::lines:
    case Bring::shift:
      break;
  }
  return false;
}

bool alternates(const Tiling& t, const Problem& p) { return whole_images(t, p) && is_alternating(t, p); }

bool reads_affine(const Problem& p) {
  const bool pixels = p.layout == Layout::nhwc && p.c % 8 == 0 && p.c > 8 && p.x_pitch % 8 == 0;
  return has_affine(p) && is_plain(p) && p.direction == Direction::forward && p.dtype != DType::f32 && pixels;
}
bool sums_channels(const Tiling& t, const Problem& p) {
  return p.training == Training::stats && kernel_config(t, p).stats;
}
bool keeps_channels(const Tiling& t, const Problem& p) { return t.resident() || sums_channels(t, p); }

int threads(const Tiling& t, const Problem& p) {
  if (t.bring == Bring::planes && planes::in_registers(p)) return planes::kThreads;
  return threads(kernel_config(t, p));
}
int shared_bytes(const Tiling& t, const Problem& p) {
  // An alternating kernel's memory is aligned.
  return saturated(shared_bytes(kernel_config(t, p)) - (alternates(t, p) ? kSlack : 0));
}

i64 step(const Tiling& t, const Problem& p) {
  return t.flat() && whole_images(t, p) ? t.pixels() / image(p) * image(p) : t.pixels();
}

i64 tiles(const Tiling& t, const Problem& p) {
  const i64 k = ceil_div(p.k, t.channels);
  if (t.bring == Bring::shift) return k * output_planes(p) * ceil_div(p.p(), t.height);
  if (t.bring == Bring::planes && planes::in_registers(p))
    return k * ceil_div(planes::boxes(p), t.pixels() / planes::kBox);
  if (t.bring == Bring::planes) return k * p.n * ceil_div(image(p), t.pixels());
  if (t.flat()) return k * ceil_div(p.n * image(p), step(t, p));
  if (pool_window(p) > 0)
    return k * p.n * ceil_div(p.y_w(), pooled_extent(t.width, p)) *
           ceil_div(p.y_h(), pooled_extent(t.height, p));
  return k * output_planes(p) * ceil_div(p.q(), t.width) * ceil_div(p.p(), t.height);
}

i64 blocks(const Tiling& t, const Problem& p) { return tiles(t, p) * t.split; }

}  // namespace faltung::sm90
