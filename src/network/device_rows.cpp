// Computations along a dimension on a GPU (kernels/gpu/rows.cl): how many columns a block takes, and into how
// many parts long columns are cut.
#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "src/network/device_steps.hpp"
#include "src/problem/integers.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

const char* op_name(RowsOp op) {
  switch (op) {
    case RowsOp::sum:
    case RowsOp::mean:
      return "OP_sum";
    case RowsOp::max:
      return "OP_max";
    case RowsOp::min:
      return "OP_min";
    case RowsOp::sum_of_squares:
      return "OP_sum_of_squares";
    case RowsOp::sum_of_sizes:
      return "OP_sum_of_sizes";
    case RowsOp::product:
      return "OP_product";
    case RowsOp::softmax:
      return "OP_softmax";
    case RowsOp::log_softmax:
      return "OP_log_softmax";
    case RowsOp::standardize:
      return "OP_standardize";
  }
  return "";
}

// How a block's threads are divided.
struct BlockShape {
  int v;
  i64 columns;  // in all: of V neighbours, or alone where the inner dimension is 1
  i64 rows;     // of a column: units of V where that is so
  i64 cols;     // of a block
};
BlockShape shape_of(const RowsCall& call, const DeviceInfo& device) {
  const RowsExtent& e = call.extent;
  const bool halves = is_half(call.from) || is_half(call.to);
  if (e.inner == 1) {
    constexpr i64 kEach = 4;  // loads of a thread that are under way at once
    const int v = neighbours(e.length, halves);
    const i64 rows = e.length / v;
    const i64 threads = std::min<i64>(kDeviceThreads, power_from((rows + kEach - 1) / kEach));
    return {v, e.outer, rows, kDeviceThreads / threads};
  }
  // Neighbours of the inner dimension are read together by neighbouring threads: a line at least.
  constexpr i64 kTogether = 32, kOfLine = 8;
  const int v = neighbours(e.inner, halves);
  const i64 columns = e.outer * e.inner / v;
  const i64 least = kDeviceThreads / power_from(e.length);  // others would have nothing
  i64 cols = std::max(kTogether, least);
  while (cols > std::max(kOfLine, least) && columns < cols * device.units) cols /= 2;
  cols = std::clamp<i64>(std::min(cols, power_from(columns)), 1, kDeviceThreads);
  return {v, columns, e.length, cols};
}

// How many blocks of a cluster share columns that are reduced, so that all units have work and none is
// launched for what parts come to; 1 where that is too little for all.
i64 cluster_of(const RowsCall& call, const DeviceInfo& device) {
  constexpr i64 kMost = 16, kLeastRows = 64, kLeastTogether = 4;
  constexpr i64 kMostBytes = 1 << 18;  // of a block: a second launch takes as long as more
  const RowsExtent& e = call.extent;
  if (!device.has("sm_90") || !reduces(call.op) || e.inner == 1) return 1;
  const BlockShape shape = shape_of(call, device);
  if (shape.v < kLeastTogether) return 1;
  const i64 blocks = ceil_div(shape.columns, shape.cols);
  i64 cluster = 1;
  while (cluster < kMost && blocks * cluster < device.units && e.length >= 2 * cluster * kLeastRows)
    cluster *= 2;
  const i64 bytes = e.outer * e.inner * e.length * static_cast<i64>(size_of(call.from));
  return bytes > kMostBytes * blocks * cluster ? 1 : cluster;
}

// Few, long columns are reduced in so many parts that all units have work: a divisor of the length. So are
// rows standardized where that is worth the launches it takes.
i64 parts_of(const RowsCall& call, const DeviceInfo& device) {
  constexpr i64 kLeast = 64, kWorth = 1 << 21;  // rows of a part; elements
  constexpr i64 kBlocksOfUnit = 4;              // so that enough is on its way
  const RowsExtent& e = call.extent;
  if (holds(call, device) || cluster_of(call, device) > 1) return 1;
  const bool standardizes = call.op == RowsOp::standardize && e.inner == 1 && e.outer * e.length >= kWorth;
  if (!reduces(call.op) && !standardizes) return 1;
  const BlockShape shape = shape_of(call, device);
  const i64 blocks = (shape.columns + shape.cols - 1) / shape.cols;
  const i64 wanted = (e.inner == 1 ? 1 : kBlocksOfUnit) * std::max(1, device.units);
  i64 best = 1;
  for (i64 d = 2; d <= e.length / kLeast && blocks * best < wanted; ++d) {
    if (e.length % d == 0) best = d;
  }
  return best;
}

// The columns of `call`, by `op`; means: of OP_sum_of_deviations.
faltung::Step rows_step(const RowsCall& call, const char* op, float scale, Slot from, Slot to,
                        const DeviceInfo& device, std::optional<Slot> means = {}, i64 parts = 1) {
  const bool is_plain = !means && op != std::string_view("OP_inverse");
  if (is_plain && holds(call, device)) return whole_rows_step(call, op, scale, from, to, device);
  const BlockShape shape = shape_of(call, device);
  const i64 cluster = is_plain ? cluster_of(call, device) : 1;
  // Of a cluster's blocks there are hardly more than units; two are to fit on one, for a large cluster finds
  // no room elsewhere.
  const int threads = cluster > 1 ? 2 * kDeviceThreads : kDeviceThreads;
  const RowsExtent& e = call.extent;
  std::vector<StepArgument> arguments{in(from)};
  if (means) arguments.push_back(in(*means));
  arguments.push_back(out(to));
  if (means) arguments.push_back(value(parts));
  arguments.insert(arguments.end(),
                   {value(shape.columns), value(shape.rows), value(e.inner == 1 ? i64{1} : e.inner / shape.v),
                    value(scale), value(call.epsilon)});
  LaunchShape grid = gpu::grid(ceil_div(shape.columns, shape.cols) * cluster, 1, 1, threads);
  grid.cluster[0] = static_cast<unsigned>(cluster);
  return launch("rows",
                gpu::source(device, "rows", "rows.cl", "rows",
                            {{"THREADS", std::to_string(threads)},
                             {"COLS", std::to_string(shape.cols)},
                             {"CLUSTER", std::to_string(cluster)},
                             {"FROM_TYPE", name(call.from)},
                             {"TO_TYPE", name(call.to)},
                             {op, "1"},
                             {"INNER_IS_ONE", e.inner == 1 ? "1" : "0"},
                             {"V", std::to_string(shape.v)},
                             {"WIDE", is_wide(e.outer * e.length * e.inner) ? "1" : "0"}}),
                grid, std::move(arguments));
}

// In the workspace: what parts come to, and of whole columns the means and the inverses of their deviations.
struct Space {
  std::size_t means, inverses, bytes;
};
Space space_of(const RowsCall& call, i64 parts) {
  const auto columns = static_cast<std::size_t>(call.extent.outer * call.extent.inner) * sizeof(float);
  const std::size_t means = aligned(columns * static_cast<std::size_t>(parts));
  if (call.op != RowsOp::standardize) return {means, means, means};
  return {means, means + aligned(columns), means + 2 * aligned(columns)};
}

Slot moved(Slot slot, std::size_t bytes) { return {slot.place, slot.offset + bytes}; }

// Means, then the sums of squares about them, each first of the parts; then every element.
std::vector<faltung::Step> standardize_in_parts(const RowsCall& call, i64 parts, const DeviceSlots& slots,
                                                const DeviceInfo& device) {
  const Space space = space_of(call, parts);
  const Slot means = moved(slots.workspace, space.means), inverses = moved(slots.workspace, space.inverses);
  const RowsExtent& e = call.extent;
  const float scale = 1.0f / static_cast<float>(e.length);
  RowsCall first = call, second = call;
  first.op = second.op = RowsOp::sum;
  first.extent.outer *= parts, first.extent.length /= parts, first.to = MapElement::f32;
  second.extent.length = parts, second.from = second.to = MapElement::f32;
  std::vector<faltung::Step> steps{
      rows_step(first, "OP_sum", 1.0f, slots.reads[0], slots.workspace, device),
      rows_step(second, "OP_sum", scale, slots.workspace, means, device),
      rows_step(first, "OP_sum_of_deviations", 1.0f, slots.reads[0], slots.workspace, device, means, parts),
      rows_step(second, "OP_inverse", scale, slots.workspace, inverses, device)};
  MapCall apply;
  apply.rank = 2, apply.sizes = {e.outer, e.length};
  const MapOperand column{MapElement::f32, 0, {1, 0}};
  apply.inputs = {{call.from, 0, {e.length, 1}}, column, column};
  apply.output = {call.to, 0, {e.length, 1}};
  apply.program = {{MapOp::sub, 3, 0, 1, 0, 0, 0}, {MapOp::mul, 4, 3, 2, 0, 0, 0}};
  const DeviceSlots own{{slots.reads[0], means, inverses}, slots.write, slots.workspace};
  for (faltung::Step& step : map_steps(apply, own, device)) steps.push_back(std::move(step));
  return steps;
}

}  // namespace

std::size_t rows_workspace(const RowsCall& call, const DeviceInfo& device) {
  const i64 parts = parts_of(call, device);
  return parts == 1 ? 0 : space_of(call, parts).bytes;
}

std::vector<faltung::Step> rows_steps(const RowsCall& call, const DeviceSlots& slots,
                                      const DeviceInfo& device) {
  const bool mean = call.op == RowsOp::mean || call.op == RowsOp::standardize;
  const float scale = mean ? 1.0f / static_cast<float>(call.extent.length) : 1.0f;
  const i64 parts = parts_of(call, device);
  if (parts == 1) return {rows_step(call, op_name(call.op), scale, slots.reads[0], slots.write, device)};
  if (call.op == RowsOp::standardize) return standardize_in_parts(call, parts, slots, device);
  // Each part is a shorter column of its own; what they come to is reduced likewise.
  RowsCall first = call, second = call;
  first.extent.outer *= parts, first.extent.length /= parts, first.to = MapElement::f32;
  second.extent.length = parts, second.from = MapElement::f32;
  const bool joins_itself = call.op == RowsOp::max || call.op == RowsOp::min || call.op == RowsOp::product;
  if (!joins_itself) second.op = RowsOp::sum;
  return {rows_step(first, op_name(first.op), 1.0f, slots.reads[0], slots.workspace, device),
          rows_step(second, op_name(second.op), scale, slots.workspace, slots.write, device)};
}

}  // namespace faltung::network
