#include "src/algorithms/implicit_gemm_part.hpp"

#include <algorithm>

#include "kernels/cpu/epilogue.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {

void pack_panel(const PanelPack& p, float* to) {
  using i64 = std::int64_t;
  const std::byte* const from = static_cast<const std::byte*>(p.w) + p.base * size_of(p.dtype);
  if (p.j_stride == 1) {
    for (i64 i = 0; i < p.length; ++i)
      convert_to_float(p.dtype, from + i * p.i_stride * size_of(p.dtype), to + i * p.width, p.columns);
  } else if (p.i_stride == 1) {
    transpose_to_float(p.dtype, from, p.j_stride, p.columns, p.length, to, p.width);
  } else if (p.dtype == DType::f32) {
    const float* const floats = reinterpret_cast<const float*>(from);
    for (i64 i = 0; i < p.length; ++i) {
      for (i64 j = 0; j < p.columns; ++j) to[i * p.width + j] = floats[i * p.i_stride + j * p.j_stride];
    }
  } else {
    for (i64 i = 0; i < p.length; ++i) {
      for (i64 j = 0; j < p.columns; ++j)
        to[i * p.width + j] = load_element(p.dtype, from, i * p.i_stride + j * p.j_stride);
    }
  }
  if (p.columns == p.width) return;
  for (i64 i = 0; i < p.length; ++i) std::fill(to + i * p.width + p.columns, to + (i + 1) * p.width, 0.0f);
}

}  // namespace faltung
