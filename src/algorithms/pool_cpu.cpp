#include "src/algorithms/pool_cpu.hpp"

#include "kernels/cpu/pool.hpp"

namespace faltung {

Recipe with_pool_step_cpu(const Problem& p, Recipe recipe) {
  const std::size_t offset = aligned(recipe.workspace_bytes);
  for (Step& step : recipe.steps) {
    step.run = [inner = std::move(step.run), offset](const Invocation& invocation) {
      Invocation redirected = invocation;
      redirected.tensors.y = invocation.workspace + offset;
      inner(redirected);
    };
  }
  recipe.workspace_bytes = offset + aligned(static_cast<std::size_t>(bytes_of(p, conv_shape(p))));
  recipe.steps.push_back({"pool", [p, offset](const Invocation& invocation) {
                            const ConvRows conv{invocation.workspace + offset, 0, 0, p.p()};
                            invocation.stream.parallel->each(pool_rows(p), [&](std::int64_t row, int) {
                              pool_row(p, conv, invocation.tensors.y, row);
                            });
                          }});
  return recipe;
}

}  // namespace faltung
