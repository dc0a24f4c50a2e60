// Every algorithm of the registry, each of its configs, over every direction, layout, dtype and epilogue, on
// shapes drawn from the lists in tests/shapes (tests/sampling.hpp): exact on small integers, then within the
// bound.
//
// FALTUNG_TEST_ONLY=<kernel-name pattern> narrows it while one algorithm is being written.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/algorithms.hpp"
#include "tests/builder.hpp"
#include "tests/registry_problems.hpp"

namespace faltung {
namespace {

class Registry : public testing::TestWithParam<const Algorithm*> {
 protected:
  // Verifies every config of the algorithm.
  void verify_all(const Problem& problem) {
    validate(problem);
    const Algorithm& algorithm = *GetParam();
    const std::vector<Candidate> candidates = algorithm.candidates(problem, builder_.target());
    ASSERT_FALSE(candidates.empty()) << to_string(problem);
    const char* only = std::getenv("FALTUNG_TEST_ONLY");
    Verifier verifier(problem, builder_.device(), parallel_, 1);
    for (const Candidate& candidate : candidates) {
      const std::string kernel = candidate.kernel();
      if (only != nullptr && !matches(only, kernel)) continue;
      const Report report = verifier.kernel(candidate, builder_.store());
      EXPECT_TRUE(passed(report)) << "faltung verify '" << to_string(problem) << "' --kernel " << kernel
                                  << " --seed 1: " << name(report.outcome) << ", " << report.why;
      ++verified_;
    }
  }

  // Those that the algorithm takes, of each kind some; a problem that it declines must come with a reason.
  // What it declines for its error it may do where all is allowed.
  std::vector<Problem> drawn(const std::vector<Problem>& all, double each,
                             std::string (*kind)(const Problem&) = kind_of) {
    const Target target = builder_.target();
    std::vector<Problem> taken;
    for (Problem p : all) {
      Support support = GetParam()->supports(p, target);
      if (!support.yes && p.epilogue.empty()) {
        EXPECT_FALSE(support.why.empty()) << to_string(p);
        p.math = Math::fast;
        support = GetParam()->supports(p, target);
      }
      if (support.yes) taken.push_back(p);
      EXPECT_TRUE(support.yes || !support.why.empty()) << to_string(p);
    }
    return sampling::draw(taken, each, std::string(GetParam()->name()), kind);
  }

  std::shared_ptr<const Parallel> parallel_ = std::make_shared<Parallel>(2);
  Builder builder_{find_device("cpu"), parallel_};
  int verified_ = 0;
};

TEST_P(Registry, ShapesInEveryDirectionLayoutAndDtype) {
  FALTUNG_TRACE_SAMPLE();
  for (const Problem& problem : drawn(shape_problems(), 6)) verify_all(problem);
}

TEST_P(Registry, EveryDimension) {
  FALTUNG_TRACE_SAMPLE();
  for (const Problem& problem : drawn(dimension_problems(), 2, dimension_kind_of)) verify_all(problem);
}

// Planes of one row of whole vectors, of which some depths of the result take none, whatever the processor's
// vectors: they must not be taken for planes that lie in the tensor.
TEST_P(Registry, DepthsBeyondTheInput) {
  for (const char* shape : {"bwd_d:n1c3d4h1w%dk2t3r1s1:st2", "bwd_d:n2c3d5h1w%dk2t1r1s1:st2x1x1:pad1x0x0",
                            "fwd:n1c3d1h1w%dk2t2r1s1:pad2x0x0", "fwd:n1c3d1h1w%dk2t3r1s1:transposed:st2"}) {
    for (const int columns : {8, 16, 32, 64}) {
      const std::string before = std::string(shape).substr(0, std::string(shape).find("%d"));
      const std::string after = std::string(shape).substr(before.size() + 2);
      const Problem p = parse_problem(before + std::to_string(columns) + after);
      if (GetParam()->supports(p, builder_.target()).yes) verify_all(p);
    }
  }
}

TEST_P(Registry, EveryEpilogue) {
  FALTUNG_TRACE_SAMPLE();
  for (const Problem& problem : drawn(epilogue_problems(), 1)) verify_all(problem);
}

TEST_P(Registry, SlicesOfTensors) {
  FALTUNG_TRACE_SAMPLE();
  for (const Problem& problem : drawn(slice_problems(), 2)) verify_all(problem);
}

TEST_P(Registry, ThroughScaleAndShift) {
  FALTUNG_TRACE_SAMPLE();
  for (const Problem& problem : drawn(affine_problems(), 1)) verify_all(problem);
}

INSTANTIATE_TEST_SUITE_P(All, Registry, testing::ValuesIn(algorithms("cpu")), algorithm_name);

}  // namespace
}  // namespace faltung
