// The tiles that implicit GEMM chooses from on a CPU, by name.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_CPU_TILE_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_CPU_TILE_HPP_

#include <array>
#include <string>

#include "src/algorithms/config_name.hpp"
#include "src/problem/problem.hpp"

namespace faltung {

// What a register tile is made of: SIMD vectors, these of several groups each, or of pairs of bf16, or AMX's
// tile registers.
enum class Unit { vectors, groups, dot, amx };
inline constexpr NameWord<Unit> kUnits[] = {
    {Unit::amx, "amx"}, {Unit::dot, "dot"}, {Unit::groups, "groups"}, {Unit::vectors, ""}};
// Whether planes become pixels before, and the result's pixels planes after.
inline constexpr NameWord<bool> kTurns[] = {{true, "nhwc"}, {false, ""}};
inline bool sums_pairs(Unit unit) { return unit == Unit::amx || unit == Unit::dot; }

struct BrgemmTile {
  Unit unit;
  int rows, width;  // in vectors, of pairs in columns
  bool turns = false;
  template <class Name>
  void spell(Name& name) {
    name.word(turns, kTurns);
    name.word(unit, kUnits);
    name.key("rt", rows, width);
  }
};

// Ties go to the first.
using BrgemmTiles = std::array<BrgemmTile, 11>;
BrgemmTiles brgemm_tiles();
bool serves(const BrgemmTile& tile, const Problem& p);
BrgemmTile parse_brgemm_tile(const std::string& config);
// Throws Error(bad_problem) where it does not serve.
void require_served(const BrgemmTile& tile, const Problem& p);

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_CPU_TILE_HPP_
