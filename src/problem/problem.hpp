// What a problem means beyond its fields: names, tensor shapes and strides, arithmetic and bytes. Knows no
// device.
#ifndef FALTUNG_SRC_PROBLEM_PROBLEM_HPP_
#define FALTUNG_SRC_PROBLEM_PROBLEM_HPP_

#include <array>
#include <cstdint>
#include <string>

#include "faltung/faltung.hpp"

namespace faltung {

const char* name(Direction direction);
const char* name(DType dtype);
const char* name(Layout layout);
const char* name(Math math);
const char* name(Activation activation);
const char* name(PoolKind kind);

// Every activation, in the order of the enum, which is that of the operations' list.
inline constexpr Activation kActivations[] = {
#define FALTUNG_ACTIVATION(op, value) Activation::op,
#include "kernels/common/epilogue_ops.inc"
#undef FALTUNG_ACTIVATION
};

// The math class a problem of this dtype has unless it says otherwise.
Math default_math(DType dtype);
// The problem with its math said.
Problem with_math(Problem problem);

// A 4-D tensor: sizes by letter, strides in elements.
struct TensorShape {
  std::int64_t n, c, h, w;
  std::int64_t stride_n, stride_c, stride_h, stride_w;
  std::int64_t elements() const { return n * c * h * w; }
  std::int64_t offset(std::int64_t in, std::int64_t ic, std::int64_t ih, std::int64_t iw) const {
    return in * stride_n + ic * stride_c + ih * stride_h + iw * stride_w;
  }
};

TensorShape make_shape(Layout layout, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w);
TensorShape x_shape(const Problem& problem);
// The filter: n is K, c is C/groups, h is R, w is S.
TensorShape w_shape(const Problem& problem);
// The convolution's output before pooling; the shape of the residual.
TensorShape conv_shape(const Problem& problem);
// y: the convolution's output after pooling.
TensorShape y_shape(const Problem& problem);
// Of the tensor as a caller has it: y after pooling.
TensorShape shape_of(const Problem& problem, Tensor tensor);
// What the direction writes: y, x or w.
TensorShape result_shape(const Problem& problem);
void* result_pointer(const Problem& problem, const Tensors& tensors);

std::int64_t bytes_of(const Problem& problem, const TensorShape& shape);

// The arithmetic of the direct algorithm, two operations a multiply-add: what rates are quoted in.
double flops(const Problem& problem);
// The fewest bytes that must cross memory: every input read once, every result written once.
double min_bytes(const Problem& problem);
// How many products are summed into one element of the result.
std::int64_t reduction_length(const Problem& problem);

inline bool is_depthwise(const Problem& p) { return p.groups > 1 && p.groups == p.c; }

// Throws Error(bad_problem) unless every pointer that the direction and the epilogue need is there.
void check_pointers(const Problem& problem, const Tensors& tensors, bool weights_are_packed);

}  // namespace faltung

#endif  // FALTUNG_SRC_PROBLEM_PROBLEM_HPP_
