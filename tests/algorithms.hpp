// The registry as a test's parameters.
#ifndef FALTUNG_TESTS_ALGORITHMS_HPP_
#define FALTUNG_TESTS_ALGORITHMS_HPP_

#include <gtest/gtest.h>

#include <cctype>
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

inline Target target_of(const Device& gpu) { return {gpu.info(), 1}; }

// A config's name without its numbers: what differs in them alone is one text with other constants.
inline std::string form_of(std::string config) {
  std::erase_if(config, [](unsigned char c) { return std::isdigit(c) != 0; });
  return config;
}

// Mesa's llvmpipe spends 20 to 40 s of processor time on each kernel of these: its compiler makes a coroutine
// of a kernel with barriers, in time that grows with the square of the kernel's length.
inline bool compiles_slowly(const Algorithm& algorithm, const Device& device) {
  return algorithm.name() == "winograd_gpu" &&
         device.info().description.find("llvmpipe") != std::string::npos;
}

}  // namespace faltung

#endif  // FALTUNG_TESTS_ALGORITHMS_HPP_
