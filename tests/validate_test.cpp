// What is no problem, and what is said of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "src/problem/problem.hpp"
#include "tests/usual_problem.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;
using i64 = std::int64_t;

std::string invalid(const std::function<void(Problem&)>& change) {
  Problem p = usual_problem();
  validate(p);
  change(p);
  try {
    validate(p);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::bad_problem);
    return error.what();
  }
  return "(valid)";
}

TEST(Validate, EverySize) {
  const std::pair<const char*, i64 Problem::*> positive[] = {{"n", &Problem::n},
                                                             {"c", &Problem::c},
                                                             {"h", &Problem::h},
                                                             {"w", &Problem::w},
                                                             {"k", &Problem::k},
                                                             {"r", &Problem::r},
                                                             {"s", &Problem::s},
                                                             {"stride_h", &Problem::stride_h},
                                                             {"stride_w", &Problem::stride_w},
                                                             {"dilation_h", &Problem::dilation_h},
                                                             {"dilation_w", &Problem::dilation_w},
                                                             {"groups", &Problem::groups}};
  for (const auto& [name, member] : positive) {
    for (const i64 value : {i64{0}, i64{-3}, std::numeric_limits<i64>::min()}) {
      EXPECT_EQ(invalid([&](Problem& p) { p.*member = value; }),
                std::string(name) + " is " + std::to_string(value) + "; it must be at least 1");
    }
    for (const i64 value : {(i64{1} << 40) + 1, std::numeric_limits<i64>::max()}) {
      EXPECT_THAT(invalid([&](Problem& p) { p.*member = value; }), HasSubstr("at most 2^40"));
    }
  }
  for (const auto member :
       {&Problem::pad_top, &Problem::pad_bottom, &Problem::pad_left, &Problem::pad_right}) {
    EXPECT_THAT(invalid([&](Problem& p) { p.*member = -1; }), HasSubstr("is -1; it must be 0 or more"));
    EXPECT_THAT(invalid([&](Problem& p) { p.*member = std::numeric_limits<i64>::max(); }),
                HasSubstr("at most 2^40"));
    EXPECT_EQ(invalid([&](Problem& p) { p.*member = 0; }), "(valid)");
  }
}

TEST(Validate, Dimensions) {
  EXPECT_THAT(invalid([](Problem& p) { p.dimensions = 4; }), HasSubstr("there are 1, 2 or 3"));
  EXPECT_THAT(invalid([](Problem& p) { p.dimensions = 0; }), HasSubstr("there are 1, 2 or 3"));
  EXPECT_EQ(invalid([](Problem& p) { p.dimensions = 3; }), "(valid)");
  EXPECT_EQ(invalid([](Problem& p) { p.d = 4; }),
            "d is 4, but of 2 dimensions it is no part; it must be 1, or dimensions 3");
  EXPECT_THAT(invalid([](Problem& p) { p.pad_back = 1; }), HasSubstr("pad_back is 1, but of 2 dimensions"));
  EXPECT_EQ(invalid([](Problem& p) { p.dimensions = 1; }),
            "h is 14, but of 1 dimension it is no part; it must be 1, or dimensions 2");
  EXPECT_THAT(invalid([](Problem& p) { p.dimensions = 3, p.t = 0; }), HasSubstr("t is 0"));
  EXPECT_THAT(invalid([](Problem& p) { p.dimensions = 3, p.pad_front = -1; }), HasSubstr("pad_front is -1"));
  EXPECT_THAT(invalid([](Problem& p) { p.output_pad_w = 1; }), HasSubstr("transposed convolution alone"));
  EXPECT_THAT(
      invalid([](Problem& p) { p.kind = ConvolutionKind::transposed, p.h = p.stride_h = i64{1} << 40; }),
      HasSubstr("the output of h is larger than 2^40"));
}

TEST(Validate, WhatDoesNotFitTogether) {
  EXPECT_THAT(invalid([](Problem& p) { p.groups = 4; }), HasSubstr("groups = 4 does not divide c = 6"));
  EXPECT_THAT(invalid([](Problem& p) { p.groups = 3; }), HasSubstr("groups = 3 does not divide k = 8"));
  EXPECT_THAT(invalid([](Problem& p) { p.r = 18; }),
              HasSubstr("dilated filter 18x9 is larger than the padded input 17x18"));
  EXPECT_EQ(invalid([](Problem& p) { p.r = 17; }), "(valid)");
  EXPECT_THAT(invalid([](Problem& p) { p.dilation_w = 5; }), HasSubstr("dilated filter 3x21"));
  EXPECT_THAT(invalid([](Problem& p) { p.dilation_w = i64{1} << 40; }), HasSubstr("dilated filter"));
  EXPECT_THAT(invalid([](Problem& p) { p.n = i64{1} << 40, p.h = i64{1} << 20; }),
              HasSubstr("x would have more than 2^56 elements"));
  EXPECT_THAT(invalid([](Problem& p) { p.k = i64{1} << 40, p.c = 2 << 20; }),
              HasSubstr("w would have more than 2^56"));
  EXPECT_THAT(invalid([](Problem& p) { p.k = i64{1} << 40, p.n = 1 << 10; }),
              HasSubstr("y would have more than 2^56"));
}

TEST(Validate, MathGoesWithDtype) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const Math math : {Math::f32, Math::tf32, Math::f16, Math::bf16, Math::fast}) {
      const bool right =
          math == Math::fast || math == default_math(dtype) || (dtype == DType::f32 && math == Math::tf32);
      const std::string message = invalid([&](Problem& p) { p.dtype = dtype, p.math = math; });
      EXPECT_EQ(message == "(valid)", right) << message;
    }
  }
  EXPECT_THAT(invalid([](Problem& p) { p.math = Math::f16; }), HasSubstr("it can be f32, tf32 or fast"));
}

TEST(Validate, Epilogues) {
  EXPECT_THAT(invalid([](Problem& p) { p.epilogue.bias_element = BiasElement::f32; }), HasSubstr("no bias"));
  EXPECT_THAT(invalid([](Problem& p) {
                p.epilogue.bias = true, p.epilogue.bias_element = BiasElement::f32, p.dtype = DType::f32;
              }),
              HasSubstr("beside tensors of 16 bits"));
  EXPECT_THAT(invalid([](Problem& p) { p.direction = Direction::backward_data, p.epilogue.bias = true; }),
              HasSubstr("goes with fwd alone"));
  EXPECT_THAT(invalid([](Problem& p) { p.epilogue.slope = 0.5f; }),
              HasSubstr("a slope is given but the activation has none; leaky_relu and hardsigmoid have"));
  EXPECT_THAT(
      invalid([](Problem& p) { p.epilogue.activation = Activation::leaky_relu, p.epilogue.slope = NAN; }),
      HasSubstr("not finite"));
  EXPECT_THAT(invalid([](Problem& p) { p.epilogue.clip.most = 2; }), HasSubstr("clip has"));
  for (const Clip bounds : {Clip{2, 1}, Clip{NAN, 1}, Clip{0, HUGE_VALF}}) {
    EXPECT_THAT(
        invalid([&](Problem& p) { p.epilogue.activation = Activation::clip, p.epilogue.clip = bounds; }),
        HasSubstr("two finite numbers"));
  }
  EXPECT_THAT(invalid([](Problem& p) { p.epilogue.pool.size_h = 2; }), HasSubstr("no pool kind"));
  const auto pool = [](i64 Pool::*member, i64 value) {
    return invalid([&](Problem& p) {
      p.epilogue.pool = {PoolKind::max, 3, 3, 2, 2, 1, 1, 1, 1};
      p.epilogue.pool.*member = value;
    });
  };
  EXPECT_EQ(pool(&Pool::size_h, 3), "(valid)");
  EXPECT_THAT(pool(&Pool::size_h, 0), HasSubstr("pool size h is 0"));
  EXPECT_THAT(pool(&Pool::stride_w, -1), HasSubstr("pool stride w is -1"));
  EXPECT_THAT(pool(&Pool::stride_w, std::numeric_limits<i64>::max()), HasSubstr("at most 2^40"));
  EXPECT_THAT(pool(&Pool::pad_left, -1), HasSubstr("pool padding is -1"));
  EXPECT_THAT(pool(&Pool::pad_left, 3), HasSubstr("smaller than the pool's window"));
  EXPECT_THAT(pool(&Pool::pad_bottom, std::numeric_limits<i64>::max()),
              HasSubstr("smaller than the pool's window"));
  EXPECT_THAT(pool(&Pool::size_w, 13), HasSubstr("window 3x13 is larger than the padded output 10x12"));
}

}  // namespace
}  // namespace faltung
