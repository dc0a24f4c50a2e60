// One thread, a few neighbouring results: slow, and there for every problem.
#include "src/algorithms/config_name.hpp"
#include "src/algorithms/gpu.hpp"
#include "src/algorithms/registry.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace direct_gpu {
namespace {

struct Tile {
  int channels;  // a thread
  template <class Name>
  void spell(Name& name) {
    name.key("tt", channels);
  }
};
constexpr Tile kTiles[] = {{4}, {1}};
constexpr TileTable<Tile> kTable("direct_gpu", kTiles);
constexpr int kThreads = 64;

class DirectGpu : public Algorithm {
 public:
  DirectGpu()
      : Algorithm({"direct_gpu",
                   "one thread sums a few neighbouring channels at one pixel; serves every problem", "gpu"}) {
  }

  Support accepts(const Problem& problem, const Target&) const override { return gpu::fits(problem); }

 private:
  // Of one group, in the tensor that the direction writes.
  static std::int64_t tiled_channels(const Problem& p) {
    return (p.direction == Direction::forward ? p.k : p.c) / p.groups;
  }

  bool takes_pitch(const Problem&, const Target&) const override { return true; }
  bool fuses(const Problem&, const Target&) const override { return true; }

  std::vector<Candidate> list(const Problem& p, const Target& target) const override {
    std::vector<Candidate> all;
    for (const Tile& tile : kTable) {
      if (tile.channels > 1 &&
          (p.direction == Direction::backward_weights || tiled_channels(p) < tile.channels))
        continue;
      all.push_back(candidate_of(p, tile, target.device));
    }
    return all;
  }

  Maker parse(const std::string& config, Direction) const override {
    return gpu::maker(candidate_of, *kTable.parse(config).tile);
  }

  static Candidate candidate_of(const Problem& p, const Tile& tile, const DeviceInfo& device) {
    constexpr double kShare = 0.02;  // of the device's arithmetic, a channel a thread
    Candidate c;
    c.config = config_name(tile);
    c.cost = {gpu::arithmetic_ms(p, device, kShare * (tile.channels > 1 ? 2 : 1)), Bound::latency};
    c.accuracy = dot_product_accuracy(p);
    c.recipe = [p, tile, &device] { return recipe(p, tile, device); };
    c.maker = gpu::maker(candidate_of, tile);
    return c;
  }

  static Recipe recipe(const Problem& p, const Tile& tile, const DeviceInfo& device) {
    const gpu::Constants constants =
        gpu::constants(p, {{"THREADS", std::to_string(kThreads)}, {"TILE", std::to_string(tile.channels)}});
    const bool forward = p.direction == Direction::forward;
    const std::string entry =
        std::string("direct_") + (forward                                   ? "forward"
                                  : p.direction == Direction::backward_data ? "backward_data"
                                                                            : "backward_weights");
    const TensorShape result = result_shape(p);
    const std::int64_t channels = p.direction == Direction::backward_weights
                                      ? result.c
                                      : p.groups * ceil_div(tiled_channels(p), tile.channels);
    std::vector<StepArgument> arguments = gpu::tensors(p);
    arguments.push_back(value(gpu::sizes(p)));
    Recipe recipe;
    recipe.steps.push_back(launch(
        "direct", gpu::source(device, "direct_gpu/" + config_name(tile), "direct.cl", entry, constants),
        gpu::one_dimension(result.n * channels * result.h * result.w, kThreads), std::move(arguments)));
    return recipe;
  }
};

}  // namespace
}  // namespace direct_gpu

std::unique_ptr<Algorithm> make_direct_gpu() { return std::make_unique<direct_gpu::DirectGpu>(); }

}  // namespace faltung
