#include "src/algorithms/implicit_gemm_pairs.hpp"

#include <algorithm>
#include <utility>

#include "src/problem/integers.hpp"

namespace faltung {

using i64 = std::int64_t;

PairPixels pair_pixels(const TapConvolution& t, const PairTile& tile) {
  PairPixels p;
  std::vector<StagedTap> rows;
  for (const Tap& tap : t.taps) {
    if (rows.empty() || rows.back().h != tap.h) rows.push_back({tap.h, t.min_w(), {}});
    rows.back().parts.push_back(tap);
  }
  i64 widest = 0;
  for (const StagedTap& row : rows) widest = std::max(widest, static_cast<i64>(row.parts.size()));
  const i64 single = round_up(t.in_channels, tile.step), merged = round_up(widest * t.in_channels, tile.step);
  p.merges = widest > 1 && tile.merges * static_cast<double>(static_cast<i64>(rows.size()) * merged) <=
                               static_cast<double>(static_cast<i64>(t.taps.size()) * single);
  // Pixels whose distance is a multiple of a page share the few lines of L1 that such addresses go to.
  const bool conflict = t.in.c * t.step_w * 2 % 4096 == 0 && t.columns > 1;
  p.staged = p.merges || t.padded() || t.in_channels % tile.step != 0 || conflict;
  p.merges = p.merges || (p.staged && t.taps.size() == 1);  // without what it steps over
  p.merges_neighbours = widest == t.extent_w();
  if (p.merges) {
    p.taps = std::move(rows);
  } else {
    for (const Tap& tap : t.taps) p.taps.push_back({tap.h, tap.w, {tap}});
  }
  p.pixel = p.merges ? merged : single;
  p.pitch = p.pixel % 2048 == 0 ? p.pixel + 32 : p.pixel;
  return p;
}

}  // namespace faltung
