// Depthwise in nhwc: lanes are channels. A tile of kPixels outputs in a row times one or two vectors of
// channels stays in registers; each input column is loaded once for all the outputs it contributes to.
#include <algorithm>

#include "kernels/cpu/depthwise.hpp"
#include "kernels/cpu/stretch.hpp"
#include "src/backend/parallel.hpp"
#include "src/problem/integers.hpp"

#include "kernels/cpu/each_target.hpp"

#include "kernels/cpu/depthwise_row-inl.hpp"
#include "kernels/cpu/with_dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace {

using namespace depthwise;

// kTaps taps beside each other of one row tap, added to the sums: their weights in registers, each input
// column loaded once. in and first are the column of the first of them.
template <DType kType, int kTaps, int kStride, int kVectors, bool kPart>
HWY_INLINE void add_taps(const Row<kType>& row, const Element<kType>* in, i64 first, const float* weights,
                         std::size_t lanes, V (&sums)[kPixels][kVectors]) {
  const D d;
  const auto size = static_cast<std::uint64_t>(row.columns->size);
  V w[kTaps][kVectors];
#pragma GCC unroll 8
  for (int s = 0; s < kTaps; ++s) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) w[s][v] = hn::LoadU(d, weights + s * row.weight_tap + v * kFloatLanes);
  }
#pragma GCC unroll 32
  for (int column = 0; column < (kPixels - 1) * kStride + kTaps; ++column) {
    // Left and right of the image there is nothing to add; the same few columns each time.
    if (static_cast<std::uint64_t>(first + column) >= size) continue;
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const V x = load_lanes<kType, kPart>(in + column * row.in_pixel + v * kFloatLanes, lanes);
#pragma GCC unroll 8
      for (int j = 0; j < kPixels; ++j) {
        const int s = column - j * kStride;
        if (s >= 0 && s < kTaps) sums[j][v] = hn::MulAdd(x, w[s][v], sums[j][v]);
      }
    }
  }
}

template <int kVectors>
HWY_INLINE void clear(V (&sums)[kPixels][kVectors]) {
#pragma GCC unroll 8
  for (int j = 0; j < kPixels; ++j) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sums[j][v] = hn::Zero(D());
  }
}

// Taps and stride known.
template <DType kType, int kTaps, int kStride, int kVectors, bool kPart>
HWY_NOINLINE void known_tile(const Row<kType>& row, i64 t, i64 channel, std::size_t lanes) {
  V sums[kPixels][kVectors];
  clear(sums);
  const i64 first = t * kStride + row.columns->origin;
  const auto* in = row.in + first * row.in_pixel + channel;
  const float* weights = row.weights + channel;
  for (i64 i = 0; i < row.taps; ++i, in += row.in_pitch, weights += row.weight_row)
    add_taps<kType, kTaps, kStride, kVectors, kPart>(row, in, first, weights, lanes, sums);
  finish<kType, kVectors, kPart>(row, sums, t, channel, lanes);
}

// As many taps as there are, at stride 1: some of them at a time in registers.
template <DType kType, int kVectors, bool kPart>
HWY_NOINLINE void long_tile(const Row<kType>& row, i64 t, i64 channel, std::size_t lanes) {
  constexpr int kMany = kHasVectors ? 7 : 3, kFew = 3;
  V sums[kPixels][kVectors];
  clear(sums);
  const i64 first = t + row.columns->origin, taps = row.columns->taps;
  for (i64 i = 0; i < row.taps; ++i) {
    const auto* in = row.in + i * row.in_pitch + first * row.in_pixel + channel;
    const float* const weights = row.weights + i * row.weight_row + channel;
    i64 s = 0;
    for (; s + kMany <= taps; s += kMany) {
      add_taps<kType, kMany, 1, kVectors, kPart>(row, in + s * row.in_pixel, first + s,
                                                 weights + s * row.weight_tap, lanes, sums);
    }
    for (; s + kFew <= taps; s += kFew) {
      add_taps<kType, kFew, 1, kVectors, kPart>(row, in + s * row.in_pixel, first + s,
                                                weights + s * row.weight_tap, lanes, sums);
    }
    for (; s < taps; ++s) {
      add_taps<kType, 1, 1, kVectors, kPart>(row, in + s * row.in_pixel, first + s,
                                             weights + s * row.weight_tap, lanes, sums);
    }
  }
  finish<kType, kVectors, kPart>(row, sums, t, channel, lanes);
}

// The input channels that belong to the output channels from `channel` on.
template <DType kType>
class Source {
 public:
  Source(const Row<kType>& row, i64 channel, i64 plane, std::size_t lanes)
      : lanes_(lanes), summed_(row.planes), single_(row.multiplier == 1) {
    if (single_) {
      offset_ = channel;
    } else if (row.planes > 1) {  // backward_data: lane c takes channel c · multiplier + plane
      offset_ = channel * row.planes + plane;
    } else {  // forward: lane k takes channel k / multiplier
      offset_ = channel / row.multiplier;
      for (int lane = 0; lane < kFloatLanes; ++lane) {
        index_[lane] = lane < static_cast<int>(lanes)
                           ? static_cast<std::int32_t>((channel + lane) / row.multiplier - offset_)
                           : 0;
      }
    }
  }

  HWY_INLINE V operator()(const Element<kType>* pixel) const {
    return single_ ? load_lanes<kType, true>(pixel + offset_, lanes_) : gathered(pixel + offset_);
  }

 private:
  HWY_NOINLINE V gathered(const Element<kType>* p) const {
    HWY_ALIGN float values[kFloatLanes] = {};
    for (std::size_t lane = 0; lane < lanes_; ++lane) {
      values[lane] = load_one<kType>(p + (summed_ > 1 ? static_cast<i64>(lane) * summed_ : index_[lane]));
    }
    return hn::Load(D(), values);
  }

  std::size_t lanes_;
  i64 summed_, offset_;
  bool single_;
  std::int32_t index_[kFloatLanes] = {};
};

// Any taps, stride, spacing and channel multiplier.
template <DType kType>
void any_tile(const Row<kType>& row, i64 t, i64 channel, std::size_t lanes) {
  const D d;
  const Slide& columns = *row.columns;
  V sums[kPixels][1];
#pragma GCC unroll 8
  for (int j = 0; j < kPixels; ++j) sums[j][0] = hn::Zero(d);
  for (i64 plane = 0; plane < row.planes; ++plane) {
    const Source<kType> source(row, channel, plane, lanes);
    for (i64 i = 0; i < row.taps; ++i) {
      for (i64 s = 0; s < columns.taps; ++s) {
        const V w = hn::LoadU(
            d, row.weights + plane * row.weight_plane + i * row.weight_row + s * row.weight_tap + channel);
        const i64 first = t * columns.stride + columns.origin + s * columns.spacing;
        const auto* in = row.in + i * row.in_pitch + first * row.in_pixel;
#pragma GCC unroll 8
        for (int j = 0; j < kPixels; ++j) {
          const i64 column = first + j * columns.stride;
          if (static_cast<std::uint64_t>(column) < static_cast<std::uint64_t>(columns.size)) {
            sums[j][0] = hn::MulAdd(source(in + j * columns.stride * row.in_pixel), w, sums[j][0]);
          }
        }
      }
    }
  }
  finish<kType, 1, true>(row, sums, t, channel, lanes);
}

template <DType kType, int kTaps, int kStride>
void known_channels(const Row<kType>& row, i64 t, i64 channel, i64 count) {
  if (count == kWide * kFloatLanes)
    return known_tile<kType, kTaps, kStride, kWide, false>(row, t, channel, kFloatLanes);
  for (; count >= kFloatLanes; channel += kFloatLanes, count -= kFloatLanes) {
    known_tile<kType, kTaps, kStride, 1, false>(row, t, channel, kFloatLanes);
  }
  if (count > 0) known_tile<kType, kTaps, kStride, 1, true>(row, t, channel, static_cast<std::size_t>(count));
}

template <DType kType>
void long_channels(const Row<kType>& row, i64 t, i64 channel, i64 count) {
  if (count == kWide * kFloatLanes) return long_tile<kType, kWide, false>(row, t, channel, kFloatLanes);
  for (; count >= kFloatLanes; channel += kFloatLanes, count -= kFloatLanes)
    long_tile<kType, 1, false>(row, t, channel, kFloatLanes);
  if (count > 0) long_tile<kType, 1, true>(row, t, channel, static_cast<std::size_t>(count));
}

template <DType kType>
void any_channels(const Row<kType>& row, i64 t, i64 channel, i64 count) {
  for (; count > 0; channel += kFloatLanes, count -= kFloatLanes) {
    any_tile<kType>(row, t, channel, static_cast<std::size_t>(std::min<i64>(count, kFloatLanes)));
  }
}

template <DType kType>
using TileFunction = void (*)(const Row<kType>&, i64 t, i64 channel, i64 count);

template <DType kType>
TileFunction<kType> choose(const DepthwisePass& pass, const Slide& columns) {
  if (!kHasVectors || pass.multiplier > 1) return any_channels<kType>;
  if (columns.spacing != 1 && columns.taps > 1) return any_channels<kType>;
  struct Known {
    i64 taps, stride;
    TileFunction<kType> tile;
  };
  static constexpr Known kKnown[] = {{1, 1, known_channels<kType, 1, 1>}, {2, 1, known_channels<kType, 2, 1>},
                                     {3, 1, known_channels<kType, 3, 1>}, {5, 1, known_channels<kType, 5, 1>},
                                     {7, 1, known_channels<kType, 7, 1>}, {3, 2, known_channels<kType, 3, 2>},
                                     {5, 2, known_channels<kType, 5, 2>}};
  for (const Known& known : kKnown) {
    if (known.taps == columns.taps && known.stride == columns.stride) return known.tile;
  }
  if (columns.stride == 1) return long_channels<kType>;
  return any_channels<kType>;
}

// Output row h of an image, for column slide b.
template <DType kType>
Row<kType> make_row(const DepthwisePass& pass, const DepthwiseTensors& tensors, i64 image, i64 h,
                    std::size_t b) {
  const Problem& p = pass.problem;
  const i64 phases = static_cast<i64>(pass.rows.size()), phase = h % phases;
  const Slide& rows = pass.rows[static_cast<std::size_t>(phase)];
  const Slide& columns = pass.columns[b];
  i64 taps_before = 0;
  for (i64 a = 0; a < phase; ++a)
    taps_before += pass.rows[static_cast<std::size_t>(a)].taps * pass.column_taps;
  for (std::size_t a = 0; a < b; ++a) taps_before += rows.taps * pass.columns[a].taps;
  // The row taps that lie in the image.
  const i64 top = h / phases * rows.stride + rows.origin, below = rows.size - 1 - top;
  const i64 i0 = top < 0 ? std::min(rows.taps, (-top + rows.spacing - 1) / rows.spacing) : 0;
  const i64 i1 = below < 0 ? 0 : std::min(rows.taps, below / rows.spacing + 1);

  Row<kType> row;
  row.taps = std::max<i64>(0, i1 - i0);
  row.in_pixel = pass.in_channels;
  row.in_pitch = rows.spacing * pass.in_w * pass.in_channels;
  row.in = static_cast<const Element<kType>*>(tensors.in) +
           (image * pass.in_h + top + i0 * rows.spacing) * pass.in_w * pass.in_channels;
  row.weight_tap = depthwise_padded_channels(pass);
  row.weight_row = columns.taps * row.weight_tap;
  row.weight_plane = rows.taps * row.weight_row;
  row.weights = tensors.packed + taps_before * pass.planes() * row.weight_tap + i0 * row.weight_row;
  row.columns = &columns;
  const i64 offset = ((image * pass.out_h + h) * pass.out_w + columns.first) * pass.out_channels;
  row.out = static_cast<Element<kType>*>(tensors.out) + offset;
  row.out_pixel = columns.step * pass.out_channels;
  row.bias = static_cast<const Element<kType>*>(tensors.bias);
  row.residual =
      tensors.residual == nullptr ? nullptr : static_cast<const Element<kType>*>(tensors.residual) + offset;
  row.slopes = tensors.slopes;
  row.epilogue = &p.epilogue;
  row.planes = pass.planes();
  row.multiplier = pass.multiplier;
  return row;
}

// Lines that will be needed soon: some channels of neighbouring pixels.
template <int kWrite, DType kType>
HWY_INLINE void fetch_pixels(const Element<kType>* pixel, i64 pixels, i64 pitch, i64 channels) {
  for (i64 j = 0; j < pixels; ++j, pixel += pitch) {
    for (i64 c = 0; c < channels; c += 64 / size_of(kType)) __builtin_prefetch(pixel + c, kWrite, 2);
  }
}

template <DType kType>
void run_typed(const DepthwisePass& pass, const DepthwiseTensors& tensors, const DepthwiseAhead* others,
               int worker, int workers) {
  // Rows that are computed together, a tile of each in turn, while what they share is in the first-level
  // cache. More would walk the image in too many places at once for the prefetchers.
  constexpr i64 kRows = 2;
  constexpr i64 kSlides = 4;  // of columns, computed side by side; few strides are larger
  // All channels of a few pixels are one run of memory; but the weights of all channels, read again for each
  // tile, must then stay in the first-level cache.
  constexpr i64 kWeightBytes = 24 << 10;
  const Problem& p = pass.problem;
  const i64 phases = static_cast<i64>(pass.rows.size()), steps = static_cast<i64>(pass.columns.size());
  const auto* in = static_cast<const Element<kType>*>(tensors.in);
  const bool pixels_first = pass.out_channels * p.r * p.s * static_cast<i64>(sizeof(float)) <= kWeightBytes;
  Row<kType> rows[kRows * kSlides];
  TileFunction<kType> kernels[kRows * kSlides];
  const Range part = share(p.n * pass.out_h, worker, workers);
  const DepthwiseAhead ahead = others == nullptr ? DepthwiseAhead{} : *others;
  const i64 tiles_of_all = (part.end - part.begin) * ceil_div(pass.out_w, kPixels) *
                           ceil_div(pass.out_channels, kWide * kFloatLanes);
  Stretch to_read(ahead.in, ahead.in_bytes, tiles_of_all, 1),
      to_write(ahead.out, ahead.out_bytes, tiles_of_all, 1);
  for (i64 h = part.begin; h < part.end;) {
    const i64 image = h / pass.out_h, first = h % pass.out_h;
    const i64 count = std::min({kRows, part.end - h, pass.out_h - first});
    // What the next rows will need beyond these, fetched while these are computed; behind an image's last
    // rows are the first ones of the next.
    const Slide& slide = pass.rows.front();
    const i64 reach = slide.origin + (slide.taps - 1) * slide.spacing + 1;
    const i64 bottom = (first + count - 1) / phases * slide.stride + reach;
    const bool ends = first + count == pass.out_h && h + count < part.end;
    const i64 next =
        ends ? (kRows - 1) / phases * slide.stride + reach : (count * slide.stride + phases - 1) / phases;
    const i64 row0 = ends ? (image + 1) * pass.in_h : image * pass.in_h + bottom;
    const i64 fetched =
        pass.multiplier > 1 || others != nullptr
            ? 0
            : std::clamp<i64>(next, 0, ends ? pass.in_h : std::max<i64>(pass.in_h - bottom, 0));
    const auto* below = in + row0 * pass.in_w * pass.in_channels;
    // And the lines of the result that these are stored to; of the first rows, before which none were
    // computed, their own: stores wait for their lines one after the other.
    const i64 stored = others != nullptr ? 0 : std::min(count, part.end - h - count);
    auto* const to =
        static_cast<const Element<kType>*>(tensors.out) + (h + count) * pass.out_w * pass.out_channels;
    const i64 asked = others == nullptr && h == part.begin ? -count : 0;
    const i64 stride = pass.columns.front().stride, most = pass.columns.front().count;
    // The outputs of a step's column slides lie between each other: together they are whole lines, and read
    // the same few pixels.
    for (i64 b0 = 0; b0 < steps; b0 += kSlides) {
      const i64 side = std::min(kSlides, steps - b0);
      for (i64 i = 0; i < count * side; ++i) {
        const auto b = static_cast<std::size_t>(b0 + i % side);
        rows[i] = make_row<kType>(pass, tensors, image, first + i / side, b);
        kernels[i] = choose<kType>(pass, pass.columns[b]);
      }
      const auto tiles = [&](i64 t, i64 channel) {
        const i64 channels = std::min<i64>(kWide * kFloatLanes, pass.out_channels - channel);
        for (i64 i = asked; b0 == 0 && i < stored; ++i) {
          fetch_pixels<1, kType>(to + (i * pass.out_w + t * steps) * pass.out_channels + channel,
                                 std::min(kPixels * steps, pass.out_w - t * steps), pass.out_channels,
                                 channels);
        }
        const i64 left = std::max<i64>(0, t * stride);
        for (i64 i = 0; b0 == 0 && i < fetched; ++i) {
          fetch_pixels<0, kType>(below + (i * pass.in_w + left) * pass.in_channels + channel,
                                 std::min(kPixels * stride, pass.in_w - left), pass.in_channels, channels);
        }
        for (i64 i = 0; i < count * side; ++i) {
          fetch_next<0>(to_read), fetch_next<1>(to_write);
          if (t < rows[i].columns->count) kernels[i](rows[i], t, channel, channels);
        }
      };
      if (pixels_first) {
        for (i64 t = 0; t < most; t += kPixels) {
          for (i64 channel = 0; channel < pass.out_channels; channel += kWide * kFloatLanes)
            tiles(t, channel);
        }
      } else {
        for (i64 channel = 0; channel < pass.out_channels; channel += kWide * kFloatLanes) {
          for (i64 t = 0; t < most; t += kPixels) tiles(t, channel);
        }
      }
    }
    h += count;
  }
}

}  // namespace

void DepthwiseNhwc(const DepthwisePass& pass, const DepthwiseTensors& tensors, const DepthwiseAhead* ahead,
                   int worker, int workers) {
  with_dtype(pass.problem.dtype, [&](auto type) { run_typed<type>(pass, tensors, ahead, worker, workers); });
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace faltung {

HWY_EXPORT(DepthwiseNhwc);

void depthwise_nhwc(const DepthwisePass& pass, const DepthwiseTensors& tensors, const DepthwiseAhead* ahead,
                    int worker, int workers) {
  HWY_DYNAMIC_DISPATCH(DepthwiseNhwc)(pass, tensors, ahead, worker, workers);
}

}  // namespace faltung
#endif  // HWY_ONCE
