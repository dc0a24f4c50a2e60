#include "src/algorithms/implicit_gemm_gpu_tile.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "src/algorithms/gathered_product.hpp"
#include "src/problem/integers.hpp"

namespace faltung::implicit_gemm {
namespace {

using i64 = std::int64_t;

constexpr Tile kTiles[] = {
    {Kind::block, 128, 128, 16, 8, 8, 4, {130, 360}},
    {Kind::block, 128, 128, 8, 8, 8, 4, {218, 217}},
    {Kind::block, 64, 256, 16, 8, 8, 4, {130, 376}},
    {Kind::block, 64, 256, 8, 8, 8, 4, {224, 222}},
    {Kind::block, 64, 128, 8, 8, 8, 4, {225, 222}},
    {Kind::block, 128, 64, 8, 8, 8, 4, {229, 227}},
    {Kind::block, 256, 64, 8, 8, 8, 4, {229, 228}},
    {Kind::block, 64, 64, 8, 8, 8, 4, {232, 231}},
    {Kind::block, 64, 64, 16, 4, 4, 4, {170, 169}},
    {Kind::block, 32, 64, 16, 4, 4, 4, {174, 174}},
    {Kind::block, 16, 64, 16, 2, 4, 4, {133, 134}},
    {Kind::wide, 96, 64, 128, 12, 32, 16},
    {Kind::wide, 64, 64, 128, 8, 32, 16},
    {Kind::wide, 32, 32, 64, 8, 16, 8},
};
constexpr int kMostSplits = 64;
constexpr TileTable<Tile> kTable("implicit_gemm_gpu", kTiles, kMostSplits);
using gpu::kMostBlocks;

bool is_wide(const Tile& t) { return t.kind == Kind::wide; }

// Wide tiles are for processors whose threads own vector registers, and not for sums over pixels.
bool serves(const Tile& t, const Problem& p, const DeviceInfo& device) {
  const bool cpu = device.has("runs_on_cpu");
  if (is_wide(t) && (!cpu || device.has("lanes") || p.direction == Direction::backward_weights)) return false;
  // There 16 steps of 64 results a thread take seconds to compile, and gain nothing.
  if (cpu && !is_wide(t) && t.ts * t.tv * t.steps > 512) return false;
  if (!is_wide(t) && device.unit.is_amd &&
      device.unit.blocks(t.threads(), t.amd.on(device.unit), static_cast<int>(t.local_bytes())) == 0) {
    return false;
  }
  return t.threads() <= device.block_threads && t.local_bytes() <= device.local_bytes;
}

// How many blocks of a tile a unit has room for.
int resident_blocks(const Tile& t, const DeviceInfo& device) {
  const UnitLimits& unit = device.unit;
  if (is_wide(t) || device.has("runs_on_cpu")) return 1;
  if (!unit.is_amd) return std::max(1, 512 / t.threads());  // of 128 registers a thread
  return std::max(1, unit.blocks(t.threads(), t.amd.on(unit), static_cast<int>(t.local_bytes())));
}

i64 blocks_of(const Shape& s, const Tile& t) {
  return ceil_div(s.scalars, t.scalars) * ceil_div(s.vectors, t.vectors) * s.products;
}

std::string launch_limit(const Problem& p, const Tile& t) {
  const Shape s = shape_of(p);
  const bool x_is_vectors = p.direction == Direction::backward_weights || vectors_are_pixels(p);
  const i64 y = x_is_vectors ? ceil_div(s.scalars, t.scalars) : ceil_div(s.vectors, t.vectors);
  if (y <= kMostBlocks && s.products <= kMostBlocks) return "";
  return fmt::format("{} blocks of channels and {} groups or phases: at most {} are launched at once", y,
                     s.products, kMostBlocks);
}

// Sums are shared while units have little to do, and each block a sum that is worth the exchange. On CPUs,
// which gain nothing, one split for the sake of the tests.
bool worth_splitting(const Shape& s, const Choice& c, const DeviceInfo& device) {
  const Tile& t = *c.tile;
  if (s.products * c.splits > kMostBlocks) return false;
  if (device.has("runs_on_cpu")) return c.splits <= 2 && t.scalars <= 16;
  return blocks_of(s, t) * c.splits <= 8 * device.units && s.steps >= 8 * t.steps * c.splits;
}

}  // namespace

std::size_t Tile::local_bytes() const {
  const int pixels = std::max(scalars, vectors);
  const int floats = kind == Kind::wide ? pixels * steps + scalars * vectors + 6 * pixels
                                        : 2 * (scalars + vectors + 4) * steps + 2 * pixels;
  return std::size_t{4} * static_cast<std::size_t>(floats);
}

Choice parse(const std::string& config) {
  const Choice choice = kTable.parse(config);
  if (!is_wide(*choice.tile) || choice.splits == 1) return choice;
  throw Error(Status::bad_problem, "implicit_gemm_gpu's wide tiles do not split the sum; not '" + config +
                                       "', but '" + config_name(*choice.tile) + "'");
}

std::vector<const Tile*> tiles(const Problem& p, const DeviceInfo& device) {
  std::vector<const Tile*> serving;
  for (const Tile& tile : kTable) {
    if (serves(tile, p, device)) serving.push_back(&tile);
  }
  return serving;
}

std::string launch_limit(const Problem& p) {
  constexpr std::size_t kSmallBlocks = 9;  // on any device
  return launch_limit(p, kTable[kSmallBlocks]);
}

std::vector<Choice> choices(const Problem& p, const DeviceInfo& device) {
  const Shape s = shape_of(p);
  std::vector<Choice> choices;
  for (const Tile* tile : tiles(p, device)) {
    if (!launch_limit(p, *tile).empty()) continue;
    choices.push_back({tile});
    // The parts of a sum are whole tensors.
    if (p.direction == Direction::backward_weights || is_wide(*tile) || p.y_pitch != 0) continue;
    for (const int splits : {2, 3, 4, 6, 8, 12, 16}) {
      if (!worth_splitting(s, {tile, splits}, device)) break;
      choices.push_back({tile, splits});
    }
  }
  return choices;
}

bool vectors_are_pixels(const Problem& p) { return p.layout == Layout::nchw; }

Shape shape_of(const Problem& p) {
  if (p.direction == Direction::backward_weights)
    return {p.k / p.groups, p.c / p.groups * p.r * p.s, p.n * p.p() * p.q(), p.groups};
  const gpu::GatheredProduct g = gpu::gathered_product(p);
  const bool v = vectors_are_pixels(p);
  return {v ? g.out : g.pixels, v ? g.pixels : g.out, g.in * p.r * p.s, g.products};
}

i64 splits_of(const Problem& p, const Choice& c, const DeviceInfo& device) {
  if (p.direction != Direction::backward_weights) return c.splits;
  const Shape s = shape_of(p);
  const i64 wanted = ceil_div(i64{device.units} * 2, blocks_of(s, *c.tile)),
            longest = std::max<i64>(1, s.steps / (8 * c.tile->steps));
  return std::clamp<i64>(std::min(wanted, longest), 1, std::max<i64>(1, kMostBlocks / s.products));
}

double predicted_ms(const Problem& p, const Choice& choice, const DeviceInfo& device) {
  const Tile& t = *choice.tile;
  const Shape s = shape_of(p);
  // What is computed beyond the edges, and the units that have no block, are lost.
  const i64 rows = ceil_div(s.scalars, t.scalars), columns = ceil_div(s.vectors, t.vectors);
  const i64 splits = splits_of(p, choice, device);
  const double useful = static_cast<double>(s.scalars) * static_cast<double>(s.vectors) /
                        (static_cast<double>(rows * t.scalars) * static_cast<double>(columns * t.vectors));
  const double blocks = static_cast<double>(rows * columns * s.products * splits);
  const bool own_units = is_wide(t) || device.has("runs_on_cpu");
  // Blocks come in rounds of as many as are resident, and fewer waves hide less of what each waits for.
  const double of_unit = blocks / device.units, room = resident_blocks(t, device);
  const double side_by_side = std::min(room, std::ceil(of_unit)), rounds = of_unit / side_by_side;
  const UnitLimits& unit = device.unit;
  const double lanes = unit.is_amd ? unit.wave_threads * unit.schedulers : 32 * 4;
  const double busy = own_units ? std::min(1.0, of_unit)
                                : rounds / std::ceil(rounds) * gpu::pace(side_by_side * t.threads() / lanes);
  // Each product needs 1/ts of a vector and 1/tv of a scalar from local memory, and each step of a tile a
  // part of its rows from the memory beyond.
  const double reuse = 1 / (1 + 2.0 / t.ts + 2.0 / t.tv + 8.0 / t.scalars + 8.0 / t.vectors + 1.5 / t.steps);
  // A CPU runs a block's threads one after the other; sums over pixels are gathered on both sides.
  const bool weights = p.direction == Direction::backward_weights;
  const double share = is_wide(t) ? 0.5 : own_units ? 0.1 : weights ? 0.4 : 1.5;
  double sum_ms = gpu::arithmetic_ms(p, device, share * useful * busy * reuse);
  // Where there is little to sum, results take their time: so many a ms of an H200's unit.
  constexpr double kResults = 1.5e6;
  if (!device.has("runs_on_cpu"))
    sum_ms = std::max(sum_ms, static_cast<double>(s.scalars) * static_cast<double>(s.vectors) *
                                  static_cast<double>(s.products) / (kResults * device.units));
  if (choice.splits == 1) return sum_ms;
  constexpr double kLaunchMs = 0.002, kUnitGbps = 30;
  const double exchanged = 2.0 * static_cast<double>(gpu::parts_bytes(p, splits));
  return sum_ms + kLaunchMs + exchanged / (kUnitGbps * device.units) * 1e-6;
}

}  // namespace faltung::implicit_gemm
