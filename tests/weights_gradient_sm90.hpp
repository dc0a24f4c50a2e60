// What the tests of Hopper's weights' gradient ask of its tiles and of what NVRTC makes of them.
#ifndef FALTUNG_TESTS_WEIGHTS_GRADIENT_SM90_HPP_
#define FALTUNG_TESTS_WEIGHTS_GRADIENT_SM90_HPP_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/algorithms/weights_gradient_sm90.hpp"
#include "src/backend/nvrtc.hpp"
#include "tests/machine_code.hpp"

namespace faltung::weights_gradient_sm90 {

inline constexpr int kMultiprocessors = 132;  // an H200's
inline const DeviceInfo& h200() {
  static const DeviceInfo info = [] {
    DeviceInfo h200;
    h200.kind = "gpu", h200.dialect = "cuda", h200.units = kMultiprocessors;
    return h200;
  }();
  return info;
}

inline std::string why_not(const char* text, const char* name) {
  return unfit(parse_tile(name), parse_problem(text));
}

// Spills nothing, and no matrix product waits for another: the assembler's warnings, of registers not set,
// too.
inline void expect_good_code(const Binary& binary, const std::string& name) {
  EXPECT_THAT(binary.log, testing::HasSubstr(" 0 bytes spill stores, 0 bytes spill loads")) << name;
  EXPECT_THAT(binary.log, testing::Not(testing::HasSubstr("C75"))) << name;
}

// The tile's kernel, with at least so many matrix products.
inline void expect_good_kernel(const Problem& problem, const std::string& name, int products) {
  ASSERT_EQ(unfit(parse_tile(name), problem), "") << name;
  const Binary binary = Nvrtc::get()->compile(source(parse_tile(name), problem).whole(), "sm_90a");
  expect_good_code(binary, name);
  EXPECT_GE(count_instructions(binary.code, kHgmma), products) << name;
}

}  // namespace faltung::weights_gradient_sm90

#endif  // FALTUNG_TESTS_WEIGHTS_GRADIENT_SM90_HPP_
