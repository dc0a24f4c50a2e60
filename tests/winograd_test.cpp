// Winograd's matrices, its stated errors and the errors it really makes, and its kernels for lesser
// instruction sets.
#include "kernels/cpu/winograd.hpp"

#include "kernels/cpu/targets.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "src/algorithms/algorithm.hpp"
#include "src/finder/trust/verify.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/reference.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

template <int m>
void expect_minimal_filtering() {
  using W = WinogradMatrices<m>;
  for (int o = 0; o < m; ++o) {
    for (int r = 0; r < 3; ++r) {
      for (int l = 0; l < m + 2; ++l) {
        double sum = 0;
        for (int i = 0; i < m + 2; ++i) sum += W::a[o][i] * W::g[i][r] * W::b[i][l];
        EXPECT_NEAR(sum, l == o + r ? 1 : 0, 1e-14) << "output " << o << ", tap " << r << ", input " << l;
      }
    }
  }
}

TEST(Winograd, MatricesMakeAConvolution) {
  expect_minimal_filtering<2>();
  expect_minimal_filtering<4>();
}

class WinogradCpu : public testing::Test {
 protected:
  // Without the blocks' sizes.
  std::vector<std::string> configs(const Problem& p) {
    std::vector<std::string> names;
    if (!algorithm_.supports(p, target_).yes) return names;
    for (const Candidate& c : algorithm_.candidates(p, target_)) names.push_back(c.config.substr(0, 4));
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }

  std::shared_ptr<Device> device_ = find_device("cpu");
  std::shared_ptr<const Parallel> parallel_ = std::make_shared<Parallel>(2);
  Target target_{device_->info(), 2};
  Scratch folder_;
  Store store_{folder_.path()};
  const Algorithm& algorithm_ = find_algorithm("winograd_cpu");
};

Problem channels(std::int64_t c, const std::string& more = "") {
  return parse_problem("fwd:n1c" + std::to_string(c) + "h34w34k8r3s3:f32:nhwc" + more);
}

// The figures of docs/error_bounds.md.
TEST_F(WinogradCpu, IsAdmittedWhereItsErrorIsThatOfADotProduct) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(configs(channels(1)), Names{});
  EXPECT_EQ(configs(channels(3)), Names{});
  EXPECT_EQ(configs(channels(4)), Names{"f2x2"});
  EXPECT_EQ(configs(channels(256)), Names{"f2x2"});
  EXPECT_EQ(configs(channels(1, ":math=fast")), (Names{"f2x2", "f4x4"}));
  // F(4x4) needs filters enough, that their errors average out, and channels the more, the smaller the image.
  EXPECT_EQ(configs(parse_problem("fwd:n1c64h28w28k15r3s3:pad1")), Names{"f2x2"});
  EXPECT_EQ(configs(parse_problem("fwd:n1c64h28w28k16r3s3:pad1")), (Names{"f2x2", "f4x4"}));
  EXPECT_EQ(configs(parse_problem("fwd:n1c63h28w28k16r3s3:pad1")), Names{"f2x2"});
  EXPECT_EQ(configs(parse_problem("fwd:n1c64h14w14k16r3s3:pad1")), Names{"f2x2"});
  EXPECT_EQ(configs(parse_problem("fwd:n1c64h14w14k16r3s3")), (Names{"f2x2", "f4x4"}));
  EXPECT_EQ(configs(parse_problem("fwd:n1c256h7w9k16r3s3:pad1")), (Names{"f2x2", "f4x4"}));
  EXPECT_EQ(configs(parse_problem("fwd:n1c255h7w9k16r3s3:pad1")), Names{"f2x2"});
  EXPECT_EQ(configs(parse_problem("fwd:n1c512h5w5k16r3s3:pad1")), Names{"f2x2"});
  EXPECT_EQ(configs(parse_problem("fwd:n1c15h2w9k8r3s3:pad1")), Names{});
  EXPECT_EQ(configs(parse_problem("fwd:n1c16h2w9k8r3s3:pad1")), Names{"f2x2"});
  EXPECT_EQ(configs(parse_problem("fwd:n1c512h1w1k8r3s3:pad1")), Names{});
  // What is summed over is K in backward_data, and a group's part; a gradient's edge is as wide as what was
  // not padded.
  EXPECT_EQ(configs(parse_problem("bwd_d:n1c16h56w56k64r3s3:pad1")), (Names{"f2x2", "f4x4"}));
  EXPECT_EQ(configs(parse_problem("bwd_d:n1c16h18w18k64r3s3")), Names{"f2x2"});
  EXPECT_EQ(configs(parse_problem("bwd_d:n1c64h9w9k8r3s3")), Names{"f2x2"});
  EXPECT_EQ(configs(parse_problem("fwd:n1c64h28w28k16r3s3:pad1:g2")), Names{"f2x2"});

  // A pool's result is smaller than the convolution's; what is transformed is not.
  EXPECT_EQ(configs(parse_problem("fwd:n1c256h14w14k16r3s3:pad1:maxpool2")), (Names{"f2x2", "f4x4"}));
  EXPECT_EQ(configs(parse_problem("fwd:n1c70h1w52k2r3s3:pad3.0.0.0:maxpool4p3.1.1.3")), Names{});

  const auto growth = [&](const Problem& p, const char* config) {
    return algorithm_.candidate(p, config, target_).accuracy.growth;
  };
  EXPECT_NEAR(growth(channels(64), "f2x2_bt28"), 27.3, 0.1);
  EXPECT_NEAR(growth(channels(64), "f4x4_bt28"), 126.2, 0.1);
  EXPECT_NEAR(growth(channels(64, ":math=fast"), "f2x2_bt28"), 16 * (64 + 8), 1e-6);
  EXPECT_NEAR(growth(channels(64, ":math=fast"), "f4x4_bt28"), 158.3237 * (64 + 18), 1e-2);
}

TEST_F(WinogradCpu, SaysWhyItDeclines) {
  const auto why = [&](const char* problem) {
    return algorithm_.supports(parse_problem(problem), target_).why;
  };
  EXPECT_THAT(why("fwd:n1c64h16w16k8r7s7:st2"), HasSubstr("needs a 3x3 filter with stride 1 and dilation 1; "
                                                          "this is 7x7 stride 2x2"));
  EXPECT_THAT(why("fwd:n1c64h16w16k8r3s3:dil2"), HasSubstr("this is 3x3 dilation 2x2"));
  EXPECT_THAT(why("bwd_w:n1c64h16w16k8r3s3"), HasSubstr("not backward_weights"));
  EXPECT_THAT(why("fwd:n1c8h16w16k8r3s3:g8"), HasSubstr("math=fast allows it"));
  EXPECT_THAT(why("fwd:n1c15h2w9k8r3s3:pad1"), HasSubstr("errs more than 2 times as much as a chain"));
}

TEST_F(WinogradCpu, RefusesUnknownConfigs) {
  for (const char* config :
       {"", "f4x4", "f4x4_", "f4x4_bt", "f4x4_bt0", "f4x4_bt28x", "f3x3_bt28", "f2x4_bt28", "f4x4_bt4097",
        "f4x4_bt9999999", "f4x4_bt028", "f4x4_all_bt28", "f4x4_bt28_", "f4x4_t28"}) {
    EXPECT_THROW(algorithm_.candidate(channels(64), config, target_), Error) << config;
  }
}

// The worst error over all elements, in units of 2^-24 times the sum of |x w| of the element's own products:
// what a chain of fp32 multiply-adds has, and what Winograd has; and Winograd's root mean square over a
// chain's. docs/accuracy.md shows this table.
TEST_F(WinogradCpu, MeasuredErrors) {
  struct Errors {
    double worst = 0, rms = 0;
  };
  std::printf(
      "|   C | n = 9C | chain of multiply-adds | F(2x2,3x3) | F(4x4,3x3) | RMS F(2x2) | RMS F(4x4) |\n");
  for (const std::int64_t c : {8, 16, 32, 64, 128, 256, 512}) {
    const Problem p = channels(c, ":math=fast");
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const TensorShape xs = x_shape(p), ws = w_shape(p), ys = conv_shape(p);
    std::vector<float> x(static_cast<std::size_t>(xs.elements())), w(static_cast<std::size_t>(ws.elements()));
    std::vector<float> y(static_cast<std::size_t>(ys.elements()));
    for (float& v : x) v = normal(random);
    for (float& v : w) v = normal(random);
    Tensors tensors;
    tensors.x = x.data(), tensors.w = w.data(), tensors.y = y.data();
    std::vector<Expected> expected(y.size());
    for (std::int64_t i = 0; i < ys.elements(); ++i) {
      expected[static_cast<std::size_t>(i)] =
          reference(p, tensors, 0, i % ys.c, i / ys.c / ys.w, i / ys.c % ys.w);
    }
    const auto errors = [&] {
      Errors all;
      for (std::size_t i = 0; i < y.size(); ++i) {
        const double error = std::abs(static_cast<double>(y[i]) - expected[i].value);
        all.worst = std::max(all.worst, error / expected[i].magnitude * 0x1p24);
        all.rms += error * error;
      }
      all.rms = std::sqrt(all.rms / static_cast<double>(y.size()));
      return all;
    };
    const auto measure = [&](const char* config) {
      const auto plan = make_plan(p, algorithm_.candidate(p, config, target_), device_,
                                  jit::Session(*device_, store_), parallel_);
      std::vector<std::byte> workspace(plan->workspace_bytes(false));
      RunOptions options;
      options.workspace = workspace.data();
      plan->run(tensors, options);
      return errors();
    };
    for (std::int64_t i = 0; i < ys.elements(); ++i) {
      float sum = 0;
      for (std::int64_t tap = 0; tap < 9; ++tap) {
        const std::int64_t at = xs.offset(0, 0, i / ys.c / ys.w + tap / 3, i / ys.c % ys.w + tap % 3);
        const std::int64_t of = ws.offset(i % ys.c, 0, tap / 3, tap % 3);
        for (std::int64_t k = 0; k < c; ++k) {
          sum = std::fma(x[static_cast<std::size_t>(at + k)], w[static_cast<std::size_t>(of + k)], sum);
        }
      }
      y[static_cast<std::size_t>(i)] = sum;
    }
    const Errors chain = errors(), two = measure("f2x2_bt28"), four = measure("f4x4_bt28");
    const double n = 9 * static_cast<double>(c);
    std::printf("| %3d | %6.0f | %22.1f | %10.1f | %10.1f | %10.2f | %10.2f |\n", static_cast<int>(c), n,
                chain.worst, two.worst, four.worst, two.rms / chain.rms, four.rms / chain.rms);
    EXPECT_LT(two.worst, n / 8);
    EXPECT_LT(two.rms, Accuracy::kAsFp32 * chain.rms);
    if (c >= 64) {
      EXPECT_LT(four.worst, n / 8);
      EXPECT_LT(four.rms, Accuracy::kAsFp32 * chain.rms);
    }
  }
}

// Rows of more tiles than a vector holds, and blocks of several rows.
TEST_F(WinogradCpu, WideRows) {
  for (const char* text :
       {"fwd:n2c3h30w80k5r3s3:pad1", "bwd_d:n1c2h26w150k3r3s3:pad0.1.2.1", "fwd:n1c2h18w300k2r3s3:bf16"}) {
    for (const char* layout : {":nchw", ":nhwc"}) {
      const Problem p = parse_problem(std::string(text) + layout + ":math=fast");
      Verifier verifier(p, device_, parallel_, 1);
      for (const Candidate& candidate : algorithm_.candidates(p, target_)) {
        const Report report = verifier.kernel(candidate, store_);
        EXPECT_TRUE(passed(report)) << to_string(p) << ' ' << candidate.config << ": " << report.why;
      }
    }
  }
}

// What the machine's best instruction set computes is tested elsewhere; here the others.
TEST_F(WinogradCpu, LesserInstructionSets) {
  const std::int64_t all = hwy::SupportedTargets();
  std::vector<std::int64_t> lesser;
  for (std::int64_t without = all & -all; (all & ~(2 * without - 1)) != 0; without *= 2) {
    lesser.push_back(2 * without - 1);
  }
  for (const std::int64_t without : lesser) {
    hwy::DisableTargets(without);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    for (const char* text : {"fwd:n1c10h9w11k9r3s3:pad1:bias:relu",
                             "fwd:n2c5h6w40k5r3s3:pad0.1.2.0:residual:gelu", "bwd_d:n1c9h7w10k11r3s3:pad1"}) {
      for (const char* type : {":f32", ":bf16"}) {
        for (const char* layout : {":nchw", ":nhwc"}) {
          const Problem p = parse_problem(std::string(text) + type + layout + ":math=fast");
          Verifier verifier(p, device_, parallel_, 1);
          for (const char* config : {"f2x2_bt14", "f4x4_bt28", "f4x4_all"}) {
            const Report report = verifier.kernel(algorithm_.candidate(p, config, target_), store_);
            EXPECT_TRUE(passed(report)) << hwy::TargetName(hwy::SupportedTargets() & -hwy::SupportedTargets())
                                        << ' ' << to_string(p) << ' ' << config << ": " << report.why;
          }
        }
      }
    }
  }
  hwy::DisableTargets(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace
}  // namespace faltung
