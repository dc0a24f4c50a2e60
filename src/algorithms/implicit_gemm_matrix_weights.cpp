// The gradient of the weights on AMD's matrix units: output channels x columns of the filter, summed over
// pixels, of which each block takes a part. A first step says where the pixels lie, a last one adds the
// parts.
#include <algorithm>

#include "src/algorithms/config_name.hpp"
#include "src/algorithms/gathered_product.hpp"
#include "src/algorithms/implicit_gemm_matrix.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::matrix::weights {
namespace {

using i64 = std::int64_t;
using gpu::kMostBlocks;

constexpr int kEach = 4;  // channels that a thread brings together
constexpr int kMostSplits = 9999;

// A block's output channels and columns, its waves along each, and the chunks of pixels of a tile of the sum.
struct Tile {
  int rows, columns, waves_m, waves_n, chunks;
  gpu::AmdRegisters amd;
  int threads(const Unit& unit) const { return unit.wave * waves_m * waves_n; }
  int pixels(DType dtype) const { return chunks * kChunkBytes / size_of(dtype); }
  int local_bytes() const { return 2 * chunks * (rows + columns) * kChunkBytes; }
  // Whether what there is to bring is shared out evenly, each wave's of one tensor.
  bool serves(const Unit& unit, const DeviceInfo& device) const {
    return chunks * (rows + columns) / kEach % threads(unit) == 0 && chunks * rows / kEach % unit.wave == 0 &&
           matrix::fits(*this, unit, device);
  }
  template <class Name>
  void spell(Name& name) {
    name.key("bt", rows, columns);
    name.key("wp", waves_m, waves_n);
  }
};

constexpr Tile kTiles[] = {
    {128, 128, 2, 2, 4, {256, 176}},
    {128, 128, 4, 2, 4, {208, 128}},
    {64, 64, 2, 2, 8, {256, 144}},
    {32, 32, 1, 1, 8, {256, 208}},
};
constexpr TileTable<Tile> kTable("implicit_gemm_matrix_gpu's backward_weights", kTiles, kMostSplits);
using Choice = TileChoice<Tile>;

bool gathers(const Problem& p) {
  return p.layout == Layout::nchw || p.c / p.groups % kEach != 0 || p.k / p.groups % kEach != 0;
}
i64 columns(const Problem& p) { return p.r * p.s * round_up(p.c / p.groups, kEach); }
i64 pixels(const Problem& p) { return p.n * p.p() * p.q(); }
// Of all parts: each has whole tiles.
i64 padded(const Problem& p, const Choice& c) {
  return c.splits * round_up(ceil_div(pixels(p), c.splits), c.tile->pixels(p.dtype));
}
i64 blocks(const Problem& p, const Tile& t) {
  return ceil_div(p.k / p.groups, t.rows) * ceil_div(columns(p), t.columns) * p.groups;
}

// In the workspace: the parts of the sum, then where the pixels lie.
std::size_t places_at(const Problem& p, const Choice& c) { return aligned(gpu::parts_bytes(p, c.splits)); }
std::size_t places_bytes(const Problem& p, const Choice& c) {
  return static_cast<std::size_t>(padded(p, c) * (3 + ceil_div(p.r * p.s, 32)) * 4);
}

// As many parts as give each unit a block or four, each of some tiles.
std::vector<Choice> choices(const Problem& p, const Tile& t, const DeviceInfo& device) {
  constexpr i64 kLeastTiles = 4;
  const i64 units = std::max(1, device.units);
  const i64 most =
      std::min({pixels(p) / (kLeastTiles * t.pixels(p.dtype)), kMostBlocks / p.groups, i64{kMostSplits}});
  std::vector<Choice> all;
  for (const int splits : gpu::weights_splits_of(units, blocks(p, t), most)) all.push_back({&t, splits});
  return all;
}

// The matrix units' part of what bounds a tile of the sum, where they and the vector units take turns: as
// counted in clang's code, which works so many cycles for each of the pieces that a thread brings.
double matrix_share(const Tile& t, const Unit& unit, DType dtype) {
  const double piece_cycles = unit.wave == 64 ? 200 : 64;
  const double pieces = static_cast<double>(t.chunks * (t.rows + t.columns) / kEach) / t.threads(unit);
  const double results = static_cast<double>(t.rows / t.waves_m * (t.columns / t.waves_n));
  const double matrix = results / 256 * t.chunks * (dtype == DType::f32 ? unit.cycles_32 : unit.cycles_16);
  return matrix / (matrix + pieces * piece_cycles);
}

double predicted_ms(const Problem& p, const Choice& c, const DeviceInfo& device) {
  constexpr double kLaunchMs = 0.002, kUnitGbps = 30;
  const Tile& t = *c.tile;
  const Unit& unit = *unit_of(device);
  const int units = std::max(1, device.units);
  const i64 group_c = p.c / p.groups, group_k = p.k / p.groups;
  const double useful =
      static_cast<double>(group_k) * static_cast<double>(group_c * p.r * p.s) /
      (static_cast<double>(round_up(group_k, t.rows)) * static_cast<double>(round_up(columns(p), t.columns)));
  const i64 all = blocks(p, t) * c.splits;
  const double busy = static_cast<double>(all) / static_cast<double>(ceil_div(all, units) * units);
  const double share =
      useful * matrix_share(t, unit, p.dtype) * std::max(busy, 1e-3) * (gathers(p) ? 0.5 : 1);
  const double sum_ms = matrix::product_ms(p, t, share, device);
  const double exchanged =
      2.0 *
      static_cast<double>(places_at(p, c) + places_bytes(p, c) * static_cast<std::size_t>(blocks(p, t)));
  return 2 * kLaunchMs + sum_ms + exchanged / (kUnitGbps * units) * 1e-6;
}

Recipe recipe(const Problem& p, const Choice& choice, const DeviceInfo& device) {
  const Tile& tile = *choice.tile;
  const Unit& unit = *unit_of(device);
  const std::string kernel = "implicit_gemm_matrix_gpu/" + choice.name();
  const Slot places{Place::workspace, places_at(p, choice)};
  const auto n = [](i64 value) { return std::to_string(value); };
  constexpr int kPlaceThreads = 64;
  Recipe recipe;
  recipe.workspace_bytes = places_at(p, choice) + places_bytes(p, choice);
  recipe.steps.push_back(launch("places",
                                gpu::source(device, kernel, "matrix_places.cl", "matrix_places",
                                            gpu::constants(p, {{"THREADS", n(kPlaceThreads)}})),
                                gpu::one_dimension(padded(p, choice), kPlaceThreads),
                                {out(places), gpu::number(padded(p, choice)), value(gpu::sizes(p))}));
  const gpu::Constants own = {{std::string("MATRIX_") + unit.feature, "1"},
                              {"BM", n(tile.rows)},
                              {"BN", n(tile.columns)},
                              {"WAVES_M", n(tile.waves_m)},
                              {"WAVES_N", n(tile.waves_n)},
                              {"CHUNKS", n(tile.chunks)},
                              {"GATHER", gathers(p) ? "1" : "0"},
                              {"THREADS", n(tile.threads(unit))}};
  recipe.steps.push_back(
      launch("product",
             gpu::source(device, kernel, "implicit_gemm_matrix_weights.cl", "implicit_gemm_matrix_weights",
                         gpu::constants(p, own)),
             gpu::grid(ceil_div(columns(p), tile.columns), ceil_div(p.k / p.groups, tile.rows),
                       p.groups * choice.splits, tile.threads(unit)),
             {in(Place::x), in(Place::y), in(places), out(Place::workspace), gpu::number(padded(p, choice)),
              gpu::number(choice.splits), value(gpu::sizes(p))}));
  recipe.steps.push_back(gpu::sum_parts_step(p, kernel, Place::workspace, choice.splits, device));
  if (!gathers(p)) recipe.alignment = kChunkBytes;
  return recipe;
}

Candidate candidate_of(const Problem& p, const Choice& choice, const DeviceInfo& device) {
  if (!choice.tile->serves(*unit_of(device), device))
    throw Error(Status::bad_problem, "'" + choice.name() +
                                         "' suits neither the waves nor the local memory of " + device.id +
                                         "; take another tile");
  Candidate c;
  c.config = choice.name();
  c.cost = {predicted_ms(p, choice, device), Bound::arithmetic};
  c.workspace_bytes = places_at(p, choice) + places_bytes(p, choice);
  c.accuracy = dot_product_accuracy(p);
  c.registers = choice.tile->amd.on(device.unit);
  c.recipe = [p, choice, &device] { return recipe(p, choice, device); };
  c.maker = gpu::maker(candidate_of, choice);
  return c;
}

}  // namespace

Support supports(const Problem& p, const DeviceInfo& device) {
  if (std::none_of(std::begin(kTiles), std::end(kTiles),
                   [&](const Tile& t) { return t.serves(*unit_of(device), device); }))
    return gpu::no_tile_fits(device);
  return gpu::weights_fit_a_grid(p, kTiles[std::size(kTiles) - 1].rows);
}

std::vector<Candidate> list(const Problem& p, const DeviceInfo& device) {
  std::vector<Candidate> all;
  for (const Tile& t : kTable) {
    if (!t.serves(*unit_of(device), device)) continue;
    for (const Choice& c : choices(p, t, device)) all.push_back(candidate_of(p, c, device));
  }
  return all;
}

Maker parse(const std::string& config) { return gpu::maker(candidate_of, kTable.parse(config)); }

}  // namespace faltung::matrix::weights
