#include "src/algorithms/pool.hpp"

#include "kernels/cpu/pool.hpp"
#include "src/algorithms/gpu.hpp"
#include "src/algorithms/pass_time.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {
namespace {

// conv: where the convolution's result lies.
Step pool_on_cpu(const Problem& p, Slot conv) {
  return call("pool", {conv.place}, {Place::y}, [p, conv](const Memory& m, const Parallel& parallel) {
    const ConvRows rows{m.at(conv), 0, 0, p.p()};
    parallel.each(pool_rows(p),
                  [&](std::int64_t row, int) { pool_row(p, rows, m[Place::y], row, pool_pitches(p)); });
  });
}

}  // namespace

Step pool_step(const Problem& p, Slot conv, Slot y, PoolPitches pitches, const DeviceInfo& device) {
  constexpr int kThreads = 256;
  // Results a thread, and whether a row's loads may be vectors: see the kernel.
  const Pool& pool = p.epilogue.pool;
  const bool nchw = p.layout == Layout::nchw, halves = size_of(p.dtype) == 2;
  const bool has_wide_rows =
      nchw && pool.stride_w == 2 && p.q() % 8 == 0 &&
      ((pool.size_w == 2 && pool.pad_left == 0) || (pool.size_w == 3 && pool.pad_left <= 1));
  const std::int64_t wide_rows = has_wide_rows ? 1 + pool.pad_left : 0;
  const auto whole = [&](std::int64_t by) {
    return p.k % by == 0 && pitches.from % by == 0 && pitches.to % by == 0;
  };
  const std::int64_t v = nchw ? 4 : halves && whole(8) ? 8 : whole(4) ? 4 : 1;
  const std::int64_t threads =
      nchw ? p.n * p.k * p.y_h() * ((p.y_w() + v - 1) / v) : y_shape(p).elements() / v;
  const gpu::Constants constants = gpu::constants(p, {{"THREADS", std::to_string(kThreads)},
                                                      {"V", std::to_string(v)},
                                                      {"F_WIDE_ROWS", std::to_string(wide_rows)}});
  LaunchShape shape = gpu::one_dimension(threads, kThreads);
  shape.overlaps_previous = device.has("sm_90");
  return launch("pool", gpu::source(device, "pool", "pool.cl", "pool", constants), shape,
                {in(conv), out(y), gpu::number(pitches.from), gpu::number(pitches.to), value(gpu::sizes(p))});
}

Candidate with_pool_step(Candidate c, const Problem& problem, const Target& target) {
  const Slot conv{Place::workspace, aligned(c.workspace_bytes)};
  const std::size_t bytes =
      conv.offset + aligned(static_cast<std::size_t>(bytes_of(problem, conv_shape(problem))));
  c.workspace_bytes = bytes;
  c.cost.ms += pass_ms(
      static_cast<double>(bytes_of(problem, conv_shape(problem)) + bytes_of(problem, y_shape(problem))),
      target);
  c.recipe = [inner = std::move(c.recipe), problem, conv, bytes, &device = target.device] {
    Recipe recipe = inner();
    for (Step& step : recipe.steps) step.rewire(Place::y, conv);
    recipe.steps.push_back(device.kind == "cpu"
                               ? pool_on_cpu(problem, conv)
                               : pool_step(problem, conv, Place::y, pool_pitches(problem), device));
    recipe.workspace_bytes = bytes;
    return recipe;
  };
  return c;
}

}  // namespace faltung
