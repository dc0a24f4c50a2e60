// Implicit GEMM with output channels in the lanes, for nhwc: rows of a tile are pixels of one output row (or
// of two, 7 wide), addressed by one stride, so that a tap is an offset.
#include <new>

#include "kernels/cpu/brgemm.hpp"
#include "kernels/cpu/epilogue.hpp"
#include "kernels/cpu/stage.hpp"
#include "src/algorithms/implicit_gemm_part.hpp"
#include "src/algorithms/implicit_gemm_prefetch.hpp"
#include "src/plan/recipe.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr i64 kStageBytes = 640 << 10;  // of an item's input: with a panel of weights it stays in L2
constexpr i64 kPanelBytes = 768 << 10;  // of weights, beyond which the reduction is cut
constexpr i64 kSumBytes = 1 << 20;      // of unfinished sums that cannot wait in the output

struct Tile {
  const float *a0, *a1;
  i64 c0, c1;  // offsets in the output, in elements
  i64 sum;     // offset of its unfinished sums, in pixels
  int rows;
};

class ChannelLanes : public ImplicitGemmPart {
 public:
  ChannelLanes(const Problem& problem, const TapConvolution& convolution, TileShape tile, int threads)
      : p_(problem), t_(flattened(convolution, Layout::nhwc)), tile_(tile), threads_(threads) {
    choose_panels();
    choose_items(threads);
  }

  i64 packed_floats() const override { return t_.groups * channels_padded_ * taps() * t_.in_channels; }
  i64 pack_items() const override { return t_.groups * reductions_.parts() * panels_; }
  i64 items() const override {
    return channel_parts_.parts() * t_.groups * images_.parts() * rows_.parts() * columns_.parts();
  }

  std::size_t scratch_bytes() const override {
    return aligned(static_cast<std::size_t>(stage_floats_) * 4) +
           aligned(static_cast<std::size_t>(sum_floats_) * 4) +
           aligned(static_cast<std::size_t>(max_tiles_) * sizeof(Tile)) + aligned(segments_bytes());
  }

  void pack(i64 item, const void* w, float* packed) const override {
    const i64 panel = item % panels_, cut = item / panels_ % reductions_.parts();
    const i64 group = item / panels_ / reductions_.parts();
    const int width = panel_vectors(panel) * lanes_;
    float* to = packed + packed_offset(group, cut, panel);
    for (const Tap& tap : t_.taps) {
      const FilterView view = filter_view(p_, tap, group);
      const i64 first = panel * panel_width_;
      pack_brgemm_b(
          to, reductions_.size(cut), std::min<i64>(width, t_.out_channels - first), width, [&](i64 c, i64 k) {
            return load_element(
                p_.dtype, w,
                view.base + (reductions_.begin(cut) + c) * view.c_stride + (first + k) * view.k_stride);
          });
      to += reductions_.size(cut) * width;
    }
  }

  void run(i64 item, const PartCall& call) const override;

  double cycles() const override {
    double total = 0;
    for (i64 panel = 0; panel < panels_; ++panel) {
      const int vectors = panel_vectors(panel);
      const double steps = static_cast<double>(taps() * t_.in_channels);
      for (i64 part = 0; part < columns_.parts(); ++part) {
        const EvenSplit split(column_end(part) - column_begin(part), tile_.rows);
        for (i64 tile = 0; tile < split.parts(); ++tile) {
          const double rows = pairs_ ? 2 : 1;
          const double cost =
              tile_step_cycles(static_cast<int>(split.size(tile) * (pairs_ ? 2 : 1)), vectors, false);
          total += (steps * cost + kTileOverhead) / rows;
        }
      }
    }
    return total * static_cast<double>(t_.groups * t_.in.n * t_.rows);
  }

 private:
  static constexpr double kTileOverhead = 40;

  // Where taps read their input: an image's, an input row's and a pixel's distance, in floats.
  struct Source {
    const float* first;  // of the item's first output, at the least tap
    i64 image, row, pixel;
  };

  std::size_t segments_bytes() const { return 2 * t_.taps.size() * sizeof(BrgemmSegment); }
  // Taps side by side in memory, and so in the packed weights, are summed over as if they were one.
  i64 merged_taps(const Source& source, i64 cut) const {
    if (source.pixel != reductions_.size(cut)) return 1;
    const auto follows = [&](i64 tap) {
      const Tap &a = t_.taps[static_cast<std::size_t>(tap - 1)], &b = t_.taps[static_cast<std::size_t>(tap)];
      return a.h == b.h && a.w + 1 == b.w;
    };
    i64 run = 1;
    while (run < taps() && follows(run)) ++run;
    if (taps() % run != 0) return 1;
    for (i64 tap = run; tap < taps(); ++tap) {
      if (follows(tap) != (tap % run != 0)) return 1;
    }
    return run;
  }
  i64 taps() const { return static_cast<i64>(t_.taps.size()); }
  int panel_vectors(i64 panel) const {
    const i64 left = ceil_div(t_.out_channels - panel * panel_width_, lanes_);
    return static_cast<int>(std::min<i64>(tile_.vectors, left));
  }
  i64 packed_offset(i64 group, i64 cut, i64 panel) const {
    return taps() * (group * channels_padded_ * t_.in_channels + channels_padded_ * reductions_.begin(cut) +
                     panel * panel_width_ * reductions_.size(cut));
  }
  void choose_panels() {
    lanes_ = brgemm_lanes();
    tile_.vectors = static_cast<int>(std::min<i64>(tile_.vectors, ceil_div(t_.out_channels, lanes_)));
    tile_.rows = std::min(tile_.rows, brgemm_max_rows(tile_.vectors));
    panel_width_ = tile_.vectors * lanes_;
    panels_ = ceil_div(t_.out_channels, panel_width_);
    channels_padded_ = round_up(t_.out_channels, lanes_);
    // So many channels that a panel of weights, and the staged input of one row of tiles, are not too large.
    const i64 panel_bytes = std::max<i64>(taps(), 1) * panel_width_ * 4;
    const i64 input_bytes = t_.extent_h() * ((tile_.rows - 1) * t_.step_w + t_.extent_w()) * 4;
    reductions_ = EvenSplit(
        t_.in_channels, std::max<i64>(16, std::min(kPanelBytes / panel_bytes, kStageBytes / input_bytes)));
    in_registers_ = epilogue_in_registers(p_);
    few_steps_ = taps() * t_.in_channels <= kFewSteps;
    for (const bool narrow : {false, true}) {
      const int vectors = narrow ? panel_vectors(panels_ - 1) : tile_.vectors;
      for (int rows = 1; rows <= tile_.rows; ++rows) {
        kernels_[narrow][rows - 1] = brgemm_kernel(BrgemmElement::f32, BrgemmRows::strided, rows, vectors);
      }
    }
  }

  i64 stage_floats(i64 images, i64 rows, i64 columns) const {
    return images * ((rows - 1) * t_.step_h + t_.extent_h()) * ((columns - 1) * t_.step_w + t_.extent_w()) *
           pixel_;
  }

  void choose_items(int threads) {
    // Pixels whose distance is a multiple of a page share the few lines of L1 that such addresses go to.
    const i64 step_bytes = t_.in.c * t_.step_w * size_of(p_.dtype);
    const bool conflict = step_bytes % 4096 == 0 && t_.columns > 1;
    staged_ = p_.dtype != DType::f32 || t_.padded() || conflict;
    pixel_ = reductions_.largest();
    if (pixel_ * t_.step_w % 512 == 0) pixel_ += 16;
    const i64 most_floats = kStageBytes / 4;

    columns_ = EvenSplit(t_.columns, t_.columns);
    rows_ = EvenSplit(t_.rows, t_.rows);
    images_ = EvenSplit(t_.in.n, t_.in.n);
    // Enough pixels for what reading the weights costs to be small beside using them.
    constexpr i64 kPixels = 16 * 14;
    i64 columns = t_.columns, rows = t_.rows, images = t_.in.n;
    while (columns > 1 && staged_ && stage_floats(1, 1, columns) > most_floats)
      columns = ceil_div(columns, 2);
    if (columns > 4 * kPixels) columns = kPixels;
    if (columns < t_.columns) {  // whole tiles
      columns = std::max<i64>(columns / tile_.rows, 1) * tile_.rows;
      columns_ = EvenSplit::in_parts(ceil_div(t_.columns, tile_.rows), ceil_div(t_.columns, columns));
      whole_tiles_ = true;
    }
    rows = std::clamp<i64>(kPixels / columns, 1, t_.rows);
    while (rows > 1 && staged_ && stage_floats(1, rows, columns) > most_floats) --rows;
    rows_ = EvenSplit(t_.rows, rows);
    if (rows_.parts() > 1 || columns_.parts() > 1) {
      images = 1;
    } else {
      images = std::clamp<i64>(kPixels / (t_.rows * t_.columns), 1, t_.in.n);
      while (images > 1 && staged_ && stage_floats(images, t_.rows, columns) > most_floats) --images;
    }
    images_ = EvenSplit(t_.in.n, images);
    columns = whole_tiles_ ? std::min(columns_.largest() * tile_.rows, t_.columns) : t_.columns;
    pairs_ = t_.columns == 7 && tile_.rows == 14 && !whole_tiles_;

    const i64 pixel_items = t_.groups * images_.parts() * rows_.parts() * columns_.parts();
    i64 parts = 1;
    if (pixel_items < 4 * threads) parts = ceil_div(4 * threads, pixel_items);
    const i64 pixels = images_.largest() * rows_.largest() * columns;
    if (reductions_.parts() > 1 && !in_registers_) {
      parts = std::max(parts, ceil_div(pixels * channels_padded_ * 4, kSumBytes));
    }
    channel_parts_ = EvenSplit::in_parts(panels_, parts);

    weights_stay_ = taps() * t_.in_channels * channel_parts_.largest() * panel_width_ * 4 <= kPanelBytes;
    sum_stride_ = channel_parts_.largest() * panel_width_;
    stage_floats_ = staged_ ? stage_floats(images_.largest(), rows_.largest(), columns) : 0;
    sum_floats_ = reductions_.parts() > 1 && !in_registers_ ? pixels * sum_stride_ : 0;
    max_tiles_ = images_.largest() * rows_.largest() * ceil_div(columns, tile_.rows);
  }

  i64 column_begin(i64 part) const {
    return whole_tiles_ ? columns_.begin(part) * tile_.rows : columns_.begin(part);
  }
  i64 column_end(i64 part) const { return std::min(column_begin(part + 1), t_.columns); }

  struct Item {
    i64 panel0, panel1, group, image0, images, row0, rows, column0, columns;
  };
  Item decode(i64 index) const {
    Item item;
    const i64 column_part = index % columns_.parts();
    index /= columns_.parts();
    const i64 row_part = index % rows_.parts();
    index /= rows_.parts();
    const i64 image_part = index % images_.parts();
    index /= images_.parts();
    item.group = index % t_.groups;
    index /= t_.groups;
    item.panel0 = channel_parts_.begin(index), item.panel1 = channel_parts_.begin(index + 1);
    item.image0 = images_.begin(image_part), item.images = images_.size(image_part);
    item.row0 = rows_.begin(row_part), item.rows = rows_.size(row_part);
    item.column0 = column_begin(column_part), item.columns = column_end(column_part) - item.column0;
    return item;
  }

  Source source(const Item& item, i64 cut, const PartCall& call, float* stage) const;
  i64 list_tiles(const Item& item, const Source& source, Tile* tiles) const;
  Stretch ahead(i64 index, const Item& current, const PartCall& call, i64 calls) const;
  // What the tiles of one item and one cut of the reduction share.
  struct Step {
    const Item& item;
    const PartCall& call;
    i64 cut;
    const float* panels;  // the packed weights of this group and cut
    float* sums;
    BrgemmCall* brgemm;
  };
  void run_tile(const Tile& tile, i64 panel, const Step& step, Stretch& ahead) const;

  Problem p_;
  TapConvolution t_;
  TileShape tile_;
  int threads_;
  int lanes_ = 1;
  i64 panel_width_ = 0, panels_ = 0, channels_padded_ = 0;
  EvenSplit reductions_;               // input channels
  EvenSplit columns_, rows_, images_;  // of the output; columns_ counts tiles if whole_tiles_
  EvenSplit channel_parts_;            // of panels
  BrgemmKernel kernels_[2][14] = {};   // by whether the panel is the narrower last one, and rows - 1
  bool in_registers_ = false, few_steps_ = false, weights_stay_ = false;
  bool staged_ = false, pairs_ = false, whole_tiles_ = false;
  i64 pixel_ = 0, sum_stride_ = 0, stage_floats_ = 0, sum_floats_ = 0, max_tiles_ = 0;
};

ChannelLanes::Source ChannelLanes::source(const Item& item, i64 cut, const PartCall& call,
                                          float* stage) const {
  const i64 channel = item.group * t_.in_channels + reductions_.begin(cut);
  const i64 row0 = (call.first_row + item.row0) * t_.step_h + t_.min_h();
  const i64 column0 = item.column0 * t_.step_w + t_.min_w();
  if (!staged_) {
    const float* in = static_cast<const float*>(call.in);
    return {in + t_.in.offset(item.image0, channel, row0, column0), t_.in.stride_n, t_.in.stride_h,
            t_.in.stride_w};
  }
  const i64 rows = (item.rows - 1) * t_.step_h + t_.extent_h();
  const i64 columns = (item.columns - 1) * t_.step_w + t_.extent_w();
  const Source source{stage, rows * columns * pixel_, columns * pixel_, pixel_};
  StageCall patch;
  patch.dtype = p_.dtype;
  patch.from_row_stride = t_.in.stride_h;
  patch.height = t_.in.h, patch.width = t_.in.w;
  patch.row0 = row0, patch.rows = rows, patch.column0 = column0, patch.columns = columns;
  patch.channels = reductions_.size(cut);
  for (i64 image = 0; image < item.images; ++image) {
    patch.from = static_cast<const std::byte*>(call.in) +
                 t_.in.offset(item.image0 + image, channel, 0, 0) * size_of(p_.dtype);
    patch.to = stage + image * source.image;
    stage_pixels(patch, t_.in.stride_w, source.row, source.pixel);
  }
  return source;
}

i64 ChannelLanes::list_tiles(const Item& item, const Source& source, Tile* tiles) const {
  i64 count = 0, pixels = 0;
  const i64 a_step = source.pixel * t_.step_w, c_step = t_.out.stride_w * t_.out_step_w;
  const auto a_at = [&](i64 row_index, i64 column) {
    return source.first + row_index / item.rows * source.image +
           row_index % item.rows * t_.step_h * source.row + column * a_step;
  };
  const auto c_at = [&](i64 row_index, i64 column) {
    return t_.out.offset(item.image0 + row_index / item.rows, item.group * t_.out_channels,
                         t_.out_h0 + (item.row0 + row_index % item.rows) * t_.out_step_h,
                         t_.out_w0 + (item.column0 + column) * t_.out_step_w);
  };
  const EvenSplit split(item.columns, tile_.rows);
  const i64 all_rows = item.images * item.rows;
  for (i64 row = 0; row < all_rows; ++row) {
    if (pairs_ && row + 1 < all_rows) {
      new (&tiles[count++]) Tile{a_at(row, 0), a_at(row + 1, 0), c_at(row, 0), c_at(row + 1, 0), pixels, 14};
      ++row, pixels += 14;
      continue;
    }
    for (i64 part = 0; part < split.parts(); ++part) {
      const float* a = a_at(row, split.begin(part));
      const i64 c = c_at(row, split.begin(part));
      const int rows = static_cast<int>(split.size(part));
      new (&tiles[count++])
          Tile{a, rows > 7 ? a + 7 * a_step : a, c, rows > 7 ? c + 7 * c_step : c, pixels, rows};
      pixels += rows;
    }
  }
  return count;
}

// Of the item that this worker will probably run next: its input, where that is contiguous.
Stretch ChannelLanes::ahead(i64 index, const Item& current, const PartCall& call, i64 calls) const {
  if (index >= items() || t_.groups > 1 || t_.extent_w() < t_.step_w) return {};
  const Item next = decode(index);
  const bool same =
      next.image0 == current.image0 && next.row0 == current.row0 && next.column0 == current.column0;
  i64 row0 = 0, row1 = t_.in.h, column0 = 0, columns = t_.in.w;
  if (columns_.parts() > 1) {
    if (t_.in.h > 1) return {};
    column0 = std::max<i64>(next.column0 * t_.step_w + t_.min_w(), 0);
    columns = std::min(t_.in.w - column0, (next.columns - 1) * t_.step_w + t_.extent_w());
  } else if (next.images == 1) {
    row0 = std::clamp<i64>(next.row0 * t_.step_h + t_.min_h(), 0, t_.in.h);
    row1 =
        std::clamp<i64>((next.row0 + next.rows - 1) * t_.step_h + t_.min_h() + t_.extent_h(), row0, t_.in.h);
  }
  if (same) return {};
  const i64 bytes = size_of(p_.dtype);
  const std::byte* from =
      static_cast<const std::byte*>(call.in) + t_.in.offset(next.image0, 0, row0, column0) * bytes;
  return Stretch(from, next.images * (row1 - row0) * columns * t_.in.stride_w * bytes, calls,
                 taps() * reductions_.largest());
}

void ChannelLanes::run_tile(const Tile& tile, i64 panel, const Step& step, Stretch& ahead) const {
  const int vectors = panel_vectors(panel);
  const bool narrow = vectors != tile_.vectors, last = step.cut + 1 == reductions_.parts();
  const i64 first = panel * panel_width_, k = step.item.group * t_.out_channels + first;
  BrgemmCall& brgemm = step.brgemm[narrow];
  const BrgemmKernel kernel = kernels_[narrow][tile.rows - 1];
  brgemm.a0 = tile.a0, brgemm.a1 = tile.a1;
  brgemm.ahead = ahead.next(), brgemm.ahead_step = ahead.step();
  brgemm.b = step.panels + taps() * first * reductions_.size(step.cut);
  brgemm.columns = static_cast<int>(std::min<i64>(vectors * lanes_, t_.out_channels - first));
  if (in_registers_) {
    float* out = static_cast<float*>(step.call.out) + first;
    brgemm.c0 = out + tile.c0, brgemm.c1 = out + tile.c1;
    if (step.cut > 0) brgemm.addend0 = brgemm.c0, brgemm.addend1 = brgemm.c1;
    if (last && step.call.bias != nullptr) brgemm.column_bias = step.call.bias + k;
    if (last && step.call.residual != nullptr) {
      const float* residual = static_cast<const float*>(step.call.residual) + first;
      brgemm.residual0 = residual + tile.c0, brgemm.residual1 = residual + tile.c1;
    }
    if (few_steps_) {
      fetch_to_write(brgemm.c0, std::min(tile.rows, 7), brgemm.c_row_stride, vectors * lanes_);
      fetch_to_write(brgemm.c1, tile.rows - 7, brgemm.c_row_stride, vectors * lanes_);
    }
    kernel(brgemm);
    return;
  }
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
  if (!last) return;
  EpilogueCall end;
  end.from_stride = stride, end.columns = brgemm.columns;
  if (step.call.bias != nullptr) end.column_bias = step.call.bias + k;
  end.activation = p_.epilogue.activation, end.slope = p_.epilogue.slope;
  end.dtype = p_.dtype, end.to_stride = t_.out.stride_w * t_.out_step_w;
  for (int row = 0; row < tile.rows; row += 7) {
    const i64 to = ((row == 0 ? tile.c0 : tile.c1) + first) * size_of(p_.dtype);
    end.from = sum + row * stride;
    end.rows = std::min(tile.rows - row, 7);
    if (step.call.residual != nullptr) end.residual = static_cast<const std::byte*>(step.call.residual) + to;
    end.to = static_cast<std::byte*>(step.call.out) + to;
    epilogue_store(end);
  }
}

void ChannelLanes::run(i64 index, const PartCall& call) const {
  const Item item = decode(index);
  std::byte* scratch = call.scratch;
  const auto take = [&](std::size_t bytes) {
    std::byte* taken = scratch;
    scratch += aligned(bytes);
    return taken;
  };
  float* const stage = reinterpret_cast<float*>(take(static_cast<std::size_t>(stage_floats_) * 4));
  float* const sums = reinterpret_cast<float*>(take(static_cast<std::size_t>(sum_floats_) * 4));
  Tile* const tiles = reinterpret_cast<Tile*>(take(static_cast<std::size_t>(max_tiles_) * sizeof(Tile)));
  BrgemmSegment* const segments = reinterpret_cast<BrgemmSegment*>(take(segments_bytes()));

  Stretch next;
  for (i64 cut = 0; cut < reductions_.parts(); ++cut) {
    const Source from = source(item, cut, call, stage);
    const i64 count = list_tiles(item, from, tiles), length = reductions_.size(cut);
    const i64 merged = taps() == 0 ? 1 : merged_taps(from, cut);
    BrgemmCall brgemm[2];  // of a panel of full width, and of a narrower last one
    for (const bool narrow : {false, true}) {
      const int width = lanes_ * (narrow ? panel_vectors(panels_ - 1) : tile_.vectors);
      BrgemmSegment* const list = segments + (narrow ? taps() : 0);
      for (i64 tap = 0; tap < taps(); tap += merged) {
        const Tap& t = t_.taps[static_cast<std::size_t>(tap)];
        new (&list[tap / merged]) BrgemmSegment{
            (t.h - t_.min_h()) * from.row + (t.w - t_.min_w()) * from.pixel, tap * length * width};
      }
      brgemm[narrow].a_row_stride = from.pixel * t_.step_w;
      brgemm[narrow].b_step = width;
      brgemm[narrow].segments = list, brgemm[narrow].segment_count = taps() / merged;
      brgemm[narrow].length = length * merged;
      brgemm[narrow].c_row_stride = t_.out.stride_w * t_.out_step_w;
      brgemm[narrow].relu =
          in_registers_ && cut + 1 == reductions_.parts() && p_.epilogue.activation == Activation::relu;
    }
    const float* panels =
        call.packed + taps() * channels_padded_ * (item.group * t_.in_channels + reductions_.begin(cut));
    const Step step{item, call, cut, panels, sum_floats_ == 0 ? nullptr : sums, brgemm};
    const i64 panel_count = item.panel1 - item.panel0;
    // Weights that stay in L2 are read again for each tile, so that its input stays in L1 and its output is
    // written whole; larger ones are read once an item, the next panel's on their way meanwhile.
    if (weights_stay_) {
      if (cut == 0) next = ahead(index + threads_, item, call, reductions_.parts() * count * panel_count);
      for (i64 i = 0; i < count; ++i) {
        for (i64 panel = item.panel0; panel < item.panel1; ++panel) run_tile(tiles[i], panel, step, next);
      }
    } else {
      for (i64 panel = item.panel0; panel < item.panel1; ++panel) {
        if (panel + 1 < item.panel1) {
          const i64 steps = taps() * length;
          next = Stretch(panels + steps * (panel + 1) * panel_width_,
                         4 * steps * panel_vectors(panel + 1) * lanes_, count, steps);
        } else {
          next = ahead(index + threads_, item, call, count);
        }
        for (i64 i = 0; i < count; ++i) run_tile(tiles[i], panel, step, next);
      }
    }
  }
}

}  // namespace

std::unique_ptr<ImplicitGemmPart> make_channel_lanes(const Problem& problem,
                                                     const TapConvolution& convolution, TileShape tile,
                                                     int threads) {
  return std::make_unique<ChannelLanes>(problem, convolution, tile, threads);
}

}  // namespace faltung
