// GELU as Hopper's kernels compute it for results of 16 bits, on the CPU: within what docs/accuracy.md grants
// an activation.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace faltung::quick {
namespace {

float two_to_the(float exponent) {
  return std::exp2(exponent) * (1 + 0x1p-22f);
}  // no further off is the chip's

#define __device__
#define __forceinline__
#include "kernels/sm90/gelu.cuh"
#undef __device__
#undef __forceinline__

double gelu(double x) { return 0.5 * x * std::erfc(-x * std::sqrt(0.5)); }

TEST(QuickGelu, IsWithinTheBoundOfAnActivation) {
  for (int i = -(1 << 20); i <= 1 << 20; ++i) {
    const float x = static_cast<float>(i) * 0x1p-16f;  // up to 16
    ASSERT_NEAR(quick_gelu(x, 0), gelu(x), 8 * 0x1p-24 * std::abs(x)) << x;
  }
}

// Of results that 16 bits have all their bits for, much less than those.
TEST(QuickGelu, IsRightBelowZeroToo) {
  for (float x = -4; x < 0; x += 0x1p-12f) ASSERT_NEAR(quick_gelu(x, 0) / gelu(x), 1, 0x1p-13) << x;
}

TEST(QuickGelu, HasTheLimitsOfTheExactOne) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(quick_gelu(kInfinity, 0), kInfinity);
  EXPECT_TRUE(std::isnan(quick_gelu(-kInfinity, 0)));  // as x (1 + erf(x / sqrt 2)) is
  EXPECT_TRUE(std::isnan(quick_gelu(std::numeric_limits<float>::quiet_NaN(), 0)));
  EXPECT_EQ(quick_gelu(0, 0), 0);
  EXPECT_EQ(quick_gelu(1000, 0), 1000);
  EXPECT_EQ(quick_gelu(-1000, 0), 0);
  EXPECT_EQ(quick_gelu(std::numeric_limits<float>::max(), 0), std::numeric_limits<float>::max());
}

}  // namespace
}  // namespace faltung::quick
