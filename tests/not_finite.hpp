// Inputs with NaN and Inf among them, and what a rewrite's reference may say of them.
#ifndef FALTUNG_TESTS_NOT_FINITE_HPP_
#define FALTUNG_TESTS_NOT_FINITE_HPP_

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include "src/problem/reference.hpp"

namespace faltung {

enum class Inputs { integers, not_finite };
inline const char* name(Inputs inputs) { return inputs == Inputs::integers ? "integers" : "not finite"; }

// One value in 32, and one at least.
inline void strew_not_finite(std::vector<float>& values, std::mt19937_64& random) {
  const float kinds[] = {INFINITY, -INFINITY, NAN};
  for (std::size_t i = 0; i <= values.size() / 32 && !values.empty(); ++i)
    values[random() % values.size()] = kinds[random() % 3];
}

// Whether what another problem's reference gives, with all that it leaves open, is what a problem's admits.
inline bool is_what_may_be(const Expected& given, const Expected& wanted) {
  if (given.may_be_nan && !wanted.may_be_nan && !std::isnan(wanted.value)) return false;
  if (std::isnan(given.value)) return std::isnan(wanted.value) || wanted.may_be_nan;
  return given.value == wanted.value;
}

}  // namespace faltung

#endif  // FALTUNG_TESTS_NOT_FINITE_HPP_
