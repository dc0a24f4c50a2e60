// Every notation a problem can be written in, and what bad text is answered with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "src/problem/parse.hpp"
#include "src/problem/problem.hpp"
#include "src/problem/words.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

std::string parse_error(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "(no error)";
}

std::string problem_error(const std::string& text) {
  return parse_error([&] { parse_problem(text); });
}

// text means what canonical says.
void expect_same(const std::string& text, const std::string& canonical) {
  try {
    EXPECT_EQ(to_string(parse_problem(text)), canonical) << text;
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}

// ---------------------------------------------------------------------------------------- canonical string

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

  expect_same(" n1c2h3w4k5r1s1 ", "fwd:n1c2h3w4k5r1s1:f32:nchw");
  expect_same("FWD:k5c2n1r1s1h3w4:NHWC:F16:none", "fwd:n1c2h3w4k5r1s1:f16:nhwc");
}

TEST(Canonical, EachFieldInAnyOrderButTheEpilogues) {
  expect_same("nhwc:bias:n1c2h3w4k5r1s1:relu:math=f16:f16:fwd", "fwd:n1c2h3w4k5r1s1:f16:nhwc:bias:relu");
  expect_same("bias:residual:relu:maxpool2:n1c2h3w4k5r1s1",
              "fwd:n1c2h3w4k5r1s1:f32:nchw:bias:residual:relu:maxpool2");
}

struct Bad {
  const char* text;
  const char* part;  // of the message
};

void PrintTo(const Bad& bad, std::ostream* out) { *out << bad.text; }

class BadText : public testing::TestWithParam<Bad> {};

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
    if (p.direction == Direction::forward) {
      Epilogue& e = p.epilogue;
      e.bias = below(2) == 0;
      e.residual = below(2) == 0;
      e.activation = kActivations[below(std::size(kActivations))];
      if (e.activation == Activation::leaky_relu) e.slope = static_cast<float>(random()) * 0x1p-50f - 1000;
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

// ------------------------------------------------------------------------------------------------- MIOpen

TEST(MIOpen, CommandLines) {
  expect_same("MIOpenDriver conv -F 1", "fwd:n100c3h32w32k32r3s3:f32:nchw");
  expect_same(
      "./bin/MIOpenDriver convfp16 -n 2 -c 1280 -H 34 -W 34 -k 1280 -y 3 -x 3 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 "
      "-m conv -g 1 -F 1 -t 1 --in_layout NHWC --out_layout NHWC --fil_layout NHWC",
      "fwd:n2c1280h34w34k1280r3s3:f16:nhwc");
  expect_same(
      "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convbfp16 -n 4 -c 6 -H 20 -W 30 -k 8 -y 3 "
      "-x 5 -p 1 -q 2 -u 2 -v 3 -l 2 -j 1 -g 2 -F 4 -V 0 -i 1 -s 1 -w 1 -S -1 -P 0",
      "bwd_w:n4c6h20w30k8r3s5:st2x3:pad1x2:dil2x1:g2:bf16:nchw");
  expect_same(
      "MIOpenDriver conv --batchsize 1 --in_channels 2 --in_h 9 --in_w 8 --out_channels 4 --fil_h 3 --fil_w "
      "2 --pad_h 1 --pad_w 0 --conv_stride_h 2 --conv_stride_w 1 --dilation_h 1 --dilation_w 2 --group_count "
      "2 --forw 2 --mode conv --verify 0 --time 1",
      "bwd_d:n1c2h9w8k4r3s2:st2x1:pad1x0:dil1x2:g2:f32:nchw");
  expect_same(
      "MIOpenDriver conv -F 1 -b 1 --conv_stride_0 2 --conv_stride_1 2 -r 0 --spatial_dim 2 -! 7 -Z 0",
      "fwd:n100c3h32w32k32r3s3:st2:f32:nchw:bias");
  expect_same("MIOpenDriver conv -F 4 -b 1", "bwd_w:n100c3h32w32k32r3s3:f32:nchw");
}

TEST(MIOpen, PaddingModes) {
  expect_same("MIOpenDriver conv -F 1 -z same -p 7 -q 7", "fwd:n100c3h32w32k32r3s3:pad1:f32:nchw");
  expect_same("MIOpenDriver conv -F 1 -z valid -p 7 -q 7", "fwd:n100c3h32w32k32r3s3:f32:nchw");
  expect_same("MIOpenDriver conv -F 1 -z same -W 33 -y 5 -x 5 -u 2 -v 2",
              "fwd:n100c3h32w33k32r5s5:st2:pad1x2:f32:nchw");
  // The driver leaves a dilated filter's padding as it is.
  expect_same("MIOpenDriver conv -F 1 -z same -p 7 -q 6 -l 2",
              "fwd:n100c3h32w32k32r3s3:pad7x6:dil2x1:f32:nchw");
}

TEST(MIOpen, Transposed) {
  // y has (5-1)*2 - 2*1 + 3 + 1 = 10 rows, (6-1)*2 - 2 + 3 = 11 columns.
  const std::string line = "MIOpenDriver conv -m trans -n 1 -c 8 -H 5 -W 6 -k 4 -u 2 -v 2 -p 1 -q 1 -Y 1 ";
  expect_same(line + "-F 1 -b 1", "fwd:n1c8h5w6k4r3s3:transposed:st2:pad1:outpad1x0:f32:nchw:bias");
  const Problem p = parse_problem(line + "-F 2");
  EXPECT_EQ(p.direction, Direction::backward_data);
  EXPECT_EQ(p.p(), 10);
  EXPECT_EQ(p.q(), 11);
}

TEST(MIOpen, ThreeDimensions) {
  expect_same("MIOpenDriver conv -F 1 --spatial_dim 3 -n 2", "fwd:n2c3d32h32w32k32t3r3s3:f32:nchw");
  expect_same(
      "MIOpenDriver convfp16 -F 4 -_ 3 -n 2 -c 8 -! 9 -H 10 -W 11 -k 4 -@ 3 -y 1 -x 5 -# 2 -u 1 -v 3 -$ 1 -p "
      "0 -q "
      "2 -^ 2 -l 1 -j 1 -I NDHWC -f NDHWC -O NDHWC",
      "bwd_w:n2c8d9h10w11k4t3r1s5:st2x1x3:pad1x0x2:dil2x1x1:f16:nhwc");
  expect_same("MIOpenDriver conv -F 1 -_ 3 -n 1 -m trans -# 2 -u 2 -v 2 -% 1",
              "fwd:n1c3d32h32w32k32t3r3s3:transposed:st2:outpad1x0x0:f32:nchw");
}

TEST(MIOpen, SeveralDirections) {
  EXPECT_THAT(problem_error("MIOpenDriver conv"), HasSubstr("it names 3 directions; choose one with -F 1"));
  EXPECT_THAT(problem_error("MIOpenDriver conv -F 6"), HasSubstr("it names 2 directions"));
  const std::vector<Problem> all = parse_problems("MIOpenDriver conv -F 0 -b 1");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].direction, Direction::forward);
  EXPECT_TRUE(all[0].epilogue.bias);
  EXPECT_EQ(all[1].direction, Direction::backward_data);
  EXPECT_TRUE(all[1].epilogue.empty());
  EXPECT_EQ(all[2].direction, Direction::backward_weights);
}

INSTANTIATE_TEST_SUITE_P(
    MIOpen, BadText,
    testing::Values(Bad{"MIOpenDriver", "no driver after MIOpenDriver"},
                    Bad{"MIOpenDriver pool -F 1", "driver 'pool' is not supported"},
                    Bad{"MIOpenDriver convint8 -F 1", "driver 'convint8' is not supported"},
                    Bad{"MIOpenDriver conv -n", "flag -n has no value"},
                    Bad{"MIOpenDriver conv 3 -n", "'3' stands where a flag belongs"},
                    Bad{"MIOpenDriver conv --batchsise 3", "nearest is --batchsize"},
                    Bad{"MIOpenDriver conv -Q 3", "unknown flag -Q"},
                    Bad{"MIOpenDriver conv -n 3x -F 1", "--batchsize 3x is no whole number"},
                    Bad{"MIOpenDriver conv -n 99999999999999999999 -F 1", "is no whole number in range"},
                    Bad{"MIOpenDriver conv -n 0 -F 1", "n is 0"},
                    Bad{"MIOpenDriver conv -n -4 -F 1", "n is -4"},
                    Bad{"MIOpenDriver conv -F 8", "no sum of 1 (fwd)"},
                    Bad{"MIOpenDriver conv -F 1 -I NHWC", "the layouts differ"},
                    Bad{"MIOpenDriver conv -F 1 -I CHWN -f CHWN -O CHWN", "layout CHWN is not supported"},
                    Bad{"MIOpenDriver conv -F 1 --spatial_dim 4",
                        "--spatial_dim 4 is not supported; it can be 2 or 3"},
                    Bad{"MIOpenDriver conv -F 1 -_ 3 -I NHWC -f NHWC -O NHWC",
                        "layout NHWC is not supported with --spatial_dim 3; it can be NCDHW or NDHWC"},
                    Bad{"MIOpenDriver conv -F 1 -r 1", "--pad_val 1 is not supported"},
                    Bad{"MIOpenDriver conv -F 1 -z all", "--pad_mode all is unknown"},
                    Bad{"MIOpenDriver conv -F 1 -m deconv", "--mode deconv is unknown"},
                    Bad{"MIOpenDriver conv -F 1 -m trans -Y 1", "not smaller than the stride"},
                    Bad{"MIOpenDriver conv -F 1 -g 5", "groups = 5 does not divide"}));

// ----------------------------------------------------------------------------------------------- benchdnn

TEST(Benchdnn, Descriptors) {
  expect_same("g1mb4ic3ih224oc64oh112kh7sh2ph3n\"name\"", "fwd:n4c3h224w224k64r7s7:st2:pad3:f32:nchw");
  expect_same("ic8ih10oc16kh3", "fwd:n2c8h10w10k16r3s3:f32:nchw");
  expect_same("mb1_ic8_ih10iw12_oc16oh10ow12_kh3kw5_n\"with : and blanks\"",
              "fwd:n1c8h10w12k16r3s5:pad1x2:f32:nchw");
  expect_same("mb1ic8iw12oc16kw5pw2", "fwd:n1c8w12k16s5:pad2:f32:nchw");
  expect_same("mb1ic8id9oc16kd3pd1sd2", "fwd:n1c8d9h9w9k16t3r3s3:st2:pad1:f32:nchw");
  expect_same("--stag=ndhwc mb1ic8id5ih10iw12oc16kd1kh3kw4sd2sh1sw1pd0ph1pw2dd1dh0dw0",
              "fwd:n1c8d5h10w12k16t1r3s4:st2x1x1:pad0x1x2:dil2x1x1:f32:nhwc");
  expect_same("mb1ic8id5od5ih10oh10oc16kd3kh3", "fwd:n1c8d5h10w10k16t3r3s3:pad1:f32:nchw");
  expect_same("g4mb1ic8ih10oc16kh3dh1ph2nname", "fwd:n1c8h10w10k16r3s3:pad2:dil2:g4:f32:nchw");
  expect_same("mb1ic8id1ih10oc16od1kd1sd1pd0dd0kh3", "fwd:n1c8h10w10k16r3s3:f32:nchw");
}

TEST(Benchdnn, PaddingImpliedByTheOutput) {
  // 224 + 0 + b >= 3 + 111 * 2: one row after, none before.
  expect_same("mb8ic3ih224oc32oh112kh3sh2ph0", "fwd:n8c3h224w224k32r3s3:st2:pad0.1.0.1:f32:nchw");
  // Without ph: half of what is needed goes before.
  expect_same("mb8ic3ih224oc32oh112kh3sh2", "fwd:n8c3h224w224k32r3s3:st2:pad0.1.0.1:f32:nchw");
  expect_same("mb1ic1ih5oc1oh5kh4", "fwd:n1c1h5w5k1r4s4:pad1.2.1.2:f32:nchw");
  // The last rows are not read.
  expect_same("mb1ic1ih6oc1oh2kh3sh3ph0", "fwd:n1c1h6w6k1r3s3:st3:f32:nchw");
  expect_same("mb1ic1ih8oc1oh2kh3sh3ph0", "fwd:n1c1h8w8k1r3s3:st3:f32:nchw");
  expect_same("mb1ic1ih8oc1oh2kh5sh4ph1", "fwd:n1c1h8w8k1r5s5:st4:pad1:f32:nchw");
  for (const char* text : {"mb1ic1ih7oc1oh4kh3sh2ph1", "mb1ic1ih7oc1oh6kh3ph1", "mb1ic1ih7oc1oh9kh3ph1"}) {
    const std::string s = text;
    EXPECT_EQ(parse_problem(s).p(), s[s.find("oh") + 2] - '0') << s;
  }
}

TEST(Benchdnn, Transposed) {
  expect_same("--deconv mb1ic8ih5oc4oh10kh4sh2ph1", "fwd:n1c8h5w5k4r4s4:transposed:st2:pad1:f32:nchw");
  expect_same("--deconv mb1ic8ih5oc4oh10kh3sh2ph1",
              "fwd:n1c8h5w5k4r3s3:transposed:st2:pad1:outpad1:f32:nchw");
  expect_same("--deconv mb1ic8ih5oc4oh11kh3sh2ph0", "fwd:n1c8h5w5k4r3s3:transposed:st2:f32:nchw");
  expect_same("--deconv mb1ic8ih5oc4oh10kh3sh2ph0", "fwd:n1c8h5w5k4r3s3:transposed:st2:pad0.1.0.1:f32:nchw");
  expect_same("--deconv --dir=BWD_D mb1ic8iw5oc4kw3sw2", "bwd_d:n1c8w5k4s3:transposed:st2:f32:nchw");
  for (const int oh : {9, 10, 11, 12}) {
    const Problem p = parse_problem("--deconv mb1ic8ih5oc4oh" + std::to_string(oh) + "kh4sh2ph1");
    EXPECT_EQ(p.p(), oh);
  }
}

TEST(OnednnVerbose, Lines) {
  expect_same(
      "onednn_verbose,exec,cpu,convolution,jit:avx512_core,forward_inference,src_f32::blocked:acdb:f0 "
      "wei_f32::blocked:Acdb16a:f0 bia_f32::blocked:a:f0 dst_f32::blocked:acdb:f0,attr-scratchpad:user "
      "attr-post-ops:eltwise_relu "
      ",alg:convolution_direct,mb4_ic3oc64_ih224oh112kh7sh2dh0ph3_iw224ow112kw7sw2dw0pw3,"
      "1.25",
      "fwd:n4c3h224w224k64r7s7:st2:pad3:f32:nhwc:bias:relu");
  expect_same(
      "onednn_verbose,v1,primitive,exec,cpu,convolution,jit:avx512_core_bf16,backward_weights,"
      "src_bf16:a:blocked:abcd::f0 wei_bf16:a:any:any::f0 bia_undef::undef:::0 dst_bf16:a:blocked:abcd::f0,,"
      "alg:convolution_direct,g2mb4_ic32oc64_ih14oh14kh3sh1dh0ph1_iw14ow14kw3sw1dw0pw1,0.5",
      "bwd_w:n4c32h14w14k64r3s3:pad1:g2:bf16:nchw");
  expect_same(
      "onednn_verbose,exec,cpu,deconvolution,jit:any,forward_training,src_f32::blocked:aBcd16b:f0 "
      "wei_f32::blocked:ABcd16b16a:f0 dst_f32::blocked:aBcd16b:f0,attr-post-ops:sum:1+eltwise_clip:0:6 "
      ",alg:deconvolution_direct,mb1_ic8oc4_ih5oh10kh4sh2dh0ph1_iw5ow10kw4sw2dw0pw1,0.1",
      "fwd:n1c8h5w5k4r4s4:transposed:st2:pad1:f32:nchw:residual:relu6");
}

INSTANTIATE_TEST_SUITE_P(
    OnednnVerbose, BadText,
    testing::Values(Bad{"onednn_verbose,exec,cpu,matmul,brg,undef,src_f32,,,4x4:4x4,0.1",
                        "no primitive that is a convolution"},
                    Bad{"onednn_verbose,exec,cpu,convolution,jit:avx512_core", "it ends before the problem"},
                    Bad{"onednn_verbose,exec,cpu,convolution,jit,sideways,src_f32::blocked:abcd:f0 "
                        "wei_f32::blocked:abcd:f0,,alg:x,mb1ic1ih3oc1kh1,0.1",
                        "unknown propagation 'sideways'"},
                    Bad{"onednn_verbose,exec,cpu,convolution,jit,forward_training,src_u8::blocked:abcd:f0 "
                        "wei_s8::blocked:abcd:f0,,alg:x,mb1ic1ih3oc1kh1,0.1",
                        "--dt=s8 is not supported"}));

TEST(Benchdnn, Options) {
  expect_same("--dir=FWD_B ic8ih10oc16kh3", "fwd:n2c8h10w10k16r3s3:f32:nchw:bias");
  expect_same(
      "./benchdnn --conv -v1 --mode=P --mb=7 --dir=fwd_i --dt=bf16 --stag=axb --dtag=axb ic8ih10oc16kh3",
      "fwd:n7c8h10w10k16r3s3:bf16:nhwc");
  expect_same("--dir=BWD_D --dt=f16:f16:f16 --stag=any --wtag=any --dtag=abx ic8ih10oc16kh3",
              "bwd_d:n2c8h10w10k16r3s3:f16:nchw");
  expect_same("--dir=BWD_WB ic8ih10oc16kh3", "bwd_w:n2c8h10w10k16r3s3:f32:nchw");
  expect_same("--dir=FWD_B --attr-post-ops=sum+relu ic8ih10oc16kh3",
              "fwd:n2c8h10w10k16r3s3:f32:nchw:bias:residual:relu");
  expect_same("--attr-post-ops=relu:0.25 ic8ih10oc16kh3", "fwd:n2c8h10w10k16r3s3:f32:nchw:leaky_relu(0.25)");
  expect_same("--attr-post-ops=swish:1 ic8ih10oc16kh3", "fwd:n2c8h10w10k16r3s3:f32:nchw:silu");
  expect_same("--cfg=bf16bf16bf16 --bia-dt=f32 ic8ih10oc16kh3", "fwd:n2c8h10w10k16r3s3:bf16:nchw:bias");
  expect_same("--bia-dt=f32 --dir=BWD_W --bia-dt=undef ic8ih10oc16kh3", "bwd_w:n2c8h10w10k16r3s3:f32:nchw");
  expect_same("--attr-fpmath=tf32 --mb=0 mb3ic8ih10oc16kh3", "fwd:n3c8h10w10k16r3s3:f32:nchw:math=tf32");
}

INSTANTIATE_TEST_SUITE_P(
    Benchdnn, BadText,
    testing::Values(
        Bad{"--dir=FWD_B", "no problem after the options"},
        Bad{"--dir=FWD ic8ih10oc16kh3", "--dir=FWD is unknown"},
        Bad{"--dri=FWD_B ic8ih10oc16kh3", "nearest is --dir"},
        Bad{"--dt=u8:s8:u8 ic8ih10oc16kh3", "mixes dtypes"},
        Bad{"--cfg=u8s8f32 ic8ih10oc16kh3", "--cfg=u8s8f32 is not supported"},
        Bad{"--batch=set_conv_all", "is not supported"},
        Bad{"--dt=s8 ic8ih10oc16kh3", "--dt=s8 is not supported"},
        Bad{"--stag=aBx16b ic8ih10oc16kh3", "--stag=aBx16b is not supported"},
        Bad{"--stag=axb --dtag=abx ic8ih10oc16kh3", "differs from the other"},
        Bad{"--attr-post-ops=tanh ic8ih10oc16kh3", "post-op 'tanh' is not supported"},
        Bad{"--attr-post-ops=relu+sum ic8ih10oc16kh3", "follows an activation"},
        Bad{"ic8ih10oc16kh3 ic8ih10oc16kh3", "follows the problem"}, Bad{"ic8ih10oc16", "kh is missing or 0"},
        Bad{"ic8ih10kh3", "oc is missing or 0"}, Bad{"ic8oc3", "no image size"},
        Bad{"ic8ih10kw3oc4", "kh is missing"}, Bad{"ic8ih10oc16kh3zz4", "nothing known at 'zz4'"},
        Bad{"ic8ic9ih10oc16kh3", "ic twice"}, Bad{"ic8ih10oc16kh-3", "a negative kh"},
        Bad{"ic8ih10oc16kh3id8", "kd is missing or 0"}, Bad{"ic8ih10oc16kh3kd3", "id is missing or 0"},
        Bad{"--deconv ic8ih2oc16kh3ph4", "has an output of"}, Bad{"g0ic8ih10oc16kh3", "g is missing or 0"},
        Bad{"mb0ic8ih10oc16kh3", "mb is missing or 0"},
        Bad{"g3ic8ih10oc16kh3", "groups = 3 does not divide c = 8"},
        Bad{"ic8ih10oc16kh3sh0", "sh is missing or 0"},
        Bad{"ic8ih10oc16oh3kh3sh1ph0", "oh3 does not follow from the other sizes, which give 8 or more"},
        Bad{"ic8ih10oc16kh99999999999999999999", "out of range"},
        Bad{"ic8ih10oc16kh13", "dilated filter 13x13 is larger"}));

// ---------------------------------------------------------------------------------------------- workloads

TEST(Workloads, EveryListReads) {
  int lists = 0;
  for (const auto& entry : std::filesystem::directory_iterator(FALTUNG_SOURCE_DIR "/workloads")) {
    if (entry.path().extension() != ".csv") continue;
    ++lists;
    EXPECT_FALSE(read_workloads(entry.path()).empty()) << entry.path();
  }
  EXPECT_GE(lists, 9);
  const std::vector<Workload> rows = read_workloads(FALTUNG_SOURCE_DIR "/workloads/resnet50.csv");
  EXPECT_EQ(rows[2].name, "rn_01");
  EXPECT_EQ(rows[2].count, 3);
  EXPECT_EQ(to_string(rows[2].problem), "fwd:n32c64h56w56k64r3s3:pad1:f32:nchw");
}

TEST(Workloads, ColumnsInAnyOrderWithDefaults) {
  const std::vector<Workload> rows = parse_workloads(
      "\xef\xbb\xbf# a comment\r\n\r\ns, "
      "r,k,w,h,c,n,epilogue,dtype,layout\r\n1,1,5,4,3,2,1,bias:relu,f16,nhwc\r\n3,3,8,9,9,4,1,none,f32,nchw",
      "f");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(to_string(rows[0].problem), "fwd:n1c2h3w4k5r1s1:f16:nhwc:bias:relu");
  EXPECT_EQ(rows[0].name, "line4");
  EXPECT_EQ(rows[0].count, 1);
  EXPECT_EQ(to_string(rows[1].problem), "fwd:n1c4h9w9k8r3s3:f32:nchw");
}

TEST(Workloads, OneAndThreeDimensions) {
  std::vector<Workload> rows =
      parse_workloads("n,c,w,k,s,stride_w,epilogue\n8,64,160,128,9,2,maxpool2\n", "f");
  EXPECT_EQ(to_string(rows.at(0).problem), "fwd:n8c64w160k128s9:st2:f32:nchw:maxpool2");
  rows = parse_workloads(
      "n,c,d,h,w,k,t,r,s,pad_front,pad_back,stride_d,dilation_d,kind,output_pad_d\n"
      "1,2,4,4,5,6,3,1,1,1,0,1,2,plain,0\n1,2,3,4,5,6,3,1,1,0,0,2,1,transposed,1\n",
      "f");
  EXPECT_EQ(to_string(rows.at(0).problem),
            to_string(parse_problem("n1c2d4h4w5k6t3r1s1:pad1.0.0.0.0.0:dil2x1x1")));
  EXPECT_EQ(to_string(rows.at(1).problem),
            to_string(parse_problem("n1c2d3h4w5k6t3r1s1:transposed:st2x1x1:outpad1x0x0")));
}

// What bench, find and verify write with --csv is a list again.
TEST(Workloads, ColumnOfProblems) {
  const std::vector<Workload> rows = parse_workloads(
      "suite,name,problem,device,kernel,ms,note\n"
      "s,first,fwd:n1c2h3w4k5r1s1:f16:nhwc:bias,cpu,a/b,1.5,\"a note, \"\"quoted\"\"\"\n"
      "s,first,fwd:n1c2h3w4k5r1s1:f16:nhwc:bias,cpu,a/c,2.5,\n"
      ",,\"MIOpenDriver conv -F 1 -n 2\",cpu,,,\n",
      "f");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name, "first");
  EXPECT_EQ(to_string(rows[0].problem), "fwd:n1c2h3w4k5r1s1:f16:nhwc:bias");
  EXPECT_EQ(rows[1].name, "line4");
  EXPECT_EQ(to_string(rows[1].problem), "fwd:n2c3h32w32k32r3s3:f32:nchw");
}

TEST(Workloads, BadFiles) {
  const auto error = [](const std::string& text) {
    return parse_error([&] { parse_workloads(text, "a.csv"); });
  };
  const std::string head = "name,n,c,h,w,k,r,s,groups,count\n";
  EXPECT_THAT(error(""), HasSubstr("a.csv: no rows"));
  EXPECT_THAT(error(head), HasSubstr("a.csv: no rows"));
  EXPECT_THAT(error("name,n,c\n"), HasSubstr("a.csv:1: column h is missing"));
  EXPECT_THAT(error("n,c,w,k,r,s\n"),
              HasSubstr("a.csv:1: column h is missing; n c h w k r s are required of two"));
  EXPECT_THAT(error("n,c,h,w,k,t,r,s\n"),
              HasSubstr("a.csv:1: column d is missing; n c d h w k t r s are required of three dimensions"));
  EXPECT_THAT(error("n,c,d,h,w,k,r,s\n"), HasSubstr("a.csv:1: column t is missing"));
  EXPECT_THAT(error(head + "\"x,1,2,3,4,5,1,1,1,1\n"), HasSubstr("a.csv:2: a quote is not closed"));
  EXPECT_THAT(error(head + "\"x\"y,1,2,3,4,5,1,1,1,1\n"),
              HasSubstr("a.csv:2: text follows the closing quote"));
  EXPECT_THAT(error("kind,n,c,h,w,k,r,s\ntrans,1,1,1,1,1,1,1"), HasSubstr("it can be plain or transposed"));
  EXPECT_THAT(error("problem\nn1c2h3w4k5r1\n"), HasSubstr("a.csv:2: column problem: problem 'n1c2h3w4k5r1'"));
  EXPECT_THAT(error("nmae,n,c,h,w,k,r,s\n"),
              HasSubstr("a.csv:1: unknown column 'nmae'; the nearest is name"));
  EXPECT_THAT(error("n,n,c,h,w,k,r,s\n"), HasSubstr("a.csv:1: column n is there twice"));
  EXPECT_THAT(error(head + "x,1,2,3\n"), HasSubstr("a.csv:2: 4 values for 10 columns"));
  EXPECT_THAT(error(head + "x,1,2,3,4,5,1,1,1,1\n\ny,1,2,3,4.5,5,1,1,1,1\n"),
              HasSubstr("a.csv:4: column w: '4.5' is no whole number"));
  EXPECT_THAT(error(head + "x,1,2,3,4,5,1,1,2,1\n"),
              HasSubstr("a.csv:2: x: groups = 2 does not divide k = 5"));
  EXPECT_THAT(error("epilogue,n,c,h,w,k,r,s\nrelu:bias,1,1,1,1,1,1,1"),
              HasSubstr("a.csv:2: column epilogue: problem 'relu:bias': bias comes after activation"));
  EXPECT_THAT(error(head + "x,1,2,3,4,5,1,1,1,0\n"),
              HasSubstr("a.csv:2: column count: 0 must be at least 1"));
  EXPECT_THAT(error("dtype,n,c,h,w,k,r,s\nfp32,1,1,1,1,1,1,1"),
              HasSubstr("a.csv:2: column dtype: unknown dtype 'fp32'; it is called f32"));
  EXPECT_THAT(parse_error([] { read_workloads("/nonexistent/a.csv"); }),
              HasSubstr("/nonexistent/a.csv: cannot be opened"));
  EXPECT_THAT(parse_error([] { read_workloads("/tmp"); }), HasSubstr("/tmp: is empty or cannot be read"));
}

// docs/problem.md has every word that the text and the lists may have.
TEST(Words, AreDocumented) {
  std::ifstream file(FALTUNG_SOURCE_DIR "/docs/problem.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::string> words{"bias",     "biasf32",    "residual",  "maxpool3s2p1",
                                 "avgpool2", "transposed", "xpitch192", "ypitch192"};
  for (const auto& all : {names(Direction::backward_weights), names(DType::bf16), names(Layout::nhwc),
                          names(Math::fast), names(Activation::hardsigmoid)}) {
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
