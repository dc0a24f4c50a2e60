// What a convolution is: one plain loop nest with double accumulation, independent of every algorithm.
// Tests, verify, trials and run --check compare against it.
#ifndef FALTUNG_SRC_PROBLEM_REFERENCE_HPP_
#define FALTUNG_SRC_PROBLEM_REFERENCE_HPP_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/problem/problem.hpp"

namespace faltung {

// One element of the result.
struct Expected {
  double value;  // exact up to double rounding, before it is rounded to the problem's dtype
  // The sum of |a·b| over the products (plus |bias| and a |residual| before the activation) that went into
  // it: what rounding errors are relative to. With pooling, the largest of the window's.
  double magnitude;
  // Whether NaN is right, too: the filter (in bwd_w the output's gradient) has a NaN or Inf over the padding,
  // whose product with a zero counts or does not, as the algorithm goes.
  bool may_be_nan = false;
  // The sum of |a| + |b| over the products: what a loss in one factor is relative to. With pooling likewise.
  double factors = 0;
  // Of a residual that is added after the activation: its size; with pooling, the largest of the window's.
  double beside = 0;
  // Of prelu: its channel's.
  double slope = 1;
};

// x as a problem with a scale and shift reads it, whole: elements of the problem's dtype.
std::unique_ptr<std::byte[]> x_as_read(const Problem& problem, const Tensors& tensors);

// An element of the result: of y, x or w. Of a problem that reads x as it is: the others' is that of
// without_affine, over x_as_read.
Expected reference(const Problem& problem, const Tensors& tensors, const Position& at);
inline Expected reference(const Problem& problem, const Tensors& tensors, std::int64_t n, std::int64_t c,
                          std::int64_t h, std::int64_t w) {
  return reference(problem, tensors, {n, c, 0, h, w});
}

// The same of f32 tensors by a chain of fp32 multiply-adds, each rounded once, before any epilogue: what f32
// is taken to mean.
float chain_of_fp32(const Problem& problem, const Tensors& tensors, const Position& at);

// The activation in double, for the reference and for error bounds.
double activate(const ActivationCall& activation, double x);

}  // namespace faltung

#endif  // FALTUNG_SRC_PROBLEM_REFERENCE_HPP_
