// What the Winograd algorithms of all targets share: which problems they serve, and how exactly.
// docs/error_bounds.md derives the bounds.
#ifndef FALTUNG_SRC_ALGORITHMS_WINOGRAD_PROBLEM_HPP_
#define FALTUNG_SRC_ALGORITHMS_WINOGRAD_PROBLEM_HPP_

#include "src/algorithms/algorithm.hpp"

namespace faltung {

// Of F(2x2, 3x3) and F(4x4, 3x3): how often a value is rounded on its way, the sum over the channels aside.
struct WinogradRoundings {
  int two, four;
  int of(int m) const { return m == 2 ? two : four; }
};

// growth of F(m x m, 3 x 3) that holds for any data, and the one that holds for ordinary data.
double winograd_worst_growth(const Problem& problem, int m, WinogradRoundings roundings);
double winograd_typical_growth(const Problem& problem, int m, WinogradRoundings roundings);
// Whether the problem's math class admits it.
bool winograd_admitted(const Problem& problem, int m, WinogradRoundings roundings);
Accuracy winograd_accuracy(const Problem& problem, int m, WinogradRoundings roundings);
// Declines what has no 3x3 filter of stride and dilation 1, and what math does not admit.
Support winograd_serves(const Problem& problem, WinogradRoundings roundings);

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_WINOGRAD_PROBLEM_HPP_
