// What an algorithm makes of a problem: steps over the caller's tensors, a workspace and packed weights.
#ifndef FALTUNG_SRC_PLAN_RECIPE_HPP_
#define FALTUNG_SRC_PLAN_RECIPE_HPP_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "faltung/faltung.hpp"
#include "src/backend/backend.hpp"
#include "src/jit/jit.hpp"

namespace faltung {

// Workspace and packed weights start on such a boundary; recipes may rely on it.
inline constexpr std::size_t kAlignment = 64;

inline constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// One execution of a plan.
struct Invocation {
  Tensors tensors;
  std::byte* workspace = nullptr;
  std::byte* packed = nullptr;  // written by pack steps, only read by the others
  Stream stream;
};

struct Step {
  std::string name;
  std::function<void(const Invocation&)> run;  // must be callable from many threads at once
};

struct Recipe {
  std::vector<Step> pack;   // read w, write packed: done once where weights are constant
  std::vector<Step> steps;  // done at every run
  std::size_t packed_bytes = 0;
  std::size_t workspace_bytes = 0;  // for all of the plan's workers together
  std::size_t alignment = 1;        // bytes that the addresses of x, w, y and the residual are multiples of
  double compile_ms = 0;
  std::vector<jit::Compiled> kernels;  // a GPU's: what the compiler says of each
};

}  // namespace faltung

#endif  // FALTUNG_SRC_PLAN_RECIPE_HPP_
