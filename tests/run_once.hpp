// A plan on the CPU, run once.
#ifndef FALTUNG_TESTS_RUN_ONCE_HPP_
#define FALTUNG_TESTS_RUN_ONCE_HPP_

#include <cstddef>
#include <vector>

#include "src/plan/plan.hpp"
#include "src/problem/problem.hpp"

namespace faltung {

// Forward or backward_weights of these tensors, into a result of NaNs, which it returns.
inline std::vector<std::byte> run_once(const PlanImpl& plan, Tensors tensors) {
  const Problem& p = plan.problem();
  std::vector<std::byte> result(static_cast<std::size_t>(bytes_of(p, result_shape(p))), std::byte{0xff});
  void*& written = p.direction == Direction::forward ? tensors.y : tensors.w;
  written = result.data();
  std::vector<std::byte> workspace(plan.workspace_bytes(false), std::byte{0xff});
  RunOptions options;
  options.workspace = workspace.data();
  plan.run(tensors, options);
  return result;
}

}  // namespace faltung

#endif  // FALTUNG_TESTS_RUN_ONCE_HPP_
