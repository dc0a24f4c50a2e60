// How ChannelLanes computes an item.
#include <algorithm>
#include <array>
#include <new>

#include "kernels/cpu/epilogue.hpp"
#include "kernels/cpu/stage.hpp"
#include "src/algorithms/implicit_gemm_channels.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {

using i64 = std::int64_t;

i64 ChannelLanes::merged_taps(const Source& source, i64 cut) const {
  if (source.pixel != reductions_.size(cut)) return 1;
  const auto follows = [&](i64 tap) {
    const Tap &a = t_.taps[static_cast<std::size_t>(tap - 1)], &b = t_.taps[static_cast<std::size_t>(tap)];
    return a.d == b.d && a.h == b.h && a.w + 1 == b.w;
  };
  i64 run = 1;
  while (run < taps() && follows(run)) ++run;
  if (taps() % run != 0) return 1;
  for (i64 tap = run; tap < taps(); ++tap) {
    if (follows(tap) != (tap % run != 0)) return 1;
  }
  return run;
}

ChannelLanes::Source ChannelLanes::source(const WorkItem& item, i64 cut, const PartCall& call,
                                          float* stage) const {
  const i64 channel = item.group * t_.in_channels + reductions_.begin(cut);
  const i64 row0 = (call.first_row + item.row0) * t_.step_h + t_.min_h();
  const i64 column0 = item.column0 * t_.step_w + t_.min_w();
  if (!staged_) {
    // Where there are depths, an item has one image.
    const float* in = static_cast<const float*>(call.in);
    return {in + t_.in_offset(item.image0, t_.depth_of(item.image0, 0), channel, row0, column0),
            t_.in.stride_d, t_.in.stride_n, t_.in.stride_h, t_.in.stride_w};
  }
  const i64 rows = (item.rows - 1) * t_.step_h + t_.extent_h();
  const i64 columns = (item.columns - 1) * t_.step_w + t_.extent_w();
  const i64 image_floats = rows * columns * pixel_;
  const Source source{stage, item.images * image_floats, image_floats, columns * pixel_, pixel_};
  StageCall patch;
  patch.dtype = p_.dtype;
  patch.from_row_stride = t_.in.stride_h;
  patch.height = t_.in.h, patch.width = t_.in.w;
  patch.row0 = row0, patch.rows = rows, patch.column0 = column0, patch.columns = columns;
  patch.channels = reductions_.size(cut), patch.affine = call.affine.from(channel);
  for (i64 plane = 0; plane < planes(); ++plane) {
    for (i64 image = 0; image < item.images; ++image) {
      const i64 depth = t_.depth_of(item.image0 + image, plane);
      patch.to = stage + plane * source.plane + image * source.image;
      if (depth < 0 || depth >= t_.in.d) {
        if (!depths_end_) std::fill_n(patch.to, image_floats, 0.0f);
        continue;
      }
      patch.from = static_cast<const std::byte*>(call.in) +
                   t_.in_offset(item.image0 + image, depth, channel, 0, 0) * size_of(p_.dtype);
      stage_pixels(patch, t_.in.stride_w, source.row, source.pixel);
    }
  }
  return source;
}

i64 ChannelLanes::list_tiles(const WorkItem& item, const Source& source, i64 first_row, Tile* tiles) const {
  i64 count = 0, pixels = 0;
  const i64 a_step = source.pixel * t_.step_w, c_step = t_.out.stride_w * t_.out_step_w;
  const auto a_at = [&](i64 row_index, i64 column) {
    return source.first + row_index / item.rows * source.image +
           row_index % item.rows * t_.step_h * source.row + column * a_step;
  };
  const auto c_at = [&](i64 row_index, i64 column) {
    return t_.out_offset(item.image0 + row_index / item.rows, item.group * t_.out_channels,
                         item.row0 + row_index % item.rows, item.column0 + column);
  };
  const bool one_row = joined_ && item.columns == t_.columns;
  const i64 all_rows = one_row ? 1 : item.images * item.rows;
  const EvenSplit split(one_row ? item.images * item.rows * item.columns : item.columns, tile_.rows);
  const auto taps_of = [&](i64 row) { return t_.taps_inside(first_row + item.row0 + row % item.rows); };
  for (i64 row = 0; row < all_rows; ++row) {
    TapConvolution::TapRange inside = taps_of(row);
    if (pairs_ && row + 1 < all_rows) {
      const TapConvolution::TapRange second = taps_of(row + 1);
      inside = {std::min(inside.first, second.first), std::max(inside.end, second.end)};
      new (&tiles[count++])
          Tile{a_at(row, 0), a_at(row + 1, 0), c_at(row, 0), c_at(row + 1, 0), pixels, 14, inside};
      ++row, pixels += 14;
      continue;
    }
    for (i64 part = 0; part < split.parts(); ++part) {
      const float* a = a_at(row, split.begin(part));
      const i64 c = c_at(row, split.begin(part));
      const int rows = static_cast<int>(split.size(part));
      new (&tiles[count++])
          Tile{a, rows > 7 ? a + 7 * a_step : a, c, rows > 7 ? c + 7 * c_step : c, pixels, rows, inside};
      pixels += rows;
    }
  }
  return count;
}

void ChannelLanes::mark_runs(Tile* tiles, i64 count) {
  const auto apart = [&](i64 i) {
    const Tile &a = tiles[i], &b = tiles[i + 1];
    return std::array{b.a0 - a.a0, b.a1 - a.a1, b.c0 - a.c0, b.c1 - a.c1};
  };
  for (i64 i = count - 2; i >= 0; --i) {
    const Tile& next = tiles[i + 1];
    if (tiles[i].rows != next.rows || tiles[i].taps.first != next.taps.first ||
        tiles[i].taps.end != next.taps.end)
      continue;
    const auto [a0, a1, c0, c1] = apart(i);
    if (tiles[i].rows > 7 && (a0 != a1 || c0 != c1)) continue;
    tiles[i].run = next.run > 1 && apart(i) == apart(i + 1) ? next.run + 1 : 2;
  }
}

// Of the item that this worker will probably run next: its input, where that is contiguous, or its weights
// where it reads the same.
Stretch ChannelLanes::ahead(i64 index, const WorkItem& current, const PartCall& call, i64 calls) const {
  if (t_.groups > 1 || t_.extent_w() < t_.step_w) return {};
  const std::optional<ItemInput> next = grid_.input_ahead(t_, index, current);
  if (!next) {
    if (index >= items() || reductions_.parts() > 1) return {};
    const WorkItem other = grid_.item(index);
    if (other.panel0 == current.panel0) return {};
    const i64 steps = taps() * t_.in_channels;
    return Stretch(call.packed + packed_offset(other.group, 0, other.panel0),
                   4 * steps * (other.panel1 - other.panel0) * panel_width_, calls, steps);
  }
  if (joined_) return {};  // its pixels are no stretch
  const i64 bytes = size_of(p_.dtype);
  const std::byte* from = static_cast<const std::byte*>(call.in) +
                          t_.in.offset(next->item.image0, 0, next->row0, next->column0) * bytes;
  const i64 pixels = next->item.images * next->rows * next->columns;
  // Where each tile fetches the next one, the item's first alone.
  return Stretch(from,
                 (tiles_are_runs_ ? std::min<i64>(pixels, tile_.rows) : pixels) * t_.in.stride_w * bytes,
                 calls, taps() * reductions_.largest());
}

BrgemmCall& ChannelLanes::set_up(const Tile& tile, i64 panel, const Step& step) const {
  const int vectors = panel_vectors(panel);
  const bool narrow = vectors != tile_.vectors;
  const i64 first = panel * panel_width_;
  BrgemmCall& brgemm = step.brgemm[narrow];
  brgemm.a0 = tile.a0, brgemm.a1 = tile.a1;
  if (!depths_end_) {
    brgemm.segments = step.segments[narrow] + tile.taps.first / step.merged;
    brgemm.segment_count = (tile.taps.end - tile.taps.first) / step.merged;
  }
  brgemm.b = step.panels + taps() * first * reductions_.size(step.cut);
  brgemm.columns = static_cast<int>(std::min<i64>(vectors * lanes_, t_.out_channels - first));
  brgemm.tiles = 1, brgemm.fetches_c = false;
  if (!in_kernel_) return brgemm;
  float* out = static_cast<float*>(step.call.out) + first;
  brgemm.c0 = out + tile.c0, brgemm.c1 = out + tile.c1;
  if (step.cut > 0) brgemm.addend0 = brgemm.c0, brgemm.addend1 = brgemm.c1;
  if (step.cut + 1 < reductions_.parts()) return brgemm;
  brgemm.column_bias = step.call.bias_of(step.item.group * t_.out_channels + first);
  if (step.call.residual != nullptr) {
    const float* residual = static_cast<const float*>(step.call.residual) + first;
    brgemm.residual0 = residual + tile.c0, brgemm.residual1 = residual + tile.c1;
  }
  return brgemm;
}

void ChannelLanes::run_panels(const Tile& tile, i64 panel, i64 end, const Step& step, Stretch& ahead,
                              bool fetched) const {
  while (panel < end) {
    // The narrower last one has a kernel of its own.
    const bool narrow = panel_vectors(panel) != tile_.vectors;
    const i64 whole = end < panels_ || panel_vectors(panels_ - 1) == tile_.vectors ? end : end - 1;
    const i64 count = in_kernel_ && !narrow ? whole - panel : 1, last = panel + count - 1;
    BrgemmCall& brgemm = set_up(tile, panel, step);
    brgemm.ahead = ahead.next(count), brgemm.ahead_step = ahead.step();
    brgemm.tiles = count;
    brgemm.a_tile = 0, brgemm.b_tile = taps() * reductions_.size(step.cut) * panel_width_;
    brgemm.c_tile = brgemm.bias_tile = panel_width_;
    brgemm.columns =
        static_cast<int>(std::min<i64>(panel_vectors(last) * lanes_, t_.out_channels - last * panel_width_));
    brgemm.fetches_c = in_kernel_ && few_steps_ && !fetched;
    compute(brgemm, tile, panel, step);
    panel += count;
  }
}

void ChannelLanes::run_tiles(const Tile* tiles, i64 count, i64 panel, const Step& step,
                             Stretch& ahead) const {
  for (i64 i = 0; i < count;) {
    const Tile& tile = tiles[i];
    BrgemmCall& brgemm = set_up(tile, panel, step);
    const bool whole = brgemm.columns == panel_vectors(panel) * lanes_;
    const i64 run = in_kernel_ && whole ? tile.run : 1;
    brgemm.ahead = ahead.next(run), brgemm.ahead_step = ahead.step();
    brgemm.fetches_c = in_kernel_ && few_steps_;
    if (run > 1) {
      brgemm.tiles = run, brgemm.a_tile = tiles[i + 1].a0 - tile.a0,
      brgemm.c_tile = tiles[i + 1].c0 - tile.c0;
      brgemm.b_tile = brgemm.bias_tile = 0;
    }
    compute(brgemm, tile, panel, step);
    i += run;
  }
}

// Sums the call's tiles, of which the first is `tile` and the only one where sums are finished apart.
void ChannelLanes::compute(BrgemmCall& brgemm, const Tile& tile, i64 panel, const Step& step) const {
  const int vectors = panel_vectors(panel);
  const BrgemmKernel kernel = kernels_[vectors != tile_.vectors][tile.rows - 1];
  if (in_kernel_) return kernel(brgemm);
  const i64 first = panel * panel_width_, k = step.item.group * t_.out_channels + first;
  alignas(64) float finished[14 * 64];
  float* sum = finished;
  i64 stride = vectors * lanes_;
  if (step.sums != nullptr) {
    stride = sum_stride_;
    sum = step.sums + tile.sum * stride + first - step.item.panel0 * panel_width_;
  }
  brgemm.c0 = sum, brgemm.c1 = sum + 7 * stride, brgemm.c_row_stride = stride;
  if (step.cut > 0) brgemm.addend0 = brgemm.c0, brgemm.addend1 = brgemm.c1;
  kernel(brgemm);
  if (step.cut + 1 < reductions_.parts()) return;
  EpilogueCall end;
  end.from_stride = stride, end.columns = brgemm.columns;
  end.column_bias = step.call.bias_of(k), end.column_slopes = step.call.slopes_of(k);
  end.activation = activation_of(p_.epilogue);
  end.residual_order = p_.epilogue.residual_order;
  end.dtype = p_.dtype, end.to_stride = t_.out.stride_w * t_.out_step_w;
  // Rows of a pair lie apart; others are finished by one call, in which their activations overlap.
  const int together = tile.c1 - tile.c0 == 7 * end.to_stride ? tile.rows : 7;
  for (int row = 0; row < tile.rows; row += together) {
    const i64 to = ((row == 0 ? tile.c0 : tile.c1) + first) * size_of(p_.dtype);
    end.from = sum + row * stride;
    end.rows = std::min(tile.rows - row, together);
    if (step.call.residual != nullptr) end.residual = static_cast<const std::byte*>(step.call.residual) + to;
    end.to = static_cast<std::byte*>(step.call.out) + to;
    epilogue_store(end);
  }
}

void ChannelLanes::run(i64 index, const PartCall& call) const {
  const WorkItem item = grid_.item(index);
  ScratchPieces scratch(call.scratch);
  float* const stage = scratch.take<float>(stage_floats_);
  float* const sums = scratch.take<float>(sum_floats_);
  Tile* const tiles = scratch.take<Tile>(max_tiles_);
  BrgemmSegment* const segments = scratch.take<BrgemmSegment>(segment_count());

  Stretch next;
  for (i64 cut = 0; cut < reductions_.parts(); ++cut) {
    const Source from = source(item, cut, call, stage);
    const i64 count = list_tiles(item, from, call.first_row, tiles), length = reductions_.size(cut);
    const i64 merged = taps() == 0 ? 1 : merged_taps(from, cut);
    BrgemmCall brgemm[2];  // of a panel of full width, and of a narrower last one
    for (const bool narrow : {false, true}) {
      const int width = lanes_ * (narrow ? panel_vectors(panels_ - 1) : tile_.vectors);
      BrgemmSegment* const list = segments + (narrow ? taps() : 0);
      i64 listed = 0;
      for (i64 tap = 0; tap < taps(); tap += merged) {
        const Tap& t = t_.taps[static_cast<std::size_t>(tap)];
        if (depths_end_ && !t_.depth_inside(item.image0, t)) continue;
        new (&list[listed++]) BrgemmSegment{
            plane_offset(t, from) + (t.h - t_.min_h()) * from.row + (t.w - t_.min_w()) * from.pixel,
            tap * length * width};
      }
      brgemm[narrow].a_row_stride = from.pixel * t_.step_w;
      brgemm[narrow].b_step = width;
      brgemm[narrow].segments = list, brgemm[narrow].segment_count = listed;
      brgemm[narrow].length = length * merged;
      brgemm[narrow].c_row_stride = t_.out.stride_w * t_.out_step_w;
      if (in_kernel_ && cut + 1 == reductions_.parts())
        brgemm[narrow].activation = activation_of(p_.epilogue);
    }
    const float* panels =
        call.packed + taps() * channels_padded_ * (item.group * t_.in_channels + reductions_.begin(cut));
    const Step step{
        item,  call, cut, panels, sum_floats_ == 0 ? nullptr : sums, brgemm, {segments, segments + taps()},
        merged};
    const i64 panel_count = item.panel1 - item.panel0;
    // Weights that stay in L2 are read again for each tile, so that its input stays in L1 and its output is
    // written whole; larger ones are read once an item, the next panel's on their way meanwhile, and so are a
    // lone panel, beside whose tiles the next ones' pixels come, and few panels of input that stays there
    // anyway.
    if (weights_stay_ && panel_count > 1 && !input_stays_) {
      if (cut == 0) next = ahead(index + 1, item, call, reductions_.parts() * count * panel_count);
      for (i64 i = 0; i < count; ++i) {
        const bool more = i + 1 < count;
        // The panels from here on fetch the lines that the next tile is stored to, those before pixels.
        const i64 storing = more && fetches_stores_ ? item.panel0 + reading_panels_ : item.panel1;
        if (tiles_are_runs_ && more) {
          next = Stretch(tiles[i + 1].a0, tiles[i + 1].rows * from.pixel * 4, storing - item.panel0, length);
        } else if (tiles_are_runs_) {
          next = ahead(index + 1, item, call, panel_count);
        }
        Stretch stores;
        if (storing < item.panel1) {
          stores = Stretch(static_cast<const float*>(call.out) + tiles[i + 1].c0,
                           4 * tiles[i + 1].rows * t_.out_channels, item.panel1 - storing, taps() * length);
        }
        const bool fetched = fetches_stores_ && i > 0;
        run_panels(tiles[i], item.panel0, storing, step, next, fetched);
        run_panels(tiles[i], storing, item.panel1, step, stores, fetched);
      }
    } else {
      mark_runs(tiles, count);
      for (i64 panel = item.panel0; panel < item.panel1; ++panel) {
        if (panel + 1 < item.panel1) {
          const i64 steps = taps() * length;
          next = Stretch(panels + steps * (panel + 1) * panel_width_,
                         4 * steps * panel_vectors(panel + 1) * lanes_, count, steps);
        } else if (tiles_are_runs_ && panel_count == 1 && count > 1) {
          const Tile& end = tiles[count - 1];
          next = Stretch(tiles[1].a0, (end.a0 - tiles[0].a0 + end.rows * from.pixel) * 4, count, length);
        } else {
          next = ahead(index + 1, item, call, count);
        }
        run_tiles(tiles, count, panel, step, next);
      }
    }
  }
}

}  // namespace faltung
