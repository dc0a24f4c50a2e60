// Winograd's minimal filtering for 3x3 filters: F(2x2, 3x3) and F(4x4, 3x3) in fp32, natively in both
// layouts. The error bounds are derived in docs/error_bounds.md.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "kernels/cpu/brgemm.hpp"
#include "kernels/cpu/winograd_driver.hpp"
#include "src/algorithms/config_name.hpp"
#include "src/algorithms/cpu_rates.hpp"
#include "src/algorithms/packing.hpp"
#include "src/algorithms/registry.hpp"
#include "src/algorithms/winograd_problem.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"
#include "src/problem/rewrite.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// docs/error_bounds.md counts them.
constexpr WinogradRoundings kRoundings{8, 18};

// -------------------------------------------------------------------------------------------- configs

// F(m x m, 3 x 3) with blocks of at most that many tiles; 0: all tiles at once.
struct Choice {
  int m;
  int block;
  template <class Name>
  void spell(Name& name) {
    enum class Blocks { some, one };
    constexpr NameWord<Blocks> kWords[] = {{Blocks::one, "all"}, {Blocks::some, ""}};
    int width = m;
    name.key("f", m, width);
    Blocks blocks = block == 0 ? Blocks::one : Blocks::some;
    name.word(blocks, kWords);
    if (blocks == Blocks::one) {
      block = 0;
    } else {
      name.key("bt", block);
    }
  }
};

Choice parse_choice(const std::string& config) {
  constexpr int kMostTiles = 4096;
  Choice c{};
  if (parse_config(config, c) && (c.m == 2 || c.m == 4) && c.block <= kMostTiles) return c;
  throw Error(Status::bad_problem,
              "winograd_cpu's configs are named f<2x2 or 4x4>_bt<tiles in a block, 1 to 4096> or "
              "f<2x2 or 4x4>_all, e.g. f4x4_bt28; not '" +
                  config + "'");
}

WinogradShape shape_of(const Problem& p, int m) {
  const Rewrite forward = forward_form(p);
  const TensorShape x = operand_shape(p, forward.x.of);
  const Problem& q = forward.inner;
  WinogradShape s;
  s.m = m;
  s.dtype = p.dtype;
  s.layout = p.layout;
  s.n = x.n, s.h = x.h, s.w = x.w, s.p = q.p(), s.q = q.q();
  s.pad_top = -forward.first_row(), s.pad_left = -forward.first_column();
  s.x_channels = q.c, s.y_channels = q.k;
  s.tiles_h = ceil_div(s.p, m), s.tiles_w = ceil_div(s.q, m);
  return s;
}

// ----------------------------------------------------------------------------------------------- cost

constexpr double kProductsShare = 0.95;     // of a tile's rate, with operands from level 2
constexpr double kMemoryBytesPerMs = 20e6;  // of all cores
constexpr double kTransformedNs = 3;        // of an element of U
constexpr double kTogetherNs = 10e3;        // of threads that wait for each other after a group's two phases

// One position's product, length steps long, whose columns are so many vectors.
struct ProductTime {
  double ns, steps;  // of all its register tiles
};
ProductTime product_time(double rows, double columns, double length) {
  const int vectors = columns < 2 ? 1 : 2;
  const double strips = std::ceil(rows / brgemm_max_rows(vectors));
  const double tiles = strips * std::ceil(columns / vectors);
  const TileTime tile = tile_time(TileReads::strided, static_cast<int>(std::ceil(rows / strips)), vectors);
  constexpr double kCall = 40;  // cycles to set a tile's call up
  return {tiles * (tile.of(length) / kProductsShare + kCall * cycle_ns()), tiles * length};
}

double predicted_ms(const Problem& p, const Choice& choice, int threads, const WinogradDriver& driver) {
  const WinogradShape s = shape_of(p, choice.m);
  const double lanes = brgemm_lanes(), positions = s.positions(), groups = static_cast<double>(p.groups);
  const bool nhwc = s.layout == Layout::nhwc, shared = choice.block == 0;
  const double tiles = static_cast<double>(driver.block());
  const double c = static_cast<double>(s.x_channels) / groups, k = static_cast<double>(s.y_channels) / groups;
  const auto whole = [&](double count) { return std::ceil(count / lanes); };

  // One block of one group. Vectors are of channels or of tiles.
  const double c_vectors = nhwc ? whole(c) * tiles : c * whole(tiles);
  const double k_vectors = nhwc ? whole(k) * tiles : k * whole(tiles);
  const TransformTime transform = winograd_transform_time(s.layout, choice.m);
  const double transforms = positions * (c_vectors * transform.input + k_vectors * transform.output);
  const ProductTime product = nhwc ? product_time(tiles, whole(k), c) : product_time(k, whole(tiles), c);
  const double products = positions * product.ns;
  // U comes from level 2, or from farther where that is too small for it beside V and M. From level 3 it does
  // so a line a step of the products, which hide as much, and twice as fast as a core asks for lines itself;
  // what are more lines than steps it asks for itself. From memory, which gives all cores no more than one,
  // nothing is hidden. V and M that do not fit are written and read twice.
  const double u_bytes = 4 * positions * c * k, v_bytes = 4 * positions * lanes * (c_vectors + k_vectors);
  const double per_worker = 4 * static_cast<double>(driver.workspace_floats()) / (shared ? 1 : threads);
  const double level2 = static_cast<double>(cpu_caches().level2);
  double ns = products + transforms + u_bytes * near_byte_ns();
  // What is larger than this a last-level cache does not have for one process.
  const double level3 = 16 * level2;
  if (groups * u_bytes > level3) {
    ns += u_bytes * memory_byte_ns() * (threads > 1 ? kMemoryBesideOthers : 1);
  } else if (u_bytes + per_worker > 0.875 * level2) {
    constexpr double kLine = 64;
    const double fetched = std::min(u_bytes, kLine * positions * product.steps);
    ns += std::max(0.0, fetched * far_byte_ns() / 2 - products) + (u_bytes - fetched) * far_byte_ns();
  }
  const double beside = level2 / 2;  // what fits beside everything else; twice that does not fit at all
  const double misses = std::clamp(per_worker / beside - 1, 0.0, 1.0);
  const double byte_ns = per_worker > level3 ? memory_byte_ns() : far_byte_ns();
  // Where all tiles are one block, other workers read what one wrote: lines go from core to core.
  ns += (shared ? 8 : 3) * v_bytes * byte_ns * (shared && misses > 0 ? 1 : misses);

  const double blocks = shared ? 1 : std::ceil(static_cast<double>(s.tiles()) / tiles);
  // Where all share a group, each has whole vectors of its channels.
  const double sharing = std::min<double>(threads, whole(std::min(c, k)));
  const double rounds = shared ? groups / sharing : std::ceil(blocks * groups / threads);
  const double packed =
      weights_are_constant(p) ? 0 : kTransformedNs * static_cast<double>(driver.packed_floats()) / threads;
  const double waits = shared && threads > 1 ? groups * kTogetherNs : 0;
  // The filter is read as U.
  const double bytes = min_bytes(p) - static_cast<double>(w_shape(p).elements() * size_of(p.dtype));
  return (ns * rounds + packed + waits) * 1e-6 + bytes / kMemoryBytesPerMs / 2;
}

// ------------------------------------------------------------------------------------------ algorithm

class WinogradCpu : public Algorithm {
 public:
  WinogradCpu()
      : Algorithm({"winograd_cpu",
                   "3x3 filters by F(2x2,3x3) or F(4x4,3x3): 2.25 or 4 times fewer multiplications", "cpu"}) {
  }

  Support accepts(const Problem& p, const Target&) const override { return winograd_serves(p, kRoundings); }

 private:
  using Driver = std::shared_ptr<const WinogradDriver>;

  // A tile holds whole windows of 2x2 at stride 2.
  bool fuses(const Problem& p, const Target&) const override {
    const Pool& pool = p.epilogue.pool;
    return pool.size_h == 2 && pool.size_w == 2 && pool.stride_h == 2 && pool.stride_w == 2 &&
           pool.pad_top == 0 && pool.pad_bottom == 0 && pool.pad_left == 0 && pool.pad_right == 0;
  }

  std::vector<Candidate> list(const Problem& p, const Target& target) const override {
    std::vector<Candidate> all;
    const bool nchw = p.layout == Layout::nchw;
    for (const int m : {2, 4}) {
      if (!winograd_admitted(p, m, kRoundings)) continue;
      i64 before = 0;
      for (const int block : nchw ? std::vector<int>{32, 64, 128, 0} : std::vector<int>{14, 28, 56, 112, 0}) {
        const Driver driver = make_driver(p, {m, block}, target.threads);
        if (block != 0 && driver->block() == before) continue;  // fewer tiles than either asks for
        before = driver->block();
        constexpr std::size_t kMostShared = std::size_t{64} << 20;
        Candidate c = candidate_of(p, {m, block}, driver, target.threads);
        if (block == 0 && c.workspace_bytes > kMostShared) continue;
        all.push_back(std::move(c));
      }
    }
    return all;
  }

  Maker parse(const std::string& config, Direction) const override { return maker(parse_choice(config)); }

  static Maker maker(const Choice& choice) {
    return [choice](const Problem& p, const Target& target) {
      return candidate_of(p, choice, make_driver(p, choice, target.threads), target.threads);
    };
  }

  static Driver make_driver(const Problem& p, const Choice& choice, int threads) {
    return std::make_shared<const WinogradDriver>(shape_of(p, choice.m), p.groups, choice.block, threads);
  }

  static Candidate candidate_of(const Problem& p, const Choice& choice, const Driver& driver, int threads) {
    Candidate c;
    c.config = config_name(choice);
    c.cost = {predicted_ms(p, choice, threads, *driver), Bound::arithmetic};
    c.workspace_bytes = static_cast<std::size_t>(driver->workspace_floats()) * sizeof(float);
    c.packed_bytes = static_cast<std::size_t>(driver->packed_floats()) * sizeof(float);
    c.accuracy = winograd_accuracy(p, choice.m, kRoundings);
    c.recipe = [p, driver, m = choice.m, workspace = c.workspace_bytes, packed = c.packed_bytes] {
      Recipe recipe = steps(p, m, driver);
      recipe.workspace_bytes = workspace, recipe.packed_bytes = packed;
      return recipe;
    };
    c.maker = maker(choice);
    return c;
  }

  // Each group's.
  static std::vector<StridedView> filters_of(const Problem& p) {
    const Rewrite forward = forward_form(p);
    std::vector<StridedView> filters;
    for (i64 group = 0; group < p.groups; ++group)
      filters.push_back(forward.w.view(w_shape(p), {group * (forward.inner.k / p.groups), 0, 0, 0}));
    return filters;
  }

  static Recipe steps(const Problem& p, int m, const Driver& driver) {
    const Place from = p.direction == Direction::forward ? Place::x : Place::y, to = result_place(p);
    Recipe recipe;
    recipe.packing = packing_of(p);
    recipe.packed_for = fmt::format("winograd_cpu f{}x{}", m, m);  // blocks of any size read the same
    recipe.pack.push_back(call("filter transform", {Place::w}, {Place::packed},
                               [driver, filters = filters_of(p)](const Memory& m, const Parallel& parallel) {
                                 driver->pack(m[Place::w], filters,
                                              reinterpret_cast<float*>(m[Place::packed]), parallel);
                               }));
    recipe.steps.push_back(
        call("winograd", {from, Place::packed, Place::bias, Place::residual, Place::slopes},
             {to, Place::workspace},
             [driver, from, to, epilogue = p.epilogue](const Memory& m, const Parallel& parallel) {
               WinogradTensors t;
               t.x = m[from], t.y = m[to];
               t.bias = m[Place::bias], t.residual = m[Place::residual];
               t.residual_order = epilogue.residual_order;
               t.activation = activation_of(epilogue);
               t.slopes = reinterpret_cast<const float*>(m[Place::slopes]);
               t.pool = epilogue.pool.kind;
               driver->run(t, reinterpret_cast<const float*>(m[Place::packed]),
                           reinterpret_cast<float*>(m[Place::workspace]), parallel);
             }));
    return recipe;
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_winograd_cpu() { return std::make_unique<WinogradCpu>(); }

}  // namespace faltung
