// Rows that are normalized with the elementwise chain behind them, as one step of a GPU.
#ifndef FALTUNG_SRC_NETWORK_NORMALIZE_HPP_
#define FALTUNG_SRC_NETWORK_NORMALIZE_HPP_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/map.hpp"
#include "kernels/cpu/rows.hpp"

namespace faltung::network {

// A map, of whose inputs one lies as the result does and is normalized before: by `op`, along rows of so many
// elements. The CPU's is RowsCall::then.
struct NormalizeCall {
  RowsOp op = RowsOp::standardize;
  std::int64_t length = 1;
  float epsilon = 0;
  MapCall map;
  std::size_t input = 0;
};
// What the map reads beside it, at most.
inline constexpr std::size_t kMostNormalizeOperands = 6;

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_NORMALIZE_HPP_
