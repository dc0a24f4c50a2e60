#include "src/network/step.hpp"

#include <algorithm>

#include "kernels/cpu/pool.hpp"

namespace faltung::network {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

const float* floats(const std::byte* data) { return reinterpret_cast<const float*>(data); }
float* floats(std::byte* data) { return reinterpret_cast<float*>(data); }

// Tasks in order, as many at a time as make good on handing them out.
template <class Task>
void each_task(const Parallel& parallel, std::int64_t count, const Task& task) {
  const std::int64_t grain = std::max<std::int64_t>(1, count / (16 * parallel.workers()));
  parallel.each(
      count, [&](std::int64_t i, int) { task(i); }, grain);
}

}  // namespace

const char* kind(const Work& work) {
  return std::visit(
      Overloaded{[](const ConvolutionWork& w) { return w.plan->kernel().c_str(); },
                 [](const StripsWork&) { return "strips"; },
                 [](const ScaledWork& w) { return w.image.plan->kernel().c_str(); },
                 [](const PoolWork&) { return "pool"; },
                 [](const MapCall& c) { return c.program.empty() ? "copy" : "map"; },
                 [](const RowsCall& c) { return reduces(c.op) ? "reduce" : "normalize"; },
                 [](const TapsCall&) { return "interpolate"; }, [](const PickCall&) { return "pick"; },
                 [](const BestCall&) { return "best"; }, [](const ProductCall&) { return "product"; },
                 [](const GateCall&) { return "gate"; }, [](const LayerCall&) { return "layer"; },
                 [](const AttentionCall&) { return "attention"; },
                 [](const MomentsCall&) { return "moments"; },
                 [](const NormalizeCall&) { return "normalize"; }},
      work);
}

void run_work(const Work& work, const std::byte* const* reads, std::byte* write, std::byte* averages,
              std::byte* workspace, const Parallel& parallel) {
  const auto each = [&](std::int64_t count, const auto& task) { each_task(parallel, count, task); };
  std::visit(
      Overloaded{
          [&](const ConvolutionWork& w) { run_convolution(w, reads, write, workspace); },
          [&](const StripsWork& w) {
            run_strips(w, reads[0], write, reinterpret_cast<float*>(averages), workspace, parallel);
          },
          [&](const ScaledWork& w) { run_scaled(w, reads, write, workspace, parallel); },
          [&](const PoolWork& w) {
            const ConvRows rows{reads[0], 0, 0, w.problem.p()};
            each(pool_rows(w.problem),
                 [&](std::int64_t row) { pool_row(w.problem, rows, write, row, w.pitches); });
          },
          [&](const MapCall& c) {
            each(map_tasks(c), [&](std::int64_t t) { map_task(c, reads, write, t); });
          },
          [&](const RowsCall& c) {
            if (c.then != nullptr)
              return each(c.extent.outer, [&](std::int64_t t) { rows_then_task(c, reads, write, t); });
            each(rows_tasks(c), [&](std::int64_t t) { rows_task(c, floats(reads[0]), floats(write), t); });
          },
          [&](const TapsCall& c) {
            each(taps_tasks(c), [&](std::int64_t t) { taps_task(c, floats(reads[0]), floats(write), t); });
          },
          [&](const PickCall& c) {
            each(pick_tasks(c), [&](std::int64_t t) { pick_task(c, reads[0], write, t); });
          },
          [&](const BestCall& c) {
            auto* const to = reinterpret_cast<std::int64_t*>(write);
            each(best_tasks(c), [&](std::int64_t t) { best_task(c, floats(reads[0]), to, t); });
          },
          [&](const ProductCall& c) {
            each(product_tasks(c), [&](std::int64_t t) {
              product_task(c, floats(reads[0]), floats(reads[1]), floats(write), t);
            });
          },
          [](const GateCall&) { throw Error(Status::internal, "a gate's step is a GPU's"); },
          [](const LayerCall&) { throw Error(Status::internal, "a layer of few rows is a GPU's step"); },
          [](const AttentionCall&) { throw Error(Status::internal, "attention's step is a GPU's"); },
          [](const MomentsCall&) { throw Error(Status::internal, "moments are a GPU's step"); },
          [](const NormalizeCall&) { throw Error(Status::internal, "a normalize call is a GPU's step"); }},
      work);
}

}  // namespace faltung::network
