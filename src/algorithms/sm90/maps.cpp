// Hopper's bulk copy engine's views of the tensors.
#include "src/algorithms/sm90/maps.hpp"

#include <algorithm>
#include <initializer_list>
#include <variant>

#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90 {
namespace {

using i64 = std::int64_t;

// sizes and boxes innermost first; strides in bytes, from the second dimension on.
TiledMap tiled(const Problem& p, std::initializer_list<i64> sizes, std::initializer_list<i64> strides,
               std::initializer_list<i64> box) {
  TiledMap map;
  map.dtype = p.dtype;
  map.rank = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), map.size);
  std::copy(strides.begin(), strides.end(), map.stride_bytes);
  std::transform(box.begin(), box.end(), map.box, narrow);
  return map;
}

// Planes as they are, by 64 pixels and so many channels.
MapShape planes_map(const Problem& p, i64 plane, i64 c, int channels) {
  TiledMap map = tiled(p, {plane, c, p.n}, {plane * 2, c * plane * 2}, {64, channels, 1});
  map.swizzle_bytes = 128;
  return map;
}

// NCHW rows of so many pixels.
MapShape rows_map(const Tiling& t, const Problem& p) {
  const KernelConfig config = kernel_config(t, p);
  const bool turned = t.bring == Bring::turned;
  const i64 row = p.w * size_of(p.dtype), plane = p.h * row, width = turned ? raw_width(config) : t.width;
  TiledMap map =
      tiled(p, {p.w, p.c, p.h, p.n}, {plane, row, p.c * plane}, {width, t.k_block, patch_height(config), 1});
  map.rounds_to_tf32 = tf32_parts(p) == 1;
  map.swizzle_bytes = turned ? raw_swizzle(config) : t.width * 2;
  return map;
}

MapShape patch_map(const Tiling& t, const Problem& p) {
  const KernelConfig config = kernel_config(t, p);
  const i64 c = padded_channels(p), pixel = c * size_of(p.dtype);
  TiledMap map = tiled(p, {c, p.w, p.h, p.n}, {pixel, p.w * pixel, p.h * p.w * pixel},
                       {t.k_block, patch_width(config), patch_height(config), 1});
  map.rounds_to_tf32 = tf32_parts(p) == 1;
  map.swizzle_bytes = row_bytes(config);
  return map;
}

MapShape im2col_map(const Tiling& t, const Problem& p) {
  const i64 c = padded_channels(p), pixel = c * size_of(p.dtype);
  Im2colMap map;
  map.dtype = p.dtype;
  map.rounds_to_tf32 = tf32_parts(p) == 1;
  const i64 sizes[] = {c, p.w, p.h, p.n}, strides[] = {pixel, p.w * pixel, p.h * p.w * pixel};
  std::copy(sizes, sizes + 4, map.size);
  std::copy(strides, strides + 3, map.stride_bytes);
  map.lower[0] = narrow(-p.pad_left), map.lower[1] = narrow(-p.pad_top);
  // The base pixels are those of the first tap: as many as the output has.
  map.upper[0] = narrow(p.pad_right - (p.s - 1) * p.dilation_w);
  map.upper[1] = narrow(p.pad_bottom - (p.r - 1) * p.dilation_h);
  map.channels = t.k_block, map.pixels = t.pixels();
  map.step[0] = narrow(p.stride_w), map.step[1] = narrow(p.stride_h);
  map.swizzle_bytes = t.k_block * size_of(p.dtype);
  return map;
}

}  // namespace

MapShape x_map(const Tiling& t, const Problem& p) {
  switch (t.bring) {
    case Bring::planes:
      return planes_map(p, p.h * p.w, p.c, 64);
    case Bring::shift:
    case Bring::turned:
      return rows_map(t, p);
    case Bring::im2col:
    case Bring::fetch:
      return im2col_map(t, p);
    case Bring::patch:
      break;
  }
  return patch_map(t, p);
}

MapShape w_map(const Tiling& t, const Problem& p, i64 taps) {
  const i64 c = group_channels(p), element = size_of(p.dtype);
  if (t.filter_as_it_is()) {
    const i64 k = round_up(p.k, 16 / element);
    TiledMap map = tiled(p, {k, taps, p.c}, {k * element, taps * k * element}, {64, 1, t.k_block});
    map.swizzle_bytes = 128;
    return map;
  }
  TiledMap map = tiled(p, {c, taps, p.k * std::max(1, tf32_parts(p))}, {c * element, taps * c * element},
                       {t.k_block / t.groups, 1, t.channels});
  map.swizzle_bytes = weight_row_bytes(kernel_config(t, p));
  return map;
}

MapShape y_map(const Tiling& t, const Problem& p) {
  if (t.bring == Bring::planes) return planes_map(p, p.p() * p.q(), p.k, my_channels(t));
  const int element = size_of(p.dtype), unit = unit_channels(kernel_config(t, p));
  const int sharers = t.pixels_on_m() ? t.sharers() : 1;
  const i64 pixel = p.k * element;
  TiledMap map =
      t.flat() ? tiled(p, {p.k, p.n * p.p() * p.q()}, {pixel}, {unit, t.pixels() / sharers})
               : tiled(p, {p.k, p.y_w(), p.y_h(), p.n}, {pixel, p.y_w() * pixel, p.y_h() * p.y_w() * pixel},
                       {unit, pooled_extent(t.width, p), pooled_extent(t.height / sharers, p), 1});
  map.swizzle_bytes = unit == 8 ? 0 : unit * element;
  return map;
}

MapShape phase_map(const Tiling& t, const Problem& p, const Problem& asked, const Phase& phase) {
  TiledMap map = std::get<TiledMap>(y_map(t, p));
  const i64 pixel = p.k * size_of(p.dtype), row = asked.w * pixel;
  map.size[1] = phase.q, map.size[2] = phase.p;
  map.stride_bytes[0] = asked.stride_w * pixel, map.stride_bytes[1] = asked.stride_h * row;
  map.stride_bytes[2] = asked.h * row;
  return map;
}

MapShape y_rows_map(const Tiling& t, const Problem& p, int width) {
  const i64 row = p.q() * 2, plane = p.p() * row;
  TiledMap map = tiled(p, {p.q(), p.k, p.p(), p.n}, {plane, row, p.k * plane},
                       {width, t.channels, t.height / kConsumers, 1});
  map.swizzle_bytes = width * 2;
  return map;
}

}  // namespace faltung::sm90
