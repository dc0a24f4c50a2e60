// How a map is divided: into parts of matrices, whose columns are its last dimension and whose rows the one
// before.
#ifndef FALTUNG_KERNELS_CPU_MAP_GRID_HPP_
#define FALTUNG_KERNELS_CPU_MAP_GRID_HPP_

#include <algorithm>

#include "kernels/cpu/map.hpp"

namespace faltung {

inline constexpr std::int64_t kMapStrip = 256;  // elements that an instruction computes at a time

struct MapGrid {
  std::int64_t rows, columns, outer = 1;
  std::int64_t rows_each, columns_each;  // of a part
  std::int64_t row_parts, column_parts;

  explicit MapGrid(const MapCall& call) {
    constexpr std::int64_t kPart = 16384;  // elements: some microseconds
    const auto size = [&](int d) { return d < 0 ? 1 : call.sizes[static_cast<std::size_t>(d)]; };
    rows = size(call.rank - 2), columns = size(call.rank - 1);
    for (int d = 0; d < call.rank - 2; ++d) outer *= size(d);
    columns_each = std::max<std::int64_t>(1, std::min(columns, kPart));
    rows_each = std::max<std::int64_t>(1, std::min(rows, (kPart / columns_each + 15) / 16 * 16));
    row_parts = (rows + rows_each - 1) / rows_each;
    column_parts = (columns + columns_each - 1) / columns_each;
  }
};

// What is read and written next, for as many floats as a part has elements: brought near meanwhile. Or null.
struct MapAhead {
  const std::byte *from = nullptr, *to = nullptr;
};
void map_task_ahead(const MapCall& call, const std::byte* const* inputs, std::byte* output, std::int64_t task,
                    const MapAhead& ahead);

struct MapPart {
  std::array<std::int64_t, kMapRank> begin{};  // the index of its first element
  std::int64_t rows, columns;
  int rank;

  std::int64_t offset(const MapOperand& operand) const {
    std::int64_t at = operand.offset;
    for (std::size_t d = 0; d < static_cast<std::size_t>(rank); ++d) at += begin[d] * operand.strides[d];
    return at;
  }
  std::int64_t row_stride(const MapOperand& operand) const {
    return rank < 2 ? 0 : operand.strides[static_cast<std::size_t>(rank - 2)];
  }
};

inline MapPart map_part(const MapCall& call, std::int64_t task) {
  const MapGrid grid(call);
  MapPart part;
  part.rank = call.rank;
  const std::int64_t column = task % grid.column_parts * grid.columns_each;
  task /= grid.column_parts;
  const std::int64_t row = task % grid.row_parts * grid.rows_each;
  task /= grid.row_parts;
  part.rows = std::min(grid.rows_each, grid.rows - row);
  part.columns = std::min(grid.columns_each, grid.columns - column);
  part.begin[static_cast<std::size_t>(call.rank - 1)] = column;
  if (call.rank > 1) part.begin[static_cast<std::size_t>(call.rank - 2)] = row;
  for (int d = call.rank - 3; d >= 0; --d) {
    part.begin[static_cast<std::size_t>(d)] = task % call.sizes[static_cast<std::size_t>(d)];
    task /= call.sizes[static_cast<std::size_t>(d)];
  }
  return part;
}

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_MAP_GRID_HPP_
