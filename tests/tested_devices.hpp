// Which devices the tests of GPU kernels run on: all there are, or those that FALTUNG_TEST_DEVICES names, a
// list of patterns with commas between.
#ifndef FALTUNG_TESTS_TESTED_DEVICES_HPP_
#define FALTUNG_TESTS_TESTED_DEVICES_HPP_

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "src/problem/text.hpp"

namespace faltung {

inline bool is_tested(const std::string& id) {
  const char* const only = std::getenv("FALTUNG_TEST_DEVICES");
  if (only == nullptr) return true;
  const std::vector<std::string> patterns = split(only, ',');
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches(pattern, id); });
}

}  // namespace faltung

#endif  // FALTUNG_TESTS_TESTED_DEVICES_HPP_
