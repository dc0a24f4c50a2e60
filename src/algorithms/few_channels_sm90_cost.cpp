// What few_channels_sm90 costs: fitted to 80 kernels timed on an H200 (docs/notes/hopper_first_layers.md).
#include <algorithm>

#include "src/algorithms/few_channels_sm90.hpp"
#include "src/algorithms/gpu.hpp"
#include "src/algorithms/sm90/chip.hpp"
#include "src/problem/integers.hpp"

namespace faltung::few_channels_sm90 {
namespace {

using sm90::Chip;

constexpr double kCyclesPerMs = 1.65e6, kBytesPerMs = 4.26e9;

// Blocks take turns that are so many cycles each.
double turns_ms(const Counts& n, double cycles, const Chip& chip) {
  return static_cast<double>(ceil_div(n.tiles * n.k_tiles, n.blocks)) * cycles / (kCyclesPerMs * chip.pace);
}
double memory_ms(const Problem& p, const Chip& chip) { return min_bytes(p) / (kBytesPerMs * chip.memory); }

Cost of(double launch, double work, double bytes, double share) {
  return {launch + std::max(work, bytes) + share * std::min(work, bytes),
          bytes > work ? Bound::bytes : Bound::arithmetic};
}

// A multiprocessor's port to shared memory: words of the first operand, the filter for each product, results
// in and out, the patch.
Cost forward(const Tile& t, const Problem& p, const Counts& n, const Chip& chip) {
  constexpr double kLaunch = 0.0028, kShare = 0.2, kTile = 350, kPlanes = 1.25;
  constexpr int kWarps = 16;
  const Config c = config(t, p);
  const double k = c.channels, all = c.height / 4;  // of four warps together
  const double port = all * (steps(c) * (16 + k / 4) + 2 * k) + patch_bytes(c) / 128.0;
  // Smaller blocks share a multiprocessor, and one multiplies while the other waits.
  const double cycles = (port * kWarps / t.rows + kTile) * (c.nchw ? kPlanes : 1);
  return of(kLaunch, turns_ms(n, cycles, chip), memory_ms(p, chip), kShare);
}

// The same of steps of 16 pixels: words of the first operand, and the gradient for each 64 terms.
Cost weights(const Tile& t, const Problem& p, const Counts& n, const Chip& chip) {
  constexpr double kLaunch = 0.0042, kStep = 26, kTile = 100, kFirst = 0.25;
  const Config c = config(t, p);
  const double tile =
      c.height * divided(c.width, kColumns) * (consumers(c) * 32 + kStep) + patch_bytes(c) / 128.0 + kTile;
  const double parts = static_cast<double>(gpu::parts_bytes(p, n.blocks / n.k_tiles));
  const double begin = kFirst * tile / (kCyclesPerMs * chip.pace);
  return of(kLaunch + begin + 2 * parts / kBytesPerMs, turns_ms(n, tile, chip), memory_ms(p, chip), 0);
}

// Rows of the gradient: products, and what a row waits for; of planes its turning.
Cost data(const Tile& t, const Problem& p, const Counts& n, const Chip& chip) {
  constexpr double kLaunch = 0.0046, kShare = 0.3, kTile = 1500;
  constexpr double kProducts = 0.72, kRow = 335, kProductsTurned = 0.525, kRowTurned = 1080;
  const Config c = config(t, p);
  const double columns = data_columns(c);
  const double products = 8.0 * reach_w(c) * std::max(columns / 2, 12.2 + columns / 4);
  const double row = c.nchw ? kProductsTurned * products + kRowTurned : kProducts * products + kRow;
  return of(kLaunch, turns_ms(n, (t.rows + reach_h(c) - 1) * row + kTile, chip), memory_ms(p, chip), kShare);
}

}  // namespace

Cost cost(const Tile& t, const Problem& p, const Target& target) {
  const Counts n = counts(t, p, target.device);
  const Chip chip = Chip::of(target, p);
  return is_weights(p) ? weights(t, p, n, chip) : is_data(p) ? data(t, p, n, chip) : forward(t, p, n, chip);
}

}  // namespace faltung::few_channels_sm90
