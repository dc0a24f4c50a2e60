// Faults that are made on purpose, each of which the emulator must find: in small programs, and in kernels as
// the compiler made them.
#include <gtest/gtest.h>

#include "faltung/faltung.hpp"
#include "src/algorithms/algorithm.hpp"
#include "src/finder/trust/verify.hpp"
#include "tests/emulator/device.hpp"
#include "tests/emulator/operations.hpp"
#include "tests/emulator/run.hpp"
#include "tests/scratch.hpp"

namespace faltung::emulator {
namespace {

// A kernel of these instructions, four bytes each, for waves of 64; s[0:1] holds its arguments' address.
std::shared_ptr<CodeObject> kernel_of(const std::vector<std::string>& lines,
                                      const std::string& chip = "gfx90a") {
  auto code = std::make_shared<CodeObject>();
  code->chip = chip, code->kernel = "a_test", code->local_bytes = 1024, code->image.resize(64);
  code->private_bytes = 16;
  code->properties = 1 << 3, code->resources2 = 2 << 1;
  code->arguments = {{0, 8, "global_buffer"}}, code->argument_bytes = 8;
  for (const std::string& line : lines) {
    Instruction i = decode(line);
    i.address = 4096 + 4 * code->program.size();
    code->places[i.address] = code->program.size();
    code->program.push_back(std::move(i));
  }
  return code;
}

// What the emulator says of a launch of two waves with one buffer of 64 words; empty where nothing is wrong.
std::string said(const std::vector<std::string>& lines, unsigned threads = 128) {
  Machine machine;
  std::vector<u32> buffer(64);
  machine.memory().add(buffer.data(), 256, Memory::Content::defined, "the buffer");
  LaunchShape shape;
  shape.block[0] = threads;
  const void* const address = buffer.data();
  const Argument argument(&address, sizeof address, true);
  try {
    machine.run(*kernel_of(lines), shape, {&argument, 1});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

#define EXPECT_SAID(part, ...) EXPECT_NE(said(__VA_ARGS__).find(part), std::string::npos) << said(__VA_ARGS__)

const std::vector<std::string> kBegin = {"s_load_dwordx2 s[2:3], s[0:1], 0x0", "v_and_b32_e32 v1, 63, v0",
                                         "v_lshlrev_b32_e32 v1, 2, v1", "s_waitcnt lgkmcnt(0)"};
std::vector<std::string> after_begin(const std::vector<std::string>& lines) {
  std::vector<std::string> all = kBegin;
  all.insert(all.end(), lines.begin(), lines.end());
  all.push_back("s_endpgm");
  return all;
}

TEST(EmulatorFaults, AProgramWithoutFault) {
  EXPECT_EQ(said(after_begin({"global_load_dword v2, v1, s[2:3]", "s_waitcnt vmcnt(0)",
                              "global_store_dword v1, v2, s[2:3]"})),
            "");
}
TEST(EmulatorFaults, MissingWait) {
  EXPECT_SAID("a missing wait", after_begin({"global_load_dword v2, v1, s[2:3]", "v_add_u32_e32 v3, 1, v2"}));
  // The older of two loads is there, the newer is not.
  EXPECT_EQ(said(after_begin({"global_load_dword v2, v1, s[2:3]", "global_load_dword v4, v1, s[2:3]",
                              "s_waitcnt vmcnt(1)", "v_mov_b32_e32 v3, v2"})),
            "");
  EXPECT_SAID("a missing wait",
              after_begin({"global_load_dword v2, v1, s[2:3]", "global_load_dword v4, v1, s[2:3]",
                           "s_waitcnt vmcnt(1)", "v_mov_b32_e32 v3, v4"}));
  // Of two loads into a register the newer one comes later; one from local memory may come before both.
  EXPECT_EQ(said(after_begin({"global_load_dword v2, v1, s[2:3]", "global_load_dword v2, v1, s[2:3]",
                              "s_waitcnt vmcnt(0)", "v_mov_b32_e32 v3, v2"})),
            "");
  EXPECT_SAID("a missing wait",
              after_begin({"global_load_dword v2, v1, s[2:3]", "global_load_dword v2, v1, s[2:3]",
                           "s_waitcnt vmcnt(1)", "v_mov_b32_e32 v3, v2"}));
  EXPECT_SAID("a missing wait", after_begin({"ds_write_b32 v1, v1", "s_waitcnt lgkmcnt(0)",
                                             "ds_read_b32 v2, v1", "global_load_dword v2, v1, s[2:3]"}));
  // Constants come back in any order.
  EXPECT_SAID("a missing wait", {"s_load_dwordx2 s[2:3], s[0:1], 0x0", "s_load_dwordx2 s[4:5], s[0:1], 0x0",
                                 "s_waitcnt lgkmcnt(1)", "s_mov_b64 s[6:7], s[2:3]", "s_endpgm"});
  EXPECT_SAID("still under way at the barrier", after_begin({"ds_write_b32 v1, v1", "s_barrier"}));
}
TEST(EmulatorFaults, UninitialisedReads) {
  EXPECT_SAID("nobody wrote", after_begin({"global_store_dword v1, v7, s[2:3]"}));
  EXPECT_SAID("nobody wrote", after_begin({"v_add_f32_e32 v5, v7, v1", "v_mul_f32_e32 v5, v5, v5",
                                           "global_store_dword v1, v5, s[2:3]"}));
  EXPECT_SAID("nobody wrote", after_begin({"global_load_dword v2, v7, s[2:3]"}));
  EXPECT_SAID("nobody wrote", after_begin({"ds_read_b32 v2, v1", "s_waitcnt lgkmcnt(0)",
                                           "global_store_dword v1, v2, s[2:3]"}));
  EXPECT_SAID("nobody wrote",
              after_begin({"scratch_store_dword off, v1, off", "scratch_load_dword v2, off, off offset:4",
                           "s_waitcnt vmcnt(0)", "global_store_dword v1, v2, s[2:3]"}));
  EXPECT_SAID("nobody", after_begin({"v_cmp_gt_u32_e32 vcc, 5, v7", "s_and_saveexec_b64 s[4:5], vcc"}));
  // What does not depend on the undefined bits is defined; both products take the first of two scalars.
  const std::vector<std::string> pair = {"s_mov_b32 s4, 1.0", "v_mov_b32_e32 v4, v1", "v_mov_b32_e32 v5, v1"};
  const auto product = [&](const char* text) {
    std::vector<std::string> lines = pair;
    lines.insert(lines.end(), {text, "global_store_dword v1, v7, s[2:3]"});
    return after_begin(lines);
  };
  EXPECT_EQ(said(product("v_pk_mul_f32 v[6:7], v[4:5], s[4:5] op_sel_hi:[1,0]")), "");
  EXPECT_SAID("nobody wrote", product("v_pk_mul_f32 v[6:7], v[4:5], s[4:5]"));
  EXPECT_EQ(said(after_begin({"v_and_b32_e32 v5, 0, v7", "global_store_dword v1, v5, s[2:3]"})), "");
}
TEST(EmulatorFaults, AddressesOutside) {
  EXPECT_SAID("in no buffer", after_begin({"global_load_dword v2, v1, s[2:3] offset:256"}));
  EXPECT_SAID("cross the end", after_begin({"global_load_dwordx2 v[2:3], v1, s[2:3]"}));
  EXPECT_SAID("in local memory", after_begin({"ds_write_b32 v1, v1 offset:1024"}));
  EXPECT_SAID("in private memory", after_begin({"scratch_store_dwordx2 off, v[0:1], off offset:12"}));
  EXPECT_SAID("in private memory", after_begin({"scratch_load_dword v2, v1, off"}));
}
TEST(EmulatorFaults, Races) {
  const std::vector<std::string> exchange = {"v_lshlrev_b32_e32 v2, 2, v0",
                                             "v_xor_b32_e32 v3, 0x100, v2",
                                             "ds_write_b32 v2, v0",
                                             "s_waitcnt lgkmcnt(0)",
                                             "s_barrier",
                                             "ds_read_b32 v4, v3",
                                             "s_waitcnt lgkmcnt(0)"};
  EXPECT_EQ(said(after_begin(exchange)), "");
  std::vector<std::string> without = exchange;
  without[4] = "s_nop 0";
  EXPECT_SAID("a race", after_begin(without));
}
TEST(EmulatorFaults, DivergenceAroundBarriers) {
  EXPECT_SAID("divergence",
              after_begin({"v_cmp_gt_u32_e32 vcc, 32, v0", "s_and_saveexec_b64 s[4:5], vcc", "s_barrier"}));
  // The second wave branches around it.
  EXPECT_SAID("divergence", after_begin({"v_readfirstlane_b32 s4, v0", "s_cmp_lg_u32 s4, 0",
                                         "s_cbranch_scc1 1", "s_barrier"}));
}
TEST(EmulatorFaults, AnEndlessLoop) { EXPECT_SAID("still runs", {"s_branch 65535"}, 64); }

// Kernels as they are compiled, changed by one instruction.
using KernelOnChip = std::pair<const char*, const char*>;
class EmulatorFaultsInKernels : public testing::TestWithParam<KernelOnChip> {
 protected:
  // What the emulator says, or what the result's check does; empty where all is right.
  std::string said_of(const std::function<void(CodeObject&)>& change, Inputs inputs = Inputs::whole) {
    const auto [kernel, chip] = GetParam();
    const auto device = std::make_shared<EmulatedDevice>(std::string("clang:") + chip);
    device->change = [&](CodeObject& code) {
      if (code.kernel.starts_with("implicit_gemm")) change(code);
    };
    const Target target{device->info(), 1};
    const Problem p = parse_problem("fwd:n1c64h8w10k40r3s3:pad1:f16:nhwc:bias:relu");
    const Algorithm& algorithm = find_algorithm(kernel);
    const Parallel parallel(1);
    const Candidate candidate = algorithm.candidates(p, target).back();
    const Oracle oracle(p, Data::small_integers, 1);
    try {
      const Finding finding = run(*make_plan(p, candidate, device, jit::Session(*device, store_), nullptr),
                                  candidate.accuracy, oracle, parallel, inputs);
      return finding.right() ? "" : "wrong: " + finding.worst;
    } catch (const Error& error) {
      return error.what();
    }
  }
  static std::vector<std::size_t> all_of(const CodeObject& code, const std::string& mnemonic) {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < code.program.size(); ++i)
      if (code.program[i].mnemonic.starts_with(mnemonic)) found.push_back(i);
    return found;
  }
  static void drop(CodeObject& code, std::size_t at) {
    const u64 address = code.program[at].address;
    code.program[at] = decode("s_nop 0");
    code.program[at].address = address;
  }
  const Scratch scratch_;
  Store store_{scratch_.path()};  // what is changed was compiled once
  void SetUp() override {
    try {
      make_offline_compiler(std::string("clang:") + GetParam().second);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

TEST_P(EmulatorFaultsInKernels, AreFound) {
  EXPECT_EQ(said_of([](CodeObject&) {}), "");
  const std::string barrier = said_of([](CodeObject& code) {
    for (const std::size_t i : all_of(code, "s_barrier")) drop(code, i);
  });
  EXPECT_TRUE(barrier.find("a race") != std::string::npos ||
              barrier.find("nobody wrote") != std::string::npos)
      << barrier;
  const std::string wait = said_of([](CodeObject& code) {
    for (const std::size_t i : all_of(code, "s_wait")) drop(code, i);
  });
  EXPECT_NE(wait.find("a missing wait"), std::string::npos) << wait;
  const std::string bound = said_of([](CodeObject&) {}, Inputs::x_too_short);
  EXPECT_NE(bound.find("cross the end"), std::string::npos) << bound;
  const std::string undefined = said_of([](CodeObject&) {}, Inputs::x_undefined);
  EXPECT_NE(undefined.find("nobody wrote"), std::string::npos) << undefined;
  // A lane takes its neighbour's operand; a product has its operands the wrong way round.
  const std::string lane = said_of([](CodeObject& code) {
    for (const char* load : {"ds_read_b128", "ds_load_b128", "ds_read_b64", "ds_read2_b64"})
      for (const std::size_t i : all_of(code, load))
        code.program[i].modifiers["offset"] = {code.program[i].value("offset") + 16};
  });
  EXPECT_FALSE(lane.empty());
  const std::string map = said_of([](CodeObject& code) {
    for (const char* product : {"v_mfma", "v_wmma"})
      for (const std::size_t i : all_of(code, product))
        std::swap(code.program[i].operands[1], code.program[i].operands[2]);
    // A pair of halves in place of which the one before is taken.
    const std::vector<std::size_t> pairs = all_of(code, "v_dot2");
    for (std::size_t n = 1; n < pairs.size(); n += 2) {
      if (pairs[n] != pairs[n - 1] + 1) continue;
      code.program[pairs[n]].operands[1] = code.program[pairs[n - 1]].operands[1];
      code.program[pairs[n]].binding = bind_vector(code.program[pairs[n]]);
    }
  });
  const bool has_map = std::string(GetParam().first) == "implicit_gemm_matrix_gpu";
  EXPECT_EQ(map.find("wrong") != std::string::npos, has_map) << map;
}
INSTANTIATE_TEST_SUITE_P(Chips, EmulatorFaultsInKernels,
                         testing::Values(KernelOnChip{"implicit_gemm_matrix_gpu", "gfx942"},
                                         KernelOnChip{"implicit_gemm_matrix_gpu", "gfx1100"},
                                         KernelOnChip{"implicit_gemm_matrix_gpu", "gfx1030"},
                                         KernelOnChip{"implicit_gemm_gpu", "gfx1030"}));

}  // namespace
}  // namespace faltung::emulator
