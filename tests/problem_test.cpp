// Shapes and arithmetic.
#include "src/problem/problem.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>

#include "tests/error_message.hpp"
#include "tests/usual_problem.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;
using i64 = std::int64_t;

TEST(Problem, SizesOfTheOutput) {
  Problem p = usual_problem();
  EXPECT_EQ(p.p(), (14 + 3 - 3) / 2 + 1);
  EXPECT_EQ(p.q(), 15 + 3 - 9 + 1);
  EXPECT_EQ(p.y_h(), 8);
  EXPECT_EQ(p.y_w(), 10);
  p.epilogue.pool = {PoolKind::max, 3, 2, 2, 1, 1, 0, 0, 1};
  EXPECT_EQ(p.y_h(), (8 + 1 - 3) / 2 + 1);
  EXPECT_EQ(p.y_w(), 10 + 1 - 2 + 1);
}

TEST(Problem, BytesOfItsTensors) {
  Problem p = usual_problem();
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const std::size_t element = dtype == DType::f32 ? 4 : 2;
    p.dtype = dtype, p.math = Math::of_dtype, p.epilogue.pool = {};
    EXPECT_EQ(bytes(p, Tensor::x), element * 2 * 6 * 14 * 15);
    EXPECT_EQ(bytes(p, Tensor::w), element * 8 * 3 * 3 * 5);
    EXPECT_EQ(bytes(p, Tensor::y), element * 2 * 8 * 8 * 10);
    EXPECT_EQ(bytes(p, Tensor::bias), element * 8);
    EXPECT_EQ(bytes(p, Tensor::residual), element * 2 * 8 * 8 * 10);
    p.epilogue.pool = {PoolKind::average, 2, 2, 2, 2, 0, 0, 0, 0};
    EXPECT_EQ(bytes(p, Tensor::y), element * 2 * 8 * 4 * 5);
    EXPECT_EQ(bytes(p, Tensor::residual), element * 2 * 8 * 8 * 10);
  }
  EXPECT_THROW(bytes(p, static_cast<Tensor>(10)), Error);
}

TEST(Problem, MathOfTheDtypeIsResolved) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    Problem p;
    p.dtype = dtype;
    EXPECT_EQ(p.math, Math::of_dtype);
    EXPECT_NO_THROW(validate(p));
    EXPECT_EQ(with_math(p).math, default_math(dtype));
    EXPECT_EQ(to_string(p), to_string(with_math(p)));
    EXPECT_EQ(parse_problem(to_string(p)), with_math(p));
    p.math = Math::fast;
    EXPECT_EQ(with_math(p).math, Math::fast);
  }
}

TEST(Problem, TensorsOfADirection) {
  const float a = 1, b = 2, bias = 3, residual = 4;
  float c = 0;
  const Tensors forward = Tensors::forward(&a, &b, &c, &bias, &residual);
  EXPECT_THAT((std::array<const void*, 5>{forward.x, forward.w, forward.y, forward.bias, forward.residual}),
              testing::ElementsAre(&a, &b, &c, &bias, &residual));
  EXPECT_EQ(Tensors::forward(&a, &b, &c).bias, nullptr);
  const Tensors data = Tensors::backward_data(&a, &b, &c);
  EXPECT_THAT((std::array<const void*, 3>{data.y, data.w, data.x}), testing::ElementsAre(&a, &b, &c));
  const Tensors weights = Tensors::backward_weights(&a, &b, &c);
  EXPECT_THAT((std::array<const void*, 3>{weights.x, weights.y, weights.w}),
              testing::ElementsAre(&a, &b, &c));
  Problem p;
  for (const Direction direction :
       {Direction::forward, Direction::backward_data, Direction::backward_weights}) {
    p.direction = direction;
    const Tensors tensors = direction == Direction::forward         ? forward
                            : direction == Direction::backward_data ? data
                                                                    : weights;
    EXPECT_EQ(result_pointer(p, tensors), &c);
  }
}

TEST(Problem, ShapesAndStrides) {
  Problem p = usual_problem();
  const auto expect = [](const TensorShape& s, i64 n, i64 c, i64 h, i64 w) {
    EXPECT_EQ(s.elements(), n * c * h * w);
    EXPECT_EQ(s.offset(n - 1, c - 1, h - 1, w - 1), n * c * h * w - 1);  // dense
    EXPECT_THAT((std::array{s.n, s.c, s.h, s.w}), testing::ElementsAre(n, c, h, w));
  };
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    p.layout = layout;
    expect(x_shape(p), 2, 6, 14, 15);
    expect(w_shape(p), 8, 3, 3, 5);
    expect(conv_shape(p), 2, 8, 8, 10);
    expect(y_shape(p), 2, 8, 8, 10);
    EXPECT_EQ(x_shape(p).stride_w, layout == Layout::nchw ? 1 : 6);
    EXPECT_EQ(x_shape(p).stride_c, layout == Layout::nchw ? 14 * 15 : 1);
    EXPECT_EQ(w_shape(p).stride_n, 3 * 3 * 5);
    EXPECT_EQ(w_shape(p).stride_h, layout == Layout::nchw ? 5 : 5 * 3);
  }
  p.epilogue.pool = {PoolKind::average, 2, 2, 2, 2, 0, 0, 0, 0};
  expect(y_shape(p), 2, 8, 4, 5);
  expect(conv_shape(p), 2, 8, 8, 10);
  p.epilogue.pool = {};
  p.dtype = DType::bf16;
  EXPECT_EQ(bytes_of(p, y_shape(p)), 2 * 8 * 8 * 10 * 2);
}

TEST(Problem, ShapesOfThreeDimensions) {
  Problem p;
  p.dimensions = 3;
  p.n = 2, p.c = 6, p.d = 7, p.h = 9, p.w = 10, p.k = 8, p.t = 3, p.r = 2, p.s = 5, p.groups = 2;
  p.stride_d = 2, p.pad_front = 1, p.pad_back = 2, p.dilation_d = 2;
  validate(p);
  EXPECT_EQ(p.z(), (7 + 3 - 5) / 2 + 1);
  const auto expect = [](const TensorShape& s, std::array<i64, 5> sizes) {
    EXPECT_THAT((std::array{s.n, s.c, s.d, s.h, s.w}), testing::ElementsAreArray(sizes));
    EXPECT_EQ(s.elements(), sizes[0] * sizes[1] * sizes[2] * sizes[3] * sizes[4]);
    EXPECT_EQ(s.offset({s.n - 1, s.c - 1, s.d - 1, s.h - 1, s.w - 1}), s.elements() - 1);  // dense
    const Position at = s.position(s.elements() - 1);
    EXPECT_THAT((std::array{at.n, at.c, at.d, at.h, at.w}),
                testing::ElementsAre(s.n - 1, s.c - 1, s.d - 1, s.h - 1, s.w - 1));
  };
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    p.layout = layout;
    expect(x_shape(p), {2, 6, 7, 9, 10});
    expect(w_shape(p), {8, 3, 3, 2, 5});
    expect(y_shape(p), {2, 8, 3, 8, 6});
    EXPECT_EQ(x_shape(p).stride_d, layout == Layout::nchw ? 90 : 90 * 6);
    EXPECT_THAT(sizes(p, Tensor::w), testing::ElementsAre(8, 3, 3, 2, 5));
  }
  EXPECT_EQ(flops(p), 2.0 * 2 * 8 * 3 * 8 * 6 * 3 * 3 * 2 * 5);
  EXPECT_EQ(reduction_length(p), 3 * 3 * 2 * 5);
  p.direction = Direction::backward_weights;
  EXPECT_EQ(reduction_length(p), 2 * 3 * 8 * 6);
}

TEST(Problem, ShapesOfTransposedConvolutions) {
  Problem p;
  p.kind = ConvolutionKind::transposed;
  p.n = 2, p.c = 6, p.h = 4, p.w = 5, p.k = 8, p.r = 3, p.s = 4, p.groups = 2;
  p.stride_h = p.stride_w = 2, p.pad_top = p.pad_left = 1, p.output_pad_h = 1;
  validate(p);
  EXPECT_EQ(p.p(), 3 * 2 + 3 - 1 + 1);
  EXPECT_EQ(p.q(), 4 * 2 + 4 - 1);
  EXPECT_THAT(sizes(p, Tensor::w), testing::ElementsAre(6, 4, 1, 3, 4));
  EXPECT_THAT(sizes(p, Tensor::y), testing::ElementsAre(2, 8, 1, 9, 11));
  EXPECT_EQ(flops(p), 2.0 * 2 * 4 * 5 * 6 * 4 * 3 * 4);
  const Problem c = convolution_of(p);
  validate(c);
  EXPECT_EQ(c.direction, Direction::backward_data);
  EXPECT_THAT(sizes(c, Tensor::x), testing::ElementsAreArray(sizes(p, Tensor::y)));
  EXPECT_THAT(sizes(c, Tensor::y), testing::ElementsAreArray(sizes(p, Tensor::x)));
  EXPECT_THAT(sizes(c, Tensor::w), testing::ElementsAreArray(sizes(p, Tensor::w)));
  EXPECT_EQ(flops(c), flops(p));
  EXPECT_EQ(reduction_length(c), reduction_length(p));
}

TEST(Problem, WhatADirectionWrites) {
  Problem p = usual_problem();
  int x = 0, w = 0, y = 0;
  Tensors t;
  t.x = &x, t.w = &w, t.y = &y;
  EXPECT_EQ(result_pointer(p, t), &y);
  EXPECT_EQ(result_shape(p).elements(), y_shape(p).elements());
  EXPECT_EQ(reduction_length(p), 3 * 3 * 5);
  p.direction = Direction::backward_data;
  EXPECT_EQ(result_pointer(p, t), &x);
  EXPECT_EQ(result_shape(p).elements(), x_shape(p).elements());
  EXPECT_EQ(reduction_length(p), 4 * 3 * 5);
  p.direction = Direction::backward_weights;
  EXPECT_EQ(result_pointer(p, t), &w);
  EXPECT_EQ(result_shape(p).elements(), w_shape(p).elements());
  EXPECT_EQ(reduction_length(p), 2 * 8 * 10);
}

TEST(Problem, ArithmeticAndBytes) {
  Problem p = usual_problem();
  EXPECT_EQ(flops(p), 2.0 * 2 * 8 * 8 * 10 * 3 * 3 * 5);
  const double tensors = 2 * 6 * 14 * 15 + 8 * 3 * 3 * 5 + 2 * 8 * 8 * 10;
  EXPECT_EQ(min_bytes(p), 4 * tensors);
  p.epilogue.bias = true;
  EXPECT_EQ(min_bytes(p), 4 * (tensors + 8));
  p.epilogue.residual = true;
  EXPECT_EQ(min_bytes(p), 4 * (tensors + 8 + 2 * 8 * 8 * 10));
  EXPECT_EQ(touched_bytes(p), min_bytes(p));
  EXPECT_FALSE(is_depthwise(p));
  p.groups = 6;
  EXPECT_TRUE(is_depthwise(p));
}

TEST(Problem, PixelsThatNoTapReachesNeedNotBeRead) {
  Problem p;
  p.n = 2, p.c = 6, p.h = 8, p.w = 10, p.k = 4, p.r = p.s = 1, p.stride_h = p.stride_w = 2;
  const double others = 4 * 6 + 2 * 4 * 4 * 5;
  EXPECT_EQ(touched_bytes(p), 4 * (2 * 6 * 4 * 5 + others));
  EXPECT_EQ(min_bytes(p), 4 * (2 * 6 * 8 * 10 + others));
  p.direction = Direction::backward_weights;
  EXPECT_EQ(touched_bytes(p), 4 * (2 * 6 * 4 * 5 + others));
  p.direction = Direction::backward_data;  // writes all of x
  EXPECT_EQ(touched_bytes(p), min_bytes(p));
  p.direction = Direction::forward;
  p.r = p.s = 2, p.dilation_h = 3, p.pad_top = 1;  // rows -1, 2; 1, 4; 3, 6; of columns all
  EXPECT_EQ(p.p(), 3);
  EXPECT_EQ(touched_bytes(p), 4 * (2 * 6 * 5 * 10 + 6 * 4 * 4 + 2 * 4 * 3 * 5));
}

TEST(Problem, TouchedPixelsAreThoseThatATapMeets) {
  for (int i = 0; i < 20000; ++i) {
    std::mt19937 random(static_cast<unsigned>(i));
    const auto draw = [&](i64 from, i64 to) { return from + static_cast<i64>(random()) % (to - from + 1); };
    Problem p;
    p.w = draw(1, 40), p.s = draw(1, 9), p.stride_w = draw(1, 12), p.dilation_w = draw(1, 6);
    p.pad_left = draw(0, 12), p.pad_right = draw(0, 12);
    if ((p.s - 1) * p.dilation_w + 1 > p.pad_left + p.w + p.pad_right) continue;
    std::set<i64> met;
    for (i64 q = 0; q < p.q(); ++q) {
      for (i64 s = 0; s < p.s; ++s) met.insert(q * p.stride_w + s * p.dilation_w - p.pad_left);
    }
    const auto inside = std::count_if(met.begin(), met.end(), [&](i64 x) { return x >= 0 && x < p.w; });
    EXPECT_NEAR(touched_bytes(p), min_bytes(p) - 4.0 * static_cast<double>(p.w - inside), 1e-9)
        << to_string(p);
  }
}

// No time and no memory goes with their number.
TEST(Problem, PhasesOfStrides) {
  EXPECT_EQ(phases(parse_problem("fwd:n1c1h9w9k1r3s3:st4x2")), 1);
  EXPECT_EQ(phases(parse_problem("bwd_w:n1c1h9w9k1r3s3:st4x2")), 1);
  EXPECT_EQ(phases(parse_problem("bwd_d:n1c1h9w9k1r3s3:st4x2")), 8);
  EXPECT_EQ(phases(parse_problem("bwd_d:n1c1h9w9k1r3s3:st100x2")), 18);  // there are nine rows
  EXPECT_EQ(phases(parse_problem("fwd:n1c1h9w9k1r3s3:transposed:st4x2")), 8);
  EXPECT_EQ(phases(parse_problem("bwd_d:n1c1d9h9w9k1t1r1s1:st2x3x4")), 24);
  EXPECT_THAT(error_message([] { parse_problem("fwd:n1c2h300w300k2r4s4:transposed:st100000"); }),
              HasSubstr("strides so large make more than 16384 sums"));
}

TEST(Problem, AnUnusedStrideIsTheSmallestThatLeavesOneOutput) {
  const auto expect = [](const char* text, const char* shortened) {
    const Problem p = parse_problem(text), q = without_unused_strides(p);
    EXPECT_EQ(to_string(q), to_string(parse_problem(shortened)));
    EXPECT_NO_THROW(validate(q)) << text;
    for (const Tensor tensor : {Tensor::x, Tensor::w, Tensor::y})
      EXPECT_EQ(sizes(q, tensor), sizes(p, tensor));
  };
  expect("fwd:n1c8h9w9k8r3s3:pad1:st1000000000", "fwd:n1c8h9w9k8r3s3:pad1:st9");
  expect("bwd_w:n1c8h9w9k8r3s3:pad1:st10", "bwd_w:n1c8h9w9k8r3s3:pad1:st9");
  expect("fwd:n1c8h9w9k8r3s3:dil4:st5", "fwd:n1c8h9w9k8r3s3:dil4");
  expect("fwd:n1c8h9w16k8r9s3:st9x2", "fwd:n1c8h9w16k8r9s3:st1x2");
  expect("fwd:n1c8w16k8s3:st20", "fwd:n1c8w16k8s3:st14");
  expect("fwd:n1c8d4h9w9k8t4r3s3:st3x2x2", "fwd:n1c8d4h9w9k8t4r3s3:st1x2x2");
  expect("bwd_d:n1c8h1w9k8r3s3:transposed:st4:outpad2", "bwd_d:n1c8h1w9k8r3s3:transposed:st3x4:outpad2");
  for (const char* used : {"fwd:n1c8h9w9k8r3s3:pad1:st8", "bwd_d:n1c8h9w9k8r3s3:pad1:st1000",
                           "fwd:n1c8h1w1k8r3s3:transposed:st4"})
    expect(used, used);
}

TEST(Problem, TouchedPixelsOfTheLargestRowsAreCountedAtOnce) {
  const auto share = [](const char* text) {
    const Problem p = parse_problem(text);
    return (touched_bytes(p) - min_bytes(p)) / (4.0 * static_cast<double>(p.w)) + 1;
  };
  EXPECT_NEAR(share("fwd:n1c1h1w1099511627776k1r1s1:st1x4"), 0.25, 1e-6);
  EXPECT_NEAR(share("fwd:n1c1h1w1073741824k1r1s2:st1x8:dil1x4"), 0.25, 1e-6);
  EXPECT_NEAR(share("fwd:n1c1h1w1099511627776k1r1s549755813888"), 1, 1e-6);
}

TEST(Problem, TensorsBeyond31Bits) {
  Problem p;
  p.n = 100000, p.c = 1000, p.h = 1000, p.w = 1000;
  validate(p);
  EXPECT_EQ(x_shape(p).elements(), 100000000000000);
  EXPECT_EQ(flops(p), 2e14);
}

TEST(Problem, MissingPointers) {
  Problem p = usual_problem();
  p.epilogue.bias = p.epilogue.residual = true;
  float f = 0;
  const Tensors all{&f, &f, &f, &f, &f};
  const auto error = [&](const std::function<void(Tensors&)>& change, bool packed = false) -> std::string {
    Tensors t = all;
    change(t);
    try {
      check_pointers(p, t, packed);
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::bad_problem);
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error([](Tensors&) {}), "");
  EXPECT_THAT(error([](Tensors& t) { t.x = nullptr; }), HasSubstr("tensor x is null, but fwd of fwd:n2c6"));
  EXPECT_THAT(error([](Tensors& t) { t.w = nullptr; }), HasSubstr("tensor w is null"));
  EXPECT_EQ(error([](Tensors& t) { t.w = nullptr; }, true), "");
  EXPECT_THAT(error([](Tensors& t) { t.y = nullptr; }), HasSubstr("tensor y is null"));
  EXPECT_THAT(error([](Tensors& t) { t.bias = nullptr; }), HasSubstr("tensor bias is null"));
  EXPECT_THAT(error([](Tensors& t) { t.residual = nullptr; }), HasSubstr("tensor residual is null"));
  p.epilogue = {};
  EXPECT_EQ(error([](Tensors& t) { t.bias = t.residual = nullptr; }), "");
}

TEST(Names, AreTheCanonicalStrings) {
  EXPECT_STREQ(name(Direction::backward_weights), "bwd_w");
  EXPECT_STREQ(name(DType::bf16), "bf16");
  EXPECT_STREQ(name(Layout::nhwc), "nhwc");
  EXPECT_STREQ(name(Math::fast), "fast");
  EXPECT_STREQ(name(Activation::none), "none");
  EXPECT_STREQ(name(Activation::hardswish), "hardswish");
  EXPECT_STREQ(name(PoolKind::average), "avgpool");
}

}  // namespace
}  // namespace faltung
