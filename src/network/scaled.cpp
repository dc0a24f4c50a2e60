#include "src/network/scaled.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// w: output channels of input channels each.
void scale_filter(const float* w, const float* by, i64 outputs, i64 inputs, float* to) {
  for (i64 k = 0; k < outputs; ++k)
    for (i64 c = 0; c < inputs; ++c) to[k * inputs + c] = w[k * inputs + c] * by[c];
}

}  // namespace

void run_scaled(const ScaledWork& work, const std::byte* const* reads, std::byte* write, std::byte* workspace,
                const Parallel& parallel) {
  const Problem& p = work.problem;
  const auto run = [&](i64 index, int worker) {
    const auto image = static_cast<std::size_t>(index);
    std::byte* const filter = workspace + static_cast<std::size_t>(worker) * work.worker_bytes;
    scale_filter(reinterpret_cast<const float*>(work.image.w.get()),
                 reinterpret_cast<const float*>(reads[1]) + index * p.c, p.k, p.c,
                 reinterpret_cast<float*>(filter));
    RunOptions options;
    options.workspace = filter + work.filter_bytes;
    const std::byte* const residual = p.epilogue.residual ? reads[2] + image * work.y_bytes : nullptr;
    Tensors tensors =
        work.image.tensors(reads[0] + image * work.x_bytes, residual, write + image * work.y_bytes);
    tensors.w = filter;
    work.image.plan->run(tensors, options);
  };
  if (work.is_workers_own) {
    parallel.each(p.n, run);
  } else {
    for (i64 index = 0; index < p.n; ++index) run(index, 0);
  }
}

}  // namespace faltung::network
