// An algorithm to try out what a new one touches: tests/changes_test.py, which adds the config tt2 to it.
#include "kernels/cpu/toy.hpp"
#include "src/algorithms/config_name.hpp"
#include "src/algorithms/registry.hpp"

namespace faltung {
namespace {

struct Tile {
  int channels;
  template <class Name>
  void spell(Name& name) {
    name.key("tt", channels);
  }
};
constexpr Tile kTiles[] = {
    {1},
};
constexpr TileTable<Tile> kTable("toy_cpu", kTiles);

class ToyCpu : public Algorithm {
 public:
  ToyCpu() : Algorithm({"toy_cpu", "sums as they are written down", "cpu"}) {}

  Support accepts(const Problem& p, const Target&) const override {
    if (p.direction != Direction::forward || p.dtype != DType::f32 || !p.epilogue.empty()) {
      return Support::declined("a toy: forward, f32, without an epilogue");
    }
    return Support::supported();
  }

 private:
  std::vector<Candidate> list(const Problem& p, const Target&) const override {
    std::vector<Candidate> all;
    for (const Tile& tile : kTable) all.push_back(candidate_of(p, tile));
    return all;
  }

  Maker parse(const std::string& config, Direction) const override {
    return maker(*kTable.parse(config).tile);
  }

  static Maker maker(const Tile& tile) {
    return [tile](const Problem& p, const Target&) { return candidate_of(p, tile); };
  }

  static Candidate candidate_of(const Problem& p, const Tile& tile) {
    Candidate c;
    c.config = config_name(tile);
    c.cost = {1000.0 * tile.channels, Bound::arithmetic};
    c.accuracy = dot_product_accuracy(p);
    c.maker = maker(tile);
    c.recipe = [p] {
      Recipe recipe;
      recipe.steps.push_back(
          call("toy", {Place::x, Place::w}, {Place::y}, [p](const Memory& m, const Parallel& parallel) {
            const Tensors tensors = Tensors::forward(m[Place::x], m[Place::w], m[Place::y]);
            parallel.each(p.n * p.k,
                          [&](std::int64_t item, int) { toy_plane(p, tensors, item / p.k, item % p.k); });
          }));
      return recipe;
    };
    return c;
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_toy_cpu() { return std::make_unique<ToyCpu>(); }

}  // namespace faltung
