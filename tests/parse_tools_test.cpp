// Problems as other tools write them: MIOpenDriver's lines, benchdnn's descriptors, oneDNN's verbose lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/parse_checks.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

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
  expect_same("--attr-post-ops=clip_v2:-1:2.5 ic8ih10oc16kh3", "fwd:n2c8h10w10k16r3s3:f32:nchw:clip(-1,2.5)");
  expect_same("--attr-post-ops=prelu:per_oc ic8ih10oc16kh3", "fwd:n2c8h10w10k16r3s3:f32:nchw:prelu");
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

}  // namespace
}  // namespace faltung
