// Every portable kernel's default config compiles for AMD's chips without spills; no GPU is needed, only
// clang-19 and ROCm's device library.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include <signal.h>
#include <sys/resource.h>

#include "src/backend/amd_assembly.hpp"
#include "src/backend/offline_compiler.hpp"
#include "tests/builder.hpp"
#include "tests/sampling.hpp"

namespace faltung {
namespace {

// Only where clang is not installed is nothing tested: whatever else an error says is a failure.
std::shared_ptr<Device> amd_compiler(const std::string& chip) {
  try {
    return make_offline_compiler("clang:" + chip);
  } catch (const Error& error) {
    if (error.status() != Status::unsupported) throw;
    std::printf("%s\n", error.what());
    return nullptr;
  }
}

// Waves that a SIMD has room for in any default config: two of 64 threads, four of 32.
int least_waves(const Device& device) { return device.info().unit.wave_threads == 64 ? 2 : 4; }

class PortableAmdgcn : public testing::TestWithParam<const char*> {};

TEST_P(PortableAmdgcn, DefaultConfigsDoNotSpill) {
  const std::shared_ptr<Device> device = amd_compiler(GetParam());
  if (device == nullptr) GTEST_SKIP();
  Builder builder(device);
  const char* const problems[] = {"fwd:n32c64h56w56k64r3s3:pad1:f32:nchw:bias:residual:gelu",
                                  "fwd:n32c64h56w56k64r3s3:pad1:f16:nhwc:bias:relu:maxpool2",
                                  "fwd:n8c64h56w56k64r3s3:pad1:f16:nchw:maxpool3s2p1",
                                  "bwd_d:n32c64h56w56k128r3s3:pad1:st2:bf16:nchw",
                                  "bwd_w:n32c64h56w56k64r3s3:pad1:f16:nhwc",
                                  "fwd:n1c3h224w224k32r5s5:st2:pad0.1.2.1:bf16:nchw:silu",
                                  "fwd:n8c144h56w56k144r3s3:pad1:g144:f16:nhwc:hardswish",
                                  "fwd:n8c144h56w56k144r5s5:pad2:g144:f32:nchw",
                                  "bwd_d:n8c144h56w56k144r3s3:pad1:g144:f32:nhwc",
                                  "bwd_w:n8c144h56w56k144r3s3:pad1:g144:bf16:nchw"};
  // Of the chips beside one of each family a part.
  const std::set<std::string> families = {"gfx1010", "gfx1030", "gfx90a", "gfx942"};
  const std::vector<std::string> all(std::begin(problems), std::end(problems));
  const std::vector<std::string> chosen =
      families.contains(GetParam()) ? all
                                    : sampling::draw(all, 1, std::string("amdgcn ") + GetParam(),
                                                     [](const std::string&) { return std::string(); });
  int compiled = 0;
  std::map<std::string, int> of_algorithm;
  const Target target = builder.target();
  for (const auto& algorithm : registry()) {
    if (algorithm->device_kind() != "gpu") continue;
    for (const std::string& text : chosen) {
      const Problem p = parse_problem(text);
      if (!algorithm->supports(p, target).yes) continue;
      const Candidate candidate = algorithm->candidates(p, target).front();
      for (const jit::Program& kernel : builder.programs(candidate.recipe())) {
        EXPECT_EQ(kernel.resources.spilled_bytes, 0)
            << candidate.kernel() << " (" << kernel.entry << ") for " << text;
        EXPECT_GT(kernel.resources.registers, 0);
        EXPECT_GE(kernel.resources.waves, least_waves(*device))
            << candidate.kernel() << " (" << kernel.entry << ") for " << text;
        if (candidate.registers > 0) {
          EXPECT_LE(kernel.resources.registers, candidate.registers)
              << candidate.kernel() << " (" << kernel.entry << ") for " << text;
        }
        // The limits that the cost model knows allow what the compiler says that the chip holds.
        const UnitLimits& unit = device->info().unit;
        const int step = unit.register_step;
        const int by_registers =
            unit.scheduler_registers / ((kernel.resources.registers + step - 1) / step * step);
        EXPECT_LE(kernel.resources.waves, std::min(unit.scheduler_waves, by_registers)) << kernel.entry;
        if (kernel.resources.limited_by == "registers") {
          EXPECT_EQ(kernel.resources.waves, by_registers) << kernel.entry;
        }
        ++compiled, ++of_algorithm[std::string(algorithm->name())];
      }
    }
  }
  EXPECT_GT(compiled, 0);
  std::printf("%d kernels for %s", compiled, GetParam());
  for (const auto& [algorithm, number] : of_algorithm) std::printf(", %s %d", algorithm.c_str(), number);
  std::printf("\n");
}

// What the cost model reckons with for the tiles of products is enough for what the compiler makes of them:
// every config, on a chip of each family.
TEST(PortableAmdgcnTiles, RegistersAreAsReckoned) {
  for (const char* chip : {"gfx1030", "gfx90a"}) {
    const std::shared_ptr<Device> device = amd_compiler(chip);
    if (device == nullptr) GTEST_SKIP();
    Builder builder(device);
    const Problem p = parse_problem("fwd:n32c64h56w56k64r3s3:pad1:f32:nchw:bias:relu");
    const Target target = builder.target();
    for (const char* name : {"implicit_gemm_gpu", "winograd_gpu"}) {
      const Algorithm& algorithm = find_algorithm(name);
      for (const Candidate& candidate : algorithm.candidates(p, target)) {
        int most = 0;
        for (const jit::Program& kernel : builder.programs(candidate.recipe())) {
          EXPECT_EQ(kernel.resources.spilled_bytes, 0) << chip << " " << candidate.kernel();
          most = std::max(most, kernel.resources.registers);
        }
        EXPECT_LE(most, candidate.registers) << chip << " " << candidate.kernel();
      }
    }
  }
}

// Of tiles that compute the same, the model takes on each chip one that leaves it waves.
TEST(PortableAmdgcnTiles, TheChoiceFollowsTheChip) {
  const Problem p = parse_problem("fwd:n32c128h56w56k128r3s3:pad1:f32:nchw");
  const auto waves = [&](const std::shared_ptr<Device>& device) {
    Builder builder(device);
    const Candidate candidate = find_algorithm("implicit_gemm_gpu").candidates(p, builder.target()).front();
    int least = 1000;
    for (const jit::Program& kernel : builder.programs(candidate.recipe()))
      least = std::min(least, kernel.resources.waves);
    return std::pair{candidate.config, least};
  };
  const std::shared_ptr<Device> compilers[] = {amd_compiler("gfx1030"), amd_compiler("gfx942")};
  if (compilers[0] == nullptr) GTEST_SKIP();
  const auto [rdna, rdna_waves] = waves(compilers[0]);
  const auto [cdna, cdna_waves] = waves(compilers[1]);
  EXPECT_GE(rdna_waves, 4) << rdna;
  EXPECT_GE(cdna_waves, 2) << cdna;
  EXPECT_NE(rdna, cdna);
}

// The matrix units' kernel, in its default config: no spills, room for waves, no branch among the products,
// and of the cycles that bound its inner loop at least 70 % the matrix units'; where pixels are turned on the
// way, in the gradient of the weights, half. Counted of what clang made.
TEST(PortableAmdgcnTiles, MatrixUnitsAreReached) {
  for (const std::string chip : {"gfx90a", "gfx942", "gfx1100", "gfx1201"}) {
    const bool all = sampling::full() || chip == "gfx942" || chip == "gfx1100";
    for (const std::string shape :
         {"fwd:n8c320h64w64k320r3s3:pad1:f16:nhwc", "fwd:n8c1280h16w16k1280r3s3:pad1:f16:nhwc",
          "fwd:n8c64h56w56k64r3s3:pad1:f16:nhwc", "fwd:n8c320h64w64k320r3s3:pad1:f16:nchw",
          "bwd_w:n8c320h64w64k320r3s3:pad1:f16:nhwc"}) {
      if (!all && shape.find("n8c320") == std::string::npos) continue;
      const double least_share = shape.starts_with("fwd") ? 0.7 : 0.5;
      const std::shared_ptr<Device> device = amd_compiler(chip);
      if (device == nullptr) GTEST_SKIP();
      Builder builder(device);
      const Problem p = parse_problem(shape);
      const Candidate candidate =
          find_algorithm("implicit_gemm_matrix_gpu").candidates(p, builder.target()).front();
      const std::string what = chip + " " + candidate.config + " " + shape;
      for (const jit::Program& product : builder.programs(candidate.recipe())) {
        const KernelResources& r = product.resources;
        EXPECT_EQ(r.spilled_bytes, 0) << what;
        EXPECT_GE(r.waves, least_waves(*device)) << what;
        if (!product.entry.starts_with("implicit_gemm_matrix")) continue;
        const AssemblyCounts counts = code_counts(*product.kernel).value();
        EXPECT_LE(r.registers, candidate.registers) << what;
        EXPECT_GE(counts.matrix_instructions, 8) << what;
        EXPECT_EQ(counts.loop_branches, 0) << what;
        EXPECT_GE(counts.matrix_share(), least_share) << what;
        std::printf("%s: %d registers, %lld B, %d waves, %d matrix instructions, share %.2f by count\n",
                    what.c_str(), r.registers, static_cast<long long>(r.local_bytes), r.waves,
                    counts.matrix_instructions, counts.matrix_share());
      }
    }
  }
}

// Where there are no matrix units, products of pairs halve what bounds the inner loop: no spills, room for
// waves, no branch, nine of ten vector instructions multiply, and a multiply-add takes at most 0.6 of the
// cycles that it takes in the tile that the plain kernel would have. Counted of what clang made.
TEST(PortableAmdgcnTiles, PairsAreMultiplied) {
  const std::shared_ptr<Device> device = amd_compiler("gfx1030");
  if (device == nullptr) GTEST_SKIP();
  Builder builder(device);
  // Cycles of a SIMD, or of local memory, for a multiply-add of each lane.
  const auto cycles = [](const AssemblyCounts& counts, int pairs) {
    return std::max(counts.vector_cycles, counts.local_cycles) / (1.0 * pairs * counts.loop_products);
  };
  for (const std::string shape :
       {"fwd:n8c64h56w56k64r3s3:pad1:f16:nhwc", "fwd:n8c320h64w64k320r3s3:pad1:f16:nchw"}) {
    const Problem p = parse_problem(shape);
    const auto product_of = [&](const Candidate& candidate, const std::string& entry) {
      for (jit::Program& program : builder.programs(candidate.recipe()))
        if (program.entry == entry) return program;
      throw Error(Status::internal, candidate.kernel() + " has no " + entry);
    };
    const Candidate plain = find_algorithm("implicit_gemm_gpu").candidates(p, builder.target()).front();
    const AssemblyCounts before = code_counts(*product_of(plain, "implicit_gemm").kernel).value();
    const std::vector<Candidate> all =
        find_algorithm("implicit_gemm_matrix_gpu").candidates(p, builder.target());
    for (const Candidate& candidate : all) {
      const bool is_default = candidate.config == all.front().config;
      if (!is_default && !sampling::full()) continue;
      const jit::Program product = product_of(candidate, "implicit_gemm_matrix");
      const KernelResources& r = product.resources;
      const AssemblyCounts after = code_counts(*product.kernel).value();
      const std::string what = candidate.config + " " + shape;
      std::printf(
          "%s: %d registers, %d waves, %d products in %d cycles, of local memory %d: %.3f cycles a "
          "multiply-add by count, %s %.3f\n",
          what.c_str(), r.registers, r.waves, after.loop_products, after.vector_cycles, after.local_cycles,
          cycles(after, 2), plain.config.c_str(), cycles(before, 1));
      EXPECT_EQ(r.spilled_bytes, 0) << what;
      EXPECT_LE(r.registers, candidate.registers) << what;
      if (!is_default) continue;
      EXPECT_GE(r.waves, least_waves(*device)) << what;
      EXPECT_EQ(after.loop_branches, 0) << what;
      EXPECT_GE(after.loop_products, 0.9 * after.vector_cycles) << what;
      EXPECT_LE(cycles(after, 2), 0.6 * cycles(before, 1)) << what;
    }
  }
}

// While it lives, this process and those that it starts write no file beyond so many bytes.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : signal_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, signal_);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  void (*signal_)(int);
  rlimit before_{};
};

// A file of the compiler's that could not be written whole is said to be that, and no fault of the kernel's:
// the source, or what clang makes of it.
TEST(AmdCompiler, AFullDiskIsNoFaultOfTheKernel) {
  const std::shared_ptr<Device> device = amd_compiler("gfx1030");
  if (device == nullptr) GTEST_SKIP();
  KernelSource source;
  source.name = "scale";
  source.text = "__kernel void scale(__global float* a) { a[get_global_id(0)] *= 2; }\n";
  for (const rlim_t bytes : {rlim_t{16}, rlim_t{1024}}) {
    std::string said;
    Status status = Status::ok;
    try {
      const FileLimit limit(bytes);
      device->compile(source);
    } catch (const Error& error) {
      status = error.status(), said = error.what();
    }
    EXPECT_EQ(status, Status::bad_file) << bytes;
    EXPECT_NE(said.find("cannot write"), std::string::npos) << bytes << ": " << said;
    EXPECT_NE(said.find("File too large"), std::string::npos) << bytes << ": " << said;
  }
}

// Of AMD's matrix instruction calculator.
TEST(AmdAssembly, MatrixCycles) {
  EXPECT_EQ(matrix_cycles("v_mfma_f32_16x16x16_f16", "gfx942"), 16);
  EXPECT_EQ(matrix_cycles("v_mfma_f32_16x16x16f16", "gfx90a"), 32);
  EXPECT_EQ(matrix_cycles("v_mfma_f32_32x32x8bf16_1k", "gfx90a"), 64);
  EXPECT_EQ(matrix_cycles("v_mfma_f32_16x16x4_f32", "gfx942"), 32);
  EXPECT_EQ(matrix_cycles("v_wmma_f32_16x16x16_f16", "gfx1100"), 32);
  EXPECT_EQ(matrix_cycles("v_wmma_f32_16x16x16_bf16", "gfx1201"), 16);
  EXPECT_EQ(matrix_cycles("v_fma_f32", "gfx942"), 0);
}

TEST(AmdAssembly, CountsTheLoopThatMultipliesMost) {
  const AssemblyCounts counts = read_amd_assembly(
      "kernel:\n; %bb.0:\n\tv_mfma_f32_16x16x16f16 a[0:3], v[0:1], v[2:3], a[0:3]\n"
      ".LBB0_1:                ; =>This Inner Loop Header: Depth=1\n\tv_fma_f32 v0, v1, v2, "
      "v3\n\ts_cbranch_scc1 .LBB0_1\n"
      ".LBB0_2:                ; =>This Loop Header: Depth=1\n\tv_fma_f32 v0, v1, v2, v3\n\ts_cbranch_execz "
      ".LBB0_4\n"
      "; %bb.3:                ;   in Loop: Header=BB0_2 Depth=1\n\tv_pk_fma_f32 v[0:1], v[2:3], v[4:5], "
      "v[6:7]\n"
      ".LBB0_4:                ;   in Loop: Header=BB0_2 Depth=1\n\ts_cbranch_scc0 .LBB0_2\n; "
      "%bb.5:\n\ts_endpgm\n",
      "gfx942");
  EXPECT_EQ(counts.matrix_instructions, 1);
  EXPECT_EQ(counts.loop_products, 2);
  EXPECT_EQ(counts.loop_branches, 1);
  // A loop that is left by a branch and closed by a jump, and one that is closed by a branch before a jump.
  for (const char* close :
       {"s_cbranch_scc0 .LBB0_3\n\ts_branch .LBB0_1", "s_cbranch_scc1 .LBB0_1\n\ts_branch .LBB0_3"}) {
    EXPECT_EQ(
        read_amd_assembly(
            std::string(".LBB0_1:      ; =>This Inner Loop Header: Depth=1\n\tv_fma_f32 v0, v1, v2, v3\n\t") +
                close + "\n.LBB0_3:\n\ts_endpgm\n",
            "gfx942")
            .loop_branches,
        0)
        << close;
  }
}

TEST(UnitLimits, BlocksAndWaves) {
  const UnitLimits navi = unit_limits("AMD Radeon RX 6700 XT (radeonsi, navi22, LLVM 15.0.6, DRM 3.49)");
  EXPECT_EQ(navi.wave_threads, 32);
  EXPECT_EQ(navi.blocks(256, 130, 33280), 3);  // by local memory: a pair of units has 128 KiB
  EXPECT_EQ(navi.waves(256, 130, 33280), 6);
  EXPECT_EQ(navi.blocks(256, 257, 0), 0);
  const UnitLimits instinct = unit_limits("gfx90a:sramecc+:xnack-");
  EXPECT_EQ(instinct.wave_threads, 64);
  EXPECT_EQ(instinct.blocks(256, 217, 17152), 2);  // by registers
  EXPECT_EQ(instinct.waves(256, 217, 17152), 2);
  EXPECT_EQ(instinct.blocks(256, 256, 41984), 1);
  EXPECT_EQ(unit_limits("sm_90a").blocks(128, 240, 100 << 10), 2);
  EXPECT_FALSE(unit_limits("NVIDIA H200").known());
  EXPECT_FALSE(unit_limits("Intel(R) Arc(TM) A770 Graphics").known());
}

INSTANTIATE_TEST_SUITE_P(Chips, PortableAmdgcn,
                         testing::Values("gfx1010", "gfx1030", "gfx90a", "gfx942", "gfx950", "gfx1100",
                                         "gfx1103", "gfx1151", "gfx1201"));

}  // namespace
}  // namespace faltung
