// The GPUs of the test's HIP driver, by the environment variable FAKE_HIP.
#ifndef FALTUNG_TESTS_FAKE_HIP_CHIPS_HPP_
#define FALTUNG_TESTS_FAKE_HIP_CHIPS_HPP_

#include <cstdlib>
#include <string>
#include <vector>

#include "src/problem/text.hpp"

namespace faltung::fake_hip {

struct Chip {
  std::string chip;    // that is emulated
  std::string called;  // by the driver
};

inline std::vector<Chip> chips() {
  const char* const given = std::getenv("FAKE_HIP");
  std::vector<Chip> all;
  for (const std::string& word : split(given == nullptr ? "gfx942" : given, ',')) {
    const std::size_t colon = word.find(':');
    const std::string chip = word.substr(0, colon);
    if (!chip.empty()) all.push_back({chip, colon == std::string::npos ? chip : word.substr(colon + 1)});
  }
  return all;
}

}  // namespace faltung::fake_hip

#endif  // FALTUNG_TESTS_FAKE_HIP_CHIPS_HPP_
