// Norms on the CPU: rows that are standardized together with the elementwise chain behind, which computes a
// row while it is near.
#include <algorithm>

#include "src/network/lowering.hpp"
#include "src/network/map_builder.hpp"
#include "src/network/moments.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// The shape with groups of channels as a dimension, where these are standardized; how many dimensions count
// rows.
struct RowsShape {
  Shape sizes;
  std::size_t outer;
};
RowsShape rows_shape(const Shape& shape, const Node& norm, i64 rows) {
  if (standardizes_groups(norm)) {
    const i64 groups = rows / shape[0];
    return {{shape[0], groups, shape[1] / groups, shape[2], shape[3]}, 2};
  }
  RowsShape all{shape, 0};
  for (i64 counted = 1; counted < rows; ++all.outer) counted *= shape[all.outer];
  return all;
}

// Strides of a tensor of the shape, in that with groups.
Shape with_groups(const Shape& strides, const RowsShape& rows) {
  if (rows.sizes.size() == strides.size()) return strides;
  return {strides[0], strides[1] * rows.sizes[2], strides[1], strides[2], strides[3]};
}

// A map over all rows as one over each. Its rows are the outer dimensions, in which the last input but one
// has strides.
RowsThen by_rows(MapCall all, int x) {
  RowsThen then;
  then.x = x;
  const auto is_row = [&](int d) { return all.inputs.back().strides[static_cast<std::size_t>(d)] != 0; };
  while (then.rank < all.rank && is_row(then.rank)) ++then.rank;
  const auto take = [&](auto& from) {
    std::array<i64, kMapRank> outer{};
    std::copy_n(from.begin(), then.rank, outer.begin());
    std::rotate(from.begin(), from.begin() + then.rank, from.end());
    std::fill(from.end() - then.rank, from.end(), 0);
    return outer;
  };
  then.sizes = take(all.sizes);
  const std::size_t own = all.inputs.size() - 2;
  for (std::size_t i = 0; i < own; ++i) then.strides.push_back(take(all.inputs[i].strides));
  for (std::size_t i = own; i < all.inputs.size(); ++i) take(all.inputs[i].strides);
  then.strides.push_back(take(all.output.strides));
  all.rank -= then.rank;
  then.map = std::move(all);
  return then;
}

}  // namespace

Work standardize_then(const Lowering& lowering, const Node& norm, const Shape& shape, Layout layout,
                      std::vector<StridedOperand> inputs, StridedOperand output,
                      std::vector<MapInstruction> code, int x) {
  const Extent e = standardized_rows(lowering, norm, layout).value();
  const RowsShape rows = rows_shape(shape, norm, e.outer);
  for (StridedOperand& input : inputs) input.strides = with_groups(input.strides, rows);
  output.strides = with_groups(output.strides, rows);
  // A number of each row, of which there is one at a time.
  Shape by_row =
      contiguous_strides(Shape(rows.sizes.begin(), rows.sizes.begin() + static_cast<i64>(rows.outer)));
  by_row.resize(rows.sizes.size(), 0);
  inputs.resize(inputs.size() + 2, {Type::f32, by_row, 0});
  RowsCall call{RowsOp::standardize, {e.outer, e.length, 1}, norm.number("epsilon", 1e-5f)};
  call.then = std::make_shared<const RowsThen>(
      by_rows(make_map(rows.sizes, inputs, output, std::move(code), norm.title()), x));
  return call;
}

// Of rows of f32 that lie in one piece.
bool Lowering::joins_norm(const Node& norm, const std::vector<const Node*>& nodes) {
  if (!is_norm(norm)) return false;
  const ValueId x = norm.inputs[0], y = nodes.back()->outputs[0];
  const Layout layout = layout_of(*nodes.back());
  const auto is_f32 = [&](ValueId id) { return graph_.at(id).type == Type::f32; };
  if (shape(x) != shape(y) || !is_f32(x) || !is_f32(norm.outputs[0]) || !is_f32(y) || graph_.is_constant(x) ||
      (is_image(shape(y)) && layout_of(norm) != layout))
    return false;
  const std::optional<Extent> rows = standardized_rows(*this, norm, layout);
  if (!rows || rows->inner > 1 || rows->length < 2) return false;
  std::vector<const Node*> all{&norm};
  all.insert(all.end(), nodes.begin(), nodes.end());
  return chain_registers(*this, all) <= kMapRegisters;
}

}  // namespace faltung::network
