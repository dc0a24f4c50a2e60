// One thread, a few neighbouring results: slow, and there for every problem.
#include <fmt/core.h>

#include "src/algorithms/gpu.hpp"
#include "src/algorithms/registry.hpp"

namespace faltung {
namespace {

constexpr int kTiles[] = {4, 1};  // channels a thread
constexpr int kThreads = 64;

class DirectGpu : public Algorithm {
 public:
  std::string_view name() const override { return "direct_gpu"; }
  std::string_view description() const override {
    return "one thread sums a few neighbouring channels at one pixel; serves every problem";
  }
  std::string_view device_kind() const override { return "gpu"; }

  Support supports(const Problem& problem, const Target&) const override { return gpu::fits(problem); }

  std::vector<Config> configs(const Problem& problem, const Target& target) const override {
    std::vector<Config> configs;
    for (const int tile : kTiles) {
      if (tile > 1 && (problem.direction == Direction::backward_weights || tiled_channels(problem) < tile))
        continue;
      constexpr double kShare = 0.02;  // of the device's arithmetic, a channel a thread
      configs.push_back({fmt::format("k{}", tile),
                         gpu::arithmetic_ms(problem, target.device, kShare * (tile > 1 ? 2 : 1)), "latency",
                         0});
    }
    return configs;
  }

  Recipe plan(const Problem& problem, const std::string& config, const Target& target) const override {
    const int tile = parse(config);
    const gpu::Constants constants =
        gpu::constants(problem, {{"THREADS", std::to_string(kThreads)}, {"TILE", std::to_string(tile)}});
    const std::string entry =
        std::string("direct_") + (problem.direction == Direction::forward         ? "forward"
                                  : problem.direction == Direction::backward_data ? "backward_data"
                                                                                  : "backward_weights");
    const jit::Built built =
        gpu::build(target.device, kernel_name(*this, config), "direct.cl", entry, constants);
    const TensorShape result = result_shape(problem);
    const std::int64_t channels = problem.direction == Direction::backward_weights
                                      ? result.c
                                      : problem.groups * ((tiled_channels(problem) + tile - 1) / tile);
    const LaunchShape shape = gpu::one_dimension(result.n * channels * result.h * result.w, kThreads);
    Device& device = target.device;
    Recipe recipe;
    recipe.compile_ms = built.compile_ms;
    recipe.steps.push_back(
        {"direct", [&device, kernel = built.kernel, shape, z = gpu::sizes(problem),
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

  bool fuses_pool(const Problem&, const std::string&) const override { return true; }

 private:
  // Of one group, in the tensor that the direction writes.
  static std::int64_t tiled_channels(const Problem& p) {
    return (p.direction == Direction::forward ? p.k : p.c) / p.groups;
  }

  int parse(const std::string& config) const {
    for (const int tile : kTiles) {
      if (config == fmt::format("k{}", tile)) return tile;
    }
    throw Error(Status::bad_problem, "direct_gpu has the configs k4 and k1; not '" + config + "'");
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_direct_gpu() { return std::make_unique<DirectGpu>(); }

}  // namespace faltung
