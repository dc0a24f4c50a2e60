// The portable kernels, compiled for AMD's chips and run in the emulator: exact on small integers, within the
// bound on random data, and without a fault that the emulator finds. No GPU is needed.
//
// FALTUNG_TEST_ONLY=<kernel-name pattern> narrows it to those kernels.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "src/problem/text.hpp"
#include "tests/builder.hpp"
#include "tests/emulator/device.hpp"
#include "tests/emulator/run.hpp"
#include "tests/registry_problems.hpp"
#include "tests/sampling.hpp"

namespace faltung {
namespace {

using emulator::EmulatedDevice, emulator::run;

std::shared_ptr<EmulatedDevice> device_of(const std::string& chip) {
  return std::make_shared<EmulatedDevice>(chip, sampling::seed());
}

class EmulatorKernels : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    try {
      device_ = device_of(GetParam());
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    builder_.emplace(device_);
  }

  void verify(const Problem& problem, const Candidate& candidate) {
    const std::string what = candidate.kernel() + " for " + to_string(problem);
    const char* only = std::getenv("FALTUNG_TEST_ONLY");
    if (only != nullptr && !matches(only, candidate.kernel())) return;
    try {
      const auto plan = builder_->plan(problem, candidate);
      for (const Data data : {Data::small_integers, Data::random}) {
        const bool exact = data == Data::small_integers;
        const Oracle oracle(problem, data, exact ? 1 : 2, exact ? candidate.weight_unit : 1);
        const Finding finding = run(*plan, candidate.accuracy, oracle, parallel_);
        EXPECT_TRUE(finding.right()) << what << (exact ? ", on small integers: " : ", on random data: ")
                                     << finding.worst;
      }
      ++verified_;
    } catch (const Error& error) {
      // What uses private memory is left out, and said.
      if (std::string(error.what()).find("bytes of private memory") != std::string::npos) {
        std::printf("left out: %s: %s\n", what.c_str(), error.what());
        return;
      }
      ADD_FAILURE() << what << ": " << error.what();
    }
  }

  std::shared_ptr<EmulatedDevice> device_;
  std::optional<Builder> builder_;
  const Parallel parallel_{1};
  int verified_ = 0;
};

TEST_P(EmulatorKernels, EveryAlgorithm) {
  FALTUNG_TRACE_SAMPLE();
  std::vector<Problem> problems = shape_problems();
  for (const Problem& p : epilogue_problems()) problems.push_back(p);
  for (const auto& algorithm : registry()) {
    if (algorithm->device_kind() != "gpu") continue;
    std::vector<std::pair<Problem, Candidate>> all;
    for (Problem p : problems) {
      validate(p);
      if (!algorithm->supports(p, builder_->target()).yes) p.math = Math::fast;
      if (!algorithm->supports(p, builder_->target()).yes) continue;
      for (Candidate& c : algorithm->candidates(p, builder_->target())) all.emplace_back(p, std::move(c));
    }
    // Of 18 kinds one, and of the matrix units' kernel, which nothing else runs, three.
    const double each = (algorithm->name() == "implicit_gemm_matrix_gpu" ? 3 : 1) / 18.0;
    for (const auto& [problem, candidate] : sampling::draw(
             all, each, std::string(GetParam()) + std::string(algorithm->name()), [](const auto& c) {
               return std::string(name(c.first.direction)) + name(c.first.layout) + name(c.first.dtype);
             })) {
      verify(problem, candidate);
    }
  }
  std::printf("%d kernels verified on %s\n", verified_, GetParam());
  EXPECT_GT(verified_, 0);
}

INSTANTIATE_TEST_SUITE_P(Chips, EmulatorKernels,
                         testing::Values("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace faltung
