#include "src/algorithms/training.hpp"

#include <algorithm>

#include "kernels/cpu/training.hpp"
#include "src/algorithms/cpu_rates.hpp"
#include "src/algorithms/gpu.hpp"
#include "src/algorithms/pass_time.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr int kTrainingThreads = 256;

// A tensor as the pixels of one row, as the output of a 1x1 filter: any number of dimensions is alike here.
Problem as_rows_of_pixels(const Problem& p, const TensorShape& shape) {
  Problem rows;
  rows.dtype = p.dtype, rows.layout = p.layout, rows.math = default_math(p.dtype);
  rows.n = shape.n, rows.k = shape.c, rows.w = shape.d * shape.h * shape.w;
  return rows;
}

Step relu_on_cpu(const Problem& p) {
  return call("through the ReLU", {Place::relu, Place::x}, {Place::x},
              [p](const Memory& m, const Parallel& parallel) {
                constexpr i64 kChunk = 1 << 14;
                const i64 elements = x_shape(p).elements();
                parallel.each(ceil_div(elements, kChunk), [&](i64 chunk, int) {
                  const i64 first = chunk * kChunk;
                  through_relu(p.dtype, m[Place::x], m[Place::relu], first,
                               std::min(kChunk, elements - first));
                });
              });
}

Step sums_on_cpu(const Problem& p) {
  return call("sums of channels", {Place::y}, {Place::sums}, [p](const Memory& m, const Parallel& parallel) {
    const i64 at_once = channels_at_once(p);
    parallel.each(ceil_div(p.k, at_once), [&](i64 block, int) {
      const i64 first = block * at_once;
      channel_sums(p, m[Place::y], reinterpret_cast<float*>(m[Place::sums]), first,
                   std::min(at_once, p.k - first));
    });
  });
}

Step relu_on_gpu(const Problem& p, const DeviceInfo& device) {
  const TensorShape x = x_shape(p);
  const Problem rows = as_rows_of_pixels(p, x);
  return launch("through the ReLU",
                gpu::source(device, "through_relu", "through_relu.cl", "through_relu",
                            gpu::constants(rows, {{"THREADS", std::to_string(kTrainingThreads)}})),
                gpu::one_dimension(x.elements(), kTrainingThreads),
                {in(Place::relu), in_out(Place::x), value(gpu::sizes(rows))});
}

// How a GPU takes sums: blocks of channels, each by so many blocks of threads, whose parts are then added up.
struct SumDivision {
  i64 lanes = 1;   // channels side by side that a block of threads has
  i64 blocks = 1;  // of channels
  i64 parts = 1;
  std::size_t bytes = 0;  // of parts
};

SumDivision divide_sums(const Problem& p, const DeviceInfo& device) {
  constexpr i64 kFewest = 8, kBlocksOfUnit = 4;  // terms of a thread; blocks that hide each other's waiting
  const TensorShape y = summed_shape(p);
  SumDivision d;
  d.lanes = p.layout == Layout::nhwc ? 32 : 1;
  d.blocks = ceil_div(p.k, d.lanes);
  const i64 terms = y.n * y.d * y.h * y.w, most = ceil_div(terms * d.lanes, kFewest * kTrainingThreads);
  d.parts = std::clamp<i64>(kBlocksOfUnit * std::max(1, device.units) / d.blocks, 1, std::max<i64>(1, most));
  if (d.parts > 1) d.bytes = static_cast<std::size_t>(d.parts * sums_of_channel(p) * p.k) * sizeof(float);
  return d;
}

void add_sums_on_gpu(const Problem& p, std::size_t parts_at, const DeviceInfo& device,
                     std::vector<Step>& steps) {
  const Problem rows = as_rows_of_pixels(p, summed_shape(p));
  const SumDivision d = divide_sums(p, device);
  const auto source = [&](const char* entry) {
    return gpu::source(device, "channel_sums", "channel_sums.cl", entry,
                       gpu::constants(rows, {{"THREADS", std::to_string(kTrainingThreads)},
                                             {"LANES", std::to_string(d.lanes)},
                                             {"SUMS", std::to_string(sums_of_channel(p))}}));
  };
  const Slot parts = d.parts > 1 ? Slot{Place::workspace, parts_at} : Slot{Place::sums};
  LaunchShape shape;
  shape.grid[0] = static_cast<unsigned>(d.blocks * d.parts), shape.block[0] = kTrainingThreads;
  steps.push_back(launch("sums of channels", source("channel_sums"), shape,
                         {in(Place::y), out(parts), gpu::number(d.parts), value(gpu::sizes(rows))}));
  if (d.parts == 1) return;
  constexpr i64 kColumns = 32;  // of a block, as the kernel has them
  shape.grid[0] = static_cast<unsigned>(ceil_div(sums_of_channel(p) * p.k, kColumns));
  steps.push_back(launch("sums of channels' parts", source("sums_of_parts"), shape,
                         {in(parts), out(Place::sums), gpu::number(d.parts), value(gpu::sizes(rows))}));
}

// to: where what comes of x lies.
Step affine_on_cpu(const Problem& p, Slot to) {
  return call("scale and shift", {Place::x, Place::scale, Place::shift}, {to.place},
              [p, to](const Memory& m, const Parallel& parallel) {
                constexpr i64 kChunk = 1 << 14;
                const i64 elements = x_shape(p).elements();
                const InputAffine affine = input_affine(p, m);
                parallel.each(ceil_div(elements, kChunk), [&](i64 chunk, int) {
                  const i64 first = chunk * kChunk;
                  through_affine(p, m[Place::x], affine, m.at(to), first, std::min(kChunk, elements - first));
                });
              });
}

Step affine_on_gpu(const Problem& p, Slot to, const DeviceInfo& device) {
  const TensorShape x = x_shape(p);
  Problem rows = as_rows_of_pixels(p, x);
  rows.y_pitch = p.x_pitch;
  // Elements a thread, all of a channel or all of a pixel.
  const auto whole = [&](i64 by) {
    return p.layout == Layout::nchw ? rows.w % by == 0 : p.c % by == 0 && x_pitch(p) % by == 0;
  };
  const i64 v = size_of(p.dtype) == 2 && whole(8) ? 8 : whole(4) ? 4 : 1;
  return launch(
      "scale and shift",
      gpu::source(device, "affine", "affine.cl", "affine",
                  gpu::constants(rows, {{"THREADS", std::to_string(kTrainingThreads)},
                                        {"V", std::to_string(v)},
                                        {"HAS_RELU", p.affine == Affine::affine_relu ? "1" : "0"}})),
      gpu::one_dimension(x.elements() / v, kTrainingThreads),
      {in(Place::x), in(Place::scale), in(Place::shift), out(to), value(gpu::sizes(rows))});
}

// Of so many bytes of x. Who reads what comes of them next finds it in the caches, where these have room.
double affine_pass_ms(double bytes, const Target& target) {
  if (target.device.kind != "cpu") return pass_ms(2 * bytes, target);
  constexpr double kBeyond = 32 << 20, kPasses = 2.7;  // bytes; times that each is moved, as measured
  const double byte_ns = bytes <= kBeyond ? far_byte_ns() : kMemoryBesideOthers * memory_byte_ns();
  return kPasses * bytes * byte_ns * 1e-6 / target.threads;
}

}  // namespace

Candidate with_affine_step(Candidate c, const Problem& p, const Target& target) {
  const Slot x{Place::workspace, aligned(c.workspace_bytes)};
  const auto x_bytes = static_cast<std::size_t>(bytes_of(p, x_shape(without_affine(p))));
  c.workspace_bytes = x.offset + aligned(x_bytes);
  c.cost.ms += affine_pass_ms(static_cast<double>(x_bytes), target);
  c.recipe = [inner = std::move(c.recipe), p, x, bytes = c.workspace_bytes, &device = target.device] {
    Recipe recipe = inner();
    for (Step& step : recipe.steps) step.rewire(Place::x, x);
    recipe.steps.insert(recipe.steps.begin(),
                        device.kind == "cpu" ? affine_on_cpu(p, x) : affine_on_gpu(p, x, device));
    recipe.workspace_bytes = bytes;
    return recipe;
  };
  return c;
}

Candidate with_training_step(Candidate c, const Problem& p, const Target& target) {
  const bool sums = sums_of_channel(p) > 0, on_cpu = target.device.kind == "cpu";
  const std::size_t parts_at = aligned(c.workspace_bytes);
  const std::size_t parts = sums && !on_cpu ? divide_sums(p, target.device).bytes : 0;
  if (parts > 0) c.workspace_bytes = parts_at + parts;
  const double elements = static_cast<double>((sums ? summed_shape(p) : x_shape(p)).elements());
  c.cost.ms += pass_ms(elements * size_of(p.dtype) * (sums ? 1 : 2), target);
  c.recipe = [inner = std::move(c.recipe), p, sums, on_cpu, parts_at,
              bytes = parts > 0 ? c.workspace_bytes : 0, &device = target.device] {
    Recipe recipe = inner();
    if (!sums) {
      recipe.steps.push_back(on_cpu ? relu_on_cpu(p) : relu_on_gpu(p, device));
    } else if (on_cpu) {
      recipe.steps.push_back(sums_on_cpu(p));
    } else {
      add_sums_on_gpu(p, parts_at, device, recipe.steps);
    }
    if (bytes > 0) recipe.workspace_bytes = bytes;
    return recipe;
  };
  return c;
}

}  // namespace faltung
