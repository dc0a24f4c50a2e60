// The three directions agree exactly on integers (tests/adjoint.hpp), by every algorithm for the CPU.
#include "tests/adjoint.hpp"

#include "tests/algorithms.hpp"
#include "tests/builder.hpp"
#include "tests/registry_problems.hpp"
#include "tests/sampling.hpp"

namespace faltung {
namespace {

class Adjoint : public testing::TestWithParam<const Algorithm*> {
 protected:
  // The algorithm's first candidate; implicit GEMM's where it declines a direction.
  Candidate candidate(const Problem& p) const {
    const bool own = GetParam()->supports(p, builder_.target()).yes;
    const Algorithm& algorithm = own ? *GetParam() : find_algorithm("implicit_gemm_cpu");
    return algorithm.candidates(p, builder_.target()).front();
  }

  // False if the algorithm computes none of the three exactly.
  bool check(Problem p, std::uint64_t seed) {
    std::vector<Candidate> candidates;
    int own = 0;
    for (const Direction direction : kDirections) {
      p.direction = direction;
      candidates.push_back(candidate(p));
      const Candidate& c = candidates.back();
      if (!c.accuracy.exact_on_integers) return false;
      own += c.algorithm == GetParam();
    }
    if (own == 0) return false;
    const TrilinearForm form(p, seed);
    double forward = 0;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      p.direction = kDirections[i];
      const double value = form.by(*builder_.plan(p, candidates[i]));
      if (i == 0) forward = value;
      EXPECT_EQ(value, forward) << candidates[i].kernel() << " and " << candidates[0].kernel() << " of "
                                << to_string(p);
    }
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
