// Hopper's bulk copy engine's views of the tensors.
#include "src/algorithms/sm90/maps.hpp"

#include <algorithm>
#include <variant>
#include <vector>

#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90 {
namespace {

using i64 = std::int64_t;

// sizes and boxes innermost first; strides in bytes, from the second dimension on.
TiledMap tiled(const Problem& p, const std::vector<i64>& sizes, const std::vector<i64>& strides,
               const std::vector<i64>& box) {
  TiledMap map;
  map.dtype = p.dtype;
  map.rank = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), map.size);
  std::copy(strides.begin(), strides.end(), map.stride_bytes);
  std::transform(box.begin(), box.end(), map.box, narrow);
  return map;
}

// Planes as they are, by 128 bytes of pixels and so many channels.
MapShape planes_map(const Problem& p, i64 plane, i64 c, int channels) {
  const i64 element = size_of(p.dtype);
  TiledMap map =
      tiled(p, {plane, c, p.n}, {plane * element, c * plane * element}, {128 / element, channels, 1});
  map.swizzle_bytes = 128;
  map.rounds_to_tf32 = tf32_parts(p) == 1;
  return map;
}

// Of every second channel.
MapShape even_planes_map(const Tiling& t, const Problem& p) {
  const i64 pixels = p.h * p.w, pair = 2 * pixels * size_of(p.dtype);
  TiledMap map = tiled(p, {pixels, p.c / 2, p.n}, {pair, p.c / 2 * pair}, {64, t.k_block / 2, 1});
  map.swizzle_bytes = 128;
  return map;
}

// Rows of NCHW with their channels: of so many pixels a row, channels, rows a plane and planes a volume.
TiledMap rows_of(const Problem& p, const i64 (&sizes)[4], i64 element, std::vector<i64> box) {
  const i64 row = sizes[0] * element, plane = sizes[2] * row, channel = sizes[3] * plane;
  box.resize(is_volume(p) ? 5 : 4, 1);
  if (is_volume(p))
    return tiled(p, {sizes[0], sizes[1], sizes[2], sizes[3], p.n}, {channel, row, plane, sizes[1] * channel},
                 box);
  return tiled(p, {sizes[0], sizes[1], sizes[2], p.n}, {plane, row, sizes[1] * plane}, box);
}

// NCHW rows of so many pixels.
MapShape rows_map(const Tiling& t, const Problem& p) {
  const KernelConfig config = kernel_config(t, p);
  const bool turned = t.bring == Bring::turned;
  const bool lines = t.bring == Bring::lines;
  const i64 width = turned ? raw_width(config) : lines ? patch_width(config) : t.width;
  TiledMap map = rows_of(p, {p.w, p.c, p.h, p.d}, size_of(p.dtype), {width, t.k_block, patch_height(config)});
  map.rounds_to_tf32 = tf32_parts(p) == 1;
  map.swizzle_bytes = turned ? raw_swizzle(config) : lines ? 0 : t.width * 2;
  return map;
}

// The input as pixels of padded_channels.
struct Pixels {
  std::vector<i64> sizes, strides;
};
Pixels input_pixels(const Problem& p) {
  const i64 c = padded_channels(p), pitch = p.x_pitch != 0 ? p.x_pitch : c;
  const i64 pixel = pitch * size_of(p.dtype), row = p.w * pixel, plane = p.h * row;
  if (is_volume(p)) return {{c, p.w, p.h, p.d, p.n}, {pixel, row, plane, p.d * plane}};
  return {{c, p.w, p.h, p.n}, {pixel, row, plane}};
}

MapShape patch_map(const Tiling& t, const Problem& p) {
  const KernelConfig config = kernel_config(t, p);
  const Pixels x = input_pixels(p);
  std::vector<i64> box = {t.k_block, patch_width(config), patch_height(config)};
  box.resize(x.sizes.size(), 1);
  TiledMap map = tiled(p, x.sizes, x.strides, box);
  map.rounds_to_tf32 = tf32_parts(p) == 1;
  map.swizzle_bytes = row_bytes(config);
  return map;
}

// All of them, one after the other.
MapShape pixels_map(const Tiling& t, const Problem& p) {
  const Pixels x = input_pixels(p);
  TiledMap map = tiled(p, {x.sizes[0], p.n * p.d * p.h * p.w}, {x.strides[0]}, {t.k_block, t.pixels()});
  map.rounds_to_tf32 = tf32_parts(p) == 1;
  map.swizzle_bytes = t.k_block * size_of(p.dtype);
  return map;
}

MapShape im2col_map(const Tiling& t, const Problem& p) {
  const Pixels x = input_pixels(p);
  Im2colMap map;
  map.dtype = p.dtype;
  map.rounds_to_tf32 = tf32_parts(p) == 1;
  map.rank = static_cast<int>(x.sizes.size());
  std::copy(x.sizes.begin(), x.sizes.end(), map.size);
  std::copy(x.strides.begin(), x.strides.end(), map.stride_bytes);
  map.lower[0] = narrow(-p.pad_left), map.lower[1] = narrow(-p.pad_top), map.lower[2] = narrow(-p.pad_front);
  // The base pixels are those of the first tap: as many as the output has.
  map.upper[0] = narrow(p.pad_right - (p.s - 1) * p.dilation_w);
  map.upper[1] = narrow(p.pad_bottom - (p.r - 1) * p.dilation_h);
  map.upper[2] = narrow(p.pad_back - (p.t - 1) * p.dilation_d);
  map.channels = t.k_block, map.pixels = t.pixels();
  map.step[0] = narrow(p.stride_w), map.step[1] = narrow(p.stride_h), map.step[2] = narrow(p.stride_d);
  map.swizzle_bytes = t.k_block * size_of(p.dtype);
  return map;
}

}  // namespace

MapShape x_map(const Tiling& t, const Problem& p) {
  switch (t.bring) {
    case Bring::planes:
      return planes_map(p, p.h * p.w, p.c, t.k_block);
    case Bring::shift:
    case Bring::turned:
    case Bring::lines:
      return rows_map(t, p);
    case Bring::im2col:
      return takes_every_pixel(p) ? pixels_map(t, p) : im2col_map(t, p);
    case Bring::fetch:
      return even_planes_map(t, p);
    case Bring::patch:
      break;
  }
  return patch_map(t, p);
}

MapShape w_map(const Tiling& t, const Problem& p, i64 taps) {
  const i64 c = group_channels(p), element = size_of(p.dtype);
  if (t.filter_as_it_is()) {
    const i64 k = round_up(p.k, 16 / element), row = k * element;
    const i64 half = t.k_block / 2;
    // Alternating: the even rows of a block, then the odd ones, which begin a row after them. A block begins
    // at any row.
    TiledMap map = alternates(t, p) ? tiled(p, {k, half, p.c - t.k_block + 2}, {2 * row, row}, {64, half, 2})
                                    : tiled(p, {k, taps, p.c}, {row, taps * row}, {64, 1, t.k_block});
    map.swizzle_bytes = 128;
    return map;
  }
  TiledMap map = tiled(p, {c, taps, p.k * std::max(1, tf32_parts(p))}, {c * element, taps * c * element},
                       {weight_row_bytes(kernel_config(t, p)) / element, 1, t.channels});
  map.swizzle_bytes = weight_row_bytes(kernel_config(t, p));
  return map;
}

MapShape y_map(const Tiling& t, const Problem& p) {
  if (t.bring == Bring::planes) return planes_map(p, p.p() * p.q(), p.k, my_channels(t));
  const int element = size_of(p.dtype), unit = unit_channels(kernel_config(t, p));
  const int sharers = t.pixels_on_m() ? t.sharers() : 1;
  const i64 pixel = y_pitch(p) * element;
  TiledMap map =
      t.flat() ? tiled(p, {p.k, output_planes(p) * p.p() * p.q()}, {pixel}, {unit, t.pixels() / sharers})
               : tiled(p, {p.k, p.y_w(), p.y_h(), output_planes(p)},
                       {pixel, p.y_w() * pixel, p.y_h() * p.y_w() * pixel},
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
  if (is_volume(p)) {
    map.rank = 5;
    map.size[3] = phase.depth.out, map.size[4] = p.n;
    map.stride_bytes[2] = asked.stride_d * asked.h * row, map.stride_bytes[3] = asked.d * asked.h * row;
    map.box[4] = 1;
  }
  return map;
}

MapShape y_rows_map(const Tiling& t, const Problem& p, int width) {
  TiledMap map = rows_of(p, {p.q(), p.k, p.p(), p.z()}, 2, {width, t.channels, t.height / kConsumers});
  map.swizzle_bytes = width * 2;
  return map;
}

}  // namespace faltung::sm90
