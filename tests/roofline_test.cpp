// What the rates of a device allow for a convolution.
#include "src/finder/cost.hpp"

#include <gtest/gtest.h>

namespace faltung {
namespace {

TEST(Roofline, BindsByWhatTakesLonger) {
  const Problem p = parse_problem("fwd:n1c64h56w56k64r3s3:pad1:f32:nhwc");
  const Ceilings compute_poor{{100}, {100}, {100}, {100}, 1000}, memory_poor{{1e6}, {1e6}, {1e6}, {1e6}, 1};
  const Roofline a = roofline(p, compute_poor), b = roofline(p, memory_poor);
  EXPECT_EQ(a.bound_by(a.ms()), "arithmetic");
  EXPECT_EQ(b.bound_by(b.ms()), "bytes");
  EXPECT_EQ(a.bound_by(100 * a.ms()), "latency");
  EXPECT_NEAR(a.ms(), flops(p) / 100e9 * 1e3, 1e-9);
  EXPECT_NEAR(a.share(2 * a.ms()), 50, 1e-9);
}

// An H200's rates: three products of tf32 do what one of the plain units does, faster.
TEST(Roofline, Fp32IsPlainUnitsOrThreeProductsOfMatrixUnits) {
  const Problem f32 = parse_problem("fwd:n1c256h224w224k256r3s3:f32:nhwc");
  Ceilings c{{59e3}, {490e3}, {913e3}, {963e3}, 4250};
  EXPECT_DOUBLE_EQ(arithmetic_ceiling(f32, c), 490e3 / 3);
  EXPECT_LT(roofline(f32, c).share(0.449), 100);  // as measured
  c.tf32 = c.f32;                                 // where there are no such units
  EXPECT_DOUBLE_EQ(arithmetic_ceiling(f32, c), 59e3);
}

}  // namespace
}  // namespace faltung
