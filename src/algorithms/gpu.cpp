#include "src/algorithms/gpu.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include <fmt/core.h>

#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::gpu {
namespace {

using i64 = std::int64_t;

std::string digits(i64 value) { return std::to_string(value); }

std::string text(const Constants& constants) {
  std::string out;
  for (const auto& [name, value] : constants) out += "#define " + name + " " + value + "\n";
  return out;
}

std::string include(const std::string& file) { return "#include \"kernels/gpu/" + file + "\"\n"; }

std::string listed(const Constants& constants) {
  std::string out;
  for (const auto& [name, value] : constants) out += (out.empty() ? "" : " ") + name + "=" + value;
  return out;
}

i64 largest_tensor(const Problem& p) {
  return std::max({x_shape(p).extent(), w_shape(p).extent(), conv_shape(p).extent()});
}

}  // namespace

Sizes sizes(const Problem& p) {
  return {
#define FALTUNG_SIZE(name, value) static_cast<std::int32_t>(value),
#include "kernels/common/sizes.inc"
#undef FALTUNG_SIZE
  };
}

Support fits(const Problem& p) {
  // Half of the range, so that a position plus a padding or a tap fits as well.
  constexpr i64 kMost = std::numeric_limits<std::int32_t>::max() / 2;
  const i64 extent_h = p.h + p.pad_top + p.pad_bottom, extent_w = p.w + p.pad_left + p.pad_right;
  for (const i64 size :
       {p.n, p.c, p.k, p.r * p.s * (p.c / p.groups), extent_h, extent_w, p.stride_h, p.stride_w}) {
    if (size > kMost) return Support::declined(fmt::format("a size of {} is beyond {}", size, kMost));
  }
  return Support::supported();
}

Support fits_a_product(const Problem& p) {
  if (is_depthwise(p))
    return Support::declined("a depthwise group is a product with one row: nothing is shared");
  return fits(p);
}

Support no_tile_fits(const DeviceInfo& device) {
  return Support::declined(
      fmt::format("a block has {} threads and {} bytes of local memory, too few for any tile",
                  device.block_threads, device.local_bytes));
}

Place gathered_place(const Problem& p) { return p.direction == Direction::forward ? Place::x : Place::y; }

Problem without_epilogue(Problem p) {
  p.epilogue = Epilogue{};
  return p;
}

std::pair<std::string, std::string> direction_constant(const Problem& p) {
  return {std::string("DIRECTION_") + name(p.direction), "1"};
}

Constants constants(const Problem& p, const Constants& own) {
  const Epilogue& e = p.epilogue;
  const ActivationCall activation = activation_of(e);
  Constants out = {{std::string("DTYPE_") + name(p.dtype), "1"},
                   {std::string("LAYOUT_") + name(p.layout), "1"},
                   {"WIDE", largest_tensor(p) > std::numeric_limits<std::int32_t>::max() / 2 ? "1" : "0"},
                   {"R", digits(p.r)},
                   {"S", digits(p.s)},
                   {"STRIDE_H", digits(p.stride_h)},
                   {"STRIDE_W", digits(p.stride_w)},
                   {"DILATION_H", digits(p.dilation_h)},
                   {"DILATION_W", digits(p.dilation_w)},
                   {"HAS_BIAS", e.bias ? "1" : "0"},
                   {"HAS_RESIDUAL", e.residual ? "1" : "0"},
                   {"RESIDUAL_AFTER", e.residual_order == ResidualOrder::after_activation ? "1" : "0"},
                   {"ACTIVATION", std::string("activate_") + name(e.activation)},
                   {"NUMBERS(k)", has_slopes(p) ? "slopes[k], 0.0f"
                                                : fmt::format("{:a}f, {:a}f", activation.a, activation.b)},
                   {std::string("POOL_") + name(e.pool.kind), "1"}};
  if (e.pool.kind != PoolKind::none) {
    out.insert(out.end(), {{"POOL_H", digits(e.pool.size_h)},
                           {"POOL_W", digits(e.pool.size_w)},
                           {"POOL_STRIDE_H", digits(e.pool.stride_h)},
                           {"POOL_STRIDE_W", digits(e.pool.stride_w)}});
  }
  if (e.bias_element == BiasElement::f32) out.push_back({"F32_BIAS", "1"});
  out.insert(out.end(), own.begin(), own.end());
  return out;
}

jit::Source source(const DeviceInfo& device, const std::string& kernel, const std::string& file,
                   const std::string& entry, const Constants& constants, int shared_bytes) {
  jit::Source source;
  source.name = kernel + " (" + entry + ": " + listed(constants) + ")";
  source.text = text(constants) + include(device.dialect + ".h") + include(file);
  source.entry = entry;
  for (const auto& [constant, value] : constants) {
    if (constant == "THREADS") source.block_threads = std::atoi(value.c_str());
  }
  source.shared_bytes = shared_bytes;
  return source;
}

double pace(double waves) {
  constexpr double kUsual = 4, kHidden = 0.75;  // so many waves hide half of what there is to wait for
  return std::min(1.0, waves / (waves + kHidden) * (kUsual + kHidden) / kUsual);
}

LaunchShape one_dimension(i64 count, int threads) {
  constexpr i64 kMostBlocks = 1 << 20;
  LaunchShape shape;
  shape.grid[0] = static_cast<unsigned>(std::clamp<i64>((count + threads - 1) / threads, 1, kMostBlocks));
  shape.block[0] = static_cast<unsigned>(threads);
  return shape;
}

LaunchShape grid(i64 x, i64 y, i64 z, int threads) {
  LaunchShape shape;
  shape.grid[0] = static_cast<unsigned>(x);
  shape.grid[1] = static_cast<unsigned>(y);
  shape.grid[2] = static_cast<unsigned>(z);
  shape.block[0] = static_cast<unsigned>(threads);
  return shape;
}

std::vector<StepArgument> tensors(const Problem& p) {
  const auto tensor = [&](Place place) { return place == result_place(p) ? out(place) : in(place); };
  std::vector<StepArgument> all = {tensor(Place::x), tensor(Place::w), tensor(Place::y)};
  if (p.direction == Direction::forward)
    all.insert(all.end(), {in(Place::bias), in(Place::residual), in(Place::slopes)});
  return all;
}

StepArgument number(i64 number) { return value(static_cast<std::int32_t>(number)); }

double arithmetic_ms(const Problem& problem, const DeviceInfo& device, double share) {
  // A compute unit of a GPU: 128 lanes at 1.5 GHz. Of a CPU: 16 lanes, two at a time, at 2 GHz.
  const double unit_gflops = device.has("runs_on_cpu") ? 128 : 384;
  constexpr double kLaunchMs = 0.005;
  return kLaunchMs + flops(problem) / (unit_gflops * device.units * share) * 1e-6;
}

std::size_t parts_bytes(const Problem& p, i64 splits) {
  const i64 results =
      p.direction == Direction::forward ? conv_shape(p).elements() : result_shape(p).elements();
  return sizeof(float) * static_cast<std::size_t>(splits * results);
}

std::size_t shared_sum_bytes(const Problem& p, i64 splits) { return splits > 1 ? parts_bytes(p, splits) : 0; }

Slot shared_sum(const Problem& p, i64 splits) { return splits > 1 ? Place::workspace : result_place(p); }

Step finish_step(const Problem& p, const std::string& kernel, i64 splits, const DeviceInfo& device) {
  constexpr int kThreads = 64, kEach = 4;
  const i64 results = (p.direction == Direction::forward ? conv_shape(p) : x_shape(p)).elements();
  return launch("sum of the parts",
                source(device, kernel, "finish_parts.cl", "finish_parts",
                       constants(p, {direction_constant(p), {"THREADS", digits(kThreads)}})),
                one_dimension((results + kEach - 1) / kEach, kThreads),
                {in(Place::workspace), out(result_place(p)), in(Place::bias), in(Place::residual),
                 in(Place::slopes), number(splits), value(sizes(p))});
}

Step sum_parts_step(const Problem& p, const std::string& kernel, Slot parts, i64 count,
                    const DeviceInfo& device, const Constants& own) {
  constexpr int kThreads = 64;
  Constants all = {{"THREADS", digits(kThreads)}};
  all.insert(all.end(), own.begin(), own.end());
  return launch("sum of the parts",
                source(device, kernel, "sum_parts.cl", "sum_parts", constants(without_epilogue(p), all)),
                one_dimension(w_shape(p).elements(), kThreads),
                {in(parts), out(Place::w), number(count), value(sizes(p))});
}

Step sum_many_parts_step(const Problem& p, const std::string& kernel, i64 count, const DeviceInfo& device) {
  // A thread adds up eight at a time, each of which takes as long as one. Where blocks are few they may be
  // large.
  constexpr int kElements = 32, kMany = 64;
  const i64 blocks = ceil_div(w_shape(p).elements(), i64{kElements});
  const bool is_large =
      device.dialect == "cuda" && count > kMany && blocks <= 2 * i64{std::max(1, device.units)};
  const int threads = is_large ? 1024 : 256;
  LaunchShape shape = grid(blocks, 1, 1, threads);
  shape.overlaps_previous = device.has("sm_90");
  return launch("sum of the parts",
                source(device, kernel, "sum_many_parts.cl", "sum_many_parts",
                       constants(p, {{"THREADS", digits(threads)}})),
                shape, {in(Place::workspace), out(Place::w), number(count), value(sizes(p))});
}

}  // namespace faltung::gpu
