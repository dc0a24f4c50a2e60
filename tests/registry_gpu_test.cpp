// Every algorithm for GPUs, each of its configs, on every GPU there is (OpenCL drivers for the CPU count):
// exact on small integers, then within the bound.
//
// A GPU draws pairs of a config and a problem: for each direction x layout x dtype x math one of each form of
// kernel, a form being a config's name without its numbers; of epilogues, dimensions and slices, each with
// each form, a fourth. A driver for the CPU would take an hour, most of it compiling: there each algorithm
// takes one shape for each direction x layout x dtype and one problem for each epilogue, its layout and dtype
// in turn, each with one config in turn. Both as the seed has them (tests/sampling.hpp); FALTUNG_TEST_SAMPLE
// multiplies how many. FALTUNG_TEST_FULL=1 runs every config on every problem: days.
//
// FALTUNG_TEST_ONLY=<kernel-name pattern> narrows it to those kernels, FALTUNG_TEST_DEVICES=<device
// patterns> to those devices, FALTUNG_TEST_PART=<i>/<n> to every n-th problem, i from 1: parts run side by
// side, as `./dev test-gpu` has them. FALTUNG_TEST_REQUIRE_GPU=1 makes a machine without any device a
// failure, and FALTUNG_TEST_REQUIRE_DRIVER=<part of a driver's name> one without that driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <set>

#include "src/problem/dtype.hpp"
#include "src/problem/text.hpp"
#include "tests/algorithms.hpp"
#include "tests/builder.hpp"
#include "tests/packed.hpp"
#include "tests/parts.hpp"
#include "tests/registry_problems.hpp"
#include "tests/sampling.hpp"
#include "tests/tested_devices.hpp"

namespace faltung {
namespace {

TEST(RegistryGpu, ThereIsADevice) {
  if (std::getenv("FALTUNG_TEST_REQUIRE_GPU") == nullptr) GTEST_SKIP() << "not required";
  EXPECT_FALSE(tested_gpus().empty());
}

// `./dev test` means to test each driver on its own: not one twice because the other did not start.
TEST(RegistryGpu, ItIsTheDriverThatIsMeant) {
  const char* wanted = std::getenv("FALTUNG_TEST_REQUIRE_DRIVER");
  if (wanted == nullptr) GTEST_SKIP() << "not required";
  const auto found = tested_gpus();
  EXPECT_FALSE(found.empty()) << wanted
                              << " lists no device; ./dev test installs it, and sets OCL_ICD_VENDORS and "
                              << "RUSTICL_ENABLE=llvmpipe";
  for (const auto& device : found) EXPECT_NE(device->info().driver.find(wanted), std::string::npos);
}

TEST(RegistryGpu, TheSampleMeetsEverything) {
  if (sampling::full() || sampling::share() < 1) GTEST_SKIP() << "another sample was asked for";
  const auto kinds = [](const std::vector<Problem>& problems, bool shapes) {
    std::set<std::string> met;
    for (const Problem& p : problems) {
      Problem kind;
      kind.epilogue = p.epilogue;
      if (shapes)
        kind.direction = p.direction, kind.layout = p.layout, kind.dtype = p.dtype, kind.math = p.math;
      met.insert(to_string(kind));
    }
    return met;
  };
  EXPECT_EQ(kinds(sample(shape_problems(), 1, ""), true), kinds(shape_problems(), true));
  EXPECT_EQ(kinds(shape_problems(), true).size(), 18u);
  const std::vector<Problem> chosen = sample(epilogue_problems(), 1, "");
  EXPECT_EQ(kinds(chosen, false), kinds(epilogue_problems(), false));
  std::set<std::string> variants;
  for (const Problem& p : chosen) variants.insert(std::string(name(p.layout)) + name(p.dtype));
  EXPECT_EQ(variants.size(), 6u);
  std::set<std::string> behind;  // what a GPU has configs meet
  for (const Problem& p : epilogue_problems()) behind.insert(kind_of(p));
  EXPECT_EQ(behind.size(), 17u * 2 * 3 + 2 * 4);
}

class RegistryGpu : public testing::TestWithParam<const Algorithm*> {
 protected:
  void SetUp() override {
    if (devices_.empty()) GTEST_SKIP() << "no GPU, and no OpenCL driver for the CPU";
  }

  // Adds the problem to those that the algorithm is to be right on, on a GPU one in f32 by tf32 as well.
  void consider(const Problem& problem) {
    add(problem);
    if (problem.dtype != DType::f32 || on_cpu()) return;
    Problem rounded = problem;
    rounded.math = Math::tf32;
    add(rounded);
  }

  using KindOf = std::string (*)(const Problem&);

  // Those that were considered. pairs: how many of each kind of problem and form of kernel, on a GPU.
  void verify_considered(double pairs, KindOf kind = kind_and_math_of) {
    if (!on_cpu()) return verify_pairs(kind, pairs);
    const std::string label =
        std::string(GetParam()->name()) + (problems_.empty() || problems_[0].epilogue.empty() ? "" : "+");
    problems_ = sample(problems_, compiles_slowly() ? 1.0 / 9 : 1, label);
    verify_each_with_one();
  }

  // Each with one config, in turn; with every config where all is to be tested.
  void verify_each_with_one() {
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      if (!parts::ours(i)) continue;
      verify(problems_[i],
             [turn = i + sampling::seed()](std::size_t number, std::size_t count, const std::string&) {
               return sampling::full() || turn % count == number;
             });
    }
    std::printf("%d kernels verified\n", verified_);
  }

  // Of the pairs of a form and an epilogue, a dimension, a slice, so that 16 processors compile ten minutes.
  static constexpr double kPart = 0.25;

  static std::string kind_and_math_of(const Problem& p) { return kind_of(p) + name(p.math); }

  bool on_cpu() const { return are_all_on_cpu(devices_); }

  bool compiles_slowly() const { return faltung::compiles_slowly(*GetParam(), *devices_.front()); }

 private:
  // Whether a problem is to be met with this one of so many configs.
  using Takes = std::function<bool(std::size_t number, std::size_t count, const std::string& config)>;

  // One that the algorithm declines must come with a reason.
  void add(Problem problem) {
    validate(problem);
    // What an algorithm declines for its error it may do where all is allowed.
    if (!GetParam()->supports(problem, target_of(*devices_.front())).yes) problem.math = Math::fast;
    bool any = false;
    for (const std::shared_ptr<Device>& device : devices_) {
      const Support support = GetParam()->supports(problem, target_of(*device));
      any = any || support.yes;
      if (!support.yes) {
        EXPECT_FALSE(support.why.empty()) << to_string(problem);
      }
    }
    if (any && std::find(problems_.begin(), problems_.end(), problem) == problems_.end())
      problems_.push_back(problem);
  }

  struct Pair {
    std::size_t problem;
    std::string config;
  };

  // A draw of the pairs: so many of each kind of problem with each form of kernel.
  void verify_pairs(KindOf kind, double each) {
    std::vector<Pair> pairs;
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      std::set<std::string> names;
      for (const std::shared_ptr<Device>& device : devices_) {
        const Target target = target_of(*device);
        if (!GetParam()->supports(problems_[i], target).yes) continue;
        for (const Candidate& c : GetParam()->candidates(problems_[i], target)) names.insert(c.config);
      }
      for (const std::string& config : names) pairs.push_back({i, config});
    }
    std::map<std::size_t, std::set<std::string>> taken;  // a problem's configs
    for (const Pair& pair : sampling::draw(pairs, each, std::string(GetParam()->name()), [&](const Pair& p) {
           return kind(problems_[p.problem]) + form_of(p.config);
         }))
      taken[pair.problem].insert(pair.config);
    std::size_t number = 0;
    for (const auto& [problem, names] : taken) {
      if (!parts::ours(number++)) continue;
      verify(problems_[problem],
             [&](std::size_t, std::size_t, const std::string& config) { return names.contains(config); });
    }
    std::printf("%d kernels verified\n", verified_);
  }

  void verify(const Problem& problem, const Takes& takes) {
    const Algorithm& algorithm = *GetParam();
    const char* only = std::getenv("FALTUNG_TEST_ONLY");
    for (const std::shared_ptr<Device>& device : devices_) {
      const Target target = target_of(*device);
      if (!algorithm.supports(problem, target).yes) continue;
      const std::vector<Candidate> candidates = algorithm.candidates(problem, target);
      ASSERT_FALSE(candidates.empty()) << to_string(problem);
      Verifier verifier(problem, device, parallel_, 1);
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        if (!takes(i, candidates.size(), candidates[i].config)) continue;
        const std::string kernel = candidates[i].kernel();
        if (only != nullptr && !matches(only, kernel)) continue;
        const std::string repeat = "faltung verify '" + to_string(problem) + "' --device " +
                                   device->info().id + " --kernel " + kernel + " --seed 1";
        try {
          const Report report = verifier.kernel(candidates[i], store_);
          EXPECT_TRUE(passed(report)) << repeat << ": " << name(report.outcome) << ", " << report.why;
        } catch (const Error& error) {
          ADD_FAILURE() << repeat << ": " << error.what();
        }
        ++verified_;
      }
    }
  }

 protected:
  std::vector<std::shared_ptr<Device>> devices_ = tested_gpus();

 private:
  std::shared_ptr<const Parallel> parallel_ = std::make_shared<Parallel>(2);
  Store store_;  // the default one: what this compiles serves the next run
  std::vector<Problem> problems_;
  int verified_ = 0;
};

TEST_P(RegistryGpu, ShapesInEveryDirectionLayoutAndDtype) {
  FALTUNG_TRACE_SAMPLE();
  for (const Problem& problem : shape_problems()) consider(problem);
  verify_considered(1);
}

// One and three dimensions and transposed convolutions, by rewrites: copies and kernels that other problems
// have met.
TEST_P(RegistryGpu, EveryDimension) {
  FALTUNG_TRACE_SAMPLE();
  if (!on_cpu()) {
    for (const Problem& p : dimension_problems()) consider(p);
    return verify_considered(kPart,
                             [](const Problem& p) { return dimension_kind_of(p) + kind_and_math_of(p); });
  }
  const double each = compiles_slowly() ? 1.0 / 24 : 1.0 / 3;
  const std::string label = std::string(GetParam()->name()) + " dimensions";
  for (const Problem& p : sampling::draw(dimension_problems(), each, label, dimension_kind_of)) consider(p);
  verify_each_with_one();
}

TEST_P(RegistryGpu, EveryEpilogue) {
  FALTUNG_TRACE_SAMPLE();
  for (const Problem& problem : epilogue_problems()) consider(problem);
  verify_considered(kPart);
}

TEST_P(RegistryGpu, SlicesOfTensors) {
  FALTUNG_TRACE_SAMPLE();
  const std::string label = std::string(GetParam()->name()) + " slices";
  for (const Problem& p :
       on_cpu() ? sampling::draw(slice_problems(), compiles_slowly() ? 0.2 : 0.5, label, kind_of)
                : slice_problems())
    consider(p);
  verify_considered(kPart);
}

TEST_P(RegistryGpu, ThroughScaleAndShift) {
  FALTUNG_TRACE_SAMPLE();
  const std::string label = std::string(GetParam()->name()) + " affine";
  for (const Problem& p :
       on_cpu() ? sampling::draw(affine_problems(), compiles_slowly() ? 1.0 / 24 : 0.2, label, kind_of)
                : affine_problems())
    consider(p);
  verify_considered(kPart);
}

// On drivers for the CPU they are a step behind every kernel (training_test has it).
TEST_P(RegistryGpu, WhatTrainingTakes) {
  if (on_cpu()) GTEST_SKIP() << "no kernel has them of its own";
  FALTUNG_TRACE_SAMPLE();
  for (const Problem& p : training_problems()) consider(p);
  verify_considered(kPart);
}

// Twice, with another batch and image: the second compiles nothing. The sizes keep the alignment of rows and
// planes, which Hopper's kernels are compiled for.
TEST_P(RegistryGpu, ANewImageSizeCompilesNothing) {
  for (const std::shared_ptr<Device>& device : devices_) {
    Builder builder(device);
    for (const Direction direction :
         {Direction::forward, Direction::backward_data, Direction::backward_weights}) {
      Problem p = parse_problem("fwd:n2c16h24w32k32r3s3:pad1:f32:nchw");
      p.direction = direction;
      const Target target = target_of(*device);
      if (!GetParam()->supports(p, target).yes) p.k = p.groups = p.c;
      if (!GetParam()->supports(p, target).yes) continue;
      const Candidate first = GetParam()->candidates(p, target).front();
      builder.plan(p, first);
      p.n = 3, p.h = 40, p.w = 64;
      const Candidate second = GetParam()->candidate(p, first.config, target);
      EXPECT_EQ(program_digests(second.recipe()), program_digests(first.recipe())) << name(direction);
      EXPECT_EQ(builder.plan(p, second)->compile_ms(), 0) << name(direction);
    }
  }
}

// Weights that are packed once serve another batch and image, exactly.
TEST_P(RegistryGpu, PackedWeightsServeAnotherBatchAndImage) {
  for (const std::shared_ptr<Device>& device : devices_) {
    Builder builder(device);
    for (const char* text :
         {"fwd:n1c16h14w15k32r3s3:pad1:f32:nchw:math=fast", "fwd:n1c16h14w15k16r3s3:pad1:f16:nhwc:g16"}) {
      const Problem p = parse_problem(text);
      if (!GetParam()->supports(p, builder.target()).yes) continue;
      const Candidate candidate = GetParam()->candidates(p, builder.target()).front();
      EXPECT_NE(expect_packed_weights_serve(builder, p, candidate), Served::by_its_own_alone)
          << candidate.kernel() << " for " << text;
    }
  }
}

// Inputs that are not finite, and what the activations make of them: the formulas have NaN of -Inf, where a
// device's own function may not (docs/error_bounds.md).
TEST_P(RegistryGpu, WhatIsNotFiniteIsWhatTheReferenceHas) {
  std::vector<const char*> problems = {"fwd:n1c16h14w15k32r3s3:pad1:f32:nchw:math=fast",
                                       "fwd:n1c16h14w15k16r3s3:pad1:f16:nhwc:g16"};
  if (GetParam()->name() == "direct_gpu") {  // the activations are one text for all
    problems.insert(problems.end(), {"fwd:n1c1h4w8k1r1s1:bias:sigmoid", "fwd:n1c1h4w8k1r1s1:bias:silu",
                                     "fwd:n1c1h4w8k1r1s1:bias:gelu", "fwd:n1c1h4w8k1r1s1:bias:gelu_tanh",
                                     "fwd:n1c1h4w8k1r1s1:bias:hardswish"});
  }
  constexpr float kValues[] = {INFINITY, -INFINITY, NAN, 1e30f, -1e30f};
  const Parallel parallel(1);
  for (const std::shared_ptr<Device>& device : devices_) {
    Builder builder(device);
    for (const char* text : problems) {
      const Problem p = parse_problem(text);
      if (!GetParam()->supports(p, builder.target()).yes) continue;
      const Candidate candidate = GetParam()->candidates(p, builder.target()).front();
      const auto plan = builder.plan(p, candidate);
      const Oracle inputs(p, Data::random, 1);
      std::vector<std::byte> x(static_cast<std::size_t>(bytes_of(p, x_shape(p))));
      std::memcpy(x.data(), inputs.tensors().x, x.size());
      for (std::size_t i = 0; i < std::size(kValues); ++i)
        store_element(p.dtype, x.data(), static_cast<std::int64_t>(i) * (p.c == 1 ? 3 : 311), kValues[i]);
      Tensors tensors = inputs.tensors();
      tensors.x = x.data();
      const Report report = faltung::verify(*plan, candidate.accuracy, Oracle(p, tensors, 1), parallel);
      EXPECT_TRUE(passed(report)) << candidate.kernel() << " for " << text << ": " << report.why;
    }
  }
}

// Compiling is part of what a first call costs. Processor time, since other tests may run beside this one.
TEST_P(RegistryGpu, EachKernelCompilesQuickly) {
  constexpr double kMostSeconds = 2;
  for (const std::shared_ptr<Device>& device : devices_) {
    Builder builder(device);
    // A filter or a slope that no other test has, so that no driver's own cache answers.
    const std::string_view algorithm = GetParam()->name();
    const Problem p =
        parse_problem(std::string("fwd:n1c40h14w15k40") +
                      (algorithm.starts_with("winograd") ? "r3s3:pad1:f32:nchw:bias:leaky_relu(0.37)"
                                                         : "r4s5:pad2:f32:nchw:bias:hardswish") +
                      (algorithm.starts_with("depthwise") ? ":g40" : "") +
                      (algorithm.starts_with("fft") ? ":math=fast" : ""));
    const Target target = target_of(*device);
    if (!GetParam()->supports(p, target).yes) continue;
    bool compiled = false;  // configs that share their kernels compile them once
    std::vector<Candidate> candidates = GetParam()->candidates(p, target);
    candidates = sampling::draw(candidates, on_cpu() ? 3 : 24, std::string(algorithm),
                                [](const Candidate&) { return std::string(); });
    for (const Candidate& candidate : candidates) {
      const std::clock_t begin = std::clock();
      const std::shared_ptr<const PlanImpl> plan = builder.plan(p, candidate);
      const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
      const std::size_t kernels = plan->programs().size();
      compiled = compiled || plan->compile_ms() > 0;
      EXPECT_TRUE(compiled);  // the first compiles
      EXPECT_LT(seconds, kMostSeconds * static_cast<double>(kernels)) << candidate.kernel();
      std::printf("%s on %s: %zu kernels, %.2f s of processor time, %.0f ms\n", candidate.kernel().c_str(),
                  device->info().id.c_str(), kernels, seconds, plan->compile_ms());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RegistryGpu, testing::ValuesIn(algorithms("gpu")), algorithm_name);

}  // namespace
}  // namespace faltung
