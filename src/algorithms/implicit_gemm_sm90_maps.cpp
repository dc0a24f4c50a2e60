// Hopper's bulk copy engine's views of the tensors.
#include "src/algorithms/implicit_gemm_sm90_maps.hpp"

#include <algorithm>

#include "src/problem/dtype.hpp"

namespace faltung::sm90 {

using i64 = std::int64_t;

TensorMap x_map(const CudaDevice& device, const Tiling& t, const Problem& p, const void* x) {
  const i64 c = padded_channels(p), pixel = c * size_of(p.dtype);
  if (t.planes) {
    TiledMap map;
    map.dtype = p.dtype;
    map.address = x;
    map.rank = 3;
    const i64 plane = p.h * p.w;
    map.size[0] = plane, map.size[1] = p.c, map.size[2] = p.n;
    map.stride_bytes[0] = plane * 2, map.stride_bytes[1] = p.c * plane * 2;
    map.box[0] = map.box[1] = 64, map.box[2] = 1;
    map.swizzle_bytes = 128;
    return device.encode(map);
  }
  if (t.shift || t.turned) {
    TiledMap map;
    map.dtype = p.dtype;
    map.rounds_to_tf32 = tf32_parts(p) == 1;
    map.address = x;
    map.rank = 4;
    const i64 row = p.w * size_of(p.dtype), plane = p.h * row;
    const i64 sizes[] = {p.w, p.c, p.h, p.n}, strides[] = {plane, row, p.c * plane};
    std::copy(sizes, sizes + 4, map.size);
    std::copy(strides, strides + 3, map.stride_bytes);
    map.box[0] = t.turned ? raw_width(t, p) : t.width, map.box[1] = t.k_block;
    map.box[2] = narrow(patch_height(t, p)), map.box[3] = 1;
    const int raw = t.turned ? raw_width(t, p) : 0;
    map.swizzle_bytes = !t.turned ? t.width * 2 : raw == 16 || raw == 32 ? raw * 4 : 0;
    return device.encode(map);
  }
  if (t.im2col) {
    Im2colMap map;
    map.dtype = p.dtype;
    map.rounds_to_tf32 = tf32_parts(p) == 1;
    map.address = x;
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
    return device.encode(map);
  }
  TiledMap map;
  map.dtype = p.dtype;
  map.rounds_to_tf32 = tf32_parts(p) == 1;
  map.address = x;
  map.rank = 4;
  const i64 sizes[] = {c, p.w, p.h, p.n}, strides[] = {pixel, p.w * pixel, p.h * p.w * pixel};
  std::copy(sizes, sizes + 4, map.size);
  std::copy(strides, strides + 3, map.stride_bytes);
  map.box[0] = t.k_block;
  map.box[1] = narrow(patch_width(t, p));
  map.box[2] = narrow(patch_height(t, p));
  map.box[3] = 1;
  map.swizzle_bytes = t.k_block * size_of(p.dtype);
  return device.encode(map);
}

TensorMap w_map(const CudaDevice& device, const Tiling& t, const Problem& p, const void* w) {
  const i64 c = padded_channels(p), taps = p.r * p.s;
  TiledMap map;
  map.dtype = p.dtype;
  map.address = w;
  map.rank = 3;
  const i64 element = size_of(p.dtype);
  const i64 sizes[] = {c, taps, p.k * std::max(1, tf32_parts(p))},
            strides[] = {c * element, taps * c * element};
  std::copy(sizes, sizes + 3, map.size);
  std::copy(strides, strides + 2, map.stride_bytes);
  map.box[0] = t.k_block, map.box[1] = 1, map.box[2] = t.channels;
  map.swizzle_bytes = t.k_block * size_of(p.dtype);
  return device.encode(map);
}

// The output's, or the residual's: boxes as the consumers store them.
TensorMap y_map(const CudaDevice& device, const Tiling& t, const Problem& p, const void* y) {
  const int sharers = t.cooperative && t.pixels_on_m ? 2 : 1, element = size_of(p.dtype);
  const int unit = element == 4 ? 32 : t.pixels_on_m ? t.unit() : 64;
  TiledMap map;
  map.dtype = p.dtype;
  map.address = y;
  const i64 pixel = p.k * element;
  if (t.planes) {
    const i64 plane = p.p() * p.q();
    map.rank = 3;
    map.size[0] = plane, map.size[1] = p.k, map.size[2] = p.n;
    map.stride_bytes[0] = plane * element, map.stride_bytes[1] = p.k * plane * element;
    map.box[0] = 64, map.box[1] = t.channels / (t.cooperative && !t.pixels_on_m ? 2 : 1), map.box[2] = 1;
    map.swizzle_bytes = 128;
    return device.encode(map);
  }
  if (t.im2col) {
    map.rank = 2;
    map.size[0] = p.k, map.size[1] = p.n * p.p() * p.q();
    map.stride_bytes[0] = pixel;
    map.box[0] = unit, map.box[1] = t.pixels() / sharers;
  } else {
    map.rank = 4;
    const i64 sizes[] = {p.k, p.y_w(), p.y_h(), p.n};
    const i64 strides[] = {pixel, p.y_w() * pixel, p.y_h() * p.y_w() * pixel};
    std::copy(sizes, sizes + 4, map.size);
    std::copy(strides, strides + 3, map.stride_bytes);
    map.box[0] = unit, map.box[1] = pooled_extent(t.width, p),
    map.box[2] = pooled_extent(t.height / sharers, p), map.box[3] = 1;
  }
  map.swizzle_bytes = unit == 8 ? 0 : unit * element;
  return device.encode(map);
}

TensorMap y_rows_map(const CudaDevice& device, const Tiling& t, const Problem& p, const void* y, int width) {
  TiledMap map;
  map.dtype = p.dtype;
  map.address = y;
  map.rank = 4;
  const i64 row = p.q() * 2, plane = p.p() * row;
  const i64 sizes[] = {p.q(), p.k, p.p(), p.n}, strides[] = {plane, row, p.k * plane};
  std::copy(sizes, sizes + 4, map.size);
  std::copy(strides, strides + 3, map.stride_bytes);
  map.box[0] = width, map.box[1] = t.channels, map.box[2] = t.height / 2, map.box[3] = 1;
  map.swizzle_bytes = width * 2;
  return device.encode(map);
}

}  // namespace faltung::sm90
