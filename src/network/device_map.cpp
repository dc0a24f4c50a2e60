// Elementwise chains and copies on a GPU: which of kernels/gpu/{map,copy,few_channels}.cl, and its constants
// and numbers; device_turn.cpp has turn.cl.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "src/network/device_steps.hpp"

namespace faltung::network {
namespace {

using gpu::Constants;
using i64 = std::int64_t;

// Pixels of a few channels out of planes: what the first convolution of most networks reads. The dimension of
// the pixels, or -1.
int few_dimension(const MapCall& call) {
  constexpr i64 kMostChannels = 8, kPixels = 8;
  if (call.inputs.size() != 1 || call.program.empty() || call.rank < 2 || !is_half(call.output.element))
    return -1;
  const auto last = last_of(call), pixels = last - 1;
  const MapOperand &from = call.inputs[0], &to = call.output;
  const i64 channels = call.sizes[last];
  bool fits = channels <= kMostChannels && to.strides[last] == 1 && to.strides[pixels] == channels &&
              from.strides[pixels] == 1 && call.sizes[pixels] % kPixels == 0 &&
              from.strides[last] % kPixels == 0 && from.offset % kPixels == 0 && to.offset % kPixels == 0;
  for (std::size_t d = 0; d < pixels; ++d)
    fits = fits && from.strides[d] % kPixels == 0 && to.strides[d] % kPixels == 0;
  return fits ? static_cast<int>(pixels) : -1;
}

std::vector<faltung::Step> few_steps(const MapCall& call, int dimension, const DeviceSlots& slots,
                                     const DeviceInfo& device) {
  constexpr i64 kPixels = 8;
  const auto pixels = static_cast<std::size_t>(dimension), last = pixels + 1;
  const MapOperand &from = call.inputs[0], &to = call.output;
  const bool wide = needs_wide_indices(call);
  Constants own = {{"THREADS", std::to_string(kDeviceThreads)},
                   {"RANK", std::to_string(std::max(1, dimension))},
                   {"CHANNELS", std::to_string(call.sizes[last])},
                   {"INPUT_TYPE", name(from.element)},
                   {"RESULT_TYPE", name(to.element)},
                   {"V", std::to_string(kPixels)},
                   {"WIDE", wide ? "1" : "0"}};
  const Constants chain = chain_constants(call.inputs.size(), call.program, to.element);
  own.insert(own.end(), chain.begin(), chain.end());
  const i64 count = elements_of(call) / (call.sizes[last] * kPixels);
  std::vector<i64> values = {count};
  append_divisor(values, call.sizes[pixels] / kPixels);
  values.insert(values.end(), {from.strides[last], from.offset, to.offset});
  for (std::size_t d = 0; d < pixels; ++d) append_divisor(values, call.sizes[d]);
  if (pixels == 0) append_divisor(values, 1);
  for (const MapOperand* o : {&from, &to}) {
    for (std::size_t d = 0; d < pixels; ++d) values.push_back(o->strides[d]);
    if (pixels == 0) values.push_back(0);
  }
  return {launch("few channels", gpu::source(device, "few_channels", "few_channels.cl", "few_channels", own),
                 gpu::one_dimension(count, kDeviceThreads),
                 {in(slots.reads[0]), out(slots.write), numbers(values, wide)})};
}

// ---- copies

std::vector<faltung::Step> copy_steps(const MapCall& call, const DeviceSlots& slots,
                                      const DeviceInfo& device) {
  const auto last = last_of(call);
  MapOperand operands[] = {call.inputs[0], call.output};
  std::array<i64, kMapRank> sizes = call.sizes;
  // Neighbours as one word of up to 16 bytes, where they are neighbours on both sides.
  std::size_t bytes = size_of(call.inputs[0].element);
  const auto joins = [&] {
    if (bytes == 16 || sizes[last] % 2 != 0) return false;
    return std::ranges::all_of(operands, [&](const MapOperand& o) {
      if (o.strides[last] != 1 || o.offset % 2 != 0) return false;
      for (std::size_t d = 0; d < last; ++d) {
        if (o.strides[d] % 2 != 0) return false;
      }
      return true;
    });
  };
  while (joins()) {
    bytes *= 2, sizes[last] /= 2;
    for (MapOperand& o : operands) {
      o.offset /= 2;
      for (std::size_t d = 0; d < last; ++d) o.strides[d] /= 2;
    }
  }
  i64 count = 1;
  for (std::size_t d = 0; d <= last; ++d) count *= sizes[d];
  std::vector<i64> values{count};
  for (std::size_t d = 0; d <= last; ++d) append_divisor(values, sizes[d]);
  for (const MapOperand& o : operands) values.push_back(o.offset);
  for (const MapOperand& o : operands)
    values.insert(values.end(), o.strides.begin(), o.strides.begin() + call.rank);
  const i64 together = together_of(count, 4, device);
  const bool wide = needs_wide_indices(call);
  return {launch("copy",
                 gpu::source(device, "copy", "copy.cl", "copy",
                             {{"THREADS", std::to_string(kDeviceThreads)},
                              {"RANK", std::to_string(call.rank)},
                              {"BYTES", std::to_string(static_cast<i64>(bytes))},
                              {"TOGETHER", std::to_string(together)},
                              {"WIDE", wide ? "1" : "0"}}),
                 gpu::one_dimension((count + together - 1) / together, kDeviceThreads),
                 {in(slots.reads[0]), out(slots.write), numbers(values, wide)})};
}

// ---- maps

// So many neighbours along the last dimension that lie together lie so in every operand that has them.
bool fits(const MapCall& call, const MapOperand& o, i64 v) {
  const auto last = last_of(call);
  if (o.strides[last] != 1) return true;
  if (o.offset % v != 0) return false;
  for (std::size_t d = 0; d < last; ++d) {
    if (o.strides[d] % v != 0) return false;
  }
  return true;
}

int neighbours_of(const MapCall& call) {
  // Of results of 4 bytes neighbouring threads write whole sectors of memory at once, by 16 bytes each.
  int v = neighbours(call.sizes[last_of(call)], is_half(call.output.element));
  const auto all_fit = [&] {
    return fits(call, call.output, v) &&
           std::ranges::all_of(call.inputs, [&](const MapOperand& o) { return fits(call, o, v); });
  };
  while (!all_fit()) v /= 2;
  return v;
}

bool is_held(const MapCall& call, const MapOperand& o) {
  return call.rank > 1 && o.strides[last_of(call) - 1] == 0;
}

// In how many indices of the dimension before the last a thread computes its neighbours, which pays where it
// would otherwise read others again for each: a bias, the moments of groups. All units are to have blocks.
i64 rows_at_once(const MapCall& call, int v, const DeviceInfo& device) {
  constexpr std::size_t kMostInputs = 6;  // by registers
  const auto repeats = [&](const MapOperand& o) { return is_held(call, o) && o.strides[last_of(call)] == 1; };
  if (call.inputs.size() > kMostInputs || std::ranges::none_of(call.inputs, repeats)) return 1;
  i64 rows = neighbours(call.sizes[last_of(call) - 1], false);
  const i64 most = elements_of(call) / (i64{v} * kDeviceThreads * std::max(1, device.units));
  while (rows > std::max<i64>(1, most)) rows /= 2;
  return rows;
}

}  // namespace

std::vector<faltung::Step> map_steps(const MapCall& call, const DeviceSlots& slots,
                                     const DeviceInfo& device) {
  constexpr std::size_t kMostInputs = BoundLaunch::Arguments::kMost - 2;
  if (call.inputs.size() > kMostInputs) {
    throw Error(Status::unsupported,
                fmt::format("a chain of {} inputs; a GPU's takes {}", call.inputs.size(), kMostInputs));
  }
  if (const int pixels = few_dimension(call); pixels >= 0) return few_steps(call, pixels, slots, device);
  if (const int turned = turned_dimension(call); turned >= 0) return turn_steps(call, turned, slots, device);
  if (call.program.empty()) return copy_steps(call, slots, device);

  const auto last = last_of(call);
  const int v = neighbours_of(call);
  const i64 rows = rows_at_once(call, v, device);
  const bool wide = needs_wide_indices(call);
  std::string operands;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const MapOperand& o = call.inputs[i];
    const char* const how = o.strides[last] == 1 ? "together" : o.strides[last] == 0 ? "alone" : "apart";
    operands += fmt::format("X({}, {}, {}, {}) ", i, name(o.element), how, is_held(call, o) ? 1 : rows);
  }
  Constants own = {{"THREADS", std::to_string(kDeviceThreads)},
                   {"RANK", std::to_string(call.rank)},
                   {"ROWS", std::to_string(rows)},
                   {"INPUTS", std::to_string(static_cast<i64>(call.inputs.size()))},
                   {"OPERANDS(X)", operands},
                   {"RESULT_TYPE", name(call.output.element)},
                   {"V", std::to_string(v)},
                   {"WIDE", wide ? "1" : "0"}};
  if (call.output.strides[last] != 1) own.push_back({"RESULT_APART", "1"});
  const Constants chain = chain_constants(call.inputs.size(), call.program, call.output.element);
  own.insert(own.end(), chain.begin(), chain.end());

  const i64 count = elements_of(call) / (v * rows);
  const auto together = [&](std::size_t d) { return d == last ? i64{v} : d + 1 == last ? rows : 1; };
  std::vector<i64> values{count}, steps, from_row_to_row, strides;
  for (std::size_t d = 0; d <= last; ++d) append_divisor(values, call.sizes[d] / together(d));
  const auto add = [&](const MapOperand& o) {
    values.push_back(o.offset);
    steps.push_back(o.strides[last]);
    from_row_to_row.push_back(last > 0 ? o.strides[last - 1] : 0);
    for (std::size_t d = 0; d <= last; ++d) strides.push_back(o.strides[d] * together(d));
  };
  for (const MapOperand& o : call.inputs) add(o);
  add(call.output);
  for (const std::vector<i64>* more : {&steps, &from_row_to_row, &strides})
    values.insert(values.end(), more->begin(), more->end());
  std::vector<StepArgument> arguments;
  for (const Slot& slot : slots.reads) arguments.push_back(in(slot));
  arguments.push_back(out(slots.write));
  arguments.push_back(numbers(values, wide));
  return {launch("map", gpu::source(device, "map", "map.cl", "map", own),
                 gpu::one_dimension(count, kDeviceThreads), std::move(arguments))};
}

}  // namespace faltung::network
