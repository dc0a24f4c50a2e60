// Forward and the two gradients are three views of one trilinear form: <dy, conv(x, w)> = <dx, x> = <dw, w>,
// exactly on integers, by every algorithm.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "src/problem/dtype.hpp"
#include "tests/algorithms.hpp"
#include "tests/builder.hpp"
#include "tests/registry_problems.hpp"
#include "tests/sampling.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

std::vector<float> integers(i64 count, std::mt19937_64& random) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = static_cast<float>(random() % 5) - 2;
  return values;
}

// Of integers, whose sum is one that a double holds.
double inner_product(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0, std::plus<>(),
                            [](float u, float v) { return static_cast<double>(u) * v; });
}

class Adjoint : public testing::TestWithParam<const Algorithm*> {
 protected:
  // The algorithm's first candidate; implicit GEMM's where it declines a direction.
  Candidate candidate(const Problem& p) const {
    const bool own = GetParam()->supports(p, builder_.target()).yes;
    const Algorithm& algorithm = own ? *GetParam() : find_algorithm("implicit_gemm_cpu");
    return algorithm.candidates(p, builder_.target()).front();
  }

  std::vector<float> run(const Problem& p, const Candidate& candidate, std::vector<float>& x,
                         std::vector<float>& w, std::vector<float>& y) {
    std::vector<float> result(static_cast<std::size_t>(result_shape(p).elements()), NAN);
    Tensors tensors{x.data(), w.data(), y.data(), nullptr, nullptr};
    (p.direction == Direction::forward         ? tensors.y
     : p.direction == Direction::backward_data ? tensors.x
                                               : tensors.w) = result.data();
    const std::shared_ptr<const PlanImpl> plan = builder_.plan(p, candidate);
    std::vector<std::byte> workspace(plan->workspace_bytes(false));
    RunOptions options;
    options.workspace = workspace.data();
    plan->run(tensors, options);
    return result;
  }

  // False if the algorithm computes none of the three exactly.
  bool check(Problem p, std::uint64_t seed) {
    constexpr Direction kAll[] = {Direction::forward, Direction::backward_data, Direction::backward_weights};
    std::vector<Candidate> candidates;
    int own = 0;
    for (const Direction direction : kAll) {
      p.direction = direction;
      candidates.push_back(candidate(p));
      const Candidate& c = candidates.back();
      if (!c.accuracy.exact_on_integers) return false;
      own += c.algorithm == GetParam();
    }
    if (own == 0) return false;
    std::mt19937_64 random(seed);
    std::vector<float> x = integers(x_shape(p).elements(), random);
    std::vector<float> w = integers(w_shape(p).elements(), random);
    std::vector<float> dy = integers(conv_shape(p).elements(), random);
    p.direction = Direction::forward;
    const double forward = inner_product(dy, run(p, candidates[0], x, w, dy));
    p.direction = Direction::backward_data;
    EXPECT_EQ(inner_product(x, run(p, candidates[1], x, w, dy)), forward)
        << candidates[1].kernel() << " and " << candidates[0].kernel() << " of " << to_string(p);
    p.direction = Direction::backward_weights;
    EXPECT_EQ(inner_product(w, run(p, candidates[2], x, w, dy)), forward)
        << candidates[2].kernel() << " and " << candidates[0].kernel() << " of " << to_string(p);
    return true;
  }

  Builder builder_{find_device("cpu"), std::make_shared<Parallel>(2)};
};

TEST_P(Adjoint, ThreeDirectionsAgree) {
  FALTUNG_TRACE_SAMPLE();
  std::vector<Problem> problems;
  for (const std::vector<Problem>& all : {shape_problems(), dimension_problems()}) {
    for (Problem p : all) {
      if (p.direction != Direction::forward || p.dtype != DType::f32 || !p.epilogue.empty()) continue;
      if (!GetParam()->supports(p, builder_.target()).yes) p.math = Math::fast;
      if (GetParam()->supports(p, builder_.target()).yes) problems.push_back(p);
    }
  }
  int checked = 0;
  std::uint64_t seed = sampling::seed();
  for (const Problem& p : sampling::draw(problems, 4, std::string(GetParam()->name()), dimension_kind_of))
    checked += check(p, ++seed);
  std::printf("%d problems\n", checked);
  const bool is_exact = GetParam()->name() != "fft_cpu";
  EXPECT_EQ(checked > 0, is_exact);
}

INSTANTIATE_TEST_SUITE_P(All, Adjoint, testing::ValuesIn(algorithms("cpu")), algorithm_name);

}  // namespace
}  // namespace faltung
