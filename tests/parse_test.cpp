// The text that a problem is written in, its words, and what bad text is answered with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "src/problem/words.hpp"
#include "tests/parse_checks.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

// A message may go to a terminal.
TEST(Canonical, MessagesHaveNoControlCharacters) {
  for (const char* text :
       {"\x1b[2J", "fwd:n1c8h9w8k8r3s3:\x1b[2J", "conv \x1b[2J -n 1", "--dir=\x1b[2J ic8ih9oc8kh3"}) {
    try {
      parse_problem(text);
      ADD_FAILURE() << "it was taken";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\x1b'), std::string::npos) << text;
    }
  }
}

TEST(Canonical, FieldsAndDefaults) {
  const Problem p = parse_problem(
      "fwd:n2c6h14w15k8r3s5:st2x3:pad0.1.2.3:dil2x1:g2:bf16:nhwc:math=fast:bias:residual:leaky_relu(0.25):"
      "maxpool3x2s2x1p1.0.1.0");
  Problem q;
  q.n = 2, q.c = 6, q.h = 14, q.w = 15, q.k = 8, q.r = 3, q.s = 5;
  q.stride_h = 2, q.stride_w = 3, q.pad_top = 0, q.pad_bottom = 1, q.pad_left = 2, q.pad_right = 3;
  q.dilation_h = 2, q.groups = 2, q.dtype = DType::bf16, q.layout = Layout::nhwc, q.math = Math::fast;
  q.epilogue.bias = q.epilogue.residual = true;
  q.epilogue.activation = Activation::leaky_relu;
  q.epilogue.slope = 0.25f;
  q.epilogue.pool = {PoolKind::max, 3, 2, 2, 1, 1, 0, 1, 0};
  EXPECT_EQ(p, q);
  EXPECT_EQ(parse_problem(to_string(p)), p);

  const Problem clipped = parse_problem("n1c2h3w4k5r1s1:clip(-1.5,6e0)");
  EXPECT_EQ(clipped.epilogue.activation, Activation::clip);
  EXPECT_EQ(clipped.epilogue.clip, (Clip{-1.5f, 6}));
  EXPECT_EQ(to_string(clipped), "fwd:n1c2h3w4k5r1s1:f32:nchw:clip(-1.5,6)");
  expect_same("n1c2h3w4k5r1s1:bias:PReLU", "fwd:n1c2h3w4k5r1s1:f32:nchw:bias:prelu");
  expect_same(" n1c2h3w4k5r1s1 ", "fwd:n1c2h3w4k5r1s1:f32:nchw");
  expect_same("FWD:k5c2n1r1s1h3w4:NHWC:F16:none", "fwd:n1c2h3w4k5r1s1:f16:nhwc");
}

TEST(Canonical, EachFieldInAnyOrderButTheEpilogues) {
  expect_same("nhwc:bias:n1c2h3w4k5r1s1:relu:math=f16:f16:fwd", "fwd:n1c2h3w4k5r1s1:f16:nhwc:bias:relu");
  expect_same("bias:residual:relu:maxpool2:n1c2h3w4k5r1s1",
              "fwd:n1c2h3w4k5r1s1:f32:nchw:bias:residual:relu:maxpool2");
}

TEST_P(BadText, SaysWhatWasWrong) { EXPECT_THAT(problem_error(GetParam().text), HasSubstr(GetParam().part)); }

TEST(Canonical, OneAndThreeDimensions) {
  Problem p = parse_problem("n8c64w16000k128s9:st2:pad4:dil3:maxpool3s2p1");
  EXPECT_EQ(p.dimensions, 1);
  EXPECT_EQ(p.w, 16000);
  EXPECT_EQ(p.s, 9);
  EXPECT_EQ(p.h, 1);
  EXPECT_EQ(p.stride_w, 2);
  EXPECT_EQ(p.stride_h, 1);
  EXPECT_EQ(p.pad_left, 4);
  EXPECT_EQ(p.pad_top, 0);
  EXPECT_EQ(p.epilogue.pool, (Pool{PoolKind::max, 1, 3, 1, 2, 0, 0, 1, 1}));
  EXPECT_EQ(to_string(p), "fwd:n8c64w16000k128s9:st2:pad4:dil3:f32:nchw:maxpool3s2p1");
  p = parse_problem("n2c64d16h32w33k64t3r4s5:st1x2x3:pad0.1.2.3.4.5:dil2x1x1:nhwc");
  EXPECT_EQ(p.dimensions, 3);
  EXPECT_THAT((std::array{p.d, p.h, p.w, p.t, p.r, p.s}), testing::ElementsAre(16, 32, 33, 3, 4, 5));
  EXPECT_THAT((std::array{p.stride_d, p.stride_h, p.stride_w, p.dilation_d, p.dilation_h, p.dilation_w}),
              testing::ElementsAre(1, 2, 3, 2, 1, 1));
  EXPECT_THAT((std::array{p.pad_front, p.pad_back, p.pad_top, p.pad_bottom, p.pad_left, p.pad_right}),
              testing::ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(to_string(p), "fwd:n2c64d16h32w33k64t3r4s5:st1x2x3:pad0.1.2.3.4.5:dil2x1x1:f32:nhwc");
  // Of two dimensions with a height of 1 is another problem than one of one.
  expect_same("n8c64h1w16k128r1s9", "fwd:n8c64h1w16k128r1s9:f32:nchw");
  expect_same("n8c64w16k128s9:pad1.2", "fwd:n8c64w16k128s9:pad1.2:f32:nchw");
  expect_same("n2c64d16h32w32k64t3r3s3:pad1:st2", "fwd:n2c64d16h32w32k64t3r3s3:st2:pad1:f32:nchw");
  expect_same("n2c64d16h32w32k64t3r1s1:pad1x0x0:ndhwc", "fwd:n2c64d16h32w32k64t3r1s1:pad1x0x0:f32:nhwc");
  expect_same("n8c64w16k128s9:ncw", "fwd:n8c64w16k128s9:f32:nchw");
}

TEST(Canonical, Transposed) {
  const Problem p = parse_problem("n1c8h5w6k4r3s3:transposed:st2:pad1:outpad1x0:bias");
  EXPECT_EQ(p.kind, ConvolutionKind::transposed);
  EXPECT_EQ(p.p(), 10);
  EXPECT_EQ(p.q(), 11);
  EXPECT_EQ(to_string(p), "fwd:n1c8h5w6k4r3s3:transposed:st2:pad1:outpad1x0:f32:nchw:bias");
  expect_same("n1c8w5k4s3:st2:TRANSPOSED:outpad1", "fwd:n1c8w5k4s3:transposed:st2:outpad1:f32:nchw");
  expect_same("bwd_w:n1c8d2h5w6k4t3r3s3:transposed:st2x1x1:outpad1x0x0",
              "bwd_w:n1c8d2h5w6k4t3r3s3:transposed:st2x1x1:outpad1x0x0:f32:nchw");
}

INSTANTIATE_TEST_SUITE_P(
    KnownWishes, BadText,
    testing::Values(Bad{"n1c2h3w4k5r1s1:f64", "no 64-bit arithmetic; the types are f32, f16 and bf16"},
                    Bad{"n1c2h3w4k5r1s1:int8", "no arithmetic on integers"},
                    Bad{"n1c2h3w4k5r1s1:FP8_E4M3", "no arithmetic on integers or on 8 bits"},
                    Bad{"n1c2h3w4k5r1s1:reflect", "no padding but with zeros; pad the input yourself"},
                    Bad{"conv_transpose:n1c2h3w4k5r1s1", "written with the field transposed"},
                    Bad{"wgrad:n1c2h3w4k5r1s1", "is called bwd_w"},
                    Bad{"dgrad:n1c2h3w4k5r1s1", "is called bwd_d"},
                    Bad{"forward:n1c2h3w4k5r1s1", "it is called fwd"},
                    Bad{"n1c2h3w4k5r1s1:stride2", "a stride is written st2"},
                    Bad{"n1c2h3w4k5r1s1:padding=1", "padding is written pad1"},
                    Bad{"n1c2h3w4k5r1s1:groups4", "groups are written g32"},
                    Bad{"n1c2h3w4k5r1s1:p1", "padding is written pad1"},
                    Bad{"n1c2h3w4k5r1s1:transposed:opad1", "is written outpad1"},
                    Bad{"n1c2h3w4k5r1s1:output_padding=1", "is written outpad1"},
                    Bad{"n1c2h3w4k5r1s1:batchnorm", "a batch norm is folded into the weights"},
                    Bad{"n1c2h3w4k5r1s1:groupnorm32", "it is an operator of networks"},
                    Bad{"n1c2h3w4k5r1s1:tanh", "there is no such activation; there are relu, "},
                    Bad{"n1c2h3w4k5r1s1:channels_last", "it is called nhwc"},
                    Bad{"model.onnx", "it is a file, and a problem is one convolution"},
                    Bad{"workloads/resnet50.csv", "is read by --suite FILE.csv"},
                    // Nothing is near: what there is.
                    Bad{"n1c2h3w4k5r1s1:qqqqqqq", "there is relu, "},
                    Bad{"n1c2h3w4k5r1s1:qqqqqqq", ", nchw, nhwc, math=f32"}));

INSTANTIATE_TEST_SUITE_P(
    Canonical, BadText,
    testing::Values(
        Bad{"", "empty"}, Bad{"fwd", "size n is missing"}, Bad{"fwd:n1c2h3w4k5r1", "size s is missing"},
        Bad{"fwd:n1c2h3w4k5r1s1:", "a field is empty"}, Bad{"fwd::n1c2h3w4k5r1s1", "a field is empty"},
        Bad{"fwd:n1c2h3w4k5r1s1:fwd", "direction is given twice"},
        Bad{"fwd:n1c2h3w4k5r1s1n2", "size n is given twice"},
        Bad{"n1c2h3w4k5r1s1:f32:bf16", "dtype is given twice"},
        Bad{"n1c2h3w4k5r1s1:relu:relu6", "activation is given twice"},
        Bad{"n1c2h3w4k5r1s1:st2:st2", "stride is given twice"},
        Bad{"n1c2h3w4k5r1s1:fp32", "it is called f32"}, Bad{"n1c2h3w4k5r1s1:nwhc", "nearest is nhwc"},
        Bad{"n1c2h3w4k5r1s1:swish6", "it is called silu"}, Bad{"n1c2h3w4k5r1s1:bais", "nearest is bias"},
        Bad{"bwd_x:n1c2h3w4k5r1s1", "nearest is bwd_"}, Bad{"n1c2h3w4k5r1s1:math=f33", "nearest is f32"},
        Bad{"n1c2h3w4k5r1q1", "no size in 'q1'"}, Bad{"n1c2h3w4k5r1s", "no size in 's'"},
        Bad{"n1c2h3w4k5r1s1:st2y", "'y' after its end"},
        Bad{"n1c2h3w4k5r1s1:st2x", "no number where one belongs"},
        Bad{"n1c2h3w4k5r1s1:pad1.2", "two paddings"}, Bad{"n1c2h3w4k5r1s1:pad1.2.3", "three paddings"},
        Bad{"n99999999999999999999c2h3w4k5r1s1", "out of range"},
        Bad{"n1c2h3w4k5r1s1:leaky_relu(x)", "slope"}, Bad{"n1c2h3w4k5r1s1:leaky_relu(0.1", "slope"},
        Bad{"n1c2h3w4k5r1s1:leaky_relu(nan)", "slope"}, Bad{"n1c2h3w4k5r1s1:leaky_relu()", "slope"},
        Bad{"n0c2h3w4k5r1s1", "n is 0; it must be at least 1"},
        Bad{"n1c-2h3w4k5r1s1", "c is -2; it must be at least 1"},
        Bad{"n1c2h3w4k5r1s1:pad-1", "pad_top is -1"}, Bad{"n1c2h3w4k5r1s1:st0", "stride_h is 0"},
        Bad{"n1c2h3w4k5r5s1", "dilated filter 5x1 is larger than the padded input 3x4"},
        Bad{"n1c2h3w4k5r1s1:g2", "groups = 2 does not divide k = 5"},
        Bad{"n1c1h1099511627776w1099511627776k5r1s1", "more than 2^56 elements"},
        Bad{"n1c2h3w4k5r1s1:f16:math=tf32", "math tf32 does not go with dtype f16"},
        Bad{"bwd_w:n1c2h3w4k5r1s1:bias", "an epilogue goes with fwd alone"},
        Bad{"n1c2h3w4k5r1s1:relu:bias",
            "bias comes after activation; an epilogue is written as it is applied: bias, residual, "
            "activation, pool"},
        Bad{"n1c2h3w4k5r1s1:maxpool2:residual", "residual comes after pool"},
        Bad{"n1c2h3w4k5r1s1:hardsigmoid", "without its slope; write hardsigmoid(0.2)"},
        Bad{"n1c2h3w4k5r1s1:clip", "without its bounds; write clip(-1,6)"},
        Bad{"n1c2h3w4k5r1s1:clip()", "no two finite numbers; write clip(-1,6)"},
        Bad{"n1c2h3w4k5r1s1:clip(1)", "no two finite numbers"},
        Bad{"n1c2h3w4k5r1s1:clip(1,2,3)", "no two finite numbers"},
        Bad{"n1c2h3w4k5r1s1:clip(1,2", "no two finite numbers"},
        Bad{"n1c2h3w4k5r1s1:clip(1,2)3", "no two finite numbers"},
        Bad{"n1c2h3w4k5r1s1:clip(-inf,2)", "no two finite numbers"},
        Bad{"n1c2h3w4k5r1s1:clip(2,1)", "clip's bounds are two finite numbers, the smaller one first"},
        Bad{"n1c2h3w4k5r1s1:prelu(0.1)", "whose slopes are a tensor, or leaky_relu(0.01)"},
        Bad{"n1c2h3w4k5r1s1:clamp", "bounds are written clip(-1,6)"},
        Bad{"n1c2h3w4k5r1s1:hardtanh", "bounds are written clip(-1,6)"},
        Bad{"n1c2h3w4k5r1s1:prelus", "is written prelu"},
        Bad{"n1c2h3w4k5r1s1:xpitch2", "xpitch is 2; a slice of c = 2 channels lies in a tensor of more"},
        Bad{"n1c2h3w4k5r1s1:ypitch4", "ypitch is 4; a slice of k = 5 channels"},
        Bad{"n1c2h4w4k5r1s1:ypitch9:maxpool2", "a pooled result is no slice"},
        Bad{"bwd_d:n1c2h3w4k5r1s1:xpitch4", "goes with fwd of plain convolutions"},
        Bad{"n1c2w4k5s1:xpitch4", "of two dimensions"},
        Bad{"n1c2h3w4k5r1s1:leaky_relu(0.1):f16:bias", "bias comes after activation"},
        Bad{"n1c2h3w4k5r1s1:residual:bias", "bias comes after residual"},
        Bad{"n1c2h3w4k5r1s1:avgpool2:gelu", "activation comes after pool"},
        Bad{"n1c2h3w4k5r1s1:maxpool2p2", "pool padding must be smaller"},
        Bad{"n1c2h3w4k5r1s1:maxpool9", "is larger than the padded output"},
        Bad{"n1c2d6h3w4k5r1s1",
            "size t is missing; the sizes of three dimensions are given as n2c64d16h32w32"},
        Bad{"n1c2h3w4k5t1r1s1", "size d is missing; the sizes of three dimensions"},
        Bad{"n1c2w4k5r1s1", "size h is missing; the sizes of two dimensions are given as n1c64h56w56k64r3s3"},
        Bad{"n1c2w4k5s1:st1x2", "two strides for one dimension; give one, or one for each"},
        Bad{"n1c2h3w4k5r1s1:st1x2x3", "three strides for two dimensions"},
        Bad{"n1c2d3h3w4k5t1r1s1:pad1x2", "two paddings; give one, as 1x2x3 or as 0.1.0.1.2.2"},
        Bad{"n1c2d3h3w4k5t1r1s1:pad0.1.0.1", "four paddings"},
        Bad{"n1c2h3w4k5r1s1:dil1x1x2", "three dilations for two dimensions"},
        Bad{"n1c2h3w4k5r1s1:ncdhw", "layout ncdhw is of three dimensions and the sizes are of two"},
        Bad{"n1c2d3h3w4k5t4r1s1", "dilated filter 4x1x1 is larger than the padded input 3x3x4"},
        Bad{"n1c2w4k5s5", "dilated filter 5 is larger than the padded input 4"},
        Bad{"n1c2d3h3w4k5t1r1s1:maxpool2", "a pool goes with one or two dimensions"},
        Bad{"n1c2w4k5s1:maxpool2x2", "two pool sizes for one dimension"},
        Bad{"n1c2h3w4k5r1s1:outpad1", "an output padding goes with a transposed convolution alone"},
        Bad{"n1c2h3w4k5r1s1:transposed:outpad1",
            "an output padding of h of 1 is not smaller than the stride 1"},
        Bad{"n1c2h3w4k5r1s1:transposed:st2:outpad0x2", "output padding of w of 2 is not smaller"},
        Bad{"n1c2h3w4k5r1s1:transposed:st2:outpad-1", "output padding of h is -1"},
        Bad{"n1c2h1w4k5r3s3:transposed:pad2",
            "a transposed convolution of h = 1 with filter 3, stride 1 and padding 2 and 2 has an output of "
            "-1; "
            "pad less"},
        Bad{"n1c2h3w4k5r1s1:transpose", "nearest is transposed"},
        Bad{"bwd_d:n1c2h3w4k5r1s1:transposed:bias", "an epilogue goes with fwd alone"},
        Bad{"n1c2h3w4k5r1s1:maxpool", "nearest is maxpool2"}, Bad{"a\nb", "unknown field 'a?b'"}));

TEST(Canonical, RandomProblemsRoundTrip) {
  std::mt19937_64 random(7);
  const auto below = [&](int limit) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(limit));
  };
  int valid = 0;
  for (int i = 0; i < 30000; ++i) {
    Problem p;
    p.direction = static_cast<Direction>(below(3));
    p.groups = 1 + below(3);
    p.n = 1 + below(4), p.c = p.groups * (1 + below(4)), p.k = p.groups * (1 + below(4));
    p.h = 1 + below(9), p.w = 1 + below(9), p.r = 1 + below(4), p.s = 1 + below(4);
    if (below(9) == 0) p.n = std::int64_t{1} << below(40);
    p.dimensions = static_cast<int>(1 + below(3));
    p.kind = static_cast<ConvolutionKind>(below(2));
    p.stride_h = 1 + below(2), p.stride_w = 1 + below(2);
    p.dilation_h = 1 + below(2), p.dilation_w = 1 + below(2);
    p.pad_top = below(3), p.pad_bottom = below(3), p.pad_left = below(3), p.pad_right = below(3);
    if (is_transposed(p)) p.output_pad_h = below(2), p.output_pad_w = below(2);
    if (p.dimensions == 3) {
      p.d = 1 + below(5), p.t = 1 + below(3), p.stride_d = 1 + below(2), p.dilation_d = 1 + below(2);
      p.pad_front = below(3), p.pad_back = below(3);
      if (is_transposed(p)) p.output_pad_d = below(2);
    } else if (p.dimensions == 1) {
      p.h = p.r = p.stride_h = p.dilation_h = 1;
      p.pad_top = p.pad_bottom = p.output_pad_h = 0;
    }
    p.dtype = static_cast<DType>(below(3));
    p.layout = static_cast<Layout>(below(2));
    p.math = static_cast<Math>(below(5));
    p.affine = static_cast<Affine>(below(3));
    if (p.direction == Direction::forward) {
      Epilogue& e = p.epilogue;
      e.bias = below(2) == 0;
      e.residual = below(2) == 0;
      e.activation = kActivations[below(std::size(kActivations))];
      if (e.activation == Activation::leaky_relu) e.slope = static_cast<float>(random()) * 0x1p-50f - 1000;
      if (e.activation == Activation::clip) {
        e.clip.least = static_cast<float>(random()) * 0x1p-50f - 1000;
        e.clip.most = e.clip.least + static_cast<float>(random()) * 0x1p-60f;
      }
      e.pool.kind = static_cast<PoolKind>(below(3));
      if (e.pool.kind != PoolKind::none) {
        e.pool = {e.pool.kind, 1 + below(4), 1 + below(4), 1 + below(3), 1 + below(3),
                  below(2),    below(2),     below(2),     below(2)};
        if (p.dimensions == 1) e.pool.size_h = e.pool.stride_h = 1, e.pool.pad_top = e.pool.pad_bottom = 0;
      }
    }
    try {
      validate(p);
    } catch (const Error&) {
      continue;
    }
    ++valid;
    ASSERT_EQ(parse_problem(to_string(p)), p) << to_string(p);
  }
  EXPECT_GT(valid, 3000);
}

// docs/problem.md has every word that the text and the lists may have.
TEST(Words, AreDocumented) {
  std::ifstream file(FALTUNG_SOURCE_DIR "/docs/problem.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::string> words{"bias",       "biasf32",   "residual",  "maxpool3s2p1", "avgpool2",
                                 "transposed", "xpitch192", "ypitch192", "affine",       "affine_relu"};
  for (const auto& all : {names(Direction::backward_weights), names(DType::bf16), names(Layout::nhwc),
                          names(Math::fast), names(Activation::prelu)}) {
    words.insert(words.end(), all.begin(), all.end());
  }
  for (const LayoutAlias& alias : kLayoutAliases) words.push_back(alias.name);
  // The columns, as a list with one that is near to none of them is told: "there is a, b or c".
  std::string told = parse_error([] { parse_workloads("qqqqqqqqqq\n1\n", "f"); });
  ASSERT_THAT(told, HasSubstr("there is "));
  told.erase(0, told.find("there is ") + std::strlen("there is "));
  std::replace(told.begin(), told.end(), ',', ' ');
  std::istringstream columns(told);
  for (std::string word; columns >> word;) {
    if (word != "or") words.push_back(word);
  }
  EXPECT_GT(words.size(), 50u);
  for (const std::string& word : words) {
    EXPECT_TRUE(page.find('`' + word) != std::string::npos || page.find('=' + word) != std::string::npos)
        << word << " is not in docs/problem.md";
  }
}

TEST(Words, NameTheNearest) {
  EXPECT_EQ(parse_direction("backward_data"), Direction::backward_data);
  EXPECT_EQ(parse_direction("bwd_w"), Direction::backward_weights);
  EXPECT_EQ(parse_layout("NHWC"), Layout::nhwc);
  EXPECT_EQ(parse_layout("ndhwc"), Layout::nhwc);
  EXPECT_EQ(parse_layout("NCW"), Layout::nchw);
  EXPECT_EQ(parse_math("tf32"), Math::tf32);
  EXPECT_EQ(parse_epilogue(""), Epilogue{});
  EXPECT_EQ(parse_epilogue("none"), Epilogue{});
  EXPECT_EQ(parse_epilogue("bias:relu6").activation, Activation::relu6);
  EXPECT_EQ(parse_error([] { parse_dtype("float16"); }), "unknown dtype 'float16'; it is called f16");
  EXPECT_THAT(parse_error([] { parse_epilogue("bias:st2"); }), HasSubstr("unknown field 'st2'"));
  EXPECT_THAT(parse_error([] { parse_epilogue("relu:relu"); }), HasSubstr("activation is given twice"));
  EXPECT_THAT(parse_error([] { parse_epilogue("maxpool2:relu"); }), HasSubstr("activation comes after pool"));
}

}  // namespace
}  // namespace faltung
