// How PixelLanes computes an item.
#include <algorithm>
#include <new>

#include "src/algorithms/implicit_gemm_pixels.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {

using i64 = std::int64_t;

// Of the item that this worker will probably run next: its input, where each channel's is contiguous.
Prefetch PixelLanes::prefetch(i64 index, const WorkItem& current, const PartCall& call, i64 calls) const {
  if (t_.extent_h() < t_.step_h) return {};
  const std::optional<ItemInput> next = grid_.input_ahead(t_, index, current);
  // Whole images that are cut are more than the second-level cache holds beside this item.
  if (!next || (next->item.images > 1 && reductions_.parts() > 1)) return {};
  const i64 bytes = size_of(p_.dtype), channel = next->item.group * t_.in_channels;
  const std::byte* from = static_cast<const std::byte*>(call.in) +
                          t_.in.offset(next->item.image0, channel, next->row0, next->column0) * bytes;
  return Prefetch({from, t_.in_channels, next->rows * next->columns * bytes, t_.in.stride_c * bytes,
                   next->item.images, t_.in.stride_n * bytes},
                  calls);
}

// Of a lone tap, stored as they are computed: a panel's tiles of one width follow each other in memory, and
// one call computes them all.
void PixelLanes::run_panels(const WorkItem& item, i64 cut, const PartCall& call, const float* patch,
                            const Segments& segments, Prefetch& ahead) const {
  const i64 pixels = item.rows * item.columns, channels = reductions_.size(cut);
  const EvenSplit vectors = tiles(pixels);
  float* const out = static_cast<float*>(call.out) +
                     t_.out_offset(item.image0, item.group * t_.out_channels, item.row0, item.column0);
  const float* const from = in_place_ ? run_of(item, cut, call) : patch;
  BrgemmCall brgemm;
  brgemm.segment_count = segments.count, brgemm.length = channels;
  brgemm.c_row_stride = t_.out.stride_c;
  for (i64 panel = item.panel0; panel < item.panel1; ++panel) {
    const int m = static_cast<int>(panels_.size(panel));
    brgemm.a0 = call.packed + packed_offset(item.group, cut, panel);
    brgemm.a1 = static_cast<const float*>(brgemm.a0) + 7;
    brgemm.a_step = m;
    brgemm.segments = m == panels_.largest() ? segments.of_large : segments.of_small;
    i64 part = 0;
    vectors.each_size([&](i64 size, i64 count) {
      const i64 width = size * lanes_, column = vectors.begin(part) * lanes_;
      part += count;
      brgemm.b = from + (in_place_ ? column : column * channels);
      brgemm.b_step = in_place_ ? t_.in.stride_c : width;
      brgemm.tiles = count, brgemm.b_tile = in_place_ ? width : width * channels, brgemm.c_tile = width;
      brgemm.columns = static_cast<int>(std::min(width, pixels - (vectors.begin(part) * lanes_ - width)));
      brgemm.c0 = out + panels_.begin(panel) * t_.out.stride_c + column;
      brgemm.c1 = brgemm.c0 + 7 * brgemm.c_row_stride;
      if (cut > 0) brgemm.addend0 = brgemm.c0, brgemm.addend1 = brgemm.c1;
      finish_in_kernel(brgemm, call, item.group * t_.out_channels + panels_.begin(panel),
                       cut + 1 == reductions_.parts() ? brgemm.c0 : nullptr);
      // The next panel's first lines, or the narrower tile's.
      const bool more = part < vectors.parts();
      BrgemmFetch next;
      if (more || panel + 1 < item.panel1) {
        const i64 run = more ? vectors.size(part) : vectors.size(0);
        const i64 rows = panels_.size(more ? panel : panel + 1);
        const float* const to =
            more ? brgemm.c0 + count * width : out + panels_.begin(panel + 1) * t_.out.stride_c;
        const i64 lines = ceil_div(run * lanes_ * 4 + (t_.out.stride_c % 16 == 0 ? 0 : 60), kFetchedLine);
        next = {reinterpret_cast<const char*>(to), rows * lines, lines, lines, t_.out.stride_c * 4};
      }
      brgemm.near = in_steps(next, channels), brgemm.far = ahead.next(channels * count, count);
      kernel_of(m, static_cast<int>(size))(brgemm);
    });
  }
}

void PixelLanes::run_rows(const WorkItem& item, i64 cut, const PartCall& call, const float* patch,
                          const PhaseStrides& strides, const Segments& segments, float* sums,
                          Prefetch& ahead) const {
  const i64 line_count = lines(item.rows), pixels = line(item.rows, item.columns);
  const EvenSplit vectors = tiles(pixels);
  const bool last = cut + 1 == reductions_.parts();
  alignas(64) float finished[14 * 64];
  const i64 steps = taps() * reductions_.size(cut);
  const bool scattered = joined_ && t_.out_step_w > 1;
  // In the result. An offset of a tensor is divisions, which a short tile's steps would not hide.
  const i64 first = t_.out_offset(item.image0, item.group * t_.out_channels, item.row0, item.column0);
  const i64 row_stride = t_.out_step_h * t_.out.stride_h;
  const auto offset = [&](i64 row, i64 panel, i64 pixel) {
    if (!scattered) return first + row * row_stride + panels_.begin(panel) * t_.out.stride_c + pixel;
    const i64 k = item.group * t_.out_channels + panels_.begin(panel);
    pixel += item.column0;
    return t_.out_offset(item.image0, k, item.row0 + pixel / t_.columns, pixel % t_.columns);
  };
  // The lines that a tile will be stored to.
  const auto lines_of = [&](i64 row, i64 part, i64 panel) {
    const i64 begin = vectors.begin(part) * lanes_, end = std::min(pixels, vectors.begin(part + 1) * lanes_);
    const i64 to = offset(row, panel, begin), floats = offset(row, panel, end - 1) + 1 - to;
    const i64 run = ceil_div(floats * 4, kFetchedLine);
    return BrgemmFetch{reinterpret_cast<const char*>(static_cast<const float*>(call.out) + to),
                       panels_.size(panel) * run, run, run, t_.out.stride_c * 4};
  };
  BrgemmCall brgemm;  // that tiles set the same of, each its own
  const auto tile = [&](i64 row, i64 part, i64 panel, const BrgemmFetch& next) {
    const int m = static_cast<int>(panels_.size(panel)), width = static_cast<int>(vectors.size(part));
    const i64 k = item.group * t_.out_channels + panels_.begin(panel), column = vectors.begin(part) * lanes_;
    brgemm.a0 = call.packed + packed_offset(item.group, cut, panel);
    brgemm.a1 = static_cast<const float*>(brgemm.a0) + 7;
    brgemm.a_step = m;
    const TapConvolution::TapRange inside = joined_ || depths_end_
                                                ? TapConvolution::TapRange{0, segments.count}
                                                : t_.taps_inside(call.first_row + item.row0 + row);
    brgemm.segments = (m == panels_.largest() ? segments.of_large : segments.of_small) + inside.first;
    brgemm.segment_count = inside.end - inside.first;
    brgemm.length = reductions_.size(cut);
    brgemm.b_step = in_place_ ? t_.in.stride_c : in_tiles_ ? width * lanes_ : strides.channel;
    brgemm.b = in_place_ ? run_of(item, cut, call) + column
                         : patch + (in_tiles_ ? column * reductions_.size(cut) : row * strides.row + column);
    const int columns = static_cast<int>(std::min<i64>(width * lanes_, pixels - column));
    brgemm.columns = columns;
    float* sum = finished;
    i64 stride = width * lanes_;
    if (in_kernel_) {
      const i64 to = offset(row, panel, column);
      sum = static_cast<float*>(call.out) + to, stride = t_.out.stride_c;
    } else if (sums != nullptr) {
      stride = item.rows * item.columns;
      sum = sums + (panel - item.panel0) * panels_.largest() * stride + row * pixels + column;
    }
    brgemm.c0 = sum, brgemm.c1 = sum + 7 * stride, brgemm.c_row_stride = stride;
    if (cut > 0) brgemm.addend0 = brgemm.c0, brgemm.addend1 = brgemm.c1;
    finish_in_kernel(brgemm, call, k, in_kernel_ && last ? sum : nullptr);
    brgemm.near = in_steps(next, steps), brgemm.far = ahead.next(steps);
    kernel_of(m, width)(brgemm);
    if (in_kernel_ || !last) return;
    EpilogueCall end;
    end.from = sum, end.from_stride = stride, end.rows = m, end.columns = columns;
    if (!scattered) {
      finish(end, call, item.image0, k, item.row0 + row, item.column0, column);
      return;
    }
    for (i64 done = 0; done < columns; done += end.columns) {
      const i64 pixel = item.column0 + column + done;
      end.from = sum + done;
      end.columns = std::min(columns - done, t_.columns - pixel % t_.columns);
      finish(end, call, item.image0, k, item.row0 + pixel / t_.columns, pixel % t_.columns, 0);
    }
  };
  // Weights of some panels stay in the second-level cache, and a tile's input in the first while they pass.
  for (i64 panel0 = item.panel0; panel0 < item.panel1; panel0 += panel_group_) {
    const i64 panel1 = std::min(item.panel1, panel0 + panel_group_);
    for (i64 row = 0; row < line_count; ++row) {
      for (i64 part = 0; part < vectors.parts(); ++part) {
        for (i64 panel = panel0; panel < panel1; ++panel) {
          BrgemmFetch next;
          if (!in_kernel_ && (!scattered || p_.dtype != DType::f32 || t_.column_phases > 1)) {
          } else if (panel + 1 < panel1) {
            next = lines_of(row, part, panel + 1);
          } else if (part + 1 < vectors.parts()) {
            next = lines_of(row, part + 1, panel0);
          } else if (row + 1 < line_count) {
            next = lines_of(row + 1, 0, panel0);
          } else if (panel1 < item.panel1) {
            next = lines_of(0, 0, panel1);
          }
          tile(row, part, panel, next);
        }
      }
    }
  }
}

void PixelLanes::run_flat(const WorkItem& item, i64 cut, const PartCall& call, const float* patch,
                          const PhaseStrides& strides, const Segments& segments, float* sums,
                          Prefetch& ahead) const {
  const i64 plane = phase_rows(t_.rows) * row_, steps = taps() * reductions_.size(cut);
  // The last image's last rows hold input alone.
  const i64 used = (item.images - 1) * plane + (t_.rows - 1) * row_ + t_.columns;
  const EvenSplit vectors(ceil_div(used, lanes_), tile_.vectors);
  const bool last = cut + 1 == reductions_.parts(), stores = dense_ && in_kernel_;
  const auto channel = [&](i64 panel) { return item.group * t_.out_channels + panels_.begin(panel); };
  // Where a tile begins, its columns, and whether it is stored to the result, which one image's are.
  struct Tile {
    i64 image, pixel, columns;
    bool whole;
  };
  const auto tile_at = [&](i64 part) {
    const i64 begin = vectors.begin(part) * lanes_, image = begin / plane, pixel = begin - image * plane;
    const i64 columns = std::min(vectors.size(part) * lanes_, used - begin);
    return Tile{image, pixel, columns, stores && pixel + columns <= plane};
  };
  const auto offset = [&](const Tile& tile, i64 panel) {
    return t_.out_offset(item.image0 + tile.image, channel(panel), 0, 0) + tile.pixel;
  };
  const auto lines_of = [&](const Tile& tile, i64 panel) {
    if (!tile.whole) return BrgemmFetch{};
    const i64 run = ceil_div(tile.columns * 4, kFetchedLine);
    return BrgemmFetch{
        reinterpret_cast<const char*>(static_cast<const float*>(call.out) + offset(tile, panel)),
        panels_.size(panel) * run, run, run, t_.out.stride_c * 4};
  };
  BrgemmCall brgemm;
  brgemm.b_step = strides.channel, brgemm.segment_count = segments.count;
  brgemm.length = reductions_.size(cut);
  for (i64 panel = item.panel0; panel < item.panel1; ++panel) {
    const int m = static_cast<int>(panels_.size(panel));
    const i64 k = channel(panel);
    // Unfinished sums of all panels wait for the next cut.
    float* const waiting =
        reductions_.parts() == 1 ? sums : sums + (panel - item.panel0) * panels_.largest() * flat_columns_;
    brgemm.a0 = call.packed + packed_offset(item.group, cut, panel);
    brgemm.a1 = static_cast<const float*>(brgemm.a0) + 7;
    brgemm.a_step = m;
    brgemm.segments = m == panels_.largest() ? segments.of_large : segments.of_small;
    Tile tile = tile_at(0);
    for (i64 part = 0; part < vectors.parts(); ++part) {
      const int width = static_cast<int>(vectors.size(part));
      const i64 begin = vectors.begin(part) * lanes_;
      const bool more = part + 1 < vectors.parts();
      const Tile next = tile_at(more ? part + 1 : 0);
      brgemm.b = patch + begin;
      float* const to = tile.whole ? static_cast<float*>(call.out) + offset(tile, panel) : waiting + begin;
      brgemm.columns = static_cast<int>(tile.whole ? tile.columns : width * lanes_);
      brgemm.c_row_stride = tile.whole ? t_.out.stride_c : flat_columns_;
      brgemm.c0 = to, brgemm.c1 = to + 7 * brgemm.c_row_stride;
      brgemm.addend0 = cut > 0 ? brgemm.c0 : nullptr, brgemm.addend1 = cut > 0 ? brgemm.c1 : nullptr;
      finish_in_kernel(brgemm, call, k, tile.whole && last ? to : nullptr);
      brgemm.near = in_steps(
          more || panel + 1 < item.panel1 ? lines_of(next, more ? panel : panel + 1) : BrgemmFetch{}, steps);
      brgemm.far = ahead.next(steps);
      kernel_of(m, width)(brgemm);
      if (stores && last && !tile.whole) {
        for (i64 done = 0; done < tile.columns;) {
          const i64 image = (begin + done) / plane, pixel = begin + done - image * plane;
          EpilogueCall end;
          end.from = to + done, end.from_stride = flat_columns_, end.rows = m;
          end.columns = std::min(tile.columns - done, plane - pixel);
          finish(end, call, item.image0 + image, k, 0, 0, pixel);
          done += end.columns;
        }
      }
      tile = next;
    }
    if (stores || !last) continue;
    // Rows that follow each other in the result are finished at once.
    const i64 rows = dense_ ? 1 : t_.rows;
    for (i64 image = 0; image < item.images; ++image) {
      for (i64 row = 0; row < rows; ++row) {
        EpilogueCall end;
        end.from = waiting + image * plane + row * row_;
        end.from_stride = flat_columns_, end.rows = m, end.columns = dense_ ? plane : t_.columns;
        finish(end, call, item.image0 + image, k, row, 0, 0);
      }
    }
  }
}

void PixelLanes::run(i64 index, const PartCall& call) const {
  const WorkItem item = grid_.item(index);
  ScratchPieces scratch(call.scratch);
  float* const patch = scratch.take<float>(stage_floats_);
  float* const lines_of_channels = line_floats_ == 0 ? nullptr : scratch.take<float>(line_floats_);
  float* const sums = sum_floats_ == 0 ? nullptr : scratch.take<float>(sum_floats_);
  BrgemmSegment* const list = scratch.take<BrgemmSegment>(segment_count());

  PhaseStrides strides;
  strides.step_h = t_.step_h, strides.step_w = t_.step_w;
  strides.phases_h = phases_h_, strides.phases_w = phases_w_;
  strides.row = phase_columns(item.columns);
  strides.phase = item.images * phase_rows(item.rows) * strides.row;
  strides.channel = channel_floats(planes() * item.images * image_floats(item.rows, item.columns));
  Prefetch ahead;
  for (i64 cut = 0; cut < reductions_.parts(); ++cut) {
    if (taps() == 0 || in_place_) {
      // Nothing is read, or nothing is copied.
    } else if (in_tiles_) {
      stage_in_tiles(item, cut, call, patch, lines_of_channels);
    } else {
      stage(item, reductions_.begin(cut), reductions_.size(cut), call, patch, strides);
      if (cut == 0) clear_ends(patch, strides);  // the first cut has the most channels
    }
    // Panels come in two sizes, of which the larger's list is the first.
    Segments segments{list, list + taps(), 0};
    for (i64 tap = 0; tap < taps(); ++tap) {
      const Tap& at = t_.taps[static_cast<std::size_t>(tap)];
      if (depths_end_ && !t_.depth_inside(item.image0, at)) continue;
      const i64 h = at.h - t_.min_h(), w = at.w - t_.min_w();
      const i64 b = t_.plane_of(at) * plane_floats(strides) +
                    (h % t_.step_h * phases_w_ + w % t_.step_w) * strides.phase +
                    h / t_.step_h * strides.row + w / t_.step_w;  // 0 of a lone tap
      const i64 a = tap * reductions_.size(cut) * panels_.largest();
      // Of a smaller panel a row less.
      new (&list[segments.count]) BrgemmSegment{a, b};
      new (&list[taps() + segments.count]) BrgemmSegment{a - tap * reductions_.size(cut), b};
      ++segments.count;
    }
    if (cut == 0) {
      const i64 of_a_panel = flat_ ? tiles(flat_columns_).parts()
                                   : lines(item.rows) * tiles(line(item.rows, item.columns)).parts();
      ahead = prefetch(index + 1, item, call, reductions_.parts() * (item.panel1 - item.panel0) * of_a_panel);
    }
    if (flat_) {
      run_flat(item, cut, call, patch, strides, segments, sums, ahead);
    } else if (in_tiles_ && in_kernel_) {
      run_panels(item, cut, call, patch, segments, ahead);
    } else {
      run_rows(item, cut, call, patch, strides, segments, sums, ahead);
    }
  }
}

}  // namespace faltung
