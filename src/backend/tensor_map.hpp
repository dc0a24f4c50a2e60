// How a bulk copy engine (Hopper's and later) sees a tensor. As data: the address comes when a plan runs.
#ifndef FALTUNG_SRC_BACKEND_TENSOR_MAP_HPP_
#define FALTUNG_SRC_BACKEND_TENSOR_MAP_HPP_

#include <cstdint>
#include <variant>

#include "faltung/faltung.hpp"

namespace faltung {

// The driver's own form: passed to a kernel by value, as a __grid_constant__ parameter.
struct alignas(64) TensorMap {
  std::uint64_t opaque[16];
};

// Boxes of a tensor of up to five dimensions, innermost first. stride_bytes[i] is the distance between
// neighbours in dimension i + 1.
struct TiledMap {
  DType dtype = DType::f16;
  bool rounds_to_tf32 = false;  // f32 alone: what is loaded has 10 bits of mantissa, rounded to nearest
  int rank = 0;
  std::int64_t size[5] = {};
  std::int64_t stride_bytes[4] = {};
  int box[5] = {};
  int step[5] = {1, 1, 1, 1, 1};  // every step-th element in each dimension
  int swizzle_bytes = 0;          // 0, 32, 64 or 128
};

// Columns of pixels of an NHWC or NDHWC tensor at one filter tap: sizes are c, w, h, n or c, w, h, d, n;
// corners and steps are w, h, d.
struct Im2colMap {
  DType dtype = DType::f16;
  bool rounds_to_tf32 = false;
  int rank = 4;
  std::int64_t size[5] = {};
  std::int64_t stride_bytes[4] = {};
  int lower[3] = {}, upper[3] = {};
  int channels = 0, pixels = 0;  // of one box
  int step[3] = {1, 1, 1};
  int swizzle_bytes = 0;
};

// So far from the image's edge a corner may lie, of so many dimensions, channels and images among them; at
// the low end one further.
constexpr int im2col_reach(int rank) { return rank == 5 ? 15 : 127; }

using MapShape = std::variant<TiledMap, Im2colMap>;

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_TENSOR_MAP_HPP_
