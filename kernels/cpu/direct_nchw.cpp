// Direct convolution in nchw: lanes are pixels of an output row. A block of a few output channels by two
// vectors of pixels stays in registers; weights are broadcast.
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
constexpr int kColumnVectors = 2;

template <DType kType>
struct Block {
  const DirectPass* pass;
  const Element<kType>* in;  // of the group: channel 0, row of the first row tap inside
  const Element<kType>* weights;
  const Slide* rows;
  const Slide* columns;
  TapRange taps;  // of the row
  i64 channels;   // of this block
};

template <DType kType>
HWY_INLINE void sum_block(const Block<kType>& b, i64 t, V (&sums)[kDirectChannels][kColumnVectors]) {
  const FloatTag d;
#pragma GCC unroll 4
  for (int o = 0; o < kDirectChannels; ++o) {
#pragma GCC unroll 2
    for (int v = 0; v < kColumnVectors; ++v) sums[o][v] = hn::Zero(d);
  }
  const DirectPass& pass = *b.pass;
  const Slide &rows = *b.rows, &columns = *b.columns;
  for (i64 c = 0; c < pass.in_channels; ++c) {
    for (i64 i = b.taps.begin; i < b.taps.end; ++i) {
      const auto* row = b.in + (c * pass.in_h + (i - b.taps.begin) * rows.spacing) * pass.in_w;
      const auto* weights = b.weights + c * pass.weight_in + (rows.tap + i * rows.tap_step) * pass.weight_row;
      for (i64 j = 0; j < columns.taps; ++j) {
        const i64 first = t * columns.stride + columns.origin + j * columns.spacing;
        V x[kColumnVectors];
#pragma GCC unroll 2
        for (int v = 0; v < kColumnVectors; ++v) {
          const i64 lanes = columns.count - t - v * kFloatLanes;
          x[v] = lanes > 0 ? load_columns<kType>(row, first + v * kFloatLanes * columns.stride,
                                                 columns.stride, pass.in_w, lanes)
                           : hn::Zero(d);
        }
        const auto* tap = weights + (columns.tap + j * columns.tap_step) * pass.weight_column;
#pragma GCC unroll 4
        for (int o = 0; o < kDirectChannels; ++o) {
          if (o >= b.channels) break;
          const V w = hn::Set(d, load_one<kType>(tap + o * pass.weight_out));
#pragma GCC unroll 2
          for (int v = 0; v < kColumnVectors; ++v) sums[o][v] = hn::MulAdd(x[v], w, sums[o][v]);
        }
      }
    }
  }
}

template <DType kType>
void run_row(const DirectPass& pass, const DirectTensors& tensors, i64 image, i64 group, i64 channel, i64 h) {
  const FloatTag d;
  const Problem& p = pass.problem;
  const i64 phases = static_cast<i64>(pass.rows.size());
  Block<kType> b;
  b.pass = &pass;
  b.rows = &pass.rows[static_cast<std::size_t>(h % phases)];
  b.taps = taps_inside(*b.rows, h / phases);
  b.channels = std::min<i64>(kDirectChannels, pass.out_channels - channel);
  const i64 top = h / phases * b.rows->stride + b.rows->origin + b.taps.begin * b.rows->spacing;
  b.in = static_cast<const Element<kType>*>(tensors.in) +
         ((image * p.groups + group) * pass.in_channels * pass.in_h + top) * pass.in_w;
  b.weights =
      static_cast<const Element<kType>*>(tensors.w) + group * pass.weight_group + channel * pass.weight_out;
  const i64 first_channel = group * pass.out_channels + channel;
  for (const Slide& columns : pass.columns) {
    b.columns = &columns;
    for (i64 t = 0; t < columns.count; t += kColumnVectors * kFloatLanes) {
      V sums[kDirectChannels][kColumnVectors];
      sum_block(b, t, sums);
      // From memory on, so that what finishes a vector is compiled once.
      HWY_ALIGN float held[kDirectChannels][kColumnVectors][kFloatLanes];
#pragma GCC unroll 4
      for (int o = 0; o < kDirectChannels; ++o) {
#pragma GCC unroll 2
        for (int v = 0; v < kColumnVectors; ++v) hn::Store(sums[o][v], d, held[o][v]);
      }
#pragma GCC unroll 1
      for (int o = 0; o < b.channels; ++o) {
        const i64 k = first_channel + o;
        const i64 offset = ((image * p.groups * pass.out_channels + k) * pass.out_h + h) * pass.out_w;
        auto* out = static_cast<Element<kType>*>(tensors.out) + offset;
#pragma GCC unroll 1
        for (int v = 0; v < kColumnVectors; ++v) {
          const i64 at = t + v * kFloatLanes;
          if (at >= columns.count) break;
          const std::size_t lanes = static_cast<std::size_t>(std::min<i64>(kFloatLanes, columns.count - at));
          if (columns.step > 1) {  // strided backward_data, which has no epilogue
            for (std::size_t i = 0; i < lanes; ++i) {
              store_one<kType>(held[o][v][i],
                               out + columns.first + (at + static_cast<i64>(i)) * columns.step);
            }
            continue;
          }
          V sum = hn::Load(d, held[o][v]);
          if (tensors.bias != nullptr) {
            sum = hn::Add(sum,
                          hn::Set(d, load_one<kType>(static_cast<const Element<kType>*>(tensors.bias) + k)));
          }
          V residual = hn::Zero(d);
          if (p.epilogue.residual) {
            const auto* from = static_cast<const Element<kType>*>(tensors.residual) + offset + at;
            residual = load_lanes<kType, true>(from, lanes);
          }
          const FloatVec a = a_of_channel(activation_of(p.epilogue), tensors.slopes, k);
          sum = finished(p.epilogue, sum, residual, a);
          store_lanes<kType, true>(sum, out + at, lanes);
        }
      }
    }
  }
}

}  // namespace

void DirectNchwRow(const DirectPass& pass, const DirectTensors& tensors, i64 image, i64 group, i64 channel,
                   i64 row) {
  with_dtype(pass.problem.dtype,
             [&](auto type) { run_row<type>(pass, tensors, image, group, channel, row); });
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace faltung {

HWY_EXPORT(DirectNchwRow);

void direct_nchw_row(const DirectPass& pass, const DirectTensors& tensors, std::int64_t image,
                     std::int64_t group, std::int64_t channel, std::int64_t row) {
  HWY_DYNAMIC_DISPATCH(DirectNchwRow)(pass, tensors, image, group, channel, row);
}

}  // namespace faltung
#endif  // HWY_ONCE
