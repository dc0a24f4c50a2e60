// What loads and stores do.
#include <algorithm>

#include <fmt/core.h>

#include "tests/emulator/operations.hpp"
#include "tests/emulator/wave.hpp"

namespace faltung::emulator {
namespace {

u32 extended(u32 value, int bytes, Part part) {
  if (part != Part::sign_extended) return value;
  return bytes == 1 ? static_cast<u32>(i32{static_cast<i8>(value)})
                    : static_cast<u32>(i32{static_cast<i16>(value)});
}

// Register r of a lane gets, or gives, the bytes from 4 r on of a place.
u32 halves_unknown(u32 unknown_bytes) {
  return ((unknown_bytes & 3) != 0 ? 0xffffu : 0) | ((unknown_bytes & 12) != 0 ? 0xffff0000u : 0);
}
void put_loaded(Wave& wave, const MemoryOperation& m, int index, int lane, u64 value, u32 unknown_bytes) {
  u32 word = static_cast<u32>(value), unknown = halves_unknown(unknown_bytes);
  if (m.part == Part::low_half || m.part == Part::high_half) {
    const u32 old = wave.vector[index][lane];
    const u32 old_unknown = ((wave.undefined[index][0] >> lane & 1) != 0 ? 0xffffu : 0) |
                            ((wave.undefined[index][1] >> lane & 1) != 0 ? 0xffff0000u : 0);
    const u32 kept = m.part == Part::low_half ? 0xffff0000u : 0xffffu;
    const int shift = m.part == Part::low_half ? 0 : 16;
    word = (word & 0xffff) << shift | (old & kept);
    unknown = (unknown & 0xffff) << shift | (old_unknown & kept);
  } else if (m.bytes < 4) {
    word = extended(word, m.bytes, m.part);
    unknown = unknown_bytes != 0 ? ~0u : 0;
  }
  wave.write_vector(index, lane, word, unknown);
}
// What a lane gives of register `index`, and its unknown bytes.
u32 given(const Wave& wave, const MemoryOperation& m, int index, int lane, u32& unknown_bytes) {
  const bool low = (wave.undefined[index][0] >> lane & 1) != 0,
             high = (wave.undefined[index][1] >> lane & 1) != 0;
  const u32 word = wave.vector[index][lane];
  if (m.bytes >= 4) return unknown_bytes = (low ? 3u : 0) | (high ? 12u : 0), word;
  const bool of_high = m.part == Part::high_half;
  unknown_bytes = (of_high ? high : low) ? 3 : 0;
  return of_high ? word >> 16 : word;
}

int registers_of(const MemoryOperation& m) { return (m.bytes + 3) / 4; }

// The registers that a load fills, of all lanes: which of them are undefined is written once.
class Loaded {
 public:
  Loaded(Wave& wave, const MemoryOperation& m, int first) : wave_(wave), m_(m), first_(first) {}
  void put(int r, int lane, u64 value, u32 unknown_bytes) {
    if (m_.bytes < 4) return put_loaded(wave_, m_, first_ + r, lane, value, unknown_bytes);
    wave_.vector[first_ + r][lane] = static_cast<u32>(value);
    if (unknown_bytes == 0) return;
    undefined_[r][0] |= u64{(unknown_bytes & 3) != 0} << lane;
    undefined_[r][1] |= u64{(unknown_bytes & 12) != 0} << lane;
  }
  void finish() {
    for (int r = 0; m_.bytes >= 4 && r < registers_of(m_); ++r)
      for (const int half : {0, 1}) {
        u64& lanes = wave_.undefined[first_ + r][half];
        lanes = (lanes & ~wave_.exec()) | undefined_[r][half];
      }
  }

 private:
  static constexpr int kMost = 4;  // registers
  Wave& wave_;
  const MemoryOperation& m_;
  const int first_;
  u64 undefined_[kMost][2] = {};
};

void execute_constants(Wave& wave, const Instruction& i) {
  const MemoryOperation& m = *i.memory;
  const Operand& destination = i.operands.at(0);
  u64 address = wave.read_defined(i.operands.at(1), Form::wide, i) + static_cast<u64>(i.value("offset"));
  if (m.space == Space::buffer_constants) address &= 0xffffffffffff;
  if (i.operands.size() > 2) {
    const Operand& offset = i.operands[2];
    address +=
        offset.kind == Operand::Kind::literal ? offset.integer : wave.read_defined(offset, Form::word, i);
  }
  if (m.bytes >= 4) address &= ~u64{3};
  if (!wave.block.memory.holds(address, m.bytes)) wave.fail(i, wave.block.memory.fault(address, m.bytes));
  for (int r = 0; r < registers_of(m); ++r) {
    u32 unknown = 0;
    const u64 value =
        wave.block.memory.load(address + static_cast<u64>(4 * r), std::min(4, m.bytes), unknown);
    wave.settle_scalar(destination.index + r, i);
    wave.scalar[destination.index + r] = extended(static_cast<u32>(value), m.bytes, m.part);
    wave.scalar_undefined[destination.index + r] = unknown != 0 ? ~0u : 0;
  }
  wave.issue(Counter::constants, &destination, registers_of(m));
  wave.block.counts.constants += 1;
}

// One place of an instruction on local memory, of all lanes. Neighbouring lanes often ask for the same words,
// which are loaded once.
void access_local(Wave& wave, const Instruction& i, const u32* from, u32 offset, int first) {
  const MemoryOperation& m = *i.memory;
  const bool loads = m.way == Way::load;
  const u64 exec = wave.exec();
  const int registers = registers_of(m), bytes = std::min(4, m.bytes);
  LocalMemory& local = wave.block.local;
  Loaded loaded(wave, m, first);
  u32 addresses[kMostLanes];
  std::size_t active = 0;
  u64 word[4] = {};
  u32 unknown[4] = {};
  for (int lane = 0; lane < wave.lanes; ++lane) {
    if ((exec >> lane & 1) == 0) continue;
    const u32 at = from[lane] + offset;
    const bool is_known = loads && active > 0 && addresses[active - 1] == at;
    addresses[active++] = at;
    if (!is_known) {
      if (m.bytes >= 4 && at % 4 != 0)
        wave.fail(i, fmt::format("address {} in local memory is no multiple of 4", at));
      if (!local.access(at, m.bytes, wave.number, !loads))
        wave.fail(i, local.fault(at, m.bytes, wave.number, !loads));
    }
    for (int r = 0; r < registers; ++r) {
      const u32 place = at + static_cast<u32>(4 * r);
      if (loads) {
        if (!is_known) word[r] = local.load(place, bytes, unknown[r]);
        loaded.put(r, lane, word[r], unknown[r]);
      } else {
        const u32 value = given(wave, m, first + r, lane, unknown[r]);
        local.store(place, bytes, value, unknown[r]);
      }
    }
  }
  if (loads) loaded.finish();
  for (int r = 0; r < registers; ++r) wave.settle_vector(first + r, i);
  Counts& counts = wave.block.counts;
  const LocalCost cost = local_cost({addresses, active}, m.bytes);
  counts.local_cycles += static_cast<u64>(cost.cycles);
  counts.conflicts += static_cast<u64>(cost.cycles - cost.least);
  if (cost.least > 0) {
    const auto ways = static_cast<u64>((cost.cycles + cost.least - 1) / cost.least);
    counts.most_ways = std::max(counts.most_ways, ways);
  }
  counts.local_bytes += active * static_cast<u64>(m.bytes);
}

void execute_local(Wave& wave, const Instruction& i) {
  const MemoryOperation& m = *i.memory;
  const bool loads = m.way == Way::load;
  const Operand& address = i.operands.at(loads ? 1 : 0);
  u32 from[kMostLanes];  // before what is loaded takes their place
  std::copy_n(wave.read_vector(address, 0, i), kMostLanes, from);
  wave.must_be_defined(address, 0, wave.exec(), i);
  for (int place = 0; place < m.places; ++place) {
    const i64 offset =
        m.places == 1 ? i.value("offset") : i.value(place == 0 ? "offset0" : "offset1") * m.stride;
    const Operand& data = i.operands.at(loads ? 0 : static_cast<std::size_t>(1 + place));
    access_local(wave, i, from, static_cast<u32>(offset), data.index + (loads ? place * registers_of(m) : 0));
  }
  wave.issue(Counter::local, loads ? &i.operands.at(0) : nullptr, m.places * registers_of(m), !loads);
  wave.block.counts.local += 1;
}

// Where each lane of a buffer, flat or global instruction goes.
struct Places {
  u64 address[kMostLanes];
  u64 inside = ~u64{0};  // lanes whose address a buffer's bounds allow
  bool is_private = false;
};

// In a lane's own memory; v: none, or a register of offsets.
void find_in_private(Wave& wave, const Instruction& i, const Operand& v, u64 begin, u64 offset,
                     Places& places) {
  const MemoryOperation& m = *i.memory;
  const u32* const offsets = v.is_vector() ? wave.read_vector(v, 0, i) : nullptr;
  if (offsets != nullptr) wave.must_be_defined(v, 0, wave.exec(), i);
  const auto bytes = static_cast<u64>(wave.block.private_bytes);
  places.is_private = true;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    if ((wave.exec() >> lane & 1) == 0) continue;
    const u32 at = static_cast<u32>(offset) + (offsets != nullptr ? offsets[lane] : 0);
    if (at + u64{static_cast<u32>(m.bytes)} > bytes)
      wave.fail(i, fmt::format("{} bytes at {} of {} in private memory", m.bytes, at, bytes));
    places.address[lane] = begin + static_cast<u64>(lane) * bytes + at;
  }
}

void find_in_buffer(Wave& wave, const Instruction& i, const MemoryOperation& m, Places& places) {
  const Operand& v = i.operands.at(1);
  const Operand& s = i.operands.at(2);
  Operand word = s;
  word.count = 1;
  u64 descriptor[4];
  for (int part = 0; part < 4; ++part, ++word.index)
    descriptor[part] = wave.read_defined(word, Form::word, i);
  const u64 base = descriptor[0] | (descriptor[1] & 0xffff) << 32, stride = descriptor[1] >> 16 & 0x3fff;
  const u64 limit = descriptor[2];
  const u64 scalar = wave.read_defined(i.operands.at(3), Form::word, i);
  const bool indexed = i.has("idxen"), offset = i.has("offen");
  const auto constant = static_cast<u64>(i.value("offset"));
  if ((descriptor[3] & kAddsLanes) != 0) {
    if (scalar != 0) wave.fail(i, "adds a scalar to private memory, which the emulator has no meaning for");
    return find_in_private(wave, i, offset ? v : Operand{}, base, constant, places);
  }
  for (int lane = 0; lane < wave.lanes; ++lane) {
    if ((wave.exec() >> lane & 1) == 0) continue;
    u64 at = constant;
    int part = 0;
    u64 index = 0;
    if (indexed) index = wave.read_vector(v, part++, i)[lane];
    if (offset) at += wave.read_vector(v, part, i)[lane];
    at += index * stride;
    // A raw buffer's limit counts bytes, without what the scalar adds.
    const bool beyond = stride == 0 ? at + static_cast<u64>(m.bytes) > limit : index >= limit;
    if (beyond) places.inside &= ~(u64{1} << lane);
    places.address[lane] = base + at + scalar;
  }
  for (int part = 0; part < (indexed ? 1 : 0) + (offset ? 1 : 0); ++part)
    wave.must_be_defined(v, part, wave.exec(), i);
}

void find_in_memory(Wave& wave, const Instruction& i, const Operand& v, const Operand* base, Places& places) {
  const bool wide = base == nullptr || base->kind != Operand::Kind::scalar;
  const u64 scalar = wide ? 0 : wave.read_defined(*base, Form::wide, i);
  const u32* const low = wave.read_vector(v, 0, i);
  const u32* const high = wide ? wave.read_vector(v, 1, i) : nullptr;
  wave.must_be_defined(v, 0, wave.exec(), i);
  if (wide) wave.must_be_defined(v, 1, wave.exec(), i);
  const u64 offset = scalar + static_cast<u64>(i.value("offset"));
  for (int lane = 0; lane < wave.lanes; ++lane)
    places.address[lane] = offset + low[lane] + (wide ? u64{high[lane]} << 32 : 0);
}

void execute_global(Wave& wave, const Instruction& i) {
  const MemoryOperation& m = *i.memory;
  const bool loads = m.way == Way::load, buffer = m.space == Space::buffer;
  const Operand& data = i.operands.at(loads || buffer ? 0 : 1);
  Places places;
  if (buffer) {
    find_in_buffer(wave, i, m, places);
  } else if (m.space == Space::scratch) {
    const Operand& scalar = i.operands.at(2);
    const u64 offset = scalar.kind == Operand::Kind::none ? 0 : wave.read_defined(scalar, Form::word, i);
    find_in_private(wave, i, i.operands.at(loads ? 1 : 0), wave.private_memory(),
                    offset + static_cast<u64>(i.value("offset")), places);
  } else {
    find_in_memory(wave, i, i.operands.at(loads ? 1 : 0), i.operands.size() > 2 ? &i.operands[2] : nullptr,
                   places);
  }
  constexpr u64 kLine = 128;
  u64 lines[kMostLanes * 2];
  int touched = 0;
  Memory& memory = wave.block.memory;
  for (int r = 0; r < registers_of(m); ++r) {
    if (loads) {
      wave.settle_for_load(data.index + r, i);
    } else {
      wave.settle_vector(data.index + r, i);
    }
  }
  Loaded loaded(wave, m, data.index);
  for (int lane = 0; lane < wave.lanes; ++lane) {
    if ((wave.exec() >> lane & 1) == 0) continue;
    const bool inside = (places.inside >> lane & 1) != 0;
    const u64 address = places.address[lane];
    if (inside) {
      if (!memory.holds(address, m.bytes))
        wave.fail(i, fmt::format("lane {}: {}", lane, memory.fault(address, m.bytes)));
      for (const u64 line : {address / kLine, (address + static_cast<u64>(m.bytes) - 1) / kLine}) {
        if (places.is_private) break;  // it lies in other lines than here
        if (std::find(lines, lines + touched, line) == lines + touched) lines[touched++] = line;
      }
    }
    for (int r = 0; r < registers_of(m); ++r) {
      const u64 at = address + static_cast<u64>(4 * r);
      const int bytes = std::min(4, m.bytes);
      u32 unknown = 0;
      if (loads) {
        const u64 value = inside ? memory.load(at, bytes, unknown) : 0;
        loaded.put(r, lane, value, unknown);
      } else if (inside) {
        const u32 value = given(wave, m, data.index + r, lane, unknown);
        if (unknown != 0 && !places.is_private)  // a register is put there, and back, as it is
          wave.fail(i, fmt::format("stores v{} of lane {}, which nobody wrote", data.index + r, lane));
        memory.store(at, bytes, value, unknown);
      }
    }
  }
  if (loads) loaded.finish();
  Counts& counts = wave.block.counts;
  (loads ? counts.loaded_bytes : counts.stored_bytes) +=
      static_cast<u64>(std::popcount(wave.exec() & places.inside) * m.bytes);
  counts.lines += static_cast<u64>(touched);
  counts.global += 1;
  const Counter counter = loads ? Counter::loads : Counter::stores;
  wave.issue(counter, loads ? &data : nullptr, registers_of(m));
  if (m.space == Space::flat) wave.issue(Counter::local, loads ? &data : nullptr, registers_of(m));
}

}  // namespace

void execute_memory(Wave& wave, const Instruction& i) {
  switch (i.memory->space) {
    case Space::constants:
    case Space::buffer_constants:
      return execute_constants(wave, i);
    case Space::local:
      return execute_local(wave, i);
    default:
      return execute_global(wave, i);
  }
}

}  // namespace faltung::emulator
