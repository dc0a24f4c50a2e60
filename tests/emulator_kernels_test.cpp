// The portable kernels, compiled for AMD's chips and run in the emulator: exact on small integers, within the
// bound on random data, and without a fault that the emulator finds. No GPU is needed.
//
// FALTUNG_TEST_ONLY=<kernel-name pattern> narrows it to those kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <map>
#include <optional>
#include <set>

#include "src/problem/text.hpp"
#include "tests/builder.hpp"
#include "tests/emulator/device.hpp"
#include "tests/emulator/half_definitions.hpp"
#include "tests/emulator/run.hpp"
#include "tests/emulator/scalar_definitions.hpp"
#include "tests/registry_problems.hpp"
#include "tests/sampling.hpp"

namespace faltung {
namespace {

using emulator::EmulatedDevice, emulator::run;

std::shared_ptr<EmulatedDevice> device_of(const std::string& chip) {
  return std::make_shared<EmulatedDevice>(chip, sampling::seed());
}

constexpr const char* kChips[] = {"gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"};

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
        const Oracle oracle(problem, data, exact ? 1 : 2);
        const Finding finding = run(*plan, candidate.accuracy, oracle, parallel_);
        EXPECT_TRUE(finding.right()) << what << (exact ? ", on small integers: " : ", on random data: ")
                                     << finding.worst;
      }
      ++verified_;
      const auto product = device_->counts.find("implicit_gemm_matrix");
      if (product != device_->counts.end()) {
        EXPECT_LE(product->second.most_ways, 2u) << what << ": conflicts of banks";
      }
      for (const auto& [mnemonic, where] : device_->executed) {
        const bool chooses = mnemonic.starts_with("v_cmpx_");  // as v_cmp_ finds
        if (!defined().contains(chooses ? "v_cmp_" + mnemonic.substr(7) : mnemonic))
          undefined_.emplace(mnemonic, where);
      }
    } catch (const Error& error) {
      // What uses private memory is left out, and said.
      if (std::string(error.what()).find("bytes of private memory") != std::string::npos) {
        std::printf("left out: %s: %s\n", what.c_str(), error.what());
        return;
      }
      ADD_FAILURE() << what << ": " << error.what();
    }
  }

  // Arithmetic that tests/emulator_instructions_test.cpp holds to a definition of its own.
  static const std::set<std::string>& defined() {
    static const std::set<std::string> all = [] {
      std::set<std::string> names;
      const auto add = [&](const auto& definitions) {
        for (const auto& definition : definitions) {
          const emulator::Instruction i = emulator::decode(definition.text);
          names.insert(i.mnemonic);
        }
      };
      add(emulator::kVectorDefinitions), add(emulator::kHalfDefinitions), add(emulator::kScalarDefinitions),
          add(emulator::kRareScalarDefinitions);
      names.insert(
          {"v_div_scale_f32", "v_div_fmas_f32", "v_div_fixup_f32"});  // EmulatorInstructions.Divisions
      return names;
    }();
    return all;
  }

  std::shared_ptr<EmulatedDevice> device_;
  std::optional<Builder> builder_;
  const Parallel parallel_{1};
  int verified_ = 0;
  std::map<std::string, std::string> undefined_;  // and a kernel that has it
};

// Of each algorithm a problem on each chip in turn; of the matrix units' kernel, which nothing else runs,
// more on every chip. What is drawn is small, unless all problems are to be tested on every chip, each with a
// config that the seed draws.
TEST_P(EmulatorKernels, EveryAlgorithm) {
  FALTUNG_TRACE_SAMPLE();
  const std::size_t chip = static_cast<std::size_t>(
      std::find(std::begin(kChips), std::end(kChips), std::string(GetParam())) - std::begin(kChips));
  std::size_t number = 0;  // of algorithms that such chips have
  std::vector<Problem> problems = shape_problems();
  for (const Problem& p : epilogue_problems()) problems.push_back(p);
  for (const auto& algorithm : registry()) {
    if (algorithm->device_kind() != "gpu") continue;
    std::vector<Problem> supported;
    for (Problem p : problems) {
      validate(p);
      constexpr double kMostFlops = 4e6;
      if (!sampling::full() && flops(p) > kMostFlops) continue;
      if (!algorithm->supports(p, builder_->target()).yes) p.math = Math::fast;
      if (algorithm->supports(p, builder_->target()).yes) supported.push_back(p);
    }
    const bool is_matrix = algorithm->name() == "implicit_gemm_matrix_gpu";
    if (supported.empty()) continue;
    if (!is_matrix && !sampling::full() && (number++ + sampling::seed()) % std::size(kChips) != chip)
      continue;
    const std::string label = std::string(GetParam()) + std::string(algorithm->name());
    const double kinds = (is_matrix ? 3 : 1) / 18.0;
    for (const Problem& p : sampling::draw(supported, kinds, label, [](const Problem& q) {
           return std::string(name(q.direction)) + name(q.layout) + name(q.dtype);
         })) {
      const std::vector<Candidate> candidates = algorithm->candidates(p, builder_->target());
      verify(p, candidates[sampling::shuffled(candidates.size(), label + to_string(p)).front()]);
    }
  }
  std::printf("%d kernels verified on %s\n", verified_, GetParam());
  EXPECT_GT(verified_, 0);
  for (const auto& [mnemonic, where] : undefined_)
    ADD_FAILURE() << mnemonic << ", which " << where << " executes, has no definition in tests/emulator";
}

// Multiply-adds that it emulates in a second of one core's time, in a plain kernel.
TEST(EmulatorSpeed, MultiplyAddsASecond) {
  std::shared_ptr<EmulatedDevice> device;
  try {
    device = device_of("gfx1030");
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  Builder builder(device);
  const Parallel parallel{1};
  const Problem p = parse_problem("fwd:n1c32h16w16k64r3s3:pad1:f32:nhwc");
  const Candidate candidate = find_algorithm("implicit_gemm_gpu").candidates(p, builder.target()).front();
  const auto plan = builder.plan(p, candidate);
  const Oracle oracle(p, Data::small_integers, 1);
  const std::clock_t begin = std::clock();
  EXPECT_TRUE(run(*plan, candidate.accuracy, oracle, parallel).right());
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  const double rate = flops(p) / 2 / seconds;
  std::printf("%.1f million multiply-adds a second of one core, %s\n", rate / 1e6,
              candidate.kernel().c_str());
  // Of what is compiled without optimization, or with a sanitizer in it, nothing is asked.
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_GE(rate, 5e6);
#endif
}

INSTANTIATE_TEST_SUITE_P(Chips, EmulatorKernels, testing::ValuesIn(kChips),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace faltung
