// Implicit GEMM with pixels in the lanes, for nchw: the input is staged as a dense patch with its padding, in
// which a tap is an offset of the vectors.
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

constexpr i64 kStageBytes = 768 << 10;  // of an item's patch: with the weights in use it stays in L2
constexpr i64 kPanelBytes = 512 << 10;  // of weights, beyond which the reduction is cut
constexpr i64 kSumBytes = 1 << 20;      // of unfinished sums that cannot wait in the output
constexpr i64 kFewPanels = 8;           // that may read the input in place: more are worth a copy of it

class PixelLanes : public ImplicitGemmPart {
 public:
  PixelLanes(const Problem& problem, const TapConvolution& convolution, TileShape tile, int threads)
      : p_(problem), t_(flattened(convolution, Layout::nchw)), tile_(tile), threads_(threads) {
    lanes_ = brgemm_lanes();
    tile_.rows = std::min(tile_.rows, brgemm_max_rows(tile_.vectors));
    panels_ = EvenSplit(t_.out_channels, tile_.rows);
    phases_h_ = std::min(t_.step_h, t_.extent_h()), phases_w_ = std::min(t_.step_w, t_.extent_w());
    in_registers_ = epilogue_in_registers(p_) && t_.out_step_w == 1;
    few_steps_ = taps() * t_.in_channels <= kFewSteps;
    for (int vectors = 1; vectors <= tile_.vectors; ++vectors) {
      for (const i64 part : {i64{0}, panels_.parts() - 1}) {
        const int m = static_cast<int>(panels_.size(part));
        kernels_[m != panels_.largest()][vectors - 1] =
            brgemm_kernel(BrgemmElement::f32, BrgemmRows::contiguous, m, vectors);
      }
    }
    choose_items(threads);
  }

  i64 packed_floats() const override { return t_.groups * t_.out_channels * taps() * t_.in_channels; }
  i64 pack_items() const override { return t_.groups * reductions_.parts() * panels_.parts(); }
  i64 items() const override {
    return channel_parts_.parts() * t_.groups * images_.parts() * rows_.parts() * columns_.parts();
  }
  std::size_t scratch_bytes() const override {
    return aligned(static_cast<std::size_t>(stage_floats_) * 4) +
           aligned(static_cast<std::size_t>(sum_floats_) * 4) +
           aligned(2 * t_.taps.size() * sizeof(BrgemmSegment));
  }

  void pack(i64 item, const void* w, float* packed) const override {
    const i64 panel = item % panels_.parts(), cut = item / panels_.parts() % reductions_.parts();
    const i64 group = item / panels_.parts() / reductions_.parts();
    float* to = packed + packed_offset(group, cut, panel);
    for (const Tap& tap : t_.taps) {
      const FilterView view = filter_view(p_, tap, group);
      for (i64 c = 0; c < reductions_.size(cut); ++c) {
        for (i64 k = panels_.begin(panel); k < panels_.begin(panel + 1); ++k) {
          *to++ = load_element(p_.dtype, w,
                               view.base + (reductions_.begin(cut) + c) * view.c_stride + k * view.k_stride);
        }
      }
    }
  }

  void run(i64 item, const PartCall& call) const override;

  double cycles() const override {
    double total = 0;
    const double steps = static_cast<double>(taps() * t_.in_channels);
    const bool split = t_.taps.size() > 1;
    const auto row_of_tiles = [&](i64 columns) {
      const EvenSplit vectors(ceil_div(columns, lanes_), tile_.vectors);
      double sum = 0;
      for (i64 part = 0; part < vectors.parts(); ++part) {
        for (i64 panel = 0; panel < panels_.parts(); ++panel) {
          sum += steps * tile_step_cycles(static_cast<int>(panels_.size(panel)),
                                          static_cast<int>(vectors.size(part)), split) +
                 kTileOverhead;
        }
      }
      return sum;
    };
    if (flat_) {
      for (i64 part = 0; part < images_.parts(); ++part) {
        const double columns = static_cast<double>(images_.size(part) * phase_rows(t_.rows) * row_);
        // The sums go through memory once more.
        total += row_of_tiles(images_.size(part) * phase_rows(t_.rows) * row_) +
                 0.2 * columns * static_cast<double>(t_.out_channels);
      }
      return total * static_cast<double>(t_.groups);
    }
    for (i64 part = 0; part < columns_.parts(); ++part) total += row_of_tiles(columns_.size(part));
    return total * static_cast<double>(t_.groups * t_.in.n * t_.rows);
  }

 private:
  static constexpr double kTileOverhead = 40;

  struct Item {
    i64 panel0, panel1, group, image0, images, row0, rows, column0, columns;
  };

  BrgemmKernel kernel_of(int m, int vectors) const { return kernels_[m != panels_.largest()][vectors - 1]; }
  i64 taps() const { return static_cast<i64>(t_.taps.size()); }
  i64 packed_offset(i64 group, i64 cut, i64 panel) const {
    return taps() * (group * t_.out_channels * t_.in_channels + t_.out_channels * reductions_.begin(cut) +
                     panels_.begin(panel) * reductions_.size(cut));
  }
  // Rows and columns of one phase of a patch of so many output rows and columns.
  i64 phase_rows(i64 rows) const { return ceil_div((rows - 1) * t_.step_h + t_.extent_h(), t_.step_h); }
  i64 phase_columns(i64 columns) const {
    return ceil_div((columns - 1) * t_.step_w + t_.extent_w(), t_.step_w);
  }
  // Distances in a staged patch, in floats.
  i64 image_floats(i64 rows, i64 columns) const {
    return phases_h_ * phases_w_ * phase_rows(rows) * phase_columns(columns);
  }
  static i64 channel_floats(i64 floats) {
    // A whole number of cache lines, an odd one: channels spread over all of the cache.
    return (ceil_div(floats, 16) | 1) * 16;
  }
  // The end of the last channel's last row is read up to a tile's width further.
  i64 stage_floats(i64 images, i64 rows, i64 columns) const {
    return reductions_.largest() * channel_floats(images * image_floats(rows, columns)) +
           16 * kBrgemmMaxVectors;
  }

  void choose_items(int threads) {
    const i64 row_floats =
        phase_columns(std::min<i64>(t_.columns, 64)) * phases_h_ * phases_w_ * phase_rows(1);
    const i64 step_bytes = std::max<i64>(taps(), 1) * tile_.rows * 4;
    reductions_ = EvenSplit(
        t_.in_channels, std::max<i64>(16, std::min(kPanelBytes / step_bytes, (1 << 20) / 4 / row_floats)));
    const i64 most = kStageBytes / 4;
    columns_ = EvenSplit(t_.columns, t_.columns);
    rows_ = EvenSplit(t_.rows, t_.rows);
    images_ = EvenSplit(t_.in.n, 1);

    // Rows one after the other as if they were one, where their ends would leave too many lanes empty.
    const i64 vector_columns = round_up(t_.columns, lanes_);
    flat_ = stage_floats(1, t_.rows, t_.columns) <= most && reductions_.parts() == 1 &&
            static_cast<double>(vector_columns) / static_cast<double>(t_.columns) >
                1.05 * static_cast<double>(phase_rows(t_.rows) * phase_columns(t_.columns)) /
                    static_cast<double>(t_.rows * t_.columns);
    row_ = phase_columns(t_.columns);
    if (flat_) {
      i64 images = std::clamp<i64>(512 / (t_.rows * t_.columns), 1, t_.in.n);
      while (images > 1 && stage_floats(images, t_.rows, t_.columns) > most) --images;
      images_ = EvenSplit(t_.in.n, images);
    } else {
      i64 columns = t_.columns;
      const i64 unit = tile_.vectors * lanes_;
      while (columns > unit &&
             (stage_floats(1, 1, columns) > most || (t_.rows == 1 && columns > 16 * unit))) {
        columns = round_up(ceil_div(columns, 2), unit);
      }
      if (columns < t_.columns) {
        column_unit_ = unit;
        columns_ = EvenSplit(ceil_div(t_.columns, unit), columns / unit);
      }
      i64 rows = std::clamp<i64>(1024 / columns, 1, t_.rows);
      while (rows > 1 && stage_floats(1, rows, columns) > most) --rows;
      rows_ = EvenSplit(t_.rows, rows);
    }
    // A lone tap over whole planes finds its vectors in the input as it lies there, unless many planes begin
    // at the same place of the cache.
    const Tap tap = taps() == 1 ? t_.taps.front() : Tap{};
    const bool planes = taps() == 1 && tap.h == 0 && tap.w == 0 && t_.step_h == 1 && t_.step_w == 1 &&
                        t_.rows == 1 && t_.in.h == 1 && t_.columns == t_.in.w;
    const bool collide = t_.in.stride_c * 4 % 4096 == 0 && t_.in_channels > 64;
    in_place_ = planes && !collide && !flat_ && p_.dtype == DType::f32 && panels_.parts() <= kFewPanels;
    const i64 pixel_items = t_.groups * images_.parts() * rows_.parts() * columns_.parts();
    i64 parts = pixel_items < 4 * threads ? ceil_div(4 * threads, pixel_items) : 1;
    const i64 columns = std::min(columns_.largest() * column_unit_, t_.columns);
    const i64 pixels = rows_.largest() * columns;
    if (reductions_.parts() > 1 && !in_registers_) {
      parts = std::max(parts, ceil_div(pixels * t_.out_channels * 4, kSumBytes));
    }
    channel_parts_ = EvenSplit::in_parts(panels_.parts(), parts);
    stage_floats_ = stage_floats(images_.largest(), rows_.largest(), columns);
    if (flat_) {
      flat_columns_ = ceil_div(images_.largest() * phase_rows(t_.rows) * row_, lanes_) * lanes_;
      sum_floats_ = panels_.largest() * flat_columns_;
    } else if (reductions_.parts() > 1 && !in_registers_) {
      sum_floats_ = channel_parts_.largest() * panels_.largest() * pixels;
    }
  }

  i64 column_begin(i64 part) const { return std::min(columns_.begin(part) * column_unit_, t_.columns); }

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
    item.column0 = column_begin(column_part), item.columns = column_begin(column_part + 1) - item.column0;
    return item;
  }

  void stage(const Item& item, i64 cut, const PartCall& call, float* to, const PhaseStrides& strides) const;
  void run_rows(const Item& item, i64 cut, const PartCall& call, const float* patch,
                const PhaseStrides& strides, const BrgemmSegment* segments, float* sums,
                Prefetch& ahead) const;
  void run_flat(const Item& item, const PartCall& call, const float* patch, const PhaseStrides& strides,
                const BrgemmSegment* segments, float* sums) const;
  Prefetch prefetch(i64 index, const Item& current, const PartCall& call, i64 calls) const;
  void finish(EpilogueCall& end, const PartCall& call, i64 image, i64 k, i64 row, i64 column) const;

  Problem p_;
  TapConvolution t_;
  TileShape tile_;
  int threads_;
  int lanes_ = 1;
  BrgemmKernel kernels_[2][kBrgemmMaxVectors] =
      {};  // by whether a panel is one of the smaller, and vectors - 1
  i64 phases_h_ = 1, phases_w_ = 1;
  EvenSplit panels_;                   // of output channels
  EvenSplit reductions_;               // of input channels
  EvenSplit columns_, rows_, images_;  // of the output; columns_ counts units
  EvenSplit channel_parts_;            // of panels
  i64 column_unit_ = 1;
  bool flat_ = false, in_registers_ = false, few_steps_ = false, in_place_ = false;
  i64 row_ = 0, flat_columns_ = 0, stage_floats_ = 0, sum_floats_ = 0;
};

void PixelLanes::stage(const Item& item, i64 cut, const PartCall& call, float* to,
                       const PhaseStrides& strides) const {
  StageCall patch;
  patch.dtype = p_.dtype;
  patch.from_row_stride = t_.in.stride_h;
  patch.height = t_.in.h, patch.width = t_.in.w;
  patch.row0 = (call.first_row + item.row0) * t_.step_h + t_.min_h();
  patch.rows = (item.rows - 1) * t_.step_h + t_.extent_h();
  patch.column0 = item.column0 * t_.step_w + t_.min_w();
  patch.columns = (item.columns - 1) * t_.step_w + t_.extent_w();
  patch.channels = reductions_.size(cut);
  const i64 channel = item.group * t_.in_channels + reductions_.begin(cut);
  for (i64 image = 0; image < item.images; ++image) {
    patch.from = static_cast<const std::byte*>(call.in) +
                 t_.in.offset(item.image0 + image, channel, 0, 0) * size_of(p_.dtype);
    patch.to = to + image * phase_rows(item.rows) * strides.row;
    stage_planes(patch, t_.in.stride_c, strides);
  }
}

// Of the item that this worker will probably run next: its input, where each channel's is contiguous.
Prefetch PixelLanes::prefetch(i64 index, const Item& current, const PartCall& call, i64 calls) const {
  if (index >= items() || t_.extent_h() < t_.step_h) return {};
  const Item next = decode(index);
  const bool same = next.image0 == current.image0 && next.row0 == current.row0 &&
                    next.column0 == current.column0 && next.group == current.group;
  if (same || next.images > 1 || (columns_.parts() > 1 && t_.in.h > 1)) return {};
  i64 row0 = 0, row1 = t_.in.h, column0 = 0, columns = t_.in.w;
  if (columns_.parts() > 1) {
    column0 = std::max<i64>(next.column0 * t_.step_w + t_.min_w(), 0);
    columns = std::min(t_.in.w - column0, (next.columns - 1) * t_.step_w + t_.extent_w());
  } else {
    row0 = std::clamp<i64>(next.row0 * t_.step_h + t_.min_h(), 0, t_.in.h);
    row1 =
        std::clamp<i64>((next.row0 + next.rows - 1) * t_.step_h + t_.min_h() + t_.extent_h(), row0, t_.in.h);
  }
  const i64 bytes = size_of(p_.dtype);
  const std::byte* from = static_cast<const std::byte*>(call.in) +
                          t_.in.offset(next.image0, next.group * t_.in_channels, row0, column0) * bytes;
  return Prefetch(from, t_.in_channels, (row1 - row0) * columns * bytes, t_.in.stride_c * bytes, calls);
}

// end.from, rows (channels), columns and strides of from are set; the rest follows from where they go.
void PixelLanes::finish(EpilogueCall& end, const PartCall& call, i64 image, i64 k, i64 row,
                        i64 column) const {
  const i64 offset =
      t_.out.offset(image, k, t_.out_h0 + row * t_.out_step_h, t_.out_w0 + column * t_.out_step_w);
  if (t_.out_step_w > 1) {  // backward_data between the pixels of other phases: no epilogue
    for (i64 i = 0; i < end.rows; ++i) {
      for (i64 j = 0; j < end.columns; ++j) {
        store_element(p_.dtype, call.out, offset + i * t_.out.stride_c + j * t_.out_step_w,
                      end.from[i * end.from_stride + j]);
      }
    }
    return;
  }
  end.row_bias = call.bias == nullptr ? nullptr : call.bias + k;
  end.activation = p_.epilogue.activation, end.slope = p_.epilogue.slope;
  end.dtype = p_.dtype, end.to_stride = t_.out.stride_c;
  end.to = static_cast<std::byte*>(call.out) + offset * size_of(p_.dtype);
  if (call.residual != nullptr) {
    end.residual = static_cast<const std::byte*>(call.residual) + offset * size_of(p_.dtype);
  }
  epilogue_store(end);
}

void PixelLanes::run_rows(const Item& item, i64 cut, const PartCall& call, const float* patch,
                          const PhaseStrides& strides, const BrgemmSegment* segments, float* sums,
                          Prefetch& ahead) const {
  const EvenSplit vectors(ceil_div(item.columns, lanes_), tile_.vectors);
  const bool last = cut + 1 == reductions_.parts();
  alignas(64) float finished[14 * 64];
  for (i64 row = 0; row < item.rows; ++row) {
    for (i64 panel = item.panel0; panel < item.panel1; ++panel) {
      const int m = static_cast<int>(panels_.size(panel));
      const i64 k = item.group * t_.out_channels + panels_.begin(panel);
      BrgemmCall brgemm;
      brgemm.a0 = call.packed + packed_offset(item.group, cut, panel);
      brgemm.a1 = static_cast<const float*>(brgemm.a0) + 7;
      brgemm.a_step = m, brgemm.b_step = strides.channel;
      brgemm.segments = m == panels_.largest() ? segments : segments + taps(), brgemm.segment_count = taps(),
      brgemm.length = reductions_.size(cut);
      for (i64 part = 0; part < vectors.parts(); ++part) {
        const i64 column = vectors.begin(part) * lanes_;
        const int width = static_cast<int>(vectors.size(part));
        const int columns = static_cast<int>(std::min<i64>(width * lanes_, item.columns - column));
        const BrgemmKernel kernel = kernel_of(m, width);
        brgemm.b = patch + row * strides.row + column;
        brgemm.columns = columns;
        float* sum = finished;
        i64 stride = width * lanes_;
        if (in_registers_) {
          const i64 to = t_.out.offset(item.image0, k, t_.out_h0 + (item.row0 + row) * t_.out_step_h,
                                       t_.out_w0 + item.column0 + column);
          sum = static_cast<float*>(call.out) + to, stride = t_.out.stride_c;
          if (last) {
            brgemm.row_bias = call.bias == nullptr ? nullptr : call.bias + k;
            if (call.residual != nullptr) {
              brgemm.residual0 = static_cast<const float*>(call.residual) + to;
              brgemm.residual1 = brgemm.residual0 + 7 * stride;
            }
            brgemm.relu = p_.epilogue.activation == Activation::relu;
          }
        } else if (sums != nullptr) {
          stride = item.rows * item.columns;
          sum = sums + (panel - item.panel0) * panels_.largest() * stride + row * item.columns + column;
        }
        brgemm.c0 = sum, brgemm.c1 = sum + 7 * stride, brgemm.c_row_stride = stride;
        if (cut > 0) brgemm.addend0 = brgemm.c0, brgemm.addend1 = brgemm.c1;
        if (in_registers_ && few_steps_) fetch_to_write(sum, m, stride, width * lanes_);
        ahead.advance();
        kernel(brgemm);
        if (in_registers_ || !last) continue;
        EpilogueCall end;
        end.from = sum, end.from_stride = stride, end.rows = m, end.columns = columns;
        finish(end, call, item.image0, k, item.row0 + row, item.column0 + column);
      }
    }
  }
}

void PixelLanes::run_flat(const Item& item, const PartCall& call, const float* patch,
                          const PhaseStrides& strides, const BrgemmSegment* segments, float* sums) const {
  const i64 rows = phase_rows(t_.rows);
  // The last image's last rows hold input alone.
  const i64 used = ((item.images - 1) * rows + t_.rows - 1) * row_ + t_.columns;
  const EvenSplit vectors(ceil_div(used, lanes_), tile_.vectors);
  for (i64 panel = item.panel0; panel < item.panel1; ++panel) {
    const int m = static_cast<int>(panels_.size(panel));
    const i64 k = item.group * t_.out_channels + panels_.begin(panel);
    BrgemmCall brgemm;
    brgemm.a0 = call.packed + packed_offset(item.group, 0, panel);
    brgemm.a1 = static_cast<const float*>(brgemm.a0) + 7;
    brgemm.a_step = m, brgemm.b_step = strides.channel;
    brgemm.segments = m == panels_.largest() ? segments : segments + taps(), brgemm.segment_count = taps(),
    brgemm.length = t_.in_channels;
    brgemm.c_row_stride = flat_columns_;
    for (i64 part = 0; part < vectors.parts(); ++part) {
      const int width = static_cast<int>(vectors.size(part));
      brgemm.b = patch + vectors.begin(part) * lanes_;
      brgemm.columns = width * lanes_;
      brgemm.c0 = sums + vectors.begin(part) * lanes_, brgemm.c1 = brgemm.c0 + 7 * flat_columns_;
      kernel_of(m, width)(brgemm);
    }
    for (i64 image = 0; image < item.images; ++image) {
      for (i64 row = 0; row < t_.rows; ++row) {
        EpilogueCall end;
        end.from = sums + (image * rows + row) * row_;
        end.from_stride = flat_columns_, end.rows = m, end.columns = t_.columns;
        finish(end, call, item.image0 + image, k, row, 0);
      }
    }
  }
}

void PixelLanes::run(i64 index, const PartCall& call) const {
  const Item item = decode(index);
  float* const patch = reinterpret_cast<float*>(call.scratch);
  std::byte* rest = call.scratch + aligned(static_cast<std::size_t>(stage_floats_) * 4);
  float* const sums = sum_floats_ == 0 ? nullptr : reinterpret_cast<float*>(rest);
  rest += aligned(static_cast<std::size_t>(sum_floats_) * 4);
  BrgemmSegment* const segments = reinterpret_cast<BrgemmSegment*>(rest);

  PhaseStrides strides;
  strides.step_h = t_.step_h, strides.step_w = t_.step_w;
  strides.phases_h = phases_h_, strides.phases_w = phases_w_;
  strides.row = phase_columns(item.columns);
  strides.phase = item.images * phase_rows(item.rows) * strides.row;
  strides.channel = channel_floats(item.images * image_floats(item.rows, item.columns));
  Prefetch ahead;
  for (i64 cut = 0; cut < reductions_.parts(); ++cut) {
    const float* input = patch;
    // Lanes beyond the last plane's end are beyond the input's.
    if (in_place_ && item.column0 + round_up(item.columns, lanes_) <= t_.columns) {
      const i64 channel = item.group * t_.in_channels + reductions_.begin(cut);
      input = static_cast<const float*>(call.in) + t_.in.offset(item.image0, channel, 0, item.column0);
      strides.channel = t_.in.stride_c;
    } else {
      stage(item, cut, call, patch, strides);
    }
    // Panels come in two sizes, of which the larger's list is the first.
    for (i64 tap = 0; tap < taps(); ++tap) {
      const i64 h = t_.taps[static_cast<std::size_t>(tap)].h - t_.min_h();
      const i64 w = t_.taps[static_cast<std::size_t>(tap)].w - t_.min_w();
      const i64 b = (h % t_.step_h * phases_w_ + w % t_.step_w) * strides.phase +
                    h / t_.step_h * strides.row + w / t_.step_w;
      const i64 a = tap * reductions_.size(cut) * panels_.largest();
      new (&segments[tap]) BrgemmSegment{a, b};
      new (&segments[taps() + tap]) BrgemmSegment{a - tap * reductions_.size(cut), b};
    }
    if (flat_) {
      run_flat(item, call, patch, strides, segments, sums);
    } else {
      if (cut == 0) {
        const i64 tiles = item.rows * (item.panel1 - item.panel0) *
                          EvenSplit(ceil_div(item.columns, lanes_), tile_.vectors).parts();
        ahead = prefetch(index + threads_, item, call, reductions_.parts() * tiles);
      }
      run_rows(item, cut, call, input, strides, segments, sums, ahead);
    }
  }
}

}  // namespace

std::unique_ptr<ImplicitGemmPart> make_pixel_lanes(const Problem& problem, const TapConvolution& convolution,
                                                   TileShape tile, int threads) {
  return std::make_unique<PixelLanes>(problem, convolution, tile, threads);
}

}  // namespace faltung
