// What tests of Hopper's kernels check of several ways in which pixels are brought.
#ifndef FALTUNG_TESTS_SM90_CHECKS_HPP_
#define FALTUNG_TESTS_SM90_CHECKS_HPP_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>

#include "src/algorithms/algorithm.hpp"
#include "src/algorithms/sm90/list.hpp"
#include "tests/fake_device.hpp"

namespace faltung::sm90 {

struct Unfit {
  const char *tiling, *problem, *reason;
};

inline void expect_unfit(std::initializer_list<Unfit> all) {
  for (const Unfit& d : all) {
    EXPECT_THAT(unfit(parse_tiling(d.tiling), parse_problem(d.problem)), testing::HasSubstr(d.reason))
        << d.tiling << " " << d.problem;
  }
}

// One step, no workspace, and packed weights of as many values as the filter has: nothing is turned.
inline void expect_one_step(const char* tiling, std::int64_t taps,
                            std::initializer_list<const char*> problems) {
  static const FakeDevice hopper("fake:hopper", "sm_90a");
  for (const char* text : problems) {
    const Problem p = parse_problem(text);
    const Candidate c = find_algorithm("implicit_gemm_sm90").candidate(p, tiling, {hopper.info(), 1});
    EXPECT_EQ(c.workspace_bytes, 0u) << text;
    const Recipe recipe = c.recipe();
    ASSERT_EQ(recipe.steps.size(), 1u) << text;
    EXPECT_EQ(recipe.packed_bytes, static_cast<std::size_t>(p.k * p.c * taps * 4));
  }
}

}  // namespace faltung::sm90

#endif  // FALTUNG_TESTS_SM90_CHECKS_HPP_
