#include "src/network/strips.hpp"

#include <cstring>

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// A strip's sums of each channel, times what makes averages of them.
void add_up(const StripsWork& work, const RowsCall& sums, const std::byte* y, float* averages) {
  const Problem& p = work.problem;
  for (i64 task = 0; task < rows_tasks(sums); ++task)
    rows_task(sums, reinterpret_cast<const float*>(y), averages, task);
  const float share = 1.0f / static_cast<float>(p.p() * p.q());
  for (i64 k = 0; k < p.k; ++k) averages[k] *= share;
}

}  // namespace

Tensors ConvolutionWork::tensors(const std::byte* from, const std::byte* residual, std::byte* to) const {
  if (plan->problem().direction == Direction::backward_data) return Tensors::backward_data(from, w.get(), to);
  Tensors all = Tensors::forward(from, w.get(), to, bias.get(), residual);
  all.slopes = slopes.get();
  return all;
}

void run_convolution(const ConvolutionWork& work, const std::byte* const* reads, std::byte* write,
                     std::byte* workspace) {
  const Problem& p = work.plan->problem();
  RunOptions options;
  options.workspace = workspace;
  options.weights = work.packed.get();
  work.plan->run(work.tensors(reads[0], p.epilogue.residual ? reads[1] : nullptr, write), options);
}

void run_strips(const StripsWork& work, const std::byte* x, std::byte* write, float* averages,
                std::byte* workspace, const Parallel& parallel) {
  const std::size_t runs = work.runs.size() - 1;
  parallel.each(work.problem.n * static_cast<i64>(runs), [&](i64 index, int worker) {
    const std::size_t image = static_cast<std::size_t>(index) / runs;
    const std::size_t run = static_cast<std::size_t>(index) % runs;
    std::byte* const between = workspace + static_cast<std::size_t>(worker) * work.worker_bytes();
    std::byte* const scratch = between + work.between_bytes;
    for (std::size_t i = work.runs[run]; i < work.runs[run + 1]; ++i) {
      const StripsWork::Strip& strip = work.strips[i];
      const StripsWork::Kind& kind = work.kinds[strip.kind];
      std::byte* const y = write + image * work.y_bytes + strip.y;
      const std::byte* from = x + image * work.x_bytes + strip.x;
      if (kind.first) {
        std::memmove(between, between + strip.kept_from, kind.kept_bytes);
        run_convolution(*kind.first, &from, between + kind.kept_bytes, scratch);
        from = between;
      }
      run_convolution(kind.second, &from, y, scratch);
      if (averages == nullptr) continue;
      const std::size_t row = image * work.strips.size() + i;
      add_up(work, kind.sums, y, averages + static_cast<i64>(row) * work.problem.k);
    }
  });
}

}  // namespace faltung::network
