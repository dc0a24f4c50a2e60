// The end of a convolution on the CPU: fp32 accumulators to bias, residual, activation, dtype and memory.
#ifndef FALTUNG_KERNELS_CPU_EPILOGUE_HPP_
#define FALTUNG_KERNELS_CPU_EPILOGUE_HPP_

#include <cstdint>

#include "src/problem/problem.hpp"

namespace faltung {

// A matrix of accumulators to finish. Strides are in elements, from one row to the next; within a row the
// elements are contiguous. In nhwc a row is a pixel and the bias is the columns', in nchw a row is a channel
// and the bias is the rows'.
struct EpilogueCall {
  const float* from = nullptr;
  std::int64_t from_stride = 0;
  std::int64_t rows = 0, columns = 0;
  const float* column_bias = nullptr;                           // [columns], or null
  const float* row_bias = nullptr;                              // [rows], or null
  const float *column_slopes = nullptr, *row_slopes = nullptr;  // of prelu, likewise
  const void* residual = nullptr;                               // of dtype, strided like the result, or null
  ResidualOrder residual_order = ResidualOrder::before_activation;
  ActivationCall activation;
  DType dtype = DType::f32;
  void* to = nullptr;  // may be from itself where dtype is f32
  std::int64_t to_stride = 0;
};

void epilogue_store(const EpilogueCall& call);

// Columns of several matrices of floats in turn: element i of a row of `to` is element i / phases of that row
// in the matrix of i % phases.
struct InterleaveCall {
  const float* from = nullptr;
  std::int64_t from_phase = 0, from_row = 0;        // from one matrix, one row to the next
  std::int64_t phases = 0, rows = 0, elements = 0;  // elements: of a row of `to`
  float* to = nullptr;
  std::int64_t to_row = 0;
};
void interleave_columns(const InterleaveCall& call);

// count contiguous elements of dtype to floats and back.
void convert_to_float(DType dtype, const void* from, float* to, std::int64_t count);
void convert_from_float(DType dtype, const float* from, void* to, std::int64_t count);

// to[column * to_stride + row] = from[row * from_stride + column]: a matrix of dtype transposed, as floats.
void transpose_to_float(DType dtype, const void* from, std::int64_t from_stride, std::int64_t rows,
                        std::int64_t columns, float* to, std::int64_t to_stride);
// The same of floats, for results larger than the caches: they are not read to be written, nor push out what
// is there.
void transpose_past_caches(const float* from, std::int64_t from_stride, std::int64_t rows,
                           std::int64_t columns, float* to, std::int64_t to_stride);

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_EPILOGUE_HPP_
