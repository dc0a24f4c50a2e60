// The registry as a test's parameters.
#ifndef FALTUNG_TESTS_ALGORITHMS_HPP_
#define FALTUNG_TESTS_ALGORITHMS_HPP_

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "src/algorithms/algorithm.hpp"

namespace faltung {

// Of one kind of device, or all.
inline std::vector<const Algorithm*> algorithms(std::string_view device_kind = {}) {
  std::vector<const Algorithm*> found;
  for (const auto& algorithm : registry()) {
    if (device_kind.empty() || algorithm->device_kind() == device_kind) found.push_back(algorithm.get());
  }
  return found;
}

inline std::string algorithm_name(const testing::TestParamInfo<const Algorithm*>& parameter) {
  return std::string(parameter.param->name());
}

}  // namespace faltung

#endif  // FALTUNG_TESTS_ALGORITHMS_HPP_
