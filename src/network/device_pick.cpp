// Elements along two dimensions by tables on a GPU (kernels/gpu/pick.cl): which tables follow a rule.
#include <algorithm>
#include <optional>

#include "src/network/device_steps.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// Element i of the result is element (i + shift) / times of the input, or nothing outside: what resizing by
// whole numbers, padding and slices are.
struct Rule {
  i64 times, shift;
};

bool follows(const PickedAxis& axis, const Rule& rule) {
  for (i64 i = 0; i < axis.size(); ++i) {
    const i64 place = i + rule.shift;
    const i64 at = place < 0 || place >= axis.length * rule.times ? -1 : place / rule.times;
    if (axis.index[static_cast<std::size_t>(i)] != at) return false;
  }
  return true;
}

std::optional<Rule> rule_of(const PickedAxis& axis) {
  const auto first = std::ranges::find_if(axis.index, [](std::int32_t at) { return at >= 0; });
  if (first == axis.index.end()) return std::nullopt;
  const auto next = std::find_if(first, axis.index.end(), [&](std::int32_t at) { return at != *first; });
  for (const i64 times : {1, 2, 4, 8}) {
    // From where the next element begins to where the first of all would.
    const Rule rule{times, (*first + 1) * times - (next - axis.index.begin())};
    if (follows(axis, rule)) return rule;
  }
  return std::nullopt;
}

}  // namespace

std::vector<faltung::Step> pick_steps(PickCall call, const DeviceSlots& slots, DeviceConstants& constants,
                                      const DeviceInfo& device) {
  const bool two_axes = call.rows.length != 1 || call.rows.index != std::vector<std::int32_t>{0};
  const std::optional<Rule> rule = rule_of(call.columns);
  const Slot columns = rule ? slots.reads[0] : constants.add(call.columns.index),
             rows = two_axes ? constants.add(call.rows.index) : columns;
  // As words of 16 bytes where they are that many.
  const i64 run = call.inner * static_cast<i64>(call.bytes), all = call.results();
  const bool words = run % 16 == 0 && (!call.fills || call.fill == 0);
  if (words) call.bytes = 16, call.inner = run / 16;
  const i64 bytes = static_cast<i64>(call.bytes), across = call.columns.size();
  const bool single = call.inner == 1 && (bytes == 2 || bytes == 4);
  const auto lies = [&](const Slot& slot, i64 elements) {
    return static_cast<i64>(slot.offset) % (elements * bytes) == 0;
  };
  // Single numbers: a thread that writes one has more to do for its place than for the number.
  const i64 widest = single ? 16 / bytes : 1;
  const bool fits = single && all % widest == 0 && across >= widest && lies(slots.write, widest);
  const bool whole = fits && rule && rule->times > 1 && rule->shift == 0 && across % widest == 0 &&
                     across == rule->times * call.columns.length && widest % rule->times == 0 &&
                     call.columns.length % (widest / rule->times) == 0 &&
                     lies(slots.reads[0], widest / rule->times);
  const i64 v = fits ? widest : 1;
  const i64 count = call.results() / v, together = together_of(count, v == 1 || whole ? 4 : 1, device);
  const bool wide = is_wide(std::max(all, call.outer * call.rows.length * call.columns.length * call.inner));
  std::vector<i64> values{count};
  for (const i64 size : {call.rows.size(), across, call.inner}) append_divisor(values, size);
  values.insert(values.end(), {call.rows.length, call.columns.length, rule ? rule->shift : 0});
  return {launch("pick",
                 gpu::source(device, "pick", "pick.cl", "pick",
                             {{"THREADS", std::to_string(kDeviceThreads)},
                              {"BYTES", std::to_string(bytes)},
                              {"TWO_AXES", two_axes ? "1" : "0"},
                              {"STRETCH", std::to_string(rule ? rule->times : 0)},
                              {"WHOLE", whole ? "1" : "0"},
                              {"V", std::to_string(v)},
                              {"TOGETHER", std::to_string(together)},
                              {"WIDE", wide ? "1" : "0"}}),
                 gpu::one_dimension((count + together - 1) / together, kDeviceThreads),
                 {in(slots.reads[0]), in(rows), in(columns), out(slots.write),
                  value(static_cast<i64>(call.fill)), numbers(values, wide)})};
}

}  // namespace faltung::network
