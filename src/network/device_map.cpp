// Elementwise chains and copies on a GPU: which of kernels/gpu/{map,copy,turn}.cl, and its constants and
// numbers.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "src/network/device_steps.hpp"

namespace faltung::network {
namespace {

using gpu::Constants;
using i64 = std::int64_t;

std::size_t last_of(const MapCall& call) { return static_cast<std::size_t>(call.rank) - 1; }

// ---- turning

struct TurnTile {
  i64 rows, columns;
  i64 elements() const { return rows * columns; }
};
// 64 by 32, or longer where there is not so much along one side.
TurnTile turn_tile(i64 rows, i64 columns, i64 elements) {
  constexpr i64 kColumns = 32, kLeast = 4;
  const auto power = [&](i64 n) {
    return std::max(kLeast, static_cast<i64>(std::bit_ceil(static_cast<std::uint64_t>(n))));
  };
  const i64 all = std::clamp<i64>(power(rows) * power(columns), 4 * kDeviceThreads, elements);
  const i64 across = std::min(kColumns, power(columns)), down = std::min(all / across, power(rows));
  return {down, all / down};
}
constexpr i64 kTurnElements = 2048;
i64 tiles_of(i64 rows, i64 columns, const TurnTile& tile) {
  return ((rows + tile.rows - 1) / tile.rows) * ((columns + tile.columns - 1) / tile.columns);
}

// Tiles are not to be nearly empty.
bool is_worth_turning(i64 rows, i64 columns) {
  const TurnTile tile = turn_tile(rows, columns, kTurnElements);
  return std::min(rows, columns) >= 2 &&
         4 * rows * columns >= tiles_of(rows, columns, tile) * tile.elements();
}

// A dimension along which the input's elements follow each other and the result's do not; -1 where none is,
// or too little of it for tiles.
int turned_dimension(const MapCall& call) {
  if (call.inputs.size() != 1) return -1;
  const auto last = last_of(call);
  const MapOperand& from = call.inputs[0];
  if (call.output.strides[last] != 1 || from.strides[last] == 1) return -1;
  for (std::size_t d = 0; d < last; ++d) {
    if (from.strides[d] == 1 && is_worth_turning(call.sizes[d], call.sizes[last])) return static_cast<int>(d);
  }
  return -1;
}

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
  std::vector<i64> values = {count, call.sizes[pixels] / kPixels, from.strides[last], from.offset, to.offset};
  for (std::size_t d = 0; d < pixels; ++d) values.push_back(call.sizes[d]);
  if (pixels == 0) values.push_back(1);
  for (const MapOperand* o : {&from, &to}) {
    for (std::size_t d = 0; d < pixels; ++d) values.push_back(o->strides[d]);
    if (pixels == 0) values.push_back(0);
  }
  return {launch("few channels", gpu::source(device, "few_channels", "few_channels.cl", "few_channels", own),
                 gpu::one_dimension(count, kDeviceThreads),
                 {in(slots.reads[0]), out(slots.write), numbers(values, wide)})};
}

std::vector<faltung::Step> turn_steps(const MapCall& call, int turned, const DeviceSlots& slots,
                                      const DeviceInfo& device) {
  const auto last = last_of(call), rows = static_cast<std::size_t>(turned);
  const MapOperand &from = call.inputs[0], &to = call.output;
  std::vector<std::size_t> others;
  for (std::size_t d = 0; d < last; ++d) {
    if (d != rows) others.push_back(d);
  }
  // What a line begins with, in the input and the result, is a multiple of four elements.
  const auto aligned = [&](const MapOperand& o, i64 from_line_to_line) {
    return o.offset % 4 == 0 && from_line_to_line % 4 == 0 &&
           std::ranges::all_of(others, [&](std::size_t d) { return o.strides[d] % 4 == 0; });
  };
  i64 images = 1;
  for (const std::size_t d : others) images *= call.sizes[d];
  TurnTile tile = turn_tile(call.sizes[rows], call.sizes[last], kTurnElements);
  i64 blocks = images * tiles_of(call.sizes[rows], call.sizes[last], tile);
  constexpr i64 kBlocksOfUnit = 8;
  if (blocks < kBlocksOfUnit * device.units) {  // more, smaller ones
    tile = turn_tile(call.sizes[rows], call.sizes[last], kTurnElements / 2);
    blocks = images * tiles_of(call.sizes[rows], call.sizes[last], tile);
  }
  const bool wide = needs_wide_indices(call);
  Constants own = {{"THREADS", std::to_string(kDeviceThreads)},
                   {"RANK", std::to_string(static_cast<i64>(std::max<std::size_t>(1, others.size())))},
                   {"ROWS", std::to_string(tile.rows)},
                   {"COLUMNS", std::to_string(tile.columns)},
                   {"INPUT_TOGETHER", aligned(from, from.strides[last]) ? "4" : "1"},
                   {"RESULT_TOGETHER", aligned(to, to.strides[rows]) ? "4" : "1"},
                   {"V", "4"},
                   {"WIDE", wide ? "1" : "0"}};
  if (call.program.empty()) {
    own.push_back({"BYTES", std::to_string(static_cast<i64>(size_of(from.element)))});
  } else {
    const Constants chain = chain_constants(call.inputs.size(), call.program, call.output.element);
    own.insert(own.end(), {{"INPUT_TYPE", name(from.element)}, {"RESULT_TYPE", name(to.element)}});
    own.insert(own.end(), chain.begin(), chain.end());
  }
  std::vector<i64> values = {call.sizes[rows], call.sizes[last],   from.offset,
                             to.offset,        from.strides[last], to.strides[rows]};
  for (const std::size_t d : others) values.push_back(call.sizes[d]);
  if (others.empty()) values.push_back(1);
  for (const MapOperand* o : {&from, &to}) {
    for (const std::size_t d : others) values.push_back(o->strides[d]);
    if (others.empty()) values.push_back(0);
  }
  return {launch("turn", gpu::source(device, "turn", "turn.cl", "turn", own),
                 gpu::grid(blocks, 1, 1, kDeviceThreads),
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
  values.insert(values.end(), sizes.begin(), sizes.begin() + call.rank);
  for (const MapOperand& o : operands) values.push_back(o.offset);
  for (const MapOperand& o : operands)
    values.insert(values.end(), o.strides.begin(), o.strides.begin() + call.rank);
  // All at once rather than block after block.
  constexpr i64 kMostTogether = 4, kThreadsOfUnit = 2048;
  i64 together = 1;
  while (together < kMostTogether && count >= 2 * together * kThreadsOfUnit * std::max(1, device.units))
    together *= 2;
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
  bool halves = is_half(call.output.element);
  for (const MapOperand& o : call.inputs) halves = halves || is_half(o.element);
  int v = neighbours(call.sizes[last_of(call)], halves);
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
  for (std::size_t d = 0; d <= last; ++d) values.push_back(call.sizes[d] / together(d));
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
