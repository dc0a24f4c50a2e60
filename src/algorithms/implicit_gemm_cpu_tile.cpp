#include "src/algorithms/implicit_gemm_cpu_tile.hpp"

#include "kernels/cpu/brgemm.hpp"
#include "kernels/cpu/brgemm_amx.hpp"
#include "kernels/cpu/brgemm_dot.hpp"
#include "src/algorithms/implicit_gemm_groups.hpp"
#include "src/algorithms/implicit_gemm_turns.hpp"
#include "src/problem/rewrite_plain.hpp"
#include "src/problem/text.hpp"

namespace faltung {

BrgemmTiles brgemm_tiles() {
  const auto vectors = [](int width) { return BrgemmTile{Unit::vectors, brgemm_max_rows(width), width}; };
  const auto turned = [](int width) {
    return BrgemmTile{Unit::vectors, brgemm_max_rows(width), width, true};
  };
  return {vectors(3),
          vectors(2),
          vectors(1),
          vectors(4),
          turned(3),
          turned(2),
          turned(1),
          turned(4),
          BrgemmTile{Unit::groups, brgemm_max_group_rows(), 1},
          BrgemmTile{Unit::dot, 2 * kDotRows, kPairColumns},
          BrgemmTile{Unit::amx, 2 * kAmxRows, kPairColumns}};
}

bool serves(const BrgemmTile& tile, const Problem& p) {
  if (tile.turns) return PlaneTurns::serves(p);
  if (tile.unit == Unit::groups) return groups_fit_lanes(p);
  return tile.unit == Unit::vectors || (p.dtype == DType::bf16 && p.layout == Layout::nhwc && is_plain(p) &&
                                        !has_pitch(p) && p.direction != Direction::backward_weights &&
                                        (tile.unit == Unit::amx ? amx_usable() : dot_usable()));
}

BrgemmTile parse_brgemm_tile(const std::string& config) {
  const BrgemmTiles all = brgemm_tiles();
  return *TileTable<BrgemmTile>("implicit_gemm_cpu", all).parse(config).tile;
}

void require_served(const BrgemmTile& tile, const Problem& p) {
  if (serves(tile, p)) return;
  const char* const needs =
      tile.turns ? "nchw and f32, in two dimensions, no slices and nothing transposed"
      : tile.unit == Unit::groups
          ? "nhwc and groups of 2, 4, ... channels up to a vector's, as many of the input as of the output"
      : tile.unit == Unit::amx ? "bf16, nhwc, no slices and a processor with AMX"
                               : "bf16, nhwc, no slices and a processor with AVX-512's dot product of bf16";
  throw Error(Status::bad_problem, "implicit_gemm_cpu/" + config_name(tile) + " needs fwd or bwd_d in " +
                                       needs + "; force another config for " + to_string(p));
}

}  // namespace faltung
