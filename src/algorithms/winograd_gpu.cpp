// Winograd's minimal filtering for 3x3 filters in one kernel: transforms and products of a block of tiles,
// with the sums in registers. The error bounds are derived in docs/error_bounds.md.
#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "src/algorithms/config_name.hpp"
#include "src/algorithms/gpu.hpp"
#include "src/algorithms/packing.hpp"
#include "src/algorithms/registry.hpp"
#include "src/algorithms/winograd_problem.hpp"
#include "src/problem/integers.hpp"
#include "src/problem/rewrite.hpp"

namespace faltung {
namespace winograd_gpu {
namespace {

using i64 = std::int64_t;

// docs/error_bounds.md counts them.
constexpr WinogradRoundings kRoundings{11, 25};

// cpu: for processors that run a block's threads one after the other.
enum class For { gpu, cpu };

// F(m x m, 3 x 3), a block's tile of the product, and a thread's part of it.
struct Tile {
  For device;
  int m;
  int tiles, outs, ins;                // of a block: BT tiles, BK out channels, BC in channels at a time
  int positions, own_tiles, own_outs;  // of a thread: PP, TT, TK
  int parts, lookahead;                // PARTS, LOOKAHEAD
  double share;                        // of the lanes' rate that it reached, on an H200
  gpu::AmdRegisters amd = {};

  int a() const { return m + 2; }
  int out_threads() const { return outs / own_outs; }  // LK
  int threads() const { return a() * a() / positions * (tiles / own_tiles) * out_threads(); }
  int round() const { return std::clamp(ins / out_threads(), 1, own_outs); }
  std::size_t local_bytes() const {
    return std::size_t{4} *
           static_cast<std::size_t>(a() * a() * tiles * std::max(ins, out_threads() * round()));
  }
  template <class Name>
  void spell(Name& name) {
    name.key("f", m, m);
    name.key("bt", tiles, outs);
    name.key("k", ins);
  }
};

// The large ones fill the registers of an NVIDIA multiprocessor with one block. A thread of F(4x4) has no
// room for a patch of 36: two share one.
constexpr Tile kTiles[] = {
    {For::gpu, 2, 32, 64, 8, 1, 8, 16, 1, 2, 0.6, {208, 224}},
    {For::gpu, 2, 16, 32, 8, 2, 4, 4, 1, 1, 0.33, {96, 104}},
    {For::gpu, 4, 32, 32, 6, 3, 8, 4, 2, 1, 0.57, {192, 200}},
    {For::gpu, 4, 16, 64, 8, 3, 4, 8, 2, 0, 0.44, {176, 176}},
    {For::gpu, 4, 16, 32, 8, 3, 4, 8, 2, 0, 0.29, {200, 208}},
    {For::cpu, 2, 8, 16, 16, 16, 8, 16, 1, 0, 0.6},
    {For::cpu, 4, 8, 16, 16, 36, 8, 16, 1, 0, 0.6},
};
constexpr int kMostSplits = 9999;  // that a name can say
constexpr TileTable<Tile> kTable("winograd_gpu", kTiles, kMostSplits);
using Choice = TileChoice<Tile>;

constexpr int kHelperThreads = 64;

// The tiles that need nearly all of 255 registers are for compilers of which it is known that they do not
// spill them.
bool has_registers(const Tile& t, const DeviceInfo& device) {
  if (device.unit.is_amd) {
    return device.unit.blocks(t.threads(), t.amd.on(device.unit), static_cast<int>(t.local_bytes())) > 0;
  }
  const int sums = t.positions * t.own_tiles * t.own_outs;
  return t.device == For::cpu || sums <= 64 || device.has("large_registers");
}

// The share of its usual pace that the device has waves for.
double pace(const Tile& t, const DeviceInfo& device) {
  if (!device.unit.is_amd) return 1;
  return gpu::pace(device.unit.waves(t.threads(), t.amd.on(device.unit), static_cast<int>(t.local_bytes())));
}

bool serves(const Tile& t, const Problem& p, const DeviceInfo& device) {
  constexpr std::size_t kPlaceBytes = 16;  // where a block is, beside its values
  return winograd_admitted(p, t.m, kRoundings) && t.threads() <= device.block_threads &&
         t.local_bytes() + kPlaceBytes <= device.local_bytes &&
         (t.device == For::cpu) == device.has("runs_on_cpu") && has_registers(t, device);
}

// The convolution as the kernel sees it: backward_data is one of the gradient.
struct Shape {
  Shape(const Problem& p, const Tile& t) {
    const Problem forward = forward_form(p).inner;
    ins = forward.c / p.groups, outs = forward.k / p.groups;
    tiles = p.n * ceil_div(forward.p(), t.m) * ceil_div(forward.q(), t.m);
    padded_ins = round_up(ins, t.ins);
    out_blocks = ceil_div(outs, t.outs);
    blocks = ceil_div(tiles, t.tiles) * p.groups * out_blocks;
    // Threads read ahead of what there is.
    packed_floats = (p.groups * out_blocks * padded_ins + 1) * t.a() * t.a() * t.outs;
  }
  i64 ins, outs, tiles, padded_ins, out_blocks, blocks, packed_floats;

  // As many of the asked splits as have in channels.
  i64 splits(const Choice& c) const {
    const i64 steps = padded_ins / c.tile->ins;
    return ceil_div(steps, ceil_div(steps, std::min<i64>(c.splits, steps)));
  }
  std::size_t packed_bytes() const {
    return aligned(static_cast<std::size_t>(packed_floats) * sizeof(float));
  }
};

std::string launch_limit(const Problem& p, const Tile& t) {
  constexpr i64 kMost = 0x7fffffff;
  const Shape s(p, t);
  if (s.packed_floats > kMost) {
    return fmt::format("its transformed filter has {} elements: at most {} are indexed", s.packed_floats,
                       kMost);
  }
  if (s.blocks <= kMost) return "";
  return fmt::format("{} blocks: at most {} are launched at once", s.blocks, kMost);
}

// A choice that asks for a split sum has one, however few steps there are: in parts that may be a single one.
std::size_t workspace_bytes(const Problem& p, const Choice& c) {
  return c.splits > 1 ? gpu::parts_bytes(p, Shape(p, *c.tile).splits(c)) : 0;
}

// From the instructions of a block: multiply-adds, loads of their operands, transforms.
double predicted_ms(const Problem& p, const Choice& c, const DeviceInfo& device) {
  const Tile& t = *c.tile;
  const Shape s(p, t);
  const double splits = static_cast<double>(s.splits(c));
  const double channels = std::ceil(static_cast<double>(s.padded_ins / t.ins) / splits) * t.ins;
  const double products = static_cast<double>(t.a() * t.a() * t.tiles * t.outs) * channels;
  const double loads = products * (1.0 / t.own_tiles + 1.0 / t.own_outs) / 4;
  const double patch = t.m == 2 ? 110 : 330, result = t.m == 2 ? 80 : 260;
  const double instructions = products + loads + patch * t.tiles * channels + result * t.tiles * t.outs;
  // 128 lanes at 1.5 GHz, or 16 at 2 GHz. llvmpipe has a work-item's sums in memory, 18 and 40 KB of them: it
  // took 55 to 90 times as long.
  const double rate = !device.has("runs_on_cpu") ? 192e6 : device.has("lanes") ? 32e6 / 80 : 32e6;
  const double lanes_per_ms = rate * t.share * pace(t, device);
  const double rounds = std::ceil(static_cast<double>(s.blocks) * splits / device.units);
  constexpr double kLaunchMs = 0.005, kBytesPerMs = 2e9;
  const double sum = c.splits > 1 ? kLaunchMs + static_cast<double>(workspace_bytes(p, c)) / kBytesPerMs : 0;
  return kLaunchMs + instructions * rounds / lanes_per_ms + sum;
}

class WinogradGpu : public Algorithm {
 public:
  WinogradGpu()
      : Algorithm(
            {"winograd_gpu",
             "3x3 filters by F(2x2,3x3) or F(4x4,3x3) in one kernel: 2.25 or 4 times fewer multiplications",
             "gpu"}) {}

  Support accepts(const Problem& p, const Target& target) const override {
    const Support product = gpu::fits_a_product(p), serves = winograd_serves(p, kRoundings);
    if (!product.yes) return product;
    if (!serves.yes) return serves;
    const std::vector<const Tile*> tiles = tiles_for(p, target.device);
    if (tiles.empty()) return gpu::no_tile_fits(target.device);
    const std::string limit = launch_limit(p, *tiles.front());
    return limit.empty() ? Support::supported() : Support::declined(limit);
  }

 private:
  static std::vector<const Tile*> tiles_for(const Problem& p, const DeviceInfo& device) {
    std::vector<const Tile*> serving;
    for (const Tile& tile : kTable) {
      if (serves(tile, p, device)) serving.push_back(&tile);
    }
    return serving;
  }

  std::vector<Candidate> list(const Problem& p, const Target& target) const override {
    const DeviceInfo& device = target.device;
    std::vector<Candidate> all;
    for (const Tile* tile : tiles_for(p, device)) {
      if (!launch_limit(p, *tile).empty()) continue;
      all.push_back(candidate_of(p, {tile}, device));
      // Where the device has units without a block; for the sake of the tests, on CPUs always.
      const Shape s(p, *tile);
      const i64 wanted =
          std::clamp<i64>(tile->device == For::cpu ? 2 : device.units / s.blocks, 1, kMostSplits);
      const auto splits = static_cast<int>(s.splits({tile, static_cast<int>(wanted)}));
      if (splits > 1 && tile->m == 2) all.push_back(candidate_of(p, {tile, splits}, device));
    }
    return all;
  }

  Maker parse(const std::string& config, Direction) const override {
    return gpu::maker(candidate_of, kTable.parse(config));
  }

  static Candidate candidate_of(const Problem& p, const Choice& choice, const DeviceInfo& device) {
    const Tile& tile = *choice.tile;
    Candidate c;
    c.config = choice.name();
    c.cost = {predicted_ms(p, choice, device), Bound::arithmetic};
    c.workspace_bytes = workspace_bytes(p, choice);
    c.packed_bytes = Shape(p, tile).packed_bytes();
    c.accuracy = winograd_accuracy(p, tile.m, kRoundings);
    c.registers = device.unit.is_amd ? tile.amd.on(device.unit) : -1;
    c.recipe = [p, choice, &device] { return recipe(p, choice, device); };
    c.maker = gpu::maker(candidate_of, choice);
    return c;
  }

  static Recipe recipe(const Problem& p, const Choice& choice, const DeviceInfo& device) {
    const Tile& tile = *choice.tile;
    const std::string kernel = "winograd_gpu/" + choice.name();
    const Shape s(p, tile);
    const bool split = choice.splits > 1;
    const i64 splits = split ? s.splits(choice) : 1;
    const Problem bare = gpu::without_epilogue(p);
    Recipe recipe;
    recipe.workspace_bytes = workspace_bytes(p, choice);
    recipe.packed_bytes = s.packed_bytes();
    recipe.packing = packing_of(p);
    recipe.pack.push_back(launch(
        "filter transform",
        gpu::source(device, kernel, "winograd_filter.cl", "winograd_filter", filter_constants(bare, tile)),
        gpu::one_dimension(p.groups * s.out_blocks * s.padded_ins * tile.outs, kHelperThreads),
        {in(Place::w), out(Place::packed), value(gpu::sizes(p))}));
    recipe.steps.push_back(launch(
        "winograd",
        gpu::source(device, kernel, "winograd.cl", "winograd", constants(split ? bare : p, tile, split)),
        gpu::grid(s.blocks, splits, 1, tile.threads()),
        {in(gpu::gathered_place(p)), in(Place::packed), out(split ? Place::workspace : result_place(p)),
         in(Place::bias), in(Place::residual), in(Place::slopes), value(gpu::sizes(p))}));
    if (split) recipe.steps.push_back(gpu::finish_step(p, kernel, splits, device));
    return recipe;
  }

  static gpu::Constants filter_constants(const Problem& p, const Tile& t) {
    const auto n = [](int v) { return std::to_string(v); };
    return gpu::constants(p, {gpu::direction_constant(p),
                              {"M", n(t.m)},
                              {"BK", n(t.outs)},
                              {"BC", n(t.ins)},
                              {"LK", n(t.out_threads())},
                              {"THREADS", n(kHelperThreads)}});
  }

  static gpu::Constants constants(const Problem& p, const Tile& t, bool split) {
    const auto n = [](int v) { return std::to_string(v); };
    return gpu::constants(p, {gpu::direction_constant(p),
                              {"M", n(t.m)},
                              {"BT", n(t.tiles)},
                              {"BK", n(t.outs)},
                              {"BC", n(t.ins)},
                              {"PP", n(t.positions)},
                              {"TT", n(t.own_tiles)},
                              {"TK", n(t.own_outs)},
                              {"LK", n(t.out_threads())},
                              {"ROUND", n(t.round())},
                              {"PARTS", n(t.parts)},
                              {"LOOKAHEAD", n(t.lookahead)},
                              {"SPLIT", split ? "1" : "0"},
                              {"COMPACT", t.device == For::cpu ? "1" : "0"},
                              {"VW", "4"},
                              {"THREADS", n(t.threads())}});
  }
};

}  // namespace
}  // namespace winograd_gpu

std::unique_ptr<Algorithm> make_winograd_gpu() { return std::make_unique<winograd_gpu::WinogradGpu>(); }

}  // namespace faltung
