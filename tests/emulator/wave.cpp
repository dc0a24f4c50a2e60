#include "tests/emulator/wave.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "faltung/faltung.hpp"

namespace faltung::emulator {

Chip::Chip(const std::string& name) : name(name) {
  generation = name.starts_with("gfx9")    ? 9
               : name.starts_with("gfx10") ? 10
               : name.starts_with("gfx11") ? 11
                                           : 12;
  packed_ids = generation >= 11 || name == "gfx90a" || name.starts_with("gfx94") || name.starts_with("gfx95");
}

Wave::Wave(Block& block, int number, int lanes) : block(block), number(number), lanes(lanes) {
  for (auto& halves : undefined) halves[0] = halves[1] = ~u64{0};
  std::fill(std::begin(scalar_undefined), std::end(scalar_undefined), ~0u);
}

u64 Wave::private_memory() const {
  return block.private_memory + static_cast<u64>(number * lanes * block.private_bytes);
}

void Wave::set_mask(int index, u64 value, u64 undefined_lanes) {
  scalar[index] = static_cast<u32>(value), scalar_undefined[index] = static_cast<u32>(undefined_lanes);
  if (lanes < 64) return;
  scalar[index + 1] = static_cast<u32>(value >> 32);
  scalar_undefined[index + 1] = static_cast<u32>(undefined_lanes >> 32);
}

u64 Wave::read_scalar(const Operand& operand, Form form, Number number, const Instruction& i, u64* unknown) {
  const bool wide = form == Form::wide;
  if (unknown != nullptr) *unknown = 0;
  if (operand.kind == Operand::Kind::literal) {
    if (!operand.real) return wide ? operand.integer : operand.integer & 0xffffffff;
    if (number == Number::f16) return double_to_f16(*operand.real);
    return wide ? std::bit_cast<u64>(*operand.real) : std::bit_cast<u32>(static_cast<float>(*operand.real));
  }
  if (operand.kind == Operand::Kind::scc) {
    if (unknown != nullptr) *unknown = scc_undefined;
    return scc;
  }
  if (operand.kind != Operand::Kind::scalar)
    fail(i, "has an operand that the emulator cannot read as a scalar");
  if (operand.index == kNull) return 0;
  u64 value = 0, bits = 0;
  for (int part = 0; part < (wide ? 2 : 1); ++part) {
    settle_scalar(operand.index + part, i);
    value |= u64{scalar[operand.index + part]} << (32 * part);
    bits |= u64{scalar_undefined[operand.index + part]} << (32 * part);
  }
  if (unknown != nullptr) *unknown = bits;
  return value;
}

u64 Wave::read_defined(const Operand& operand, Form form, const Instruction& i) {
  u64 unknown = 0;
  const u64 value = read_scalar(operand, form, Number::integer, i, &unknown);
  if (unknown != 0) fail(i, fmt::format("reads bits {:#x} of a scalar register that nobody wrote", unknown));
  return value;
}

void Wave::write_scalar(const Operand& operand, Form form, u64 value, const Instruction& i, u64 unknown) {
  if (operand.kind != Operand::Kind::scalar) fail(i, "has a result that is no scalar register");
  if (operand.index == kNull) return;
  for (int part = 0; part < (form == Form::wide ? 2 : 1); ++part) {
    const int index = operand.index + part;
    settle_scalar(index, i);
    scalar[index] = static_cast<u32>(value >> (32 * part));
    scalar_undefined[index] = static_cast<u32>(unknown >> (32 * part));
    if (index >= kExec && scalar_undefined[index] != 0) fail(i, "lanes are chosen by what nobody wrote");
  }
}

const u32* Wave::read_vector(const Operand& operand, int part, const Instruction& i) {
  if (!operand.is_vector()) fail(i, "has an operand that the emulator cannot read as a vector register");
  settle_vector(operand.index + part, i);
  return vector[operand.index + part];
}

void Wave::must_be_defined(const Operand& operand, int part, u64 of_lanes, const Instruction& i) const {
  const u64* const halves = undefined[operand.index + part];
  const u64 bad = (halves[0] | halves[1]) & of_lanes;
  if (bad == 0) return;
  const int index = operand.index + part;
  fail(i, fmt::format("reads {}{} of lane {}, which nobody wrote", index < kAccumulators ? 'v' : 'a',
                      index % kAccumulators, std::countr_zero(bad)));
}

// gfx9 counts loads and stores together; until gfx12 constants are counted with local memory.
std::deque<Wave::UnderWay>& Wave::queue(Counter counter) {
  if (counter == Counter::stores && block.chip.generation == 9) counter = Counter::loads;
  if (counter == Counter::constants && block.chip.generation < 12) counter = Counter::local;
  return queues_[static_cast<int>(counter)];
}

void Wave::issue(Counter counter, const Operand* destination, int registers, bool writes) {
  UnderWay entry{Operand::Kind::none, 0, 0, counter == Counter::constants, writes};
  if (destination != nullptr)
    entry = {destination->kind, destination->index, registers, entry.is_constant, writes};
  u8* const pending = entry.kind == Operand::Kind::vector ? pending_vector_ : pending_scalar_;
  for (int r = 0; r < entry.count; ++r) ++pending[entry.first + r];
  queue(counter).push_back(entry);
}

void Wave::wait(Counter counter, int most) {
  auto& entries = queue(counter);
  // Constants come back in any order: only none left says which.
  const bool in_order =
      std::none_of(entries.begin(), entries.end(), [](const UnderWay& e) { return e.is_constant; });
  if (!in_order && most > 0) return;
  while (entries.size() > static_cast<std::size_t>(most)) {
    const UnderWay& entry = entries.front();
    u8* const pending = entry.kind == Operand::Kind::vector ? pending_vector_ : pending_scalar_;
    for (int r = 0; r < entry.count; ++r) --pending[entry.first + r];
    entries.pop_front();
  }
}

bool Wave::writes_local() const {
  const auto& entries = queues_[static_cast<int>(Counter::local)];
  return std::any_of(entries.begin(), entries.end(), [](const UnderWay& e) { return e.writes_local; });
}

void Wave::settle_for_load(int index, const Instruction& i) {
  if (pending_vector_[index] == 0) return;
  const auto& loads = queue(Counter::loads);
  const auto earlier = std::count_if(loads.begin(), loads.end(), [&](const UnderWay& e) {
    return e.kind == Operand::Kind::vector && index >= e.first && index < e.first + e.count;
  });
  if (earlier != pending_vector_[index]) fail_pending(index, true, i);
}

void Wave::fail_pending(int index, bool is_vector, const Instruction& i) const {
  const char prefix = !is_vector ? 's' : index < kAccumulators ? 'v' : 'a';
  fail(i, fmt::format("a missing wait: {}{} is still on its way from memory", prefix,
                      is_vector ? index % kAccumulators : index));
}

void Wave::fail(const Instruction& i, const std::string& what) const {
  throw Error(
      Status::device_error,
      fmt::format("emulated {}, kernel {}, block {} {} {}, wave {}, '{}' at {:#x}: {}", block.chip.name,
                  block.kernel, block.id[0], block.id[1], block.id[2], number, i.text, i.address, what));
}

}  // namespace faltung::emulator
