// The gradient of the weights on the matrix units: output channels x columns of the filter, summed over
// pixels, of which each block takes a part; a second step adds the parts.
#include "src/algorithms/implicit_gemm_mma_weights.hpp"

#include <algorithm>
#include <array>

#include "src/algorithms/config_name.hpp"
#include "src/algorithms/gpu.hpp"
#include "src/algorithms/implicit_gemm_mma.hpp"
#include "src/algorithms/pass_time.hpp"
#include "src/algorithms/rewrite_steps.hpp"
#include "src/problem/integers.hpp"

namespace faltung::mma_weights {
namespace {

using i64 = std::int64_t;
using mma::kMostBlocks, mma::kStepBytes;

// What the product reads: the tensors, or what other steps turned from planes to pixels beforehand.
enum class Reads { tensors, turned };

// A block's output channels and columns, its warps along each, and how many tiles of the sum it holds.
struct Tile {
  Reads reads;
  int rows, columns, warps_m, warps_n, stages;
  int blocks;     // of a multiprocessor, whose registers suffice for so many
  double gflops;  // of a multiprocessor that such blocks fill, 16-bit
  int threads() const { return 32 * warps_m * warps_n; }
  // Of a thread, at most.
  int registers() const { return std::min(255, 65536 / (blocks * threads()) / 8 * 8); }
  int local_bytes(DType dtype) const {
    const int element = size_of(dtype), steps = kStepBytes / element;
    return 2 * steps * 32 + columns * element / 16 * 32 + stages * kStepBytes * (rows + columns);
  }
  template <class Name>
  void spell(Name& name) {
    constexpr NameWord<Reads> kReads[] = {{Reads::turned, "nhwc"}, {Reads::tensors, ""}};
    name.word(reads, kReads);
    name.key("bt", rows, columns);
    name.key("wp", warps_m, warps_n);
    name.key("st", stages);
  }
};

// Each for tensors as they are, then each for what was turned.
constexpr auto kTiles = [] {
  constexpr Tile kEach[] = {
      {Reads::tensors, 128, 128, 2, 2, 3, 2, 2800}, {Reads::tensors, 128, 128, 4, 2, 3, 1, 2100},
      {Reads::tensors, 64, 192, 2, 3, 3, 2, 2200},  {Reads::tensors, 64, 128, 2, 2, 3, 2, 1900},
      {Reads::tensors, 64, 64, 2, 2, 4, 3, 1500},
  };
  std::array<Tile, 2 * std::size(kEach)> all{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = kEach[i % std::size(kEach)];
    all[i].reads = i < std::size(kEach) ? Reads::tensors : Reads::turned;
  }
  return all;
}();
constexpr int kMostSplits = 9999;  // that a name can say
constexpr TileTable<Tile> kTable("implicit_gemm_mma_gpu's backward_weights", kTiles, kMostSplits);
using Choice = TileChoice<Tile>;

bool turns(const Tile& t) { return t.reads == Reads::turned; }
i64 chunk(const Problem& p) { return mma::elements_of_chunk(p.dtype); }
bool gathers(const Problem& p, i64 channels) {
  return p.layout == Layout::nchw || channels / p.groups % chunk(p) != 0;
}
i64 columns(const Problem& p) { return p.r * p.s * ceil_div(p.c / p.groups, chunk(p)) * chunk(p); }
// Tiles of the sum.
i64 steps(const Problem& p) { return ceil_div(p.n * p.p() * p.q(), mma::steps_of_tile(p.dtype)); }
// Without the parts of the sum.
i64 blocks(const Problem& p, const Tile& t) {
  return ceil_div(p.k / p.groups, t.rows) * ceil_div(columns(p), t.columns) * p.groups;
}
// In the workspace: the parts of the sum; then x and y's gradient as pixels, if they are turned.
struct Places {
  Places(const Problem& p, const Choice& c) : x_at(aligned(gpu::parts_bytes(p, c.splits))), bytes(x_at) {
    if (!turns(*c.tile)) return;
    y_at = x_at + aligned(static_cast<std::size_t>(bytes_of(p, x_shape(p))));
    bytes = y_at + static_cast<std::size_t>(bytes_of(p, conv_shape(p)));
  }
  std::size_t x_at, y_at = 0, bytes;
};
bool can_turn(const Problem& p) {
  return p.layout == Layout::nchw && p.c / p.groups % chunk(p) == 0 && p.k / p.groups % chunk(p) == 0;
}

// Into the local memory, of the blocks that the registers are meant for.
int fitting_blocks(const Problem& p, const Tile& t, const DeviceInfo& device) {
  if (!device.unit.known()) return 1;
  return std::clamp(device.unit.local_bytes / (t.local_bytes(p.dtype) + device.unit.block_reserved), 1,
                    t.blocks);
}

i64 resident_blocks(const Problem& p, const Tile& t, const DeviceInfo& device) {
  if (!device.unit.known()) return 1;
  const Residence residence = device.unit.residence(t.threads(), t.registers(), t.local_bytes(p.dtype));
  return std::max(1, residence.blocks);
}

// As many parts as fill the device once, twice and four times, each of some tiles.
std::vector<Choice> choices(const Problem& p, const Tile& t, const DeviceInfo& device) {
  constexpr i64 kLeastSteps = 4;
  const i64 room = std::max(1, device.units) * resident_blocks(p, t, device);
  const i64 most = std::min({steps(p) / kLeastSteps, kMostBlocks / p.groups, i64{kMostSplits}});
  std::vector<Choice> choices;
  for (const int splits : gpu::weights_splits_of(room, blocks(p, t), most)) choices.push_back({&t, splits});
  return choices;
}

double predicted_ms(const Problem& p, const Choice& c, const Target& target) {
  const DeviceInfo& device = target.device;
  constexpr double kLaunchMs = 0.0035, kLeastMs = 0.0006, kUnitGbps = 22, kExchangeGbps = 20;
  const Tile& t = *c.tile;
  const int units = std::max(1, device.units);
  const mma::Rounds rounds = {ceil_div(blocks(p, t) * c.splits, units),
                              resident_blocks(p, t, device),
                              ceil_div(steps(p), c.splits),
                              t.rows * t.columns,
                              t.gflops,
                              kLeastMs,
                              gathers(p, p.c) && !turns(t) ? 2.0 : 1.0};
  const double exchanged = 2.0 * static_cast<double>(Places(p, c).bytes);
  return kLaunchMs * (turns(t) ? 2 : 1) +
         std::max(rounds.ms(p.dtype),
                  min_bytes(p) / (kUnitGbps * units * memory_beside_fitted(target)) * 1e-6) +
         exchanged / (kExchangeGbps * units) * 1e-6;
}

jit::Source product_source(const Problem& p, const Choice& choice, const std::string& kernel,
                           const DeviceInfo& device) {
  const Tile& tile = *choice.tile;
  const auto n = [](i64 value) { return std::to_string(value); };
  // Not where x is gathered while y is copied: that would spill.
  const bool dense = tile.registers() < 255 && (!gathers(p, p.c) || gathers(p, p.k));
  return gpu::source(device, kernel, "implicit_gemm_mma_weights.cu", "implicit_gemm_mma_weights",
                     gpu::constants(p, {{"BM", n(tile.rows)},
                                        {"BN", n(tile.columns)},
                                        {"WARPS_M", n(tile.warps_m)},
                                        {"WARPS_N", n(tile.warps_n)},
                                        {"STAGES", n(tile.stages)},
                                        {"GATHER_X", gathers(p, p.c) ? "1" : "0"},
                                        {"GATHER_Y", gathers(p, p.k) ? "1" : "0"},
                                        {"MIN_BLOCKS", n(dense ? fitting_blocks(p, tile, device) : 1)},
                                        {"THREADS", n(tile.threads())}}),
                     tile.local_bytes(p.dtype));
}

Recipe recipe(const Problem& given, const Choice& choice, const DeviceInfo& device) {
  const Tile& tile = *choice.tile;
  const std::string kernel = "implicit_gemm_mma_gpu/" + choice.name();
  const Places places(given, choice);
  const Slot turned_x{Place::workspace, places.x_at}, turned_y{Place::workspace, places.y_at};
  // As the product sees it.
  const Rewrite rewrite = turns(tile) ? rewrites::change_layout(given) : unchanged(given);
  const Problem& p = rewrite.inner;
  Recipe recipe;
  recipe.workspace_bytes = places.bytes;
  if (turns(tile)) {
    const auto turn = [&](const char* name, Operand operand, Place from, Slot to) {
      recipe.steps.push_back(
          turn_planes_launch(name, kernel, given, gather_of(given, rewrite, operand), from, to, device));
    };
    turn("turn x", Operand::x, Place::x, turned_x);
    turn("turn y", Operand::y, Place::y, turned_y);
  }
  // From a pixel to the one a tile of the sum further on: images, rows, columns.
  const i64 step = mma::steps_of_tile(p.dtype);
  recipe.steps.push_back(
      launch("product", product_source(p, choice, kernel, device),
             gpu::grid(ceil_div(columns(p), tile.columns), ceil_div(p.k / p.groups, tile.rows),
                       p.groups * choice.splits, tile.threads()),
             {in(turns(tile) ? turned_x : Place::x), in(turns(tile) ? turned_y : Place::y),
              out(Place::workspace), gpu::number(choice.splits), gpu::number(step / (p.p() * p.q())),
              gpu::number(step / p.q() % p.p()), gpu::number(step % p.q()), value(gpu::sizes(p))}));
  recipe.steps.push_back(
      gpu::sum_parts_step(given, kernel, Place::workspace, choice.splits, device, {{"REORDERS", "1"}}));
  return recipe;
}

Candidate candidate_of(const Problem& p, const Choice& choice, const Target& target);
Maker maker(const Choice& choice) {
  return [choice](const Problem& p, const Target& target) { return candidate_of(p, choice, target); };
}

Candidate candidate_of(const Problem& p, const Choice& choice, const Target& target) {
  if (turns(*choice.tile) && !can_turn(p))
    throw Error(Status::bad_problem, "'" + choice.name() +
                                         "' turns planes of channels that are whole chunks of 16 bytes; " +
                                         to_string(p) + " has none");
  Candidate c;
  c.config = choice.name();
  c.cost = {predicted_ms(p, choice, target), Bound::arithmetic};
  c.workspace_bytes = Places(p, choice).bytes;
  c.accuracy = dot_product_accuracy(p);
  c.recipe = [p, choice, &device = target.device] { return recipe(p, choice, device); };
  c.maker = maker(choice);
  return c;
}

}  // namespace

Support supports(const Problem& p) { return gpu::weights_fit_a_grid(p, 64); }

std::vector<Candidate> list(const Problem& p, const Target& target) {
  std::vector<Candidate> all;
  for (const Tile& t : kTable) {
    if (turns(t) && !can_turn(p)) continue;
    // 64 x 64 results a warp leave no registers for what is gathered.
    const bool gathered = !turns(t) && (gathers(p, p.c) || gathers(p, p.k));
    if (gathered && t.rows * t.columns > 48 * 64 * t.warps_m * t.warps_n) continue;
    for (const Choice& c : choices(p, t, target.device)) all.push_back(candidate_of(p, c, target));
  }
  return all;
}

Maker parse(const std::string& config) { return maker(kTable.parse(config)); }

}  // namespace faltung::mma_weights
