// Data for kernels of bf16.
#ifndef FALTUNG_TESTS_BF16_INTEGERS_HPP_
#define FALTUNG_TESTS_BF16_INTEGERS_HPP_

#include <cstdint>
#include <vector>

#include "src/problem/dtype.hpp"

namespace faltung {

// Small integers, so that the products and sums are exact.
inline std::vector<std::uint16_t> bf16_integers(std::size_t count, unsigned seed) {
  std::vector<std::uint16_t> values(count);
  for (std::uint16_t& v : values) {
    seed = seed * 1664525u + 1013904223u;
    v = float_to_bf16(static_cast<float>(static_cast<int>(seed >> 29) - 3));
  }
  return values;
}

}  // namespace faltung

#endif  // FALTUNG_TESTS_BF16_INTEGERS_HPP_
