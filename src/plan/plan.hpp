// A recipe bound to a device: what faltung::Plan holds.
#ifndef FALTUNG_SRC_PLAN_PLAN_HPP_
#define FALTUNG_SRC_PLAN_PLAN_HPP_

#include <memory>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/plan/bound_launch.hpp"
#include "src/plan/recipe.hpp"
#include "src/problem/float_mode.hpp"
#include "src/problem/problem.hpp"

namespace faltung {

class PackedWeights {
 public:
  PackedWeights(std::shared_ptr<const PlanImpl> plan, Buffer buffer)
      : plan_(std::move(plan)), buffer_(std::move(buffer)) {}
  const PlanImpl& plan() const { return *plan_; }
  const Buffer& buffer() const { return buffer_; }

 private:
  std::shared_ptr<const PlanImpl> plan_;  // that packed them
  Buffer buffer_;
};

class PlanImpl : public std::enable_shared_from_this<PlanImpl> {
 public:
  // Builds the recipe's kernels in the session. parallel: the workers the recipe was made for; on a GPU it is
  // null. denormals: what the CPU's steps do with them; packing keeps them, for its weights serve every plan.
  PlanImpl(Problem problem, std::string kernel, Recipe recipe, std::shared_ptr<Device> device,
           const jit::Session& session, std::shared_ptr<const Parallel> parallel,
           Denormals denormals = Denormals::keep);

  const Problem& problem() const { return problem_; }
  const std::string& kernel() const { return kernel_; }
  const Recipe& recipe() const { return recipe_; }
  // Who reads packed weights as this plan does, beside what Recipe::packing says.
  const std::string& packed_for() const { return recipe_.packed_for.empty() ? kernel_ : recipe_.packed_for; }
  Device& device() const { return *device_; }
  // A GPU's: what the compiler says of each kernel, in the order of the steps; and what compiling took.
  std::vector<jit::Program> programs() const;
  double compile_ms() const;
  std::size_t workspace_bytes(bool weights_are_packed) const;
  // On the options' stream or parallel_for; does not wait for the stream.
  std::shared_ptr<const PackedWeights> pack_weights(const void* w, const RunOptions& options) const;
  void run(const Tensors& tensors, const RunOptions& options) const;

 private:
  // What each tensor takes, 0 where the problem has none; computed once, for a run is compared with a launch.
  struct TensorBytes {
    explicit TensorBytes(const Problem& problem);
    std::size_t x, w, y, bias, residual, relu, sums, affine, slopes;
    Runs x_runs, y_runs;  // of slices; those of the residual are y's
  };

  // A step and, of a GPU's, its launch.
  struct Bound {
    const Step* step;
    std::unique_ptr<const BoundLaunch> launch;
  };

  void bind(const jit::Session& session);
  void execute(const std::vector<Bound>& steps, const Memory& memory, const RunOptions& options) const;
  void check_addresses(const Tensors& tensors, const RunOptions& options) const;
  // known: where the address is not asked of the device.
  void check_tensor(const void* address, const char* what, Addresses known = Addresses::unknown) const;
  void check_apart(const Tensors& tensors, const RunOptions& options) const;
  bool takes(const PackedWeights& weights) const;

  Problem problem_;
  std::string kernel_;
  Recipe recipe_;
  std::shared_ptr<Device> device_;
  std::shared_ptr<const Parallel> parallel_;
  Denormals denormals_;
  std::vector<Bound> pack_, steps_;  // of the recipe's
  TensorBytes bytes_;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_PLAN_PLAN_HPP_
