// Direct convolution in nhwc. Weights are [K][R][S][C / groups]: forward, lanes are what is summed, a run of
// filter columns by input channels that lies contiguous in x and in w alike; a block of output channels by
// pixels shares the loads and ends in sums over lanes. backward_data, lanes are the input channels,
// contiguous in w and in the result.
#include <algorithm>

#include "kernels/cpu/direct.hpp"

#include "kernels/cpu/each_target.hpp"

#include "kernels/cpu/direct-inl.hpp"
#include "kernels/cpu/with_dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace {

using V = FloatVec;
constexpr int kOut = 4, kPixels = 4, kChannelVectors = 2;
constexpr i64 kRun = 64;  // output channels that are summed before they are finished

template <DType kType>
struct Row {
  const DirectPass* pass;
  const Slide* rows;
  const Slide* columns;
  TapRange taps;             // of the row
  const Element<kType>* in;  // of the group: row of the first row tap inside, column 0
  const Element<kType>* weights;
  i64 in_pixel;
};

// sums[o][j] = output channels from `weights` on at the pixels that see column `first + j · stride` through
// tap 0. The taps of a row are those of all these pixels: [taps.begin, taps.end).
template <DType kType, int kWide>
HWY_INLINE void dot(const Row<kType>& row, const Element<kType>* weights, i64 out, i64 first, TapRange taps,
                    float (&to)[kPixels][kRun], i64 at) {
  const FloatTag d;
  const DirectPass& pass = *row.pass;
  const Slide& columns = *row.columns;
  V sums[kOut][kWide];
#pragma GCC unroll 4
  for (int o = 0; o < kOut; ++o) {
#pragma GCC unroll 4
    for (int j = 0; j < kWide; ++j) sums[o][j] = hn::Zero(d);
  }
  // Neighbouring taps are one run if all channels of neighbouring columns are.
  const bool runs_on = columns.spacing == 1 && row.in_pixel == pass.in_channels;
  const i64 run = pass.in_channels * (runs_on ? taps.end - taps.begin : 1);
  const i64 runs = runs_on ? 1 : taps.end - taps.begin;
  for (i64 i = row.taps.begin; i < row.taps.end; ++i) {
    for (i64 s = 0; s < runs; ++s) {
      const i64 tap = taps.begin + s;
      const auto* x =
          row.in + ((i - row.taps.begin) * row.rows->spacing * pass.in_w + first + tap * columns.spacing) *
                       row.in_pixel;
      const auto* w = weights + i * pass.weight_row + tap * pass.weight_column;
      for (i64 c = 0; c < run; c += kFloatLanes) {
        const std::size_t lanes = static_cast<std::size_t>(std::min<i64>(kFloatLanes, run - c));
        V xs[kWide];
#pragma GCC unroll 4
        for (int j = 0; j < kWide; ++j) {
          const auto* from = x + j * columns.stride * row.in_pixel + c;
          xs[j] = lanes == kFloatLanes ? load_vec<kType>(from) : load_lanes<kType, true>(from, lanes);
        }
#pragma GCC unroll 4
        for (int o = 0; o < kOut; ++o) {
          if (o >= out) break;
          const auto* from = w + o * pass.weight_out + c;
          const V ws = lanes == kFloatLanes ? load_vec<kType>(from) : load_lanes<kType, true>(from, lanes);
#pragma GCC unroll 4
          for (int j = 0; j < kWide; ++j) sums[o][j] = hn::MulAdd(xs[j], ws, sums[o][j]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int o = 0; o < kOut; ++o) {
    if (o >= out) break;
#pragma GCC unroll 4
    for (int j = 0; j < kWide; ++j) to[j][at + o] = hn::GetLane(hn::SumOfLanes(d, sums[o][j]));
  }
}

template <DType kType>
void finish(const DirectPass& pass, const DirectTensors& tensors, const float* sums, i64 channel, i64 count,
            i64 offset) {
  const Epilogue& e = pass.problem.epilogue;
  for (i64 i = 0; i < count; i += kFloatLanes) {
    const std::size_t lanes = static_cast<std::size_t>(std::min<i64>(kFloatLanes, count - i));
    V sum = load_lanes<DType::f32, true>(sums + i, lanes);
    if (tensors.bias != nullptr) {
      const auto* bias = static_cast<const Element<kType>*>(tensors.bias) + channel + i;
      sum = hn::Add(sum, load_lanes<kType, true>(bias, lanes));
    }
    V residual = hn::Zero(FloatTag());
    if (e.residual) {
      const auto* from = static_cast<const Element<kType>*>(tensors.residual) + offset + i;
      residual = load_lanes<kType, true>(from, lanes);
    }
    const FloatVec a = a_of_channels(activation_of(e), tensors.slopes, channel + i, count - i);
    sum = finished(e, sum, residual, a);
    store_lanes<kType, true>(sum, static_cast<Element<kType>*>(tensors.out) + offset + i, lanes);
  }
}

template <DType kType>
void forward_row(const DirectPass& pass, const DirectTensors& tensors, Row<kType> row, i64 group,
                 i64 offset) {
  const Slide& columns = *row.columns;
  const i64 all_channels = pass.out_channels * pass.problem.groups;
  for (i64 t = 0; t < columns.count;) {
    const TapRange taps = taps_inside(columns, t);
    // Pixels that see the same taps are computed together.
    const i64 last = t + kPixels - 1;
    const TapRange others = last < columns.count ? taps_inside(columns, last) : TapRange{-1, -1};
    const bool together =
        taps.begin == 0 && taps.end == columns.taps && others.begin == 0 && others.end == columns.taps;
    const i64 pixels = together ? kPixels : 1, first = t * columns.stride + columns.origin;
    for (i64 k = 0; k < pass.out_channels; k += kRun) {
      const i64 count = std::min(kRun, pass.out_channels - k);
      HWY_ALIGN float sums[kPixels][kRun];
      for (i64 o = 0; o < count; o += kOut) {
        const auto* weights = row.weights + (k + o) * pass.weight_out;
        if (together) {
          dot<kType, kPixels>(row, weights, count - o, first, taps, sums, o);
        } else {
          dot<kType, 1>(row, weights, count - o, first, taps, sums, o);
        }
      }
      for (i64 j = 0; j < pixels; ++j) {
        const i64 channel = group * pass.out_channels + k;
        finish<kType>(pass, tensors, sums[j], channel, count, offset + (t + j) * all_channels + channel);
      }
    }
    t += pixels;
  }
}

template <DType kType>
void backward_row(const DirectPass& pass, const DirectTensors& tensors, const Row<kType>& row, i64 group,
                  i64 offset) {
  const FloatTag d;
  const Slide &rows = *row.rows, &columns = *row.columns;
  const i64 all_channels = pass.out_channels * pass.problem.groups;
  for (i64 t = 0; t < columns.count; t += kPixels) {
    const i64 first = t * columns.stride + columns.origin;
    for (i64 c = 0; c < pass.out_channels; c += kChannelVectors * kFloatLanes) {
      std::size_t lanes[kChannelVectors];
      V sums[kPixels][kChannelVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kChannelVectors; ++v) {
        lanes[v] = static_cast<std::size_t>(
            std::clamp<i64>(pass.out_channels - c - v * kFloatLanes, 0, kFloatLanes));
#pragma GCC unroll 4
        for (int j = 0; j < kPixels; ++j) sums[j][v] = hn::Zero(d);
      }
      for (i64 i = row.taps.begin; i < row.taps.end; ++i) {
        for (i64 s = 0; s < columns.taps; ++s) {
          const i64 column = first + s * columns.spacing;
          const auto* in = row.in + ((i - row.taps.begin) * rows.spacing * pass.in_w + column) * row.in_pixel;
          const auto* w = row.weights + (rows.tap + i * rows.tap_step) * pass.weight_row +
                          (columns.tap + s * columns.tap_step) * pass.weight_column + c;
          bool inside[kPixels];
          for (int j = 0; j < kPixels; ++j) {
            const i64 at = column + j * columns.stride;
            inside[j] = at >= 0 && at < pass.in_w;
          }
          for (i64 k = 0; k < pass.in_channels; ++k) {
            V ws[kChannelVectors];
#pragma GCC unroll 2
            for (int v = 0; v < kChannelVectors; ++v) {
              const auto* from = w + k * pass.weight_in + v * kFloatLanes;
              ws[v] = lanes[v] == kFloatLanes ? load_vec<kType>(from)
                      : lanes[v] > 0          ? load_lanes<kType, true>(from, lanes[v])
                                              : hn::Zero(d);
            }
#pragma GCC unroll 4
            for (int j = 0; j < kPixels; ++j) {
              if (!inside[j]) continue;
              const V x = hn::Set(d, load_one<kType>(in + j * columns.stride * row.in_pixel + k));
#pragma GCC unroll 2
              for (int v = 0; v < kChannelVectors; ++v) sums[j][v] = hn::MulAdd(x, ws[v], sums[j][v]);
            }
          }
        }
      }
#pragma GCC unroll 4
      for (int j = 0; j < kPixels; ++j) {
        if (t + j >= columns.count) break;
        auto* out = static_cast<Element<kType>*>(tensors.out) + offset +
                    (columns.first + (t + j) * columns.step) * all_channels + group * pass.out_channels + c;
#pragma GCC unroll 2
        for (int v = 0; v < kChannelVectors; ++v) {
          if (lanes[v] > 0) store_lanes<kType, true>(sums[j][v], out + v * kFloatLanes, lanes[v]);
        }
      }
    }
  }
}

template <DType kType>
void run_row(const DirectPass& pass, const DirectTensors& tensors, i64 image, i64 h) {
  const Problem& p = pass.problem;
  const i64 phases = static_cast<i64>(pass.rows.size()), in_all = pass.in_channels * p.groups;
  const Slide& rows = pass.rows[static_cast<std::size_t>(h % phases)];
  Row<kType> row;
  row.pass = &pass;
  row.rows = &rows;
  row.taps = taps_inside(rows, h / phases);
  row.in_pixel = in_all;
  const i64 top = h / phases * rows.stride + rows.origin + row.taps.begin * rows.spacing;
  const i64 offset = (image * pass.out_h + h) * pass.out_w * pass.out_channels * p.groups;
  for (i64 group = 0; group < p.groups; ++group) {
    row.in = static_cast<const Element<kType>*>(tensors.in) + (image * pass.in_h + top) * pass.in_w * in_all +
             group * pass.in_channels;
    row.weights = static_cast<const Element<kType>*>(tensors.w) + group * pass.weight_group;
    for (const Slide& columns : pass.columns) {
      row.columns = &columns;
      if (p.direction == Direction::forward) {
        forward_row<kType>(pass, tensors, row, group, offset);
      } else {
        backward_row<kType>(pass, tensors, row, group, offset);
      }
    }
  }
}

}  // namespace

void DirectNhwcRow(const DirectPass& pass, const DirectTensors& tensors, i64 image, i64 row) {
  with_dtype(pass.problem.dtype, [&](auto type) { run_row<type>(pass, tensors, image, row); });
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace faltung {

HWY_EXPORT(DirectNhwcRow);

void direct_nhwc_row(const DirectPass& pass, const DirectTensors& tensors, std::int64_t image,
                     std::int64_t row) {
  HWY_DYNAMIC_DISPATCH(DirectNhwcRow)(pass, tensors, image, row);
}

}  // namespace faltung
#endif  // HWY_ONCE
