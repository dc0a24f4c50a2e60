// The portable kernels, compiled for AMD's chips and run in the emulator: exact on small integers, within the
// bound on random data, and without a fault that the emulator finds. No GPU is needed.
//
// FALTUNG_TEST_ONLY=<kernel-name pattern> narrows it to those kernels, !<pattern> to the others,
// FALTUNG_TEST_PROBLEM=<problem string> to that problem with every config, FALTUNG_TEST_PART=<i>/<n> to every
// n-th case, i from 1: with FALTUNG_TEST_FULL=1 all takes hours of one core, and parts run side by side.
// FALTUNG_TEST_RECORD=<file> (tests/case_record.hpp) goes on where a run was cut off,
// FALTUNG_TEST_STORE=<folder> keeps what was compiled.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <map>
#include <optional>
#include <set>

#include <sys/times.h>
#include <unistd.h>

#include "src/problem/text.hpp"
#include "tests/builder.hpp"
#include "tests/case_record.hpp"
#include "tests/emulator/device.hpp"
#include "tests/emulator/half_definitions.hpp"
#include "tests/emulator/run.hpp"
#include "tests/emulator/scalar_definitions.hpp"
#include "tests/parts.hpp"
#include "tests/random_problems.hpp"
#include "tests/registry_problems.hpp"
#include "tests/sampling.hpp"

namespace faltung {
namespace {

using emulator::EmulatedDevice, emulator::run;

std::shared_ptr<EmulatedDevice> device_of(const std::string& compiler) {
  return std::make_shared<EmulatedDevice>(compiler, sampling::seed());
}

// OpenCL C on every chip, HIP on one of each width of waves.
constexpr const char* kCompilers[] = {"clang:gfx90a",     "clang:gfx942",  "clang:gfx1030",
                                      "clang:gfx1100",    "clang:gfx1201", "clang-hip:gfx942",
                                      "clang-hip:gfx1100"};

// Of this process and of the compilers that it started: what others do on the machine is not counted.
double processor_seconds() {
  tms used{};
  times(&used);
  return static_cast<double>(used.tms_utime + used.tms_stime + used.tms_cutime + used.tms_cstime) /
         static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::string words_of(std::string compiler) {
  std::replace_if(
      compiler.begin(), compiler.end(), [](char c) { return c == ':' || c == '-'; }, '_');
  return compiler;
}

// An algorithm of which the chip has something to compute.
struct Subject {
  const Algorithm* algorithm = nullptr;
  std::vector<Problem> supported;
  std::string label;
};

bool is_asked_for(const std::string& kernel) {
  const char* const only = std::getenv("FALTUNG_TEST_ONLY");
  if (only == nullptr) return true;
  return *only == '!' ? !matches(only + 1, kernel) : matches(only, kernel);
}

const char* given_problem() { return std::getenv("FALTUNG_TEST_PROBLEM"); }

std::vector<Subject> subjects_on(const Target& target, const std::string& compiler) {
  std::vector<Problem> problems;
  if (given_problem() != nullptr) {
    problems.push_back(parse_problem(given_problem()));
  } else {
    problems = shape_problems();
    for (const Problem& p : epilogue_problems()) problems.push_back(p);
  }
  std::vector<Subject> subjects;
  for (const auto& algorithm : registry()) {
    if (algorithm->device_kind() != "gpu") continue;
    Subject subject{algorithm.get(), {}, compiler + std::string(algorithm->name())};
    for (Problem p : problems) {
      validate(p);
      constexpr double kMostFlops = 4e6;
      if (flops(p) > kMostFlops) continue;
      if (!algorithm->supports(p, target).yes) p.math = Math::fast;
      if (algorithm->supports(p, target).yes) subject.supported.push_back(p);
    }
    if (!subject.supported.empty()) subjects.push_back(std::move(subject));
  }
  return subjects;
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
    if (!is_asked_for(candidate.kernel())) return;
    const std::string recorded = std::string(GetParam()) + " " + what;
    if (record_.has(recorded)) return;
    bool right = true;
    try {
      const auto plan = builder_->plan(problem, candidate);
      for (const Data data : {Data::small_integers, Data::random}) {
        const bool exact = data == Data::small_integers;
        const Oracle oracle(problem, data, exact ? 1 : 2);
        const Finding finding = run(*plan, candidate.accuracy, oracle, parallel_);
        right = right && finding.right();
        EXPECT_TRUE(finding.right()) << what << (exact ? ", on small integers: " : ", on random data: ")
                                     << finding.worst;
      }
      ++verified_;
      ++by_algorithm_[candidate.kernel().substr(0, candidate.kernel().find('/'))];
      for (const char* product : {"implicit_gemm_matrix", "implicit_gemm_matrix_weights"}) {
        const auto counts = device_->counts.find(product);
        if (counts != device_->counts.end()) {
          EXPECT_LE(counts->second.most_ways, 2u) << what << ": conflicts of banks";
        }
      }
      for (const auto& [mnemonic, where] : device_->executed) {
        const bool chooses = mnemonic.starts_with("v_cmpx_");  // as v_cmp_ finds
        if (!defined().contains(chooses ? "v_cmp_" + mnemonic.substr(7) : mnemonic))
          undefined_.emplace(mnemonic, where);
      }
      record_.add(right ? "right" : "wrong", recorded);
    } catch (const Error& error) {
      record_.add("wrong", recorded);
      ADD_FAILURE() << what << ": " << error.what();
    }
  }

  void say_verified(const char* what) const {
    std::printf("%d %s verified on %s", verified_, what, GetParam());
    for (const auto& [algorithm, number] : by_algorithm_) std::printf(", %s %d", algorithm.c_str(), number);
    std::printf("\n");
  }

  // Problems and configs of all subjects, as the seed draws them, until their time is over.
  void verify_more(const std::vector<Subject>& subjects) {
    const double seconds = 3 * sampling::share(), begin = processor_seconds();
    constexpr std::size_t kMost = 1000;  // where FALTUNG_TEST_ONLY leaves out most
    constexpr double kMostFlops = 1e6;   // none of them takes all the time
    const int before = verified_;
    for (std::size_t turn = 0; turn < kMost && processor_seconds() - begin < seconds; ++turn) {
      const std::string label = std::string(GetParam()) + " more " + std::to_string(turn);
      const Subject& subject = subjects[sampling::shuffled(subjects.size(), label).front()];
      const Problem& p = subject.supported[sampling::shuffled(subject.supported.size(), label).front()];
      if (flops(p) > kMostFlops) continue;
      const std::vector<Candidate> candidates = subject.algorithm->candidates(p, builder_->target());
      verify(p, candidates[sampling::shuffled(candidates.size(), label).front()]);
    }
    std::printf("%d more by FALTUNG_TEST_SEED=%llu in %.1f s of processor time\n", verified_ - before,
                static_cast<unsigned long long>(sampling::seed()), processor_seconds() - begin);
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
  CaseRecord record_;
  const Parallel parallel_{1};
  int verified_ = 0;
  std::map<std::string, int> by_algorithm_;
  std::map<std::string, std::string> undefined_;  // and a kernel that has it
};

using EmulatedCase = std::pair<Problem, Candidate>;

std::string direction_layout_dtype(const Problem& p) {
  return std::string(name(p.direction)) + name(p.layout) + name(p.dtype);
}

// Of some of the kinds of problems one, with a config; both as the seed draws them.
std::vector<EmulatedCase> drawn_cases(const std::vector<Problem>& supported, const Algorithm& algorithm,
                                      const Target& target, double kinds, const std::string& label) {
  std::vector<EmulatedCase> cases;
  for (const Problem& p : sampling::draw(supported, kinds, label, direction_layout_dtype)) {
    const std::vector<Candidate> candidates = algorithm.candidates(p, target);
    cases.emplace_back(p, candidates[sampling::shuffled(candidates.size(), label + to_string(p)).front()]);
  }
  return cases;
}

// A config but for how many blocks share a sum: whether they do at all.
std::string config_family(const std::string& config) {
  const std::size_t parts = config.find("_sk");
  if (parts == std::string::npos) return config;
  return config.substr(0, parts) + "_sk" +
         config.substr(std::min(config.size(), config.find_first_not_of("0123456789", parts + 3)));
}

// Each problem once, with a config that is drawn; and each config once for each kind of problem, and once for
// each epilogue, on the first problem that lists it in the order that the seed draws. All problems with all
// configs would take days.
std::vector<EmulatedCase> every_problem_and_config(const std::vector<Problem>& supported,
                                                   const Algorithm& algorithm, const Target& target,
                                                   const std::string& label) {
  std::vector<EmulatedCase> cases;
  std::set<std::string> seen;
  for (const std::size_t i : sampling::shuffled(supported.size(), label)) {
    const Problem& p = supported[i];
    const std::string text = to_string(p), epilogue = text.substr(text.find(name(p.layout)));
    const bool plain = p.epilogue == Epilogue{};
    const std::vector<Candidate> candidates = algorithm.candidates(p, target);
    const std::size_t before = cases.size();
    for (const Candidate& candidate : candidates) {
      const std::string kind = plain ? direction_layout_dtype(p) + config_family(candidate.config) : epilogue;
      if (seen.insert(kind).second || given_problem() != nullptr) cases.emplace_back(p, candidate);
    }
    if (cases.size() == before)
      cases.emplace_back(p, candidates[sampling::shuffled(candidates.size(), label + text).front()]);
  }
  std::printf("%zu cases of %s\n", cases.size(), std::string(algorithm.name()).c_str());
  return cases;
}

// Of each algorithm a problem on each chip in turn; of the matrix units' kernel, which nothing else runs,
// more on every chip. Then others of all algorithms, as the seed draws them, for some seconds of processor
// time. Where all is to be tested, every problem and every config on every chip.
TEST_P(EmulatorKernels, EveryAlgorithm) {
  FALTUNG_TRACE_SAMPLE();
  const std::size_t chip = static_cast<std::size_t>(
      std::find(std::begin(kCompilers), std::end(kCompilers), std::string(GetParam())) -
      std::begin(kCompilers));
  const Target target = builder_->target();
  const std::vector<Subject> subjects = subjects_on(target, GetParam());
  std::size_t number = 0;  // of algorithms that such chips have
  std::size_t place = 0;   // of a case among all
  for (const Subject& subject : subjects) {
    const bool is_matrix = subject.algorithm->name() == "implicit_gemm_matrix_gpu";
    if (!is_matrix && !sampling::full() && (number++ + sampling::seed()) % std::size(kCompilers) != chip)
      continue;
    const double kinds = (is_matrix ? 3 : 1) / 18.0;
    for (const auto& [p, candidate] :
         sampling::full()
             ? every_problem_and_config(subject.supported, *subject.algorithm, target, subject.label)
             : drawn_cases(subject.supported, *subject.algorithm, target, kinds, subject.label))
      if (parts::ours(place++)) verify(p, candidate);
  }
  if (!sampling::full() && !parts::given()) verify_more(subjects);
  say_verified("kernels");
  if (!parts::given()) {
    EXPECT_GT(verified_, 0);
  }
  for (const auto& [mnemonic, where] : undefined_)
    ADD_FAILURE() << mnemonic << ", which " << where << " executes, has no definition in tests/emulator";
}

// Of a tile whose sums are more than a chip's registers hold some are spilled to accumulators, some to
// private memory: LLVM 19 forgot a part of what it had divided between both.
TEST(EmulatorSpills, ComeBackWhole) {
  std::shared_ptr<EmulatedDevice> device;
  try {
    device = device_of("clang:gfx942");
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  Builder builder(device);
  const Problem p = parse_problem("bwd_d:n1c5h17w18k5r13s13:pad6:g5:f32:nchw");
  const Candidate candidate = find_candidate("depthwise_gpu/walk_tt14x8", p, builder.target());
  const auto plan = builder.plan(p, candidate);
  const Finding finding = run(*plan, candidate.accuracy, Oracle(p, Data::small_integers, 1), Parallel{1});
  EXPECT_TRUE(finding.right()) << finding.worst;
}

// Multiply-adds that it emulates in a second of one core's time, in a plain kernel.
TEST(EmulatorSpeed, MultiplyAddsASecond) {
  std::shared_ptr<EmulatedDevice> device;
  try {
    device = device_of("clang:gfx1030");
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

// The gradient of the weights on matrix units, by its tiles in turn: channels that are no whole fours,
// groups, more taps than a word has bits, pixels that end within a tile.
TEST_P(EmulatorKernels, WeightsGradientsOnMatrixUnits) {
  const Algorithm& algorithm = find_algorithm("implicit_gemm_matrix_gpu");
  const char* const texts[] = {"bwd_w:n2c12h9w7k20r3s3:pad1:f16:nhwc",
                               "bwd_w:n1c5h8w9k7r2s3:st2:pad1.0.2.1:bf16:nchw",
                               "bwd_w:n1c8h13w13k8r7s7:pad3:g2:f16:nhwc", "bwd_w:n2c16h6w6k72r1s1:bf16:nhwc",
                               "bwd_w:n1c4h16w15k40r3s3:dil2:st2x1:f32:nhwc"};
  constexpr std::size_t kUsual = 2;  // of these, on each chip others
  const std::size_t chip = static_cast<std::size_t>(
      std::find(std::begin(kCompilers), std::end(kCompilers), std::string(GetParam())) -
      std::begin(kCompilers));
  const std::size_t turn = sampling::seed() + chip;
  std::size_t place = 0;  // of a case among all
  for (std::size_t t = 0; t < std::size(texts); ++t) {
    if (!sampling::full() && (t + turn) % std::size(texts) >= kUsual) continue;
    const Problem p = parse_problem(texts[t]);
    if (!algorithm.supports(p, builder_->target()).yes) continue;
    const std::vector<Candidate> all = algorithm.candidates(p, builder_->target());
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!sampling::full() && i != (t + turn) % all.size()) continue;
      if (parts::ours(place++)) verify(p, all[i]);
    }
  }
  say_verified("kernels");
}

// Problems of dice by a kernel that the dice choose, on each chip in turn; and by a kernel of the CPU's: both
// are the integers' exact result, and so agree to the bit.
TEST_P(EmulatorKernels, RandomProblemsAsOnTheCpu) {
  constexpr int kUsual = 7, kAll = 1000;  // on all chips together
  const int problems = sampling::full() ? kAll : sampling::count(kUsual);
  const auto first = std::find(std::begin(kCompilers), std::end(kCompilers), std::string(GetParam())) -
                     std::begin(kCompilers);
  Builder cpu(find_device("cpu"), std::make_shared<const Parallel>(1));
  for (auto i = static_cast<int>(first); i < problems; i += static_cast<int>(std::size(kCompilers))) {
    if (!parts::ours(static_cast<std::size_t>(i) / std::size(kCompilers))) continue;
    const std::uint64_t seed = sampling::seed() * 1'000'003 + static_cast<std::uint64_t>(i);
    Problem p = roll(seed);
    const std::string label = std::string(GetParam()) + to_string(p);
    std::vector<Candidate> supporting;  // of each algorithm one
    for (const auto& algorithm : registry()) {
      if (algorithm->device_kind() != "gpu" || !algorithm->supports(p, builder_->target()).yes) continue;
      const std::vector<Candidate> all = algorithm->candidates(p, builder_->target());
      supporting.push_back(all[sampling::shuffled(all.size(), label + all.front().kernel()).front()]);
    }
    ASSERT_FALSE(supporting.empty()) << label;
    verify(p, supporting[sampling::shuffled(supporting.size(), label).front()]);
    const Algorithm* const reference = &find_algorithm("reference_cpu");
    std::vector<Candidate> own;
    for (const auto& algorithm : registry()) {
      if (algorithm->device_kind() != "cpu" || algorithm.get() == reference) continue;
      if (!algorithm->supports(p, cpu.target()).yes) continue;
      for (const Candidate& c : algorithm->candidates(p, cpu.target())) own.push_back(c);
    }
    if (own.empty()) continue;
    const Candidate& mine = own[sampling::shuffled(own.size(), label).front()];
    const Oracle oracle(p, Data::small_integers, 1);
    const Finding finding = run(*cpu.plan(p, mine), mine.accuracy, oracle, parallel_);
    EXPECT_TRUE(finding.right()) << mine.kernel() << " for " << to_string(p) << ": " << finding.worst;
  }
  say_verified("problems");
}

INSTANTIATE_TEST_SUITE_P(Compilers, EmulatorKernels, testing::ValuesIn(kCompilers),
                         [](const auto& param) { return words_of(param.param); });

}  // namespace
}  // namespace faltung
