// A recipe bound to a device: what faltung::Plan holds.
#ifndef FALTUNG_SRC_PLAN_PLAN_HPP_
#define FALTUNG_SRC_PLAN_PLAN_HPP_

#include <memory>
#include <string>

#include "src/backend/backend.hpp"
#include "src/plan/recipe.hpp"

namespace faltung {

class PackedWeights {
 public:
  PackedWeights(std::shared_ptr<const PlanImpl> plan, Buffer buffer)
      : plan_(std::move(plan)), buffer_(std::move(buffer)) {}
  const PlanImpl* plan() const { return plan_.get(); }
  const Buffer& buffer() const { return buffer_; }

 private:
  std::shared_ptr<const PlanImpl> plan_;
  Buffer buffer_;
};

class PlanImpl : public std::enable_shared_from_this<PlanImpl> {
 public:
  // parallel: the workers the recipe was made for; on a GPU it is null.
  PlanImpl(Problem problem, std::string kernel, Recipe recipe, std::shared_ptr<Device> device,
           std::shared_ptr<const Parallel> parallel);

  const Problem& problem() const { return problem_; }
  const std::string& kernel() const { return kernel_; }
  const Recipe& recipe() const { return recipe_; }
  Device& device() const { return *device_; }
  std::size_t workspace_bytes(bool weights_are_packed) const;
  std::shared_ptr<const PackedWeights> pack_weights(const void* w) const;
  void run(const Tensors& tensors, const RunOptions& options) const;

 private:
  void check_addresses(const Tensors& tensors, const RunOptions& options) const;
  void check_tensor(const void* address, const char* what) const;

  Problem problem_;
  std::string kernel_;
  Recipe recipe_;
  std::shared_ptr<Device> device_;
  std::shared_ptr<const Parallel> parallel_;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_PLAN_PLAN_HPP_
