// How far a right answer may be from the exact one: a bound for each element, derived, never tuned.
#ifndef FALTUNG_SRC_PROBLEM_TOLERANCE_HPP_
#define FALTUNG_SRC_PROBLEM_TOLERANCE_HPP_

#include "src/problem/problem.hpp"
#include "src/problem/reference.hpp"

namespace faltung {

// An algorithm's rounding error before the epilogue.
// Zeros of an algorithm's own, in the place of products that are none, and what of the caller's they meet.
enum class ZerosMeet {
  nothing,
  // All values of the element's channel c: in backward_data, where a stride passes over a tap, the filter's;
  // in backward_weights, beyond the image, the input's.
  channel,
};

// What is multiplied for a value.
enum class Factors {
  whole,
  tf32,        // the value as tf32: of denormals so many bits as tf32 has
  tf32_parts,  // two such, whose sum it is; of Inf the second is NaN
  normal,      // the value, and zero for a denormal; of the sums too (AMX)
};

struct Accuracy {
  // The error is at most growth · 2^-24 · magnitude. A chain of n fp32 multiply-adds has growth n.
  double growth = 0;
  // Algorithms on tiles (Winograd, FFT) mix neighbouring inputs: their magnitude is taken with each |x|
  // replaced by the largest within this many pixels of it, in the padding too, for a tile's error is relative
  // to the whole filter. 0: the element's own products alone.
  int spread_h = 0, spread_w = 0;
  // Whether small integers give the exact result, to the bit. FFT's do not: its results are then checked to
  // be the exact ones once they are rounded to the nearest integer, and to keep the bound.
  bool exact_on_integers = true;
  // As spread_h, of three dimensions: where rows are depths.
  int spread_d = 0;
  // Math::f32: the root mean square error over random problems, in units of that of a chain of fp32
  // multiply-adds of the same length, is at most this; chance puts one problem's a few percent beside it.
  double rms_of_chain = kAsFp32;
  // What f32 is taken to mean.
  static constexpr double kAsFp32 = 2;
  // Zeros that an algorithm adds to the filter, where they meet inputs: so many groups are one, whose filter
  // is zero between them; and the filter's sizes are rounded up to multiples. 0 * Inf is NaN, so that an
  // input which is not finite makes NaN of more elements.
  int groups_as_one = 1, filter_unit_d = 1, filter_unit_h = 1, filter_unit_w = 1;
  // And so many at most to the filter's left, and as many to its right.
  int zeros_beside_w = 0;
  ZerosMeet zeros_meet = ZerosMeet::nothing;
  Factors factors = Factors::whole;
  bool adds_zeros() const {
    return groups_as_one > 1 || filter_unit_d > 1 || filter_unit_h > 1 || filter_unit_w > 1 ||
           zeros_beside_w > 0;
  }
  bool on_tiles() const { return spread_d > 0 || spread_h > 0 || spread_w > 0; }
};

// growth of any order of fp32 multiply-adds over the problem's reduction: the worst case of a dot product,
// and what Math::f32, f16 and bf16 promise.
double dot_product_growth(const Problem& problem);
// Of an algorithm that rounds no more than that.
inline Accuracy dot_product_accuracy(const Problem& problem) { return {dot_product_growth(problem), 0, 0}; }

// The same of one that takes zero for what a stride passes over.
Accuracy gathering_accuracy(const Problem& problem);

// growth that the problem's math class admits; infinite for Math::fast.
double admitted_growth(const Problem& problem);

// The bound on |result - expected.value| for one element of the stored result: accumulation, epilogue, and
// rounding to the problem's dtype.
double error_bound(const Problem& problem, const Accuracy& accuracy, const Expected& expected);

// |actual - expected| over the bound: at most 1 for a right answer, infinite where one is NaN or infinite and
// the other is not the same.
double error_over_bound(const Problem& problem, const Accuracy& accuracy, const Expected& expected,
                        float actual);

}  // namespace faltung

#endif  // FALTUNG_SRC_PROBLEM_TOLERANCE_HPP_
