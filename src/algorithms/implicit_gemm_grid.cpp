#include "src/algorithms/implicit_gemm_grid.hpp"

#include <algorithm>

namespace faltung {

using i64 = std::int64_t;

WorkGrid::WorkGrid(const TapConvolution& t)
    : groups_(t.groups),
      all_columns_(t.columns),
      images_(t.images(), t.images()),
      rows_(t.rows, t.rows),
      columns_(t.columns, t.columns) {}

void WorkGrid::divide_columns(i64 most, i64 unit) {
  unit_ = unit;
  columns_ = EvenSplit(ceil_div(all_columns_, unit), most / unit);
}

void WorkGrid::divide_panels(i64 panels, i64 least, int threads) {
  const i64 wanted = i64{4} * threads;
  const i64 parts = pixel_items() < wanted ? ceil_div(wanted, pixel_items()) : 1;
  panels_ = EvenSplit::in_parts(panels, std::max(parts, least));
}

WorkItem WorkGrid::item(i64 index) const {
  const auto take = [&index](i64 parts) {
    const i64 part = index % parts;
    index /= parts;
    return part;
  };
  const i64 column = take(columns_.parts()), row = take(rows_.parts()), image = take(images_.parts());
  WorkItem item;
  item.group = take(groups_);
  item.panel0 = panels_.begin(index), item.panel1 = panels_.begin(index + 1);
  item.image0 = images_.begin(image), item.images = images_.size(image);
  item.row0 = rows_.begin(row), item.rows = rows_.size(row);
  item.column0 = column_begin(column), item.columns = column_begin(column + 1) - item.column0;
  return item;
}

std::optional<ItemInput> WorkGrid::input_ahead(const TapConvolution& t, i64 index,
                                               const WorkItem& current) const {
  if (index >= items() || (columns_.parts() > 1 && t.in.h > 1) || t.in.d > 1) return std::nullopt;
  const WorkItem next = item(index);
  if (next.group == current.group && next.image0 == current.image0 && next.row0 == current.row0 &&
      next.column0 == current.column0)
    return std::nullopt;
  i64 row0 = 0, row1 = t.in.h, column0 = 0, columns = t.in.w;
  if (columns_.parts() > 1) {
    column0 = std::max<i64>(next.column0 * t.step_w + t.min_w(), 0);
    columns = std::min(t.in.w - column0, (next.columns - 1) * t.step_w + t.extent_w());
  } else if (next.images == 1) {
    const i64 last = next.row0 + next.rows - 1;
    row0 = std::clamp<i64>(next.row0 * t.step_h + t.min_h(), 0, t.in.h);
    row1 = std::clamp<i64>(last * t.step_h + t.min_h() + t.extent_h(), row0, t.in.h);
  }
  return ItemInput{next, row0, row1 - row0, column0, columns};
}

}  // namespace faltung
