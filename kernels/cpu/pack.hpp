// A filter's elements to the order in which a register tile reads them.
#ifndef FALTUNG_KERNELS_CPU_PACK_HPP_
#define FALTUNG_KERNELS_CPU_PACK_HPP_

#include <cstdint>

#include "src/problem/dtype.hpp"

namespace faltung {

// to[row * width + column] = from[row * row_stride + column * column_stride] as floats, zeros from columns to
// width. Strides are in elements. Rows lie far apart: of the columns that come next, as many lines are
// fetched, or of `shares` parts of these one, where so many calls read them; so is what is written next.
struct PackCall {
  DType dtype = DType::f32;
  const void* from = nullptr;
  std::int64_t row_stride = 0, column_stride = 0;
  std::int64_t rows = 0, columns = 0, width = 0;
  float* to = nullptr;
  const float* next = nullptr;  // what the next call writes
  std::int64_t share = 0, shares = 1;
};
void pack_columns(const PackCall& call);

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_PACK_HPP_
