// What is known of Vulkan's kernels without a device: the arguments that a module says it takes, and what
// RADV's compilers make of it for Radeons that are not here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "src/backend/offline_compiler.hpp"
#include "src/backend/spirv_arguments.hpp"
#include "tests/backend_checks.hpp"
#include "tests/builder.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

// Notes of clspv's as words: a module with a kernel `k` of one storage buffer, and one note more.
std::string module_with_note(std::uint32_t note) {
  using Words = std::vector<std::uint32_t>;
  Words all = {0x07230203, 0x10500, 0, 100, 0};
  const auto add = [&](std::uint32_t opcode, const Words& operands) {
    all.push_back(static_cast<std::uint32_t>(operands.size() + 1) << 16 | opcode);
    all.insert(all.end(), operands.begin(), operands.end());
  };
  Words set = {1};
  for (const char* four : {"NonS", "eman", "tic.", "Clsp", "vRef", "lect", "ion."}) {
    std::uint32_t word = 0;
    std::memcpy(&word, four, 4);
    set.push_back(word);
  }
  set.push_back('5');
  add(11, set);
  add(7, {2, 'k'});                                                     // OpString
  for (const std::uint32_t i : {0u, 1u, 4u}) add(43, {50, 10 + i, i});  // OpConstant
  add(12, {60, 20, 1, 1, 70, 2});                                       // Kernel
  add(12, {60, 21, 1, 3, 20, 10, 10, 11});  // ArgumentStorageBuffer 0, set 0, binding 1
  if (note != 0) add(12, {60, 22, 1, note, 30, 10, 14});
  return {reinterpret_cast<const char*>(all.data()), all.size() * 4};
}

TEST(SpirvArguments, AModuleThatWantsWhatNoLaunchGivesIsRefused) {
  const auto found = spirv_arguments(module_with_note(0), "k");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].place, 1u);
  EXPECT_EQ(spirv_arguments(module_with_note(42), "k").size(), 1u);  // WorkgroupVariableSize asks for nothing
  // Work-group sizes, offsets and regions as constants, data in buffers, samplers, subgroups, variables,
  // printf, and what a later clspv may add.
  for (const std::uint32_t note :
       {12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 25, 28, 29, 36, 37, 38, 39, 40, 41, 43, 100}) {
    try {
      spirv_arguments(module_with_note(note), "k");
      ADD_FAILURE() << note << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::unsupported);
      EXPECT_THAT(error.what(), HasSubstr("ClspvReflection " + std::to_string(note)));
    }
  }
}

constexpr const char* kTwice = R"(
__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void twice(__global const float* x, ulong skip_x, __global float* y, ulong skip_y) {
  const int i = (int)get_global_id(0);
  y[skip_y / 4 + i] = 2 * x[skip_x / 4 + i];
}
)";

// By ACO and by LLVM, for a Radeon that is not here.
TEST(RadvCompiler, TellsWhatBecameOfAKernel) {
  for (const char* id : {"radv:navi21", "radv-llvm:navi21"}) {
    std::shared_ptr<Device> compiler;
    try {
      compiler = make_offline_compiler(id);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::unsupported);
      GTEST_SKIP() << error.what();
    }
    const KernelSource source{"twice", kTwice, "twice", {}};
    const Binary binary = compiler->compile(source);
    const std::shared_ptr<Kernel> kernel = compiler->load(binary, source);
    const KernelResources r = compiler->resources(*kernel, source);
    EXPECT_GT(r.registers, 0) << binary.log;
    EXPECT_GT(r.scalar_registers, 0);
    EXPECT_EQ(r.spilled_bytes, 0);
    EXPECT_EQ(r.local_bytes, 0);
    EXPECT_GT(code_bytes(*kernel), 32);
    EXPECT_TRUE(r.wave_threads == 32 || r.wave_threads == 64) << r.wave_threads;
    EXPECT_EQ(r.limited_by, "nothing");
    EXPECT_DOUBLE_EQ(r.occupancy, 1);
    EXPECT_THAT(compiler->info().driver, HasSubstr("NAVI21"));
    EXPECT_THROW(compiler->launch(*kernel, blocks_of_16(1), {}, {}), Error);
  }
}

TEST(RadvCompiler, AFamilyThatItDoesNotKnowIsNamed) {
  try {
    make_offline_compiler("radv:navi21");
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  try {
    make_offline_compiler("radv:navi99");
    FAIL() << "it was made";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::unsupported) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("navi99"));
  }
}

// LLVM 15 ends the process over these kernels for NAVI10: one that it does not serve is named, this process
// goes on.
TEST(RadvCompiler, AKernelThatEndsTheCompilerCostsThatKernelAlone) {
  std::shared_ptr<Device> compiler;
  try {
    compiler = make_offline_compiler("radv-llvm:navi10");
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  Builder builder(compiler);
  const Problem p = parse_problem("fwd:n8c32h14w14k32r3s3:pad1:f32:nchw");
  int compiled = 0, ended = 0;
  for (const char* name : {"direct_gpu", "implicit_gemm_gpu", "winograd_gpu"}) {
    try {
      builder.programs(find_algorithm(name).candidates(p, builder.target()).front().recipe());
      ++compiled;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::device_error);
      EXPECT_THAT(error.what(),
                  HasSubstr("RADV's compiler ended its process over kernel " + std::string(name)));
      ++ended;
    }
  }
  std::printf("%d compiled, %d ended the compiler\n", compiled, ended);
  EXPECT_EQ(compiled + ended, 3);
}

}  // namespace
}  // namespace faltung
