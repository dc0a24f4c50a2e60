// implicit_gemm_matrix.cl as NVIDIA's OpenCL gets it: every tile compiles without spills and within what the
// cost model reckons with, by clang-19 and CUDA's ptxas; no GPU is needed.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/backend/nvidia_features.hpp"
#include "src/backend/offline_compiler.hpp"
#include "tests/builder.hpp"

namespace faltung {
namespace {

constexpr const char* kMatrixProblems[] = {"fwd:n32c64h56w56k256r1s1:f16:nhwc:bias:residual:relu",
                                           "fwd:n32c3h224w224k64r7s7:pad3:st2:bf16:nhwc:bias:relu",
                                           "bwd_d:n8c64h28w28k64r3s3:pad1:st2:f16:nchw",
                                           "fwd:n8c60h28w28k36r7s7:pad3:f32:nhwc:math=tf32:silu"};

TEST(PortableNvptx, TilesOfMatrixUnitsAreAsReckoned) {
  std::shared_ptr<Device> device;
  try {
    device = make_offline_compiler("clang:sm_80");
  } catch (const Error& error) {
    if (error.status() != Status::unsupported) throw;
    GTEST_SKIP() << error.what();
  }
  Builder builder(device);
  for (const char* text : kMatrixProblems) {
    const Problem p = parse_problem(text);
    int tiles = 0;
    for (const Candidate& candidate :
         find_algorithm("implicit_gemm_matrix_gpu").candidates(p, builder.target())) {
      if (candidate.config.find("_sk") != std::string::npos) continue;
      int most = 0;
      for (const jit::Program& kernel : builder.programs(candidate.recipe())) {
        EXPECT_EQ(kernel.resources.spilled_bytes, 0) << candidate.kernel() << " for " << text;
        EXPECT_LE(kernel.resources.local_bytes, 48 << 10) << candidate.kernel() << " for " << text;
        most = std::max(most, kernel.resources.registers);
      }
      EXPECT_GT(most, 0);
      EXPECT_LE(most, candidate.registers) << candidate.kernel() << " for " << text;
      ++tiles;
    }
    EXPECT_GE(tiles, 5) << text;
  }
}

// Rows of 128 bytes are for chips that give a kernel more local memory than their OpenCL says; ptxas, which
// does not, compiles none.
TEST(PortableNvptx, WideTilesNeedWideLocalMemory) {
  DeviceInfo device;
  device.kind = "gpu", device.dialect = "opencl";
  device.units = 132, device.block_threads = 1024, device.local_bytes = 48 << 10;
  device.features = {"opencl", "mma_ptx", "large_registers"};
  device.unit = unit_limits("sm_90");
  const Problem p = parse_problem(kMatrixProblems[0]);
  const auto wide_tiles = [&] {
    std::ptrdiff_t count = 0;
    for (const Candidate& c : find_algorithm("implicit_gemm_matrix_gpu").candidates(p, {device, 1}))
      count += c.config.find("_ck8") != std::string::npos ? 1 : 0;
    return count;
  };
  EXPECT_EQ(wide_tiles(), 0);
  device.features.emplace_back("wide_local");
  EXPECT_GE(wide_tiles(), 5);
  EXPECT_TRUE(has_wide_local("sm_90"));
  EXPECT_FALSE(has_wide_local("sm_86"));
}

TEST(PortableNvptx, OnlyChipsThatHaveMatrixUnitsSaySo) {
  EXPECT_FALSE(has_mma_sync("sm_75"));
  EXPECT_TRUE(has_mma_sync("sm_80"));
  EXPECT_TRUE(has_mma_sync("sm_90"));
  EXPECT_TRUE(has_mma_sync("sm_120"));
}

}  // namespace
}  // namespace faltung
