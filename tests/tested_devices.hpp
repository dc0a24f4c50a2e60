// Which devices the tests of GPU kernels run on: all there are, or those that FALTUNG_TEST_DEVICES names, a
// list of patterns with commas between.
#ifndef FALTUNG_TESTS_TESTED_DEVICES_HPP_
#define FALTUNG_TESTS_TESTED_DEVICES_HPP_

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/problem/text.hpp"

namespace faltung {

inline bool is_tested(const std::string& id) {
  const char* const only = std::getenv("FALTUNG_TEST_DEVICES");
  if (only == nullptr) return true;
  const std::vector<std::string> patterns = split(only, ',');
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches(pattern, id); });
}

// OpenCL drivers for the CPU count.
inline std::vector<std::shared_ptr<Device>> tested_gpus() {
  std::vector<std::shared_ptr<Device>> found;
  for (const auto& device : list_devices()) {
    if (device->info().kind == "gpu" && is_tested(device->info().id)) found.push_back(device);
  }
  return found;
}

// Whether they are drivers for the CPU alone, which compile slowly.
inline bool are_all_on_cpu(const std::vector<std::shared_ptr<Device>>& devices) {
  return std::all_of(devices.begin(), devices.end(),
                     [](const auto& device) { return device->info().has("runs_on_cpu"); });
}

}  // namespace faltung

#endif  // FALTUNG_TESTS_TESTED_DEVICES_HPP_
