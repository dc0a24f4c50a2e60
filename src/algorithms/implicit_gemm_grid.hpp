// The items that implicit GEMM divides a convolution into: a box of output pixels times some of the channels.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_GRID_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_GRID_HPP_

#include <cstdint>
#include <optional>

#include "src/algorithms/implicit_gemm_taps.hpp"
#include "src/algorithms/implicit_gemm_tiling.hpp"

namespace faltung {

// An item: panels [panel0, panel1) of one group's output channels, and a box of output pixels.
struct WorkItem {
  std::int64_t panel0, panel1, group, image0, images, row0, rows, column0, columns;
};

// An item, and the rows and columns of the input that it reads.
struct ItemInput {
  WorkItem item;
  std::int64_t row0, rows, column0, columns;
};

// Items follow each other along columns first, then rows, images, groups and panels.
class WorkGrid {
 public:
  // Nothing divided.
  explicit WorkGrid(const TapConvolution& convolution);

  // Parts of at most so many; columns in whole units.
  void divide_images(std::int64_t most) { images_ = EvenSplit(images_.total(), most); }
  void divide_rows(std::int64_t most) { rows_ = EvenSplit(rows_.total(), most); }
  void divide_columns(std::int64_t most, std::int64_t unit = 1);
  // Into so many parts that there are items for all threads (0: they are one worker's), and no fewer than
  // least. Last, once the pixels are divided.
  void divide_panels(std::int64_t panels, std::int64_t least, int threads);

  std::int64_t items() const { return panels_.parts() * pixel_items(); }
  WorkItem item(std::int64_t index) const;
  // Of the largest item.
  std::int64_t images() const { return images_.largest(); }
  std::int64_t rows() const { return rows_.largest(); }
  std::int64_t columns() const { return std::min(columns_.largest() * unit_, all_columns_); }
  std::int64_t panels() const { return panels_.largest(); }

  const EvenSplit& image_parts() const { return images_; }
  const EvenSplit& row_parts() const { return rows_; }
  const EvenSplit& column_parts() const { return columns_; }  // of units
  std::int64_t column_begin(std::int64_t part) const {
    return std::min(columns_.begin(part) * unit_, all_columns_);
  }
  // visit(columns, count) for the lengths of column parts: three at most.
  template <class Visit>
  void each_column_count(const Visit& visit) const {
    const std::int64_t last = columns_.parts() - 1, rest = all_columns_ - column_begin(last);
    columns_.each_size([&](std::int64_t units, std::int64_t count) {
      if (units == columns_.size(last)) --count;
      if (count > 0) visit(units * unit_, count);
    });
    visit(rest, std::int64_t{1});
  }
  // Without the channels.
  std::int64_t pixel_items() const { return groups_ * images_.parts() * rows_.parts() * columns_.parts(); }

  // Of the item of this index, for who runs `current` now and that one next: nothing where there is no such
  // item, where it reads what `current` does, or where a channel's part of it is no one stretch of memory.
  std::optional<ItemInput> input_ahead(const TapConvolution& convolution, std::int64_t index,
                                       const WorkItem& current) const;

 private:
  std::int64_t groups_ = 1, all_columns_ = 1, unit_ = 1;
  EvenSplit images_, rows_, columns_, panels_;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_GRID_HPP_
