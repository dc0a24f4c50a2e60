// What the oracle says of fp32 results beside a chain of fp32 multiply-adds.
#include "src/finder/oracle.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/problem/parse.hpp"

namespace faltung {
namespace {

// Results that err so many times as a chain does, element by element.
std::vector<float> results(const Oracle& oracle, double times) {
  const Problem& p = oracle.problem();
  const TensorShape shape = result_shape(p);
  std::vector<float> all(static_cast<std::size_t>(shape.elements()));
  for (std::int64_t n = 0; n < shape.n; ++n) {
    for (std::int64_t c = 0; c < shape.c; ++c) {
      for (std::int64_t h = 0; h < shape.h; ++h) {
        for (std::int64_t w = 0; w < shape.w; ++w) {
          const double exact = reference(p, oracle.tensors(), n, c, h, w).value;
          const double error = chain_of_fp32(p, oracle.tensors(), {n, c, 0, h, w}) - exact;
          all[static_cast<std::size_t>(shape.offset(n, c, h, w))] = static_cast<float>(exact + times * error);
        }
      }
    }
  }
  return all;
}

Finding check(const char* problem, double times, const Accuracy& accuracy) {
  const Oracle oracle(parse_problem(problem), Data::random, 1);
  return oracle.check(results(oracle, times).data(), accuracy, Parallel(1));
}

TEST(Oracle, Fp32ErrsNoMoreThanTwiceAChainOfMultiplyAdds) {
  for (const char* text : {"fwd:n1c64h10w11k16r3s3:pad1", "bwd_d:n2c16h9w8k48r3s3:st2:pad1:nhwc",
                           "bwd_w:n2c12h20w20k8r3s3:pad1"}) {
    const Accuracy accuracy = dot_product_accuracy(parse_problem(text));
    const Finding chain = check(text, 1, accuracy), coarse = check(text, 4, accuracy);
    EXPECT_TRUE(chain.right()) << text << ": " << chain.worst;
    EXPECT_NEAR(chain.rms_of_chain, 1, 0.1) << text;
    EXPECT_LE(coarse.error_over_bound, 1) << text << ": within the bound of the worst case";
    EXPECT_FALSE(coarse.right()) << text;
    EXPECT_NEAR(coarse.rms_of_chain, 4, 0.1) << text;
    EXPECT_THAT(coarse.worst, testing::HasSubstr("times that of a chain")) << text;
    Accuracy stated = accuracy;
    stated.rms_of_chain = 5;
    EXPECT_TRUE(check(text, 4, stated).right()) << text;
  }
}

// Three standard deviations: of 64 filters and 2048 elements 10 %.
TEST(Oracle, OneProblemsErrorMayLieBesideThatOfAllByChance) {
  const char* const text = "fwd:n1c16h12w12k64r3s3:pad1";
  const Accuracy accuracy = dot_product_accuracy(parse_problem(text));
  EXPECT_TRUE(check(text, 2.1, accuracy).right());
  EXPECT_FALSE(check(text, 2.4, accuracy).right());
}

TEST(Oracle, OtherMathAndEpiloguesAreNotComparedWithAChain) {
  for (const char* text : {"fwd:n1c64h10w11k16r3s3:pad1:math=tf32", "fwd:n1c64h10w11k16r3s3:pad1:math=fast",
                           "fwd:n1c64h10w11k16r3s3:pad1:bias", "fwd:n1c64h4w4k8r3s3:pad1"}) {
    const Finding coarse = check(text, 4, dot_product_accuracy(parse_problem(text)));
    EXPECT_EQ(coarse.rms_of_chain, 0) << text;
    EXPECT_FALSE(coarse.too_coarse) << text;
  }
}

// A tile errs relative to its largest value: where every second column is next to nothing, most of a chain's
// products are, too, and the comparison says nothing of the kernel.
TEST(Oracle, ACallersOwnDataAreHeldToTheBoundAlone) {
  const Problem p = parse_problem("fwd:n1c64h10w12k16r3s3:pad1");
  const Oracle made(p, Data::random, 1);
  std::vector<float> x(static_cast<std::size_t>(x_shape(p).elements()));
  const auto* const random = static_cast<const float*>(made.tensors().x);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = random[i] * (i % 2 == 0 ? 0x1p-130f : 1);
  Tensors tensors = made.tensors();
  tensors.x = x.data();
  const Accuracy accuracy = dot_product_accuracy(p);
  const Oracle own(p, tensors, 1), said_to_be_random(p, tensors, 1, 3e8, Data::random);
  const std::vector<float> coarse = results(own, 4);
  const Finding finding = own.check(coarse.data(), accuracy, Parallel(1));
  EXPECT_TRUE(finding.right()) << finding.worst;
  EXPECT_EQ(finding.rms_of_chain, 0);
  EXPECT_FALSE(said_to_be_random.check(coarse.data(), accuracy, Parallel(1)).right());
  EXPECT_FALSE(own.check(results(own, 1e6).data(), accuracy, Parallel(1)).right());
}

// A NaN in a tile may make NaN of its neighbours; a neighbour that is finite is held to its bound.
TEST(Oracle, AFiniteElementOfATileWithNanIsHeldToItsBound) {
  const Problem p = parse_problem("fwd:n1c1h8w8k1r3s3");
  const Oracle made(p, Data::random, 1);
  const auto count = [](const TensorShape& s) { return static_cast<std::size_t>(s.elements()); };
  const auto *x0 = static_cast<const float*>(made.tensors().x),
             *w0 = static_cast<const float*>(made.tensors().w);
  const Accuracy on_tiles{30, 3, 3}, plain = dot_product_accuracy(p);
  for (const float value : {NAN, INFINITY}) {
    for (const bool in_the_filter : {false, true}) {
      std::vector<float> x(x0, x0 + count(x_shape(p))), w(w0, w0 + count(w_shape(p)));
      (in_the_filter ? w : x)[0] = value;
      Tensors tensors = made.tensors();
      tensors.x = x.data(), tensors.w = w.data();
      const Oracle judge(p, tensors, 1);
      std::vector<float> result(count(y_shape(p)));
      const auto element = [&](std::int64_t i) {
        return reference(p, tensors, y_shape(p).position(i)).value;
      };
      for (std::int64_t i = 0; i < y_shape(p).elements(); ++i)
        result[static_cast<std::size_t>(i)] = static_cast<float>(element(i));
      EXPECT_TRUE(judge.check(result.data(), on_tiles, Parallel(1)).right());
      if (in_the_filter) continue;  // every element is of it
      const std::vector<float> right = result;
      result[1] = NAN;  // beside (0, 0), whose window has the value
      EXPECT_TRUE(judge.check(result.data(), on_tiles, Parallel(1)).right());
      EXPECT_FALSE(judge.check(result.data(), plain, Parallel(1)).right());
      for (const float wrong : {right[1] + 1, INFINITY, -INFINITY}) {
        result[1] = wrong;
        EXPECT_FALSE(judge.check(result.data(), on_tiles, Parallel(1)).right()) << value << ", " << wrong;
      }
    }
  }
}

}  // namespace
}  // namespace faltung
