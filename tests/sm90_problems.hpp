// Problems for which Hopper's kernels are listed without a GPU, and kinds of kernels that few problems have.
#ifndef FALTUNG_TESTS_SM90_PROBLEMS_HPP_
#define FALTUNG_TESTS_SM90_PROBLEMS_HPP_

#include <vector>

#include "src/algorithms/sm90/list.hpp"

namespace faltung::sm90 {

inline constexpr Chip kChip{132};

inline std::vector<Tiling> tilings_of(const Problem& problem) { return tilings(problem, kChip); }

inline constexpr const char* kProblems[] = {
    "fwd:n128c64h256w256k64r3s3:pad1:f16:nhwc:bias:relu",
    "fwd:n2c64h33w35k64r3s3:pad1:bf16:nhwc:bias:residual:gelu",
    "fwd:n2c1280h32w32k1280r3s3:pad1:f16:nhwc",
    "fwd:n32c256h14w14k1024r1s1:f16:nhwc:bias:relu",
    "fwd:n32c128h28w28k128r3s3:st2:pad1:bf16:nhwc",
    "fwd:n1c128h64w64k3r3s3:pad1:f16:nhwc:bias",
    "fwd:n2c64h32w32k64r3s3:pad1:f16:nchw:residual:relu",
    "fwd:n2c64h32w32k128r3s3:pad1:f16:nchw:bias:maxpool2",
    "fwd:n2c64h32w32k128r3s3:pad1:bf16:nhwc:avgpool2",
    "fwd:n2c64h32w32k128r3s3:pad1:f16:nhwc:bias:relu:maxpool3s2p1",
    "fwd:n2c64h32w32k64r3s3:pad1:bf16:nchw:silu:avgpool3s2",
    "fwd:n2c64h32w32k64r3s3:pad1:f32:nhwc:bias:relu",
    "fwd:n2c64h32w32k64r3s3:pad1:f32:nchw:residual",
    "fwd:n2c64h32w32k64r3s3:pad1:f32:nhwc:math=tf32:maxpool2",
    "fwd:n2c640h32w32k1280r1s1:f16:nchw:bias",
    "fwd:n4c3h64w64k64r7s7:st2:pad3:f16:nhwc",
    "fwd:n1c256h32w16k256r3s3:f32:nhwc:math=tf32:bias:residual",
    "fwd:n1c256h32w16k256r3s3:f32:nchw:bias",
    "fwd:n1c256h32w16k250r3s3:bf16:nhwc:residual",
    "fwd:n2c640h128w128k320r1s1:f16:nhwc:bias:relu",
    "fwd:n1c256h224w224k256r3s3:f32:nhwc:math=tf32",
    "fwd:n32c1024h14w14k256r1s1:f16:nchw:bias:relu",
    "fwd:n32c512h7w7k2048r1s1:f16:nchw:bias:residual:relu",
    "fwd:n32c256h56w56k512r1s1:st2:bf16:nchw",
    "fwd:n32c512h7w7k512r3s3:pad1:f16:nchw:bias:residual",
    "fwd:n32c256h28w28k256r3s3:st2:pad1:bf16:nchw:bias:relu",
    "fwd:n2c64d8h56w56k64t3r3s3:pad1:bf16:nhwc:bias:relu",
    "fwd:n8c128d8h28w28k256t3r3s3:st2:pad1:f16:nhwc:residual",
    "fwd:n8c128d4h14w14k128t3r3s3:pad1:bf16:nchw:bias",
    "fwd:n32c128h56w56k128r3s3:pad1:g8:f16:nhwc:bias:relu",
    "fwd:n32c128h56w56k128r3s3:pad1:g2:f16:nchw",
    "fwd:n32c1024h7w7k1024r3s3:pad1:g16:f16:nchw:residual",
    "fwd:n2c96h15w13k192r3s3:pad1:g6:f16:nhwc:residual",
    "fwd:n2c64h16w16k64r3s3:pad1:g8:f32:nhwc:math=tf32:bias",
    "fwd:n32c64h56w56k64r3s3:pad1:f16:nhwc:affine_relu:stats",
    "fwd:n32c128h56w56k128r3s3:st2:pad1:bf16:nhwc:affine_relu",
    "fwd:n32c256h56w56k64r1s1:f16:nhwc:affine:bias:residual:relu",
    "fwd:n2c96h15w13k192r3s3:pad1:g6:bf16:nhwc:affine_relu",
};

// Kinds that few problems have.
inline constexpr struct {
  const char *problem, *tiling;
} kKinds[] = {
    {"fwd:n1c256h32w16k256r3s3:f32:nhwc:math=tf32:bias:residual", "patch_bt64x8x16_k32_co_px_xs1_ws12_sk8"},
    {"fwd:n1c256h32w16k256r3s3:f32:nhwc:math=f32", "im2col_bt128x64_k32_co_st4_sk4"},
    {"fwd:n1c256h32w16k256r3s3:f32:nhwc:math=f32:gelu", "im2col_bt128x128_k32_co_st3_sk8"},
    {"fwd:n1c256h32w16k256r3s3:f32:nchw:math=tf32:residual", "turned_bt128x16x4_k32_co_xs1_ws8_rs1_sk8"},
    {"fwd:n2c64h256w256k64r3s3:pad1:f32:nchw:math=tf32:bias", "turned_bt64x16x16_k32_pp_xs2_ws12"},
    {"fwd:n2c64h256w256k64r3s3:pad1:f32:nchw:math=f32:residual", "turned_bt64x8x16_k32_pp_xs2_ws4"},
    {"fwd:n1c256h32w16k256r3s3:f32:nchw:math=f32:bias", "patch_bt128x8x8_k32_co_xs1_ws6_sk8"},
    {"fwd:n1c256h32w16k250r3s3:bf16:nhwc:residual", "im2col_bt64x128_k64_co_px_st8_sk4"},
    {"fwd:n1c256h32w16k256r3s3:f16:nchw:bias:gelu", "im2col_bt128x128_k64_co_st6_sk2"},
    {"fwd:n1c256h224w224k256r3s3:f32:nhwc:math=tf32:residual", "patch_bt128x16x16_k32_co_xs2_ws8_ds"},
    {"fwd:n32c1024h14w14k256r1s1:f16:nhwc:bias:residual", "im2col_bt256x96_k64_co_st4"},
    {"fwd:n32c64h56w56k256r1s1:f16:nhwc:bias:residual:relu", "im2col_bt128x192_k64_co_xs4_wres_ra2"},
    {"fwd:n32c64h56w56k256r1s1:f16:nhwc:biasf32:residual:relu", "im2col_bt64x256_k64_pp_xs2_wres_ra2"},
    {"fwd:n32c512h7w7k2048r1s1:bf16:nhwc:bias:residual:relu", "im2col_bt128x128_k64_co_px_st4_ra2"},
    {"fwd:n32c64h56w56k64r3s3:pad1:f16:nhwc:bias:residual:gelu", "patch_bt64x8x16_k64_pp_xs2_wres_ra2"},
    {"fwd:n32c256h56w56k128r1s1:f16:nchw:residual:relu", "planes_bt128x128_k64_pp_px_xs2_wres_ra2"},
    {"fwd:n2c64h256w256k64r3s3:pad1:f32:nhwc:math=tf32:bias", "patch_bt64x8x24_k32_pp_xs2_wres_ds"},
    {"fwd:n2c640h128w128k320r1s1:f16:nhwc:bias:relu", "im2col_bt160x256_k64_co_px_st3_us2"},
    {"fwd:n2c64h33w35k64r3s3:st2x1:pad1:f16:nhwc", "patch_bt64x8x16_k64_pp_xs2_ws8"},
    {"fwd:n2c960h128w128k320r1s1:f16:nchw:bias:residual", "planes_bt160x128_k64_co_px_st5"},
    {"fwd:n2c960h128w128k320r1s1:bf16:nchw:bias:gelu", "planes_bt160x128_k64_co_px_st5"},
    {"fwd:n32c256h56w56k128r1s1:f16:nchw:residual:relu", "planes_bt128x128_k64_pp_px_xs6_wres"},
    {"fwd:n1c512h512w512k256r1s1:bf16:nchw:residual", "planes_bt128x256_k64_co_st3"},
    {"fwd:n32c512h28w28k256r1s1:f16:nchw:bias:residual", "planes_bt256x128_k64_co_px_st3"},
    {"fwd:n2c640h128w128k320r1s1:f16:nchw:bias:residual:silu", "planes_bt160x128_k64_pp_px_st4"},
    {"fwd:n32c512h7w7k2048r1s1:f16:nchw:bias:residual:gelu", "fetch_bt256x104_k64_co_st3"},
    {"fwd:n32c1024h7w7k2048r1s1:f16:nchw:bias:residual:gelu", "im2col_bt256x104_k64_co_st3"},
    {"fwd:n32c256h14w14k256r3s3:pad1:f16:nchw:bias:gelu", "turned_bt64x16x14_k64_pp_xs2_ws6_rs2"},
    {"fwd:n2c256h14w14k256r3s3:pad1:f16:nchw:bias", "turned_bt128x8x7_k64_co_xs2_ws4_rs2_sk2"},
    {"fwd:n32c512h7w7k512r3s3:pad1:bf16:nchw:gelu", "turned_bt128x8x7_k64_co_xs2_ws10_rs2"},
    {"fwd:n32c128h28w28k128r3s3:pad1:f16:nchw", "turned_bt128x32x7_k32_co_xs2_ws11_rs2"},
    {"fwd:n32c2048h7w7k512r1s1:f16:nchw", "fetch_bt128x104_k64_co_st4_sk2"},
    {"fwd:n32c1024h14w14k512r1s1:f16:nchw:bias:residual:gelu", "fetch_bt128x96_k64_co_st4"},
    {"fwd:n32c512h28w28k1024r1s1:st2:f16:nchw:bias", "fetch_bt256x96_k64_co_st3"},
    {"fwd:n32c256h56w56k512r1s1:st2:f16:nchw:bias:residual:gelu", "fetch_bt256x128_k64_co_st3"},
    {"fwd:n32c256h14w14k256r3s3:pad1:f16:nchw:bias:gelu", "turned_bt64x16x14_k64_pp_xs2_ws10"},
    {"fwd:n32c128h56w56k128r3s3:st2:pad1:f16:nchw:bias:residual", "turned_bt128x16x7_k64_co_xs2_ws4"},
    {"fwd:n2c64h14w14k64r3s3:pad1:f16:nchw:bias:maxpool2", "turned_bt64x16x16_k64_pp_xs2_ws8"},
    {"fwd:n32c128h56w56k128r3s3:pad1:g8:f16:nhwc", "patch_bt64x8x16_k64_pp_px_xs6_wres_gt4"},
    {"fwd:n32c256h56w56k256r3s3:st2:pad1:g8:f16:nhwc", "im2col_bt64x128_k64_co_px_xs8_wres_gt2"},
    {"fwd:n32c256h56w56k256r3s3:st2:pad1:g4:f16:nchw", "turned_bt64x8x7_k64_pp_xs2_wres"},
    {"fwd:n32c64h56w56k256r1s1:bf16:nhwc:residual:relu:stats", "patch_bt64x8x32_k64_pp_xs2_wres_ra2"},
    {"fwd:n32c64h56w56k256r1s1:bf16:nhwc:residual:relu:stats", "im2col_bt256x128_k64_co_xs6_wres"},
    {"fwd:n32c256h14w14k1024r1s1:f16:nhwc:bias:relu:stats", "im2col_bt256x128_k64_co_px_st3"},
    {"fwd:n32c64h56w56k64r3s3:pad1:f16:nhwc:bias:gelu:stats", "patch_bt64x8x32_k64_pp_xs2_wres"},
    {"fwd:n32c128h28w28k128r3s3:pad1:bf16:nchw:residual:stats", "patch_bt128x8x16_k64_pp_xs2_ws6"},
    {"fwd:n32c256h28w28k512r1s1:f16:nchw:bias:residual:stats", "planes_bt160x128_k64_pp_px_st3"},
    {"fwd:n32c256h28w28k512r1s1:f16:nchw:stats", "planes_bt64x256_k64_pp_st4"},
    {"fwd:n32c64h56w56k64r3s3:pad1:f16:nhwc:affine_relu", "patch_bt64x8x28_k64_pp_xs2_wres"},
    {"fwd:n32c64h56w56k64r3s3:pad1:bf16:nhwc:affine_relu:residual:relu:stats",
     "patch_bt64x8x32_k64_pp_xs2_ws8"},
    {"fwd:n32c64h56w56k64r3s3:pad1:f16:nhwc:affine:bias:gelu", "patch_bt64x8x16_k64_co_px_xs2_ws8"},
    {"fwd:n32c256h56w56k64r1s1:bf16:nhwc:affine_relu:stats", "im2col_bt64x256_k64_pp_st4"},
    {"fwd:n32c256h56w56k128r3s3:st2:pad1:f16:nhwc:affine_relu:stats", "im2col_bt128x128_k64_co_st4"},
    {"fwd:n2c640h128w128k320r1s1:f16:nhwc:affine_relu:bias:relu", "im2col_bt160x256_k64_co_px_st3_us2"},
    {"fwd:n2c256h14w14k256r3s3:pad1:bf16:nhwc:affine_relu", "patch_bt128x8x7_k64_co_xs1_ws12_sk4"},
};

// What NCHW as it is serves, by shifted sums.
inline constexpr const char* kShifted[] = {
    "fwd:n128c64h256w256k64r3s3:pad1:f16:nchw:bias:relu",
    "fwd:n1c256h224w224k256r3s3:f16:nchw:bias:residual",
    "fwd:n2c1280h32w32k1280r3s3:pad1:bf16:nchw:bias",
    "fwd:n1c4h128w128k512r3s3:pad1:f16:nchw",
    "fwd:n2c64h64w64k64r3s3:pad1:bf16:nchw:bias:avgpool2",
    "fwd:n2c24h20w72k64r5s5:pad2:f16:nchw",
    "fwd:n2c64h64w256k64r3s3:pad1:f16:nchw:bias:residual:relu",
    "fwd:n2c64h64w64k128r3s3:pad1:bf16:nchw:residual",
    "fwd:n1c64d8h64w64k64t3r3s3:pad1:bf16:nchw:bias",
    "fwd:n32c128h56w56k128r3s3:pad1:g2:f16:nchw",
};

// With strides, and with the filter as it is.
inline constexpr const char* kBackward[] = {
    "bwd_d:n32c128h56w56k128r3s3:st2:pad1:f16:nhwc",
    "bwd_d:n32c256h28w28k256r3s3:st2:pad1:bf16:nchw",
    "bwd_d:n32c256h56w56k512r1s1:st2:f16:nhwc",
    "bwd_d:n2c64h33w31k48r5s5:st1x2:pad0.1.2.1:f16:nchw",
    "bwd_d:n2c64h24w24k64r3s3:st2:pad1:f32:nhwc",
    "bwd_d:n2c64h24w24k64r3s3:st2:dil2:pad2:f32:nchw:math=tf32",
    "bwd_d:n128c64h64w64k64r3s3:pad1:f16:nhwc",
    "bwd_d:n32c256h28w28k512r1s1:f16:nchw",
    "bwd_d:n2c64d8h17w16k64t3r3s3:st2:pad1:bf16:nhwc",
    "bwd_d:n1c64d9h16w16k72t2r2s2:st2:f32:nchw:math=tf32",
    "bwd_d:n32c256h56w56k256r3s3:st2:pad1:g16:f16:nhwc",
    "bwd_d:n32c128h28w28k128r3s3:pad1:f16:nhwc:drelu",
    "bwd_d:n32c128h28w28k128r3s3:pad1:bf16:nchw:drelu",
    "bwd_d:n2c64h24w24k64r3s3:pad1:f32:nhwc:math=tf32:drelu",
};

// Transposed ones, of which as many phases are left where pixels side by side are channels.
inline constexpr struct {
  const char* problem;
  int phases, repeats;
} kUpsampling[] = {
    {"fwd:n8c128h64w64k64r2s2:transposed:st2:f16:nhwc:bias", 2, 2},
    {"fwd:n8c1024h32w32k512r2s2:transposed:st2:bf16:nhwc:bias:relu", 2, 2},
    {"fwd:n1c64h8w10k48r3s4:transposed:st3x4:f16:nhwc:bias", 3, 4},
    {"fwd:n2c256h13w11k128r4s4:transposed:st2:pad1:f16:nhwc:bias:relu", 4, 1},
    {"fwd:n2c64h9w9k16r2s2:transposed:st2:f32:nhwc:math=tf32:bias", 2, 2},
    {"fwd:n8c128h64w64k64r2s2:transposed:st2:f16:nchw:bias:relu", 4, 1},
    {"fwd:n2c64h9w11k16r4s4:transposed:st2:pad1:f32:nchw:math=tf32:bias", 4, 1},
};

}  // namespace faltung::sm90

#endif  // FALTUNG_TESTS_SM90_PROBLEMS_HPP_
