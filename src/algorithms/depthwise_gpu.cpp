// Each input channel on its own: what memory allows, if neighbours share what they read.
#include <fmt/core.h>

#include "src/algorithms/gpu.hpp"
#include "src/algorithms/registry.hpp"

namespace faltung {
namespace {

constexpr int kTiles[] = {4, 8, 1};  // results of a row a thread
constexpr int kThreads = 64;

class DepthwiseGpu : public Algorithm {
 public:
  std::string_view name() const override { return "depthwise_gpu"; }
  std::string_view description() const override {
    return "each input channel on its own; a thread's neighbouring results share what they read";
  }
  std::string_view device_kind() const override { return "gpu"; }

  Support supports(const Problem& problem, const Target&) const override {
    if (!is_depthwise(problem)) {
      return Support::declined(
          fmt::format("groups = {} and c = {}: depthwise has a group for each of several channels",
                      problem.groups, problem.c));
    }
    return gpu::fits(problem);
  }

  std::vector<Config> configs(const Problem& problem, const Target& target) const override {
    std::vector<Config> configs;
    double share = 0.1;  // of the device's arithmetic: it waits for memory
    for (const int tile : kTiles) {
      if (problem.direction == Direction::backward_weights && tile != kTiles[0]) continue;
      configs.push_back(
          {fmt::format("w{}", tile), gpu::arithmetic_ms(problem, target.device, share), "bytes", 0});
      share *= 0.8;
    }
    return configs;
  }

  Recipe plan(const Problem& problem, const std::string& config, const Target& target) const override {
    const int tile = parse(config);
    const jit::Built built = gpu::build(
        target.device, kernel_name(*this, config), "depthwise.cl", "depthwise",
        gpu::constants(problem, {{std::string("DIRECTION_") + faltung::name(problem.direction), "1"},
                                 {"THREADS", std::to_string(kThreads)},
                                 {"TILE", std::to_string(tile)}}));
    const TensorShape result = result_shape(problem);
    const bool weights = problem.direction == Direction::backward_weights;
    const LaunchShape shape =
        weights
            ? gpu::one_dimension(result.elements() * kThreads, kThreads)  // a block for each
            : gpu::one_dimension(result.n * result.c * result.h * ((result.w + tile - 1) / tile), kThreads);
    Device& device = target.device;
    Recipe recipe;
    recipe.compile_ms = built.compile_ms;
    recipe.steps.push_back(
        {"depthwise", [&device, kernel = built.kernel, shape, z = gpu::sizes(problem),
                       forward = problem.direction == Direction::forward](const Invocation& i) {
           const Tensors& t = i.tensors;
           if (forward) {
             device.launch(*kernel, shape, {t.x, t.w, t.y, t.bias, t.residual, z}, i.stream);
           } else {
             device.launch(*kernel, shape, {t.x, t.w, t.y, z}, i.stream);
           }
         }});
    return recipe;
  }

 private:
  int parse(const std::string& config) const {
    for (const int tile : kTiles) {
      if (config == fmt::format("w{}", tile)) return tile;
    }
    throw Error(Status::bad_problem, "depthwise_gpu has the configs w4, w8 and w1; not '" + config + "'");
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_depthwise_gpu() { return std::make_unique<DepthwiseGpu>(); }

}  // namespace faltung
