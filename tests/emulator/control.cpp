// Instructions that steer a wave, and those that move data between its lanes.
#include <map>
#include <string_view>

#include <fmt/core.h>

#include "tests/emulator/operations.hpp"
#include "tests/emulator/wave.hpp"

namespace faltung::emulator {
namespace {

void nothing(Wave&, const Instruction&) {}

// Branches are relative to the instruction that follows.
void jump(Wave& wave, const Instruction& i, u64 address) {
  const auto found = wave.block.places->find(address);
  if (found == wave.block.places->end())
    wave.fail(i, fmt::format("branches to {:#x}, where no instruction is", address));
  wave.next = found->second;
}
void branch(Wave& wave, const Instruction& i) {
  const auto distance = static_cast<i16>(i.operands.at(0).integer);
  jump(wave, i, i.address + 4 + static_cast<u64>(i64{distance} * 4));
}
template <auto Condition>
void branch_if(Wave& wave, const Instruction& i) {
  wave.block.counts.branches += 1;
  if (Condition(wave, i)) branch(wave, i);
}
bool scc(Wave& wave, const Instruction& i) {
  if (wave.scc_undefined) wave.fail(i, "branches by a condition that nobody computed");
  return wave.scc;
}
bool vcc(Wave& wave, const Instruction& i) {
  Operand operand;
  operand.kind = Operand::Kind::scalar, operand.index = kVcc;
  u64 unknown = 0;
  const u64 mask =
      wave.read_scalar(operand, wave.lanes == 64 ? Form::wide : Form::word, Number::integer, i, &unknown);
  if ((unknown & wave.exec()) != 0) wave.fail(i, "branches by lanes of vcc that nobody computed");
  return (mask & wave.all_lanes()) != 0;
}

void end(Wave& wave, const Instruction&) { wave.state = Wave::State::ended; }

// A barrier is for all work-items of a block, and what they wrote before it is there.
void barrier(Wave& wave, const Instruction& i) {
  if (wave.exec() != wave.first_exec)
    wave.fail(
        i, fmt::format("divergence: lanes {:#x} of {:#x} come to the barrier", wave.exec(), wave.first_exec));
  if (wave.writes_local())
    wave.fail(i, "a missing wait: writes to local memory are still under way at the barrier");
  wave.state = Wave::State::waits;
  wave.block.counts.barriers += 1;
}

// Waits are written as text: vmcnt(0) lgkmcnt(3), or one counter and a number.
struct Wait {
  const char* word;
  Counter counter;
};
constexpr Wait kWaits[] = {
    {"vmcnt(", Counter::loads}, {"lgkmcnt(", Counter::local}, {"vscnt(", Counter::stores}};
void wait(Wave& wave, const Instruction& i) {
  for (const Wait& w : kWaits) {
    const std::size_t at = i.text.find(w.word);
    if (at != std::string::npos)
      wave.wait(w.counter, std::atoi(i.text.c_str() + at + std::string_view(w.word).size()));
  }
  // "s_waitcnt 0x0" and the like hide their counters; the encodings are those of gfx9 to gfx11.
  if (i.text.find('(') == std::string::npos) wave.fail(i, "has counters that the emulator cannot read");
}
template <Counter... C>
void wait_for(Wave& wave, const Instruction& i) {
  const std::size_t number = i.text.find_last_of(" ,");
  const int most = static_cast<int>(std::strtol(i.text.c_str() + number + 1, nullptr, 0));
  if constexpr (sizeof...(C) == 1) {
    (wave.wait(C, most), ...);
  } else {  // loads, or stores, from bit 8 on and local memory below
    constexpr Counter both[] = {C...};
    wave.wait(both[0], most >> 8 & 63), wave.wait(both[1], most & 63);
  }
}

// D = exec; exec = what the source and exec make.
template <Form F, auto Combine>
void save_exec(Wave& wave, const Instruction& i) {
  u64 unknown = 0;
  const u64 source = wave.read_scalar(i.operands.at(1), F, Number::integer, i, &unknown);
  const u64 before = wave.exec(), after = Combine(source & ~unknown, before);
  if (((Combine(source | unknown, before) ^ after) & wave.all_lanes()) != 0)
    wave.fail(i, "lanes are chosen by what nobody wrote");
  wave.write_scalar(i.operands.at(0), F, before, i);
  wave.set_mask(kExec, after);
  wave.scc = (after & wave.all_lanes()) != 0, wave.scc_undefined = false;
  wave.block.counts.scalar += 1;
}
u64 both(u64 s, u64 e) { return s & e; }
u64 either(u64 s, u64 e) { return s | e; }
u64 differing(u64 s, u64 e) { return s ^ e; }
u64 only_source(u64 s, u64 e) { return s & ~e; }
u64 only_exec(u64 s, u64 e) { return ~s & e; }

void get_pc(Wave& wave, const Instruction& i) {
  wave.write_scalar(i.operands.at(0), Form::wide, i.address + 4, i);
}
void set_pc(Wave& wave, const Instruction& i) {
  jump(wave, i, wave.read_defined(i.operands.at(0), Form::wide, i));
}
void swap_pc(Wave& wave, const Instruction& i) {
  const u64 to = wave.read_defined(i.operands.at(1), Form::wide, i);
  wave.write_scalar(i.operands.at(0), Form::wide, i.address + 4, i);
  jump(wave, i, to);
}

int first_lane(const Wave& wave) { return wave.exec() == 0 ? 0 : std::countr_zero(wave.exec()); }
void read_lane_number(Wave& wave, const Instruction& i, int lane) {
  const u32* const from = wave.read_vector(i.operands.at(1), 0, i);
  const u64* const u = wave.undefined[i.operands.at(1).index];
  const u64 unknown = ((u[0] >> lane & 1) != 0 ? 0xffffu : 0) | ((u[1] >> lane & 1) != 0 ? 0xffff0000u : 0);
  wave.write_scalar(i.operands.at(0), Form::word, from[lane], i, unknown);
  wave.block.counts.vector += 1;
}
void read_first_lane(Wave& wave, const Instruction& i) { read_lane_number(wave, i, first_lane(wave)); }
void read_lane(Wave& wave, const Instruction& i) {
  read_lane_number(wave, i,
                   static_cast<int>(wave.read_defined(i.operands.at(2), Form::word, i)) & (wave.lanes - 1));
}
void write_lane(Wave& wave, const Instruction& i) {
  const int lane = static_cast<int>(wave.read_defined(i.operands.at(2), Form::word, i)) & (wave.lanes - 1);
  u64 unknown = 0;
  const u64 value = wave.read_scalar(i.operands.at(1), Form::word, Number::integer, i, &unknown);
  wave.settle_vector(i.operands.at(0).index, i);
  wave.write_vector(i.operands.at(0).index, lane, static_cast<u32>(value), static_cast<u32>(unknown));
  wave.block.counts.vector += 1;
}
// How many of the mask's lanes come before each lane, of the lower or the upper 32.
template <int Half>
void count_before(Wave& wave, const Instruction& i) {
  const auto mask = static_cast<u32>(wave.read_defined(i.operands.at(1), Form::word, i));
  const Operand& base = i.operands.at(2);
  for (int lane = 0; lane < wave.lanes; ++lane) {
    if ((wave.exec() >> lane & 1) == 0) continue;
    const u64 before = ((u64{1} << lane) - 1) >> (32 * Half);
    const u32 from = base.is_vector() ? wave.read_vector(base, 0, i)[lane]
                                      : static_cast<u32>(wave.read_defined(base, Form::word, i));
    wave.write_vector(i.operands.at(0).index, lane,
                      from + static_cast<u32>(std::popcount(mask & static_cast<u32>(before))), 0);
  }
  wave.block.counts.vector += 1;
}
void swap_registers(Wave& wave, const Instruction& i) {
  const int a = i.operands.at(0).index, b = i.operands.at(1).index;
  wave.settle_vector(a, i), wave.settle_vector(b, i);
  for (int lane = 0; lane < wave.lanes; ++lane) {
    if ((wave.exec() >> lane & 1) != 0) std::swap(wave.vector[a][lane], wave.vector[b][lane]);
  }
  for (int half = 0; half < 2; ++half) {
    const u64 differing = (wave.undefined[a][half] ^ wave.undefined[b][half]) & wave.exec();
    wave.undefined[a][half] ^= differing, wave.undefined[b][half] ^= differing;
  }
  wave.block.counts.vector += 1;
}
// Each lane's value from the lane that another register names, in bytes; or to it.
void permute_from(Wave& wave, const Instruction& i) {
  u32 values[kMostLanes];
  const u32* const address = wave.read_vector(i.operands.at(1), 0, i);
  const u32* const from = wave.read_vector(i.operands.at(2), 0, i);
  wave.must_be_defined(i.operands.at(1), 0, wave.exec(), i);
  const u32 offset = static_cast<u32>(i.value("offset"));
  u64 unknown[2] = {};
  for (int lane = 0; lane < wave.lanes; ++lane) {
    const u32 which = (address[lane] + offset) / 4 % static_cast<u32>(wave.lanes);
    values[lane] = (wave.exec() >> which & 1) != 0 ? from[which] : 0;
    for (int half = 0; half < 2; ++half)
      unknown[half] |= (wave.undefined[i.operands.at(2).index][half] >> which & 1) << lane;
  }
  for (int lane = 0; lane < wave.lanes; ++lane) {
    if ((wave.exec() >> lane & 1) == 0) continue;
    wave.write_vector(
        i.operands.at(0).index, lane, values[lane],
        ((unknown[0] >> lane & 1) != 0 ? 0xffffu : 0) | ((unknown[1] >> lane & 1) != 0 ? 0xffff0000u : 0));
  }
  wave.issue(Counter::local, &i.operands.at(0), 1);
  wave.block.counts.local += 1;
}

const std::map<std::string, Control> kControls = {
    {"s_endpgm", end},
    {"s_barrier", barrier},
    {"s_barrier_wait", barrier},
    {"s_barrier_signal", nothing},
    {"s_branch", branch},
    {"s_cbranch_scc0", branch_if<[](Wave& w, const Instruction& i) { return !scc(w, i); }>},
    {"s_cbranch_scc1", branch_if<[](Wave& w, const Instruction& i) { return scc(w, i); }>},
    {"s_cbranch_vccz", branch_if<[](Wave& w, const Instruction& i) { return !vcc(w, i); }>},
    {"s_cbranch_vccnz", branch_if<[](Wave& w, const Instruction& i) { return vcc(w, i); }>},
    {"s_cbranch_execz", branch_if<[](Wave& w, const Instruction&) { return w.exec() == 0; }>},
    {"s_cbranch_execnz", branch_if<[](Wave& w, const Instruction&) { return w.exec() != 0; }>},
    {"s_getpc_b64", get_pc},
    {"s_setpc_b64", set_pc},
    {"s_swappc_b64", swap_pc},
    {"s_waitcnt", wait},
    {"s_waitcnt_vscnt", wait_for<Counter::stores>},
    {"s_waitcnt_vmcnt", wait_for<Counter::loads>},
    {"s_waitcnt_lgkmcnt", wait_for<Counter::local>},
    {"s_wait_loadcnt", wait_for<Counter::loads>},
    {"s_wait_storecnt", wait_for<Counter::stores>},
    {"s_wait_dscnt", wait_for<Counter::local>},
    {"s_wait_kmcnt", wait_for<Counter::constants>},
    {"s_wait_loadcnt_dscnt", wait_for<Counter::loads, Counter::local>},
    {"s_wait_storecnt_dscnt", wait_for<Counter::stores, Counter::local>},
    {"s_and_saveexec_b32", save_exec<Form::word, both>},
    {"s_and_saveexec_b64", save_exec<Form::wide, both>},
    {"s_or_saveexec_b32", save_exec<Form::word, either>},
    {"s_or_saveexec_b64", save_exec<Form::wide, either>},
    {"s_xor_saveexec_b32", save_exec<Form::word, differing>},
    {"s_xor_saveexec_b64", save_exec<Form::wide, differing>},
    {"s_andn2_saveexec_b32", save_exec<Form::word, only_source>},
    {"s_andn2_saveexec_b64", save_exec<Form::wide, only_source>},
    {"s_andn1_saveexec_b32", save_exec<Form::word, only_exec>},
    {"s_andn1_saveexec_b64", save_exec<Form::wide, only_exec>},
    {"v_readfirstlane_b32", read_first_lane},
    {"v_readlane_b32", read_lane},
    {"v_writelane_b32", write_lane},
    {"v_mbcnt_lo_u32_b32", count_before<0>},
    {"v_mbcnt_hi_u32_b32", count_before<1>},
    {"v_swap_b32", swap_registers},
    {"ds_bpermute_b32", permute_from},
};

// What only a scheduler or a clock would notice.
constexpr const char* kNothing[] = {"s_nop",
                                    "v_nop",
                                    "s_delay_alu",
                                    "s_clause",
                                    "s_inst_prefetch",
                                    "s_set_inst_prefetch_distance",
                                    "s_sendmsg",
                                    "s_setprio",
                                    "s_sleep",
                                    "s_code_end",
                                    "s_waitcnt_depctr",
                                    "s_wait_alu",
                                    "s_wait_idle",
                                    "s_wait_samplecnt",
                                    "s_wait_bvhcnt",
                                    "s_wait_expcnt",
                                    "buffer_gl0_inv",
                                    "buffer_gl1_inv",
                                    "buffer_wbinvl1",
                                    "buffer_inv",
                                    "buffer_wbl2",
                                    "s_icache_inv",
                                    "s_dcache_wb",
                                    "global_inv",
                                    "global_wb",
                                    "s_setreg_imm32_b32",
                                    "s_prefetch_inst",
                                    "s_waitcnt_expcnt",
                                    "buffer_wbinvl1_vol"};

}  // namespace

Control find_control(const std::string& name) {
  for (const char* idle : kNothing) {
    if (name == idle) return nothing;
  }
  const auto found = kControls.find(name);
  return found == kControls.end() ? nullptr : found->second;
}

void execute(Wave& wave, const Instruction& i) {
  if (i.vector != nullptr) return execute_vector(wave, i);
  if (i.scalar != nullptr) return execute_scalar(wave, i);
  if (i.memory != nullptr) return execute_memory(wave, i);
  if (i.matrix != nullptr) return execute_matrix(wave, i);
  i.control(wave, i);
}

}  // namespace faltung::emulator
