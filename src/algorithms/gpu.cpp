#include "src/algorithms/gpu.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include <fmt/core.h>

#include "src/problem/dtype.hpp"

namespace faltung::gpu {
namespace {

using i64 = std::int64_t;

std::string number(i64 value) { return std::to_string(value); }

std::string text(const Constants& constants) {
  std::string out;
  for (const auto& [name, value] : constants) out += "#define " + name + " " + value + "\n";
  return out;
}

std::string listed(const Constants& constants) {
  std::string out;
  for (const auto& [name, value] : constants) out += (out.empty() ? "" : " ") + name + "=" + value;
  return out;
}

i64 largest_tensor(const Problem& p) {
  return std::max({x_shape(p).elements(), w_shape(p).elements(), conv_shape(p).elements()});
}

}  // namespace

Sizes sizes(const Problem& p) {
  const auto i = [](i64 value) { return static_cast<std::int32_t>(value); };
  const Pool& pool = p.epilogue.pool;
  return {i(p.n),
          i(p.c),
          i(p.h),
          i(p.w),
          i(p.k),
          i(p.p()),
          i(p.q()),
          i(p.groups),
          i(p.c / p.groups),
          i(p.k / p.groups),
          i(p.pad_top),
          i(p.pad_left),
          i(p.y_h()),
          i(p.y_w()),
          i(pool.pad_top),
          i(pool.pad_left)};
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

Constants constants(const Problem& p, const Constants& own) {
  const Epilogue& e = p.epilogue;
  Constants out = {{std::string("DTYPE_") + name(p.dtype), "1"},
                   {std::string("LAYOUT_") + name(p.layout), "1"},
                   {"WIDE", largest_tensor(p) > std::numeric_limits<std::int32_t>::max() / 2 ? "1" : "0"},
                   {"R", number(p.r)},
                   {"S", number(p.s)},
                   {"STRIDE_H", number(p.stride_h)},
                   {"STRIDE_W", number(p.stride_w)},
                   {"DILATION_H", number(p.dilation_h)},
                   {"DILATION_W", number(p.dilation_w)},
                   {"HAS_BIAS", e.bias ? "1" : "0"},
                   {"HAS_RESIDUAL", e.residual ? "1" : "0"},
                   {"ACTIVATION", std::string("activate_") + name(e.activation)},
                   {"SLOPE", fmt::format("{:a}f", e.slope)},
                   {std::string("POOL_") + name(e.pool.kind), "1"}};
  if (e.pool.kind != PoolKind::none) {
    out.insert(out.end(), {{"POOL_H", number(e.pool.size_h)},
                           {"POOL_W", number(e.pool.size_w)},
                           {"POOL_STRIDE_H", number(e.pool.stride_h)},
                           {"POOL_STRIDE_W", number(e.pool.stride_w)}});
  }
  out.insert(out.end(), own.begin(), own.end());
  return out;
}

jit::Built build(Device& device, const std::string& kernel, const std::string& file, const std::string& entry,
                 const Constants& constants, int shared_bytes) {
  const bool opencl = device.info().has("opencl");
  KernelSource source;
  source.name = kernel + " (" + entry + ": " + listed(constants) + ")";
  source.text = text(constants) +
                jit::translation_unit("", opencl ? "kernels/gpu/opencl.h" : "kernels/gpu/cuda.h") +
                jit::translation_unit("", "kernels/gpu/" + file);
  source.entry = entry;
  for (const auto& [constant, value] : constants) {
    if (constant == "THREADS") source.block_threads = std::atoi(value.c_str());
  }
  source.shared_bytes = shared_bytes;
  return jit::build(device, source);
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

double arithmetic_ms(const Problem& problem, const Device& device, double share) {
  // A compute unit of a GPU: 128 lanes at 1.5 GHz. Of a CPU: 16 lanes, two at a time, at 2 GHz.
  const double unit_gflops = device.info().has("runs_on_cpu") ? 128 : 384;
  constexpr double kLaunchMs = 0.005;
  return kLaunchMs + flops(problem) / (unit_gflops * device.info().units * share) * 1e-6;
}

void add_finish_step(Recipe& recipe, const Problem& p, const std::string& kernel, i64 splits,
                     Device& device) {
  constexpr int kThreads = 64, kEach = 4;
  const bool forward = p.direction == Direction::forward;
  const jit::Built built = build(
      device, kernel, "finish_parts.cl", "finish_parts",
      constants(p, {{std::string("DIRECTION_") + name(p.direction), "1"}, {"THREADS", number(kThreads)}}));
  recipe.compile_ms += built.compile_ms;
  const i64 results = (forward ? conv_shape(p) : x_shape(p)).elements();
  recipe.steps.push_back(
      {"sum of the parts",
       [&device, kernel = built.kernel, z = sizes(p), forward, parts = static_cast<std::int32_t>(splits),
        shape = one_dimension((results + kEach - 1) / kEach, kThreads)](const Invocation& i) {
         const Tensors& t = i.tensors;
         device.launch(*kernel, shape, {i.workspace, forward ? t.y : t.x, t.bias, t.residual, parts, z},
                       i.stream);
       }});
}

Recipe with_pool_step(const Problem& p, Recipe recipe, Device& device) {
  const std::size_t offset = aligned(recipe.workspace_bytes);
  for (Step& step : recipe.steps) {
    step.run = [inner = std::move(step.run), offset](const Invocation& invocation) {
      Invocation redirected = invocation;
      redirected.tensors.y = invocation.workspace + offset;
      inner(redirected);
    };
  }
  recipe.workspace_bytes = offset + aligned(static_cast<std::size_t>(bytes_of(p, conv_shape(p))));
  // Results a thread, and whether a row's loads may be vectors: see the kernel.
  constexpr int kThreads = 256;
  const Pool& pool = p.epilogue.pool;
  const bool nchw = p.layout == Layout::nchw, halves = size_of(p.dtype) == 2;
  const bool wide_rows =
      nchw && pool.stride_w == 2 && p.q() % 8 == 0 &&
      ((pool.size_w == 2 && pool.pad_left == 0) || (pool.size_w == 3 && pool.pad_left <= 1));
  const i64 v = nchw ? 4 : halves && p.k % 8 == 0 ? 8 : p.k % 4 == 0 ? 4 : 1;
  const i64 threads = nchw ? p.n * p.k * p.y_h() * ((p.y_w() + v - 1) / v) : y_shape(p).elements() / v;
  const jit::Built built = build(
      device, "pool", "pool.cl", "pool",
      constants(p, {{"THREADS", number(kThreads)}, {"V", number(v)}, {"F_WIDE_ROWS", number(wide_rows)}}));
  recipe.compile_ms += built.compile_ms;
  recipe.steps.push_back({"pool", [&device, kernel = built.kernel, z = sizes(p), offset,
                                   shape = one_dimension(threads, kThreads)](const Invocation& i) {
                            const void* conv = i.workspace + offset;
                            device.launch(*kernel, shape, {conv, i.tensors.y, z}, i.stream);
                          }});
  return recipe;
}

}  // namespace faltung::gpu
