// Rows that registers hold on a GPU (kernels/gpu/whole_rows.cl): which threads have what of them.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "src/network/device_steps.hpp"
#include "src/problem/integers.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// How a row is held.
struct Held {
  int v;
  bool edges;
  i64 places, least;  // of a row: vectors and single elements; vectors at least
  i64 parts, threads, cluster;

  i64 all_parts() const { return parts * cluster; }
  i64 of_thread() const { return ceil_div(places, all_parts()); }
  // With so few registers a thread that some blocks fit on a unit: one computes while others wait.
  i64 blocks(std::size_t operands) const {
    constexpr i64 kThreads[] = {1024, 768, 512};
    // Where every thread has all that it may have, one register more is wanted.
    const bool is_full = places == all_parts() * of_thread();
    const i64 elements = of_thread() * v, most = operands == 0   ? (is_full ? 39 : 40)
                                                 : operands <= 2 ? 32
                                                                 : 24;
    return kThreads[elements <= most ? 0 : operands <= 2 ? 1 : 2] / threads;
  }
};

// None where registers do not hold it. run: elements that lie together in all that the chain reads; V divides
// them, or they are whole rows.
std::optional<Held> held(i64 rows, i64 length, i64 run, bool halves, const DeviceInfo& device) {
  constexpr i64 kMostElements = 40, kMostVectors = 10;  // of a thread
  constexpr i64 kVectorsOfEdges = 8;                    // what is shorter is read in smaller pieces
  constexpr i64 kThreadsOfUnit = 512;                   // that work, at least
  constexpr i64 kMostBlocks = 16;                       // of a cluster
  const i64 most = device.dialect == "cuda" ? 2 * kDeviceThreads : kDeviceThreads;
  Held h{neighbours(std::gcd(length, run), halves), false, 0, 0, 1, 0, 1};
  const int widest = halves ? 8 : 4;
  if (run == length && h.v < widest && length >= kVectorsOfEdges * widest) h.v = widest, h.edges = true;
  h.places = length / h.v + (h.edges ? 2 * (h.v - 1) : 0);
  h.least = (length - (h.edges ? h.v - 1 : 0)) / h.v;
  // Neighbours as many as read a line together.
  constexpr i64 kOfLine = 8;
  h.parts = std::min(kOfLine, static_cast<i64>(std::bit_ceil(static_cast<std::uint64_t>(h.places))));
  const auto fits = [&] { return h.of_thread() <= kMostVectors && h.of_thread() * h.v <= kMostElements; };
  const auto idle = [&] {
    return h.parts < h.places && rows * h.parts < kThreadsOfUnit * std::max(1, device.units);
  };
  while (h.parts < most && (!fits() || idle())) h.parts *= 2;
  while (device.has("sm_90") && h.cluster < kMostBlocks && !fits()) h.cluster *= 2;
  if (!fits()) return std::nullopt;
  h.threads = std::max<i64>(kDeviceThreads, h.parts);
  return h;
}

// The rows of a call, and what is computed of them.
struct Whole {
  std::string op;
  i64 rows, length;
  float scale, epsilon;
  MapElement from, to;
  bool wide;
};

faltung::Step whole_rows_step(const Whole& w, const Held& h, std::size_t operands, const gpu::Constants& more,
                              std::vector<StepArgument> arguments, const DeviceInfo& device) {
  gpu::Constants own = {{"THREADS", std::to_string(h.threads)},
                        {"BLOCKS", std::to_string(h.blocks(operands))},
                        {"PARTS", std::to_string(h.parts)},
                        {"CLUSTER", std::to_string(h.cluster)},
                        {"K", std::to_string(h.of_thread())},
                        {"SURE", std::to_string(h.least / h.all_parts())},
                        {"EDGES", h.edges ? "1" : "0"},
                        {"FROM_TYPE", name(w.from)},
                        {"TO_TYPE", name(w.to)},
                        {w.op, "1"},
                        {"V", std::to_string(h.v)},
                        {"WIDE", w.wide ? "1" : "0"}};
  own.insert(own.end(), more.begin(), more.end());
  const std::vector<StepArgument> numbers{value(w.rows), value(w.length), value(w.scale), value(w.epsilon)};
  // What operands have to tell comes last.
  const auto sizes = operands > 0 ? arguments.end() - 1 : arguments.end();
  arguments.insert(sizes, numbers.begin(), numbers.end());
  LaunchShape shape =
      gpu::grid(ceil_div(w.rows, h.threads / h.parts) * h.cluster, 1, 1, static_cast<int>(h.threads));
  shape.cluster[0] = static_cast<unsigned>(h.cluster);
  return launch("whole rows", gpu::source(device, "whole_rows", "whole_rows.cl", "whole_rows", own), shape,
                std::move(arguments));
}

// The map's dimensions, as those in which rows are counted and those of a row.
struct RowPlaces {
  std::vector<i64> outer, row;
  std::vector<std::vector<i64>> of_outer, of_row;  // strides, of each input and then of the result
};
RowPlaces places_of(const NormalizeCall& call) {
  const MapCall& map = call.map;
  std::vector<const MapOperand*> operands;
  for (const MapOperand& o : map.inputs) operands.push_back(&o);
  operands.push_back(&map.output);
  RowPlaces p{{}, {}, {}, {}};
  p.of_outer.resize(operands.size()), p.of_row.resize(operands.size());
  i64 left = call.length;
  for (auto d = static_cast<std::size_t>(map.rank); d-- > 0;) {
    const i64 within = std::min(left, map.sizes[d]), beyond = map.sizes[d] / within;
    left /= within;
    if (within > 1) p.row.insert(p.row.begin(), within);
    if (beyond > 1) p.outer.insert(p.outer.begin(), beyond);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const i64 stride = operands[i]->strides[d];
      if (within > 1) p.of_row[i].insert(p.of_row[i].begin(), stride);
      if (beyond > 1) p.of_outer[i].insert(p.of_outer[i].begin(), stride * within);
    }
  }
  const auto fill = [](std::vector<i64>& sizes, std::vector<std::vector<i64>>& strides) {
    if (!sizes.empty()) return;
    sizes.push_back(1);
    for (std::vector<i64>& s : strides) s.push_back(0);
  };
  fill(p.row, p.of_row), fill(p.outer, p.of_outer);
  return p;
}

std::optional<Held> held(const NormalizeCall& call, const RowPlaces& p, const DeviceInfo& device) {
  const bool halves = is_half(call.map.inputs[call.input].element) || is_half(call.map.output.element);
  return held(elements_of(call.map) / call.length, call.length, p.row.back(), halves, device);
}

// How the operand lies along the row.
const char* along_row(const MapOperand& o, const std::vector<i64>& outer, const std::vector<i64>& row,
                      const std::vector<i64>& outer_of_result, const Held& h) {
  if (std::ranges::all_of(row, [](i64 stride) { return stride == 0; })) return "by_row";
  if (row.back() == 0) return "alone";
  const auto divides = [&](i64 stride) { return stride % h.v == 0; };
  // At edges vectors begin where the result's do.
  const bool fits =
      h.edges ? outer == outer_of_result
              : std::ranges::all_of(outer, divides) && std::all_of(row.begin(), row.end() - 1, divides);
  return row.back() == 1 && divides(o.offset) && fits ? "together" : "apart";
}

// Of reductions.
std::optional<Held> held(const RowsCall& call, const DeviceInfo& device) {
  return held(call.extent.outer, call.extent.length, call.extent.length, is_half(call.from), device);
}

// Rows without a chain behind them.
NormalizeCall without_chain(const RowsCall& call) {
  const RowsExtent& e = call.extent;
  NormalizeCall all{call.op, e.length, call.epsilon, {}, 0};
  all.map.rank = 2, all.map.sizes = {e.outer, e.length};
  all.map.inputs = {{call.from, 0, {e.length, 1}}};
  all.map.output = {call.to, 0, {e.length, 1}};
  return all;
}

std::string normalization_name(RowsOp op) {
  return op == RowsOp::softmax       ? "OP_softmax"
         : op == RowsOp::log_softmax ? "OP_log_softmax"
                                     : "OP_standardize";
}

}  // namespace

bool holds(const NormalizeCall& call, const DeviceInfo& device) {
  return held(call, places_of(call), device).has_value();
}

bool holds(const RowsCall& call, const DeviceInfo& device) {
  if (call.extent.inner != 1) return false;
  return reduces(call.op) ? held(call, device).has_value() : holds(without_chain(call), device);
}

std::vector<faltung::Step> normalize_steps(const NormalizeCall& call, const DeviceSlots& slots,
                                           const DeviceInfo& device) {
  const MapCall& map = call.map;
  const RowPlaces p = places_of(call);
  const Held h = held(call, p, device).value();
  std::string operands;
  std::vector<i64> numbers_of_places, begins, outer_strides, row_strides;
  for (const std::vector<i64>* sizes : {&p.outer, &p.row}) {
    for (const i64 size : *sizes) append_divisor(numbers_of_places, size);
  }
  std::vector<StepArgument> arguments{in(slots.reads[call.input])};
  for (std::size_t i = 0; i < map.inputs.size(); ++i) {
    if (i == call.input) continue;
    const MapOperand& o = map.inputs[i];
    operands += fmt::format("X({}, {}, {}, {}) ", begins.size(), i, name(o.element),
                            along_row(o, p.of_outer[i], p.of_row[i], p.of_outer.back(), h));
    arguments.push_back(in(slots.reads[i]));
    begins.push_back(o.offset);
    outer_strides.insert(outer_strides.end(), p.of_outer[i].begin(), p.of_outer[i].end());
    row_strides.insert(row_strides.end(), p.of_row[i].begin(), p.of_row[i].end());
  }
  for (const std::vector<i64>* more : {&begins, &outer_strides, &row_strides})
    numbers_of_places.insert(numbers_of_places.end(), more->begin(), more->end());
  const bool wide = needs_wide_indices(map);
  arguments.push_back(out(slots.write));
  if (!begins.empty()) arguments.push_back(numbers(numbers_of_places, wide));
  gpu::Constants more = {{"NORMALIZED", "v" + std::to_string(call.input)},
                         {"INPUTS", std::to_string(begins.size())},
                         {"OPERANDS(X)", operands},
                         {"OUTER_RANK", std::to_string(p.outer.size())},
                         {"ROW_RANK", std::to_string(p.row.size())}};
  const gpu::Constants chain = chain_constants(map.inputs.size(), map.program, map.output.element);
  more.insert(more.end(), chain.begin(), chain.end());
  const Whole whole{normalization_name(call.op),
                    elements_of(map) / call.length,
                    call.length,
                    1.0f / static_cast<float>(call.length),
                    call.epsilon,
                    map.inputs[call.input].element,
                    map.output.element,
                    wide};
  return {whole_rows_step(whole, h, begins.size(), more, std::move(arguments), device)};
}

faltung::Step whole_rows_step(const RowsCall& call, const char* op, float scale, Slot from, Slot to,
                              const DeviceInfo& device) {
  if (!reduces(call.op)) return normalize_steps(without_chain(call), {{from}, to, to}, device).front();
  const i64 rows = call.extent.outer, length = call.extent.length;
  const Whole whole{op, rows, length, scale, 0, call.from, call.to, is_wide(rows * length)};
  return whole_rows_step(whole, held(call, device).value(), 0, {}, {in(from), out(to)}, device);
}

}  // namespace faltung::network
