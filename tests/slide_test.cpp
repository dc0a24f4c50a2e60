// One dimension of a convolution: what its slides sum, and how many of their taps meet the input.
#include "src/problem/slide.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>

namespace faltung {
namespace {

using i64 = std::int64_t;

// (output, input, tap), with inputs outside.
using Products = std::set<std::tuple<i64, i64, i64>>;

Products products(const std::vector<Slide>& slides) {
  Products all;
  for (const Slide& s : slides) {
    for (i64 t = 0; t < s.count; ++t) {
      for (i64 i = 0; i < s.taps; ++i)
        all.emplace(s.first + t * s.step, t * s.stride + s.origin + i * s.spacing, s.tap + i * s.tap_step);
    }
  }
  return all;
}

struct Drawn {
  i64 in, filter, stride, dilation, pad, out;
};
Drawn draw(std::mt19937& random) {
  const auto from_to = [&](i64 from, i64 to) { return from + static_cast<i64>(random()) % (to - from + 1); };
  Drawn d{from_to(1, 30), from_to(1, 7), from_to(1, 9), from_to(1, 5), from_to(0, 8), 0};
  d.out = (d.in + 2 * d.pad - d.dilation * (d.filter - 1) - 1) / d.stride + 1;
  return d;
}

TEST(Slides, BackwardTheyAreTheProductsOfForward) {
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    const Drawn d = draw(random);
    if (d.dilation * (d.filter - 1) + 1 > d.in + 2 * d.pad) continue;
    Products inside, adjoint;
    for (const auto& [out, in, tap] :
         products(forward_slides(d.in, d.out, d.filter, d.stride, d.dilation, d.pad))) {
      if (in >= 0 && in < d.in) inside.emplace(out, in, tap);
    }
    for (const auto& [in, out, tap] :
         products(backward_slides(d.out, d.in, d.filter, d.stride, d.dilation, d.pad))) {
      if (out >= 0 && out < d.out) adjoint.emplace(out, in, tap);
    }
    EXPECT_EQ(inside, adjoint) << d.in << " " << d.filter << " " << d.stride << " " << d.dilation << " "
                               << d.pad;
  }
}

TEST(Slides, TapsInsideAreCounted) {
  std::mt19937 random(2);
  for (int i = 0; i < 3000; ++i) {
    const Drawn d = draw(random);
    if (d.dilation * (d.filter - 1) + 1 > d.in + 2 * d.pad) continue;
    for (const Slide& s : forward_slides(d.in, d.out, d.filter, d.stride, d.dilation, d.pad)) {
      double count = 0;
      for (const auto& [out, in, tap] : products({s})) count += in >= 0 && in < s.size ? 1 : 0;
      EXPECT_EQ(taps_inside(s), count);
    }
  }
  EXPECT_EQ(taps_inside(forward_slides(i64{1} << 40, i64{1} << 39, 3, 2, 1, 1).front()), 1.5 * 0x1p40 - 1);
}

}  // namespace
}  // namespace faltung
