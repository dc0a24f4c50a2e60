// What turns one dimension into another on a GPU (kernels/gpu/turn.cl, turn_dense.cl): which tiles.
#include <algorithm>

#include "src/network/device_steps.hpp"
#include "src/problem/integers.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

struct TurnTile {
  i64 rows, columns;
  i64 elements() const { return rows * columns; }
  // To cover so many.
  i64 count(i64 all_rows, i64 all_columns) const {
    return ceil_div(all_rows, rows) * ceil_div(all_columns, columns);
  }
};
constexpr i64 kTurnElements = 2048;

// 64 by 32, or longer where there is not so much along one side.
TurnTile turn_tile(i64 rows, i64 columns, i64 elements) {
  constexpr i64 kLeast = 4, line = 32;
  const i64 high = std::max(kLeast, power_from(rows)), wide = std::max(kLeast, power_from(columns));
  const i64 all = std::clamp<i64>(high * wide, 4 * kDeviceThreads, elements);
  const i64 across = std::min(line, wide), down = std::min(all / across, high);
  return {down, all / down};
}

// Tiles are not to be nearly empty.
bool is_worth_turning(i64 rows, i64 columns) {
  const TurnTile tile = turn_tile(rows, columns, kTurnElements);
  return std::min(rows, columns) >= 2 && 4 * rows * columns >= tile.count(rows, columns) * tile.elements();
}

// How a turn is laid out.
struct Turn {
  std::size_t rows;  // the dimensions
  std::vector<std::size_t> others;
  TurnTile tile;
  bool dense_input, dense_result;
  i64 images, all_rows, all_columns;
  i64 blocks() const { return images * tile.count(all_rows, all_columns); }
};

// Where a tile's lines are short or begin anywhere, but it has all of them on one side: one piece of memory.
// So many elements that one block of threads moves them at once.
bool is_dense(const MapCall& call, i64 line, i64 from_line_to_line) {
  constexpr i64 kShort = 32, kMost = 64, kWhole = 4;
  const std::size_t bytes = size_of(call.output.element);
  return call.program.empty() && (bytes == 2 || bytes == 4) && line == from_line_to_line && line <= kMost &&
         (line < kShort || line % kWhole != 0);
}

Turn turn_of(const MapCall& call, std::size_t rows, const DeviceInfo& device) {
  const auto last = last_of(call);
  const MapOperand &from = call.inputs[0], &to = call.output;
  Turn t{rows, {}, {}, false, false, 1, call.sizes[rows], call.sizes[last]};
  for (std::size_t d = 0; d < last; ++d) {
    if (d != rows) t.others.push_back(d), t.images *= call.sizes[d];
  }
  t.dense_input = is_dense(call, t.all_rows, from.strides[last]);
  t.dense_result = !t.dense_input && is_dense(call, t.all_columns, to.strides[rows]);
  if (t.dense_input || t.dense_result) {
    const i64 line = t.dense_input ? t.all_rows : t.all_columns,
              lines = t.dense_input ? t.all_columns : t.all_rows;
    const i64 of_tile = std::min(std::max<i64>(4, power_from(lines)), power_from(kTurnElements / line) / 2);
    t.tile = t.dense_input ? TurnTile{line, of_tile} : TurnTile{of_tile, line};
    return t;
  }
  constexpr i64 kBlocksOfUnit = 8;
  t.tile = turn_tile(t.all_rows, t.all_columns, kTurnElements);
  if (t.blocks() < kBlocksOfUnit * device.units)  // more, smaller ones
    t.tile = turn_tile(t.all_rows, t.all_columns, kTurnElements / 2);
  return t;
}

}  // namespace

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

std::vector<faltung::Step> turn_steps(const MapCall& call, int turned, const DeviceSlots& slots,
                                      const DeviceInfo& device) {
  const auto last = last_of(call);
  const MapOperand &from = call.inputs[0], &to = call.output;
  const Turn t = turn_of(call, static_cast<std::size_t>(turned), device);
  // What a line begins with is a multiple of four elements. Of one piece its lines need not be.
  const auto fours = [&](const MapOperand& o, i64 from_line_to_line) {
    return o.offset % 4 == 0 && from_line_to_line % 4 == 0 &&
           std::ranges::all_of(t.others, [&](std::size_t d) { return o.strides[d] % 4 == 0; });
  };
  const bool four_of_input = fours(from, t.dense_input ? 0 : from.strides[last]);
  const bool four_of_result = fours(to, t.dense_result ? 0 : to.strides[t.rows]);
  const bool dense = t.dense_input || t.dense_result;
  const bool wide = needs_wide_indices(call);
  gpu::Constants own = {{"THREADS", std::to_string(kDeviceThreads)},
                        {"RANK", std::to_string(static_cast<i64>(std::max<std::size_t>(1, t.others.size())))},
                        {"ROWS", std::to_string(t.tile.rows)},
                        {"COLUMNS", std::to_string(t.tile.columns)},
                        {"INPUT_TOGETHER", four_of_input ? "4" : "1"},
                        {"RESULT_TOGETHER", four_of_result ? "4" : "1"},
                        {"V", "4"},
                        {"WIDE", wide ? "1" : "0"}};
  if (dense) own.push_back({"DENSE_INPUT", t.dense_input ? "1" : "0"});
  if (call.program.empty()) {
    own.push_back({"BYTES", std::to_string(static_cast<i64>(size_of(from.element)))});
  } else {
    const gpu::Constants chain = chain_constants(call.inputs.size(), call.program, call.output.element);
    own.insert(own.end(), {{"INPUT_TYPE", name(from.element)}, {"RESULT_TYPE", name(to.element)}});
    own.insert(own.end(), chain.begin(), chain.end());
  }
  std::vector<i64> values = {t.all_rows, t.all_columns};
  append_divisor(values, ceil_div(t.all_rows, t.tile.rows));
  append_divisor(values, ceil_div(t.all_columns, t.tile.columns));
  values.insert(values.end(), {from.offset, to.offset, from.strides[last], to.strides[t.rows]});
  for (const std::size_t d : t.others) append_divisor(values, call.sizes[d]);
  if (t.others.empty()) append_divisor(values, 1);
  for (const MapOperand* o : {&from, &to}) {
    for (const std::size_t d : t.others) values.push_back(o->strides[d]);
    if (t.others.empty()) values.push_back(0);
  }
  const char* const kernel = dense ? "turn_dense" : "turn";
  return {launch("turn", gpu::source(device, kernel, std::string(kernel) + ".cl", kernel, own),
                 gpu::grid(t.blocks(), 1, 1, kDeviceThreads),
                 {in(slots.reads[0]), out(slots.write), numbers(values, wide)})};
}

}  // namespace faltung::network
