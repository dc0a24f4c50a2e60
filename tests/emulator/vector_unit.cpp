// How vector instructions get their operands and leave their results.
#include <cstring>
#include <type_traits>

#include "faltung/faltung.hpp"
#include "tests/emulator/operations.hpp"
#include "tests/emulator/vector_binding.hpp"
#include "tests/emulator/wave.hpp"

namespace faltung::emulator {

namespace {

// From which lane DPP takes its first source; -1 where there is none.
int dpp_lane(const Instruction& i, int lane) {
  const int row = lane & ~15, in_row = lane & 15;
  const auto within = [&](int at) { return at < 0 || at > 15 ? -1 : row + at; };
  if (i.has("quad_perm")) return (lane & ~3) + static_cast<int>(i.bit("quad_perm", lane & 3));
  if (i.has("dpp8")) return (lane & ~7) + static_cast<int>(i.bit("dpp8", lane & 7));
  if (i.has("row_shl")) return within(in_row + static_cast<int>(i.value("row_shl")));
  if (i.has("row_shr")) return within(in_row - static_cast<int>(i.value("row_shr")));
  if (i.has("row_ror")) return row + ((in_row - static_cast<int>(i.value("row_ror"))) & 15);
  if (i.has("row_mirror")) return row + 15 - in_row;
  if (i.has("row_half_mirror")) return (lane & ~7) + 7 - (lane & 7);
  if (i.has("row_share")) return row + static_cast<int>(i.value("row_share"));
  if (i.has("row_newbcast")) return row + static_cast<int>(i.value("row_newbcast"));
  if (i.has("row_xmask")) return row + (in_row ^ static_cast<int>(i.value("row_xmask")));
  if (i.has("row_bcast")) {  // the last lane of each group, to the next group
    const int group = static_cast<int>(i.value("row_bcast")) + 1;
    return lane / group * group - 1;
  }
  throw Error(Status::unsupported, "the emulator does not know how '" + i.text + "' permutes lanes");
}

// What of a source is taken: from the bits of its registers to those that the function sees.
template <Form F>
u64 taken_as(const VectorBinding::Source& s, u64 raw) {
  if (s.width < 32) {
    raw = raw >> s.shift & ((u64{1} << s.width) - 1);
    if (s.sign_extended && (raw >> (s.width - 1) & 1) != 0) raw |= 0xffffffff & ~((u64{1} << s.width) - 1);
  }
  const auto half = [&](bool high) { return raw >> (high ? 16 : 0) & 0xffff; };
  const auto with_sign = [&](u64 value, u64 sign, bool negated) {
    if (s.absolute) value &= ~sign;
    return negated ? value ^ sign : value;
  };
  if constexpr (F == Form::half) {
    return with_sign(half(s.high[0]), 0x8000, s.negated[0]);
  } else if constexpr (F == Form::pair_of_halves) {
    return with_sign(half(s.high[0]), 0x8000, s.negated[0]) | with_sign(half(s.high[1]), 0x8000, s.negated[1])
                                                                  << 16;
  } else if constexpr (F == Form::pair_of_words) {
    const auto word = [&](bool high) { return raw >> (high ? 32 : 0) & 0xffffffff; };
    return with_sign(word(s.high[0]), 0x80000000, s.negated[0]) |
           with_sign(word(s.high[1]), 0x80000000, s.negated[1]) << 32;
  } else if constexpr (F == Form::wide) {
    return with_sign(raw, u64{1} << 63, s.negated[0]);
  } else if constexpr (F == Form::mixed) {
    const float value = s.high[1] ? f16_to_float(static_cast<u16>(half(s.high[0])))
                                  : std::bit_cast<float>(static_cast<u32>(raw));
    return with_sign(std::bit_cast<u32>(value), 0x80000000, s.negated[0]);
  } else if constexpr (F == Form::mask) {
    return raw;
  } else {
    return with_sign(raw & 0xffffffff, 0x80000000, s.negated[0]);
  }
}

// Calls f with the form as a constant: chosen once for all lanes.
template <class F>
decltype(auto) with_form(Form form, const F& f) {
  const auto as = [&]<Form Known>() -> decltype(auto) { return f(std::integral_constant<Form, Known>()); };
  switch (form) {
    case Form::half:
      return as.template operator()<Form::half>();
    case Form::pair_of_halves:
      return as.template operator()<Form::pair_of_halves>();
    case Form::pair_of_words:
      return as.template operator()<Form::pair_of_words>();
    case Form::wide:
      return as.template operator()<Form::wide>();
    case Form::mixed:
      return as.template operator()<Form::mixed>();
    case Form::mask:
      return as.template operator()<Form::mask>();
    default:
      return as.template operator()<Form::word>();
  }
}
u64 taken(const VectorBinding::Source& s, u64 raw) {
  return with_form(s.type.form, [&](auto form) { return taken_as<form()>(s, raw); });
}

// The source whose unknown bits are taken: without signs.
VectorBinding::Source unsigned_source(VectorBinding::Source s) {
  s.absolute = s.negated[0] = s.negated[1] = false;
  if (s.type.form == Form::mixed) s.type.form = s.high[1] ? Form::half : Form::word;
  return s;
}

// Of lane n what its own number, or the map, says; where that is no lane, 0.
template <class Raw>
void take_lanes(const VectorBinding::Source& s, int lanes, const int* lane_map, const Raw& raw, u64* to) {
  with_form(s.type.form, [&](auto form) {
    if (lane_map == nullptr) {
      for (int lane = 0; lane < lanes; ++lane) to[lane] = taken_as<form()>(s, raw(lane));
      return;
    }
    for (int lane = 0; lane < lanes; ++lane)
      to[lane] = lane_map[lane] < 0 ? 0 : taken_as<form()>(s, raw(lane_map[lane]));
  });
}

bool takes_as_is(const VectorBinding::Source& s) {
  if (s.width < 32 || s.absolute || s.negated[0] || s.negated[1]) return false;
  return s.type.form == Form::word || s.type.form == Form::wide || s.type.form == Form::pair_of_words;
}

// Fills a source of all lanes. unknown: its undefined bits, filled where there are any. Lanes whose source is
// no lane leave `valid`.
bool gather(Wave& wave, const Instruction& i, const VectorBinding::Source& s, const int* lane_map, u64* to,
            u64* unknown) {
  const bool wide = s.type.form == Form::wide || s.type.form == Form::pair_of_words;
  const int lanes = wave.lanes;
  bool any = false;
  if (s.operand.kind == Operand::Kind::vector) {
    u64 low_lanes = 0;
    for (int part = 0; part < (wide ? 2 : 1); ++part) {
      wave.settle_vector(s.operand.index + part, i);
      low_lanes |= wave.undefined[s.operand.index + part][0] | wave.undefined[s.operand.index + part][1];
    }
    any = low_lanes != 0 && (lane_map != nullptr || (low_lanes & wave.exec()) != 0);
    const u32* const low = wave.vector[s.operand.index];
    const u32* const high = wave.vector[s.operand.index + (wide ? 1 : 0)];
    if (lane_map == nullptr && takes_as_is(s) && !any) {
      if (wide) {
        const bool is_pair = s.type.form == Form::pair_of_words;  // of which either half may be taken twice
        const u32* const first = is_pair && s.high[0] ? high : low;
        const u32* const second = is_pair && !s.high[1] ? low : high;
        for (int lane = 0; lane < lanes; ++lane) to[lane] = first[lane] | u64{second[lane]} << 32;
      } else {
        for (int lane = 0; lane < lanes; ++lane) to[lane] = low[lane];
      }
      return false;
    }
    take_lanes(
        s, lanes, lane_map, [&](int lane) { return low[lane] | (wide ? u64{high[lane]} << 32 : 0); }, to);
    if (!any) return false;
    const u64* const low_halves = wave.undefined[s.operand.index];
    const u64* const high_halves = wave.undefined[s.operand.index + (wide ? 1 : 0)];
    const auto undefined_word = [](const u64* halves, int lane) {
      return (halves[0] >> lane & 1) * 0xffff | (halves[1] >> lane & 1) * 0xffff0000;
    };
    take_lanes(
        unsigned_source(s), lanes, lane_map,
        [&](int lane) {
          return undefined_word(low_halves, lane) | (wide ? undefined_word(high_halves, lane) << 32 : 0);
        },
        unknown);
    return any;
  }
  if (s.type.form == Form::mask) {
    u64 undefined = 0;
    const u64 mask = s.operand.kind == Operand::Kind::literal
                         ? s.literal
                         : wave.read_scalar(s.operand, lanes == 64 ? Form::wide : Form::word, Number::integer,
                                            i, &undefined);
    for (int lane = 0; lane < lanes; ++lane)
      to[lane] = mask >> lane & 1, unknown[lane] = undefined >> lane & 1;
    return undefined != 0;
  }
  u64 undefined = 0, value = s.literal;
  if (s.operand.kind != Operand::Kind::literal) {
    value = wave.read_scalar(s.operand, wide ? Form::wide : Form::word, s.type.number, i, &undefined);
  }
  value = taken(s, value), undefined = undefined == 0 ? 0 : taken(unsigned_source(s), undefined);
  for (int lane = 0; lane < lanes; ++lane) to[lane] = value, unknown[lane] = undefined;
  return undefined != 0;
}

u64 clamped(const VectorBinding& b, const VectorOperation& operation, u64 bits) {
  const auto limit = [](float v) { return !(v > 0) ? 0.0f : v > 1 ? 1.0f : v; };
  if (operation.result.form == Form::word && operation.result.number == Number::f32) {
    float value = std::bit_cast<float>(static_cast<u32>(bits)) * b.scale;
    if (b.clamps) value = limit(value);
    return std::bit_cast<u32>(value);
  }
  if (operation.result.form == Form::half && operation.result.number == Number::f16) {
    double value = f16_to_float(static_cast<u16>(bits)) * b.scale;
    return double_to_f16(b.clamps ? limit(static_cast<float>(value)) : value);
  }
  return bits;
}

struct Outcome {
  Lanes lanes;
  u64 unknown[kMostLanes];
  bool any_unknown = false;
  u64 written = 0;  // lanes
};

// The bits of a result that unknown bits of its sources reach, where those alone do not say.
u64 spread(const VectorOperation& operation, u64 of_sources) {
  const auto each = [&](u64 part) { return (of_sources & part) != 0 ? part : 0; };
  if (of_sources == 0) return 0;
  if (operation.taint == Taint::upwards) return ~u64{0} << std::countr_zero(of_sources);
  if (operation.result.form == Form::pair_of_words) return each(0xffffffff) | each(~u64{0xffffffff});
  if (operation.result.form == Form::pair_of_halves) return each(0xffff) | each(0xffff0000);
  return ~u64{0};
}

void compute(Wave& wave, const Instruction& i, Outcome& o) {
  const VectorOperation& operation = *i.vector;
  const VectorBinding& b = *i.binding;
  u64 unknown[4][kMostLanes];
  bool any[4] = {};
  int lane_map[kMostLanes];
  o.written = wave.exec();
  if (i.is_dpp) {
    const u64 exec = wave.exec();
    for (int lane = 0; lane < wave.lanes; ++lane) {
      int from = dpp_lane(i, lane);
      const bool inactive = from < 0 || from >= wave.lanes || ((exec >> from & 1) == 0 && i.value("fi") == 0);
      if (inactive) from = -1;
      lane_map[lane] = from;
      const bool disabled = (i.value("row_mask", 15) >> (lane / 16) & 1) == 0 ||
                            (i.value("bank_mask", 15) >> (lane % 16 / 4) & 1) == 0;
      if (disabled || (inactive && !i.has("bound_ctrl"))) o.written &= ~(u64{1} << lane);
    }
  }
  o.lanes.count = wave.lanes;
  for (std::size_t s = 0; s < b.sources.size(); ++s) {
    any[s] =
        gather(wave, i, b.sources[s], i.is_dpp && s == 0 ? lane_map : nullptr, o.lanes.in[s], unknown[s]);
    o.any_unknown = o.any_unknown || any[s];
  }
  if (!o.any_unknown) {
    operation.run(o.lanes);
    return;
  }
  if (operation.taint == Taint::bits) {
    // Once with all unknown bits 0, once with all 1: what differs depends on them.
    Lanes ones = o.lanes;
    for (std::size_t s = 0; s < b.sources.size(); ++s) {
      for (int lane = 0; lane < wave.lanes && any[s]; ++lane) {
        ones.in[s][lane] |= unknown[s][lane];
        o.lanes.in[s][lane] &= ~unknown[s][lane];
      }
    }
    operation.run(ones);
    operation.run(o.lanes);
    for (int lane = 0; lane < wave.lanes; ++lane) o.unknown[lane] = ones.out[lane] ^ o.lanes.out[lane];
    return;
  }
  operation.run(o.lanes);
  for (int lane = 0; lane < wave.lanes; ++lane) {
    u64 of_lane = 0;
    for (std::size_t s = 0; s < b.sources.size(); ++s) of_lane |= any[s] ? unknown[s][lane] : 0;
    o.unknown[lane] = spread(operation, of_lane);
  }
}

void commit_word(Wave& wave, const Instruction& i, const VectorBinding& b, const Outcome& o) {
  const VectorOperation& operation = *i.vector;
  const int index = b.result.index;
  wave.settle_vector(index, i);
  u32* const to = wave.vector[index];
  const bool adjusts = b.clamps || b.scale != 1;
  const bool is_16_bit = operation.result.form == Form::half || b.result_width < 32;
  if (!is_16_bit && !adjusts && !o.any_unknown) {
    if (o.written == wave.all_lanes()) {
      for (int lane = 0; lane < wave.lanes; ++lane) to[lane] = static_cast<u32>(o.lanes.out[lane]);
    } else {
      for (int lane = 0; lane < wave.lanes; ++lane)
        if ((o.written >> lane & 1) != 0) to[lane] = static_cast<u32>(o.lanes.out[lane]);
    }
    wave.undefined[index][0] &= ~o.written, wave.undefined[index][1] &= ~o.written;
    return;
  }
  const bool clears = wave.block.chip.generation == 9 && !b.keeps_high && !b.result_is_high;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    if ((o.written >> lane & 1) == 0) continue;
    u64 value = adjusts ? clamped(b, operation, o.lanes.out[lane]) : o.lanes.out[lane];
    u64 unknown = o.any_unknown ? o.unknown[lane] : 0;
    const u32 old_unknown = ((wave.undefined[index][0] >> lane & 1) != 0 ? 0xffffu : 0) |
                            ((wave.undefined[index][1] >> lane & 1) != 0 ? 0xffff0000u : 0);
    if (b.result_width < 32) {
      const u32 field = ((1u << b.result_width) - 1) << b.result_shift;
      u32 rest = b.pads ? 0 : to[lane] & ~field;
      if (b.pads_sign && (value >> (b.result_width - 1) & 1) != 0) rest = ~(field | (field - 1)) & ~field;
      value = (value << b.result_shift & field) | rest;
      unknown = (unknown << b.result_shift & field) | (b.pads ? 0 : old_unknown & ~field);
    } else if (is_16_bit) {
      const int shift = b.result_is_high ? 16 : 0;
      const u32 field = 0xffffu << shift, kept = clears ? 0 : ~field;
      value = (value & 0xffff) << shift | (to[lane] & kept);
      unknown = (unknown & 0xffff) << shift | (old_unknown & kept);
    }
    wave.write_vector(index, lane, static_cast<u32>(value), static_cast<u32>(unknown));
  }
}

void commit(Wave& wave, const Instruction& i, const Outcome& o) {
  const VectorOperation& operation = *i.vector;
  const VectorBinding& b = *i.binding;
  const auto put_mask = [&](int index, u64 mask, u64 unknown) {
    if (index == kNull) return;
    wave.settle_scalar(index, i);
    wave.set_mask(index, mask & o.written, unknown & o.written);
  };
  if (operation.result.form == Form::mask) {
    u64 mask = 0, unknown = 0;
    for (int lane = 0; lane < wave.lanes; ++lane) {
      mask |= (o.lanes.out[lane] & 1) << lane;
      if (o.any_unknown) unknown |= (o.unknown[lane] & 1) << lane;
    }
    if (b.result.kind == Operand::Kind::scalar) put_mask(b.result.index, mask, unknown);
    if (b.to_exec) {
      if ((unknown & o.written) != 0) wave.fail(i, "lanes are chosen by what nobody wrote");
      put_mask(kExec, mask, 0);
    }
    return;
  }
  if (operation.carries) {
    u64 unknown = 0;
    for (int lane = 0; lane < wave.lanes && o.any_unknown; ++lane)
      unknown |= u64{o.unknown[lane] != 0} << lane;
    put_mask(b.carry.index, o.lanes.carry, unknown);
  }
  const bool wide = operation.result.form == Form::wide || operation.result.form == Form::pair_of_words;
  if (!wide) return commit_word(wave, i, b, o);
  for (int part = 0; part < 2; ++part) {
    wave.settle_vector(b.result.index + part, i);
    if (!o.any_unknown && o.written == wave.all_lanes()) {
      u32* const to = wave.vector[b.result.index + part];
      for (int lane = 0; lane < wave.lanes; ++lane)
        to[lane] = static_cast<u32>(o.lanes.out[lane] >> (32 * part));
      for (u64& half : wave.undefined[b.result.index + part]) half &= ~o.written;
      continue;
    }
    for (int lane = 0; lane < wave.lanes; ++lane) {
      if ((o.written >> lane & 1) == 0) continue;
      wave.write_vector(b.result.index + part, lane, static_cast<u32>(o.lanes.out[lane] >> (32 * part)),
                        o.any_unknown ? static_cast<u32>(o.unknown[lane] >> (32 * part)) : 0);
    }
  }
}

}  // namespace

// Both halves of a dual instruction read before either writes.
void execute_vector(Wave& wave, const Instruction& i) {
  wave.block.counts.vector += 1;
  Words words[2];
  if (i.binding->is_of_words && (!i.second || i.second->binding->is_of_words) &&
      compute_words(wave, i, words[0]) && (!i.second || compute_words(wave, *i.second, words[1]))) {
    commit_words(wave, i, words[0]);
    if (i.second) commit_words(wave, *i.second, words[1]);
    return;
  }
  static thread_local Outcome first, second;
  first.any_unknown = second.any_unknown = false;
  compute(wave, i, first);
  if (i.second) compute(wave, *i.second, second);
  commit(wave, i, first);
  if (i.second) commit(wave, *i.second, second);
}

}  // namespace faltung::emulator
