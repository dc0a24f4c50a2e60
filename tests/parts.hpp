// A long test in parts that run side by side, or one after another where time is short: what a part does it
// would do in the whole as well.
//
// FALTUNG_TEST_PART=<i>/<n> runs every n-th of a test's problems, i from 1.
#ifndef FALTUNG_TESTS_PARTS_HPP_
#define FALTUNG_TESTS_PARTS_HPP_

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace faltung::parts {

inline bool given() { return std::getenv("FALTUNG_TEST_PART") != nullptr; }

// Whether the problem of that number is this part's.
inline bool ours(std::size_t problem) {
  const char* const text = std::getenv("FALTUNG_TEST_PART");
  std::size_t part = 1, parts = 1;
  if (text != nullptr && (std::sscanf(text, "%zu/%zu", &part, &parts) != 2 || part < 1 || part > parts))
    throw std::invalid_argument(std::string("FALTUNG_TEST_PART is i/n with 1 <= i <= n, got ") + text);
  return problem % parts == part - 1;
}

}  // namespace faltung::parts

#endif  // FALTUNG_TESTS_PARTS_HPP_
