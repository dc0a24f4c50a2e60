// Depthwise convolution on the CPU: no reduction over channels, so no matrix product; bound by memory.
#include <algorithm>

#include "kernels/cpu/depthwise.hpp"
#include "src/algorithms/registry.hpp"

namespace faltung {
namespace {

class DepthwiseCpu : public Algorithm {
 public:
  std::string_view name() const override { return "depthwise_cpu"; }
  std::string_view description() const override {
    return "one sliding sum a channel, vectors of channels (nhwc) or of pixels (nchw)";
  }
  std::string_view device_kind() const override { return "cpu"; }

  Support supports(const Problem& p, const Target&) const override {
    if (p.groups != p.c) {
      return Support::declined("it is not depthwise: groups is " + std::to_string(p.groups) +
                               ", not c = " + std::to_string(p.c));
    }
    return Support::supported();
  }

  std::vector<Config> configs(const Problem& p, const Target& target) const override {
    // A thread's rates with data in the second-level cache, as measured with AVX-512. What comes from memory
    // is slower, for any algorithm; none but this one reads each input of a channel once.
    constexpr double kGflops = 70, kGbps = 20;
    const double arithmetic = flops(p) / (kGflops * 1e6 * target.threads);
    const double bytes = min_bytes(p) / (kGbps * 1e6 * target.threads);
    return {{"rows", std::max(arithmetic, bytes) + 0.002, arithmetic > bytes ? "arithmetic" : "bytes",
             scratch_bytes(make_pass(p)) * static_cast<std::size_t>(target.threads)}};
  }

  Recipe plan(const Problem& p, const std::string& config, const Target& target) const override {
    if (config != "rows") {
      throw Error(Status::bad_problem, "depthwise_cpu has one config, rows; not '" + config + "'");
    }
    const auto pass = std::make_shared<const DepthwisePass>(make_pass(p));
    Recipe recipe = p.direction == Direction::backward_weights ? weights_recipe(pass) : data_recipe(pass);
    recipe.workspace_bytes = scratch_bytes(*pass) * static_cast<std::size_t>(target.threads);
    return recipe;
  }

 private:
  static DepthwisePass make_pass(Problem p) {
    // The filter's gradient walks over x as the forward pass does.
    const Direction direction = p.direction;
    if (direction == Direction::backward_weights) p.direction = Direction::forward;
    DepthwisePass pass = make_depthwise_pass(p);
    pass.problem.direction = direction;
    return pass;
  }

  static std::size_t scratch_bytes(const DepthwisePass& pass) {
    return aligned(pass.problem.direction == Direction::backward_weights
                       ? depthwise_weights_scratch_bytes(pass)
                       : depthwise_scratch_bytes(pass));
  }

  static Recipe data_recipe(const std::shared_ptr<const DepthwisePass>& pass) {
    Recipe recipe;
    recipe.packed_bytes = depthwise_packed_bytes(*pass);
    recipe.pack.push_back({"pack filter", [pass](const Invocation& v) {
                             const Parallel& parallel = *v.stream.parallel;
                             parallel.run([&](int worker) {
                               depthwise_pack(*pass, v.tensors.w, reinterpret_cast<float*>(v.packed), worker,
                                              parallel.workers());
                             });
                           }});
    recipe.steps.push_back({"depthwise", [pass, scratch = scratch_bytes(*pass)](const Invocation& v) {
                              const Parallel& parallel = *v.stream.parallel;
                              const Tensors& t = v.tensors;
                              const Epilogue& epilogue = pass->problem.epilogue;
                              const bool forward = pass->problem.direction == Direction::forward;
                              const DepthwiseTensors tensors{forward ? t.x : t.y, forward ? t.y : t.x,
                                                             reinterpret_cast<const float*>(v.packed),
                                                             epilogue.bias ? t.bias : nullptr,
                                                             epilogue.residual ? t.residual : nullptr};
                              parallel.run([&](int worker) {
                                depthwise_run(*pass, tensors,
                                              v.workspace + scratch * static_cast<std::size_t>(worker),
                                              worker, parallel.workers());
                              });
                            }});
    return recipe;
  }

  static Recipe weights_recipe(const std::shared_ptr<const DepthwisePass>& pass) {
    Recipe recipe;
    const std::size_t scratch = scratch_bytes(*pass);
    recipe.steps.push_back({"depthwise", [pass, scratch](const Invocation& v) {
                              const Parallel& parallel = *v.stream.parallel;
                              parallel.run([&](int worker) {
                                depthwise_weights(*pass, v.tensors.x, v.tensors.y, v.tensors.w,
                                                  v.workspace + scratch * static_cast<std::size_t>(worker),
                                                  worker, parallel.workers());
                              });
                            }});
    if (pass->problem.layout == Layout::nhwc) {
      recipe.steps.push_back({"add up", [pass, scratch](const Invocation& v) {
                                const Parallel& parallel = *v.stream.parallel;
                                parallel.run([&](int worker) {
                                  depthwise_weights_reduce(*pass, v.workspace, scratch, v.tensors.w, worker,
                                                           parallel.workers());
                                });
                              }});
    }
    return recipe;
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_depthwise_cpu() { return std::make_unique<DepthwiseCpu>(); }

}  // namespace faltung
