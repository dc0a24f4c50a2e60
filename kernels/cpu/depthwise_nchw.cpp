// Depthwise in nchw: lanes are output pixels of a row, one channel's plane at a time.
//
// A strip of the plane is staged as floats in a scratch that stays in the first-level cache: rows with the
// padding's zeros around them, and with a stride the columns sorted by their remainder, so that every tap of
// a row of outputs is one contiguous run. Sums are collected in a second scratch, contiguous as in the
// result, and then finished (bias, residual, activation, conversion) in one run over the strip.
#include <algorithm>
#include <utility>

#include "kernels/cpu/depthwise.hpp"
#include "kernels/cpu/epilogue.hpp"
#include "kernels/cpu/stretch.hpp"
#include "src/backend/parallel.hpp"
#include "src/problem/integers.hpp"

#include "kernels/cpu/each_target.hpp"

#include "kernels/cpu/depthwise_stage-inl.hpp"
#include "kernels/cpu/direct-inl.hpp"
#include "kernels/cpu/with_dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace {

using D = FloatTag;

// The sums of one strip for one row and one column slide.
struct Strip {
  const float* in;  // staged: of the first output row's first tap, before the column offsets
  i64 pitch, plane;
  i64 planes, row_taps, row_spacing, row_stride;  // in staged rows
  i64 column_taps;
  const i64* column;  // offset of each column tap
  const float* weights;
  float* out;
  i64 rows, columns;     // of outputs; out's pitch is columns
  DepthwiseAhead ahead;  // what will be staged and stored next, fetched while this is computed
};

// kBlock rows by kVectors vectors of outputs in registers, every loaded vector used by all the rows it
// contributes to.
template <class DV, int kRows, int kColumns, int kStride, int kBlock, int kVectors>
HWY_INLINE void known_block(const Strip& s, i64 row, i64 column) {
  const DV d;
  using V = hn::Vec<DV>;
  constexpr int kWidth = static_cast<int>(hn::MaxLanes(DV()));
  V sums[kBlock][kVectors];
#pragma GCC unroll 8
  for (int o = 0; o < kBlock; ++o) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sums[o][v] = hn::Zero(d);
  }
  const float* in = s.in + row * kStride * s.pitch + column;
#pragma GCC unroll 20
  for (int i = 0; i < (kBlock - 1) * kStride + kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      V x[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) x[v] = hn::LoadU(d, in + s.column[j] + v * kWidth);
#pragma GCC unroll 8
      for (int o = 0; o < kBlock; ++o) {
        const int r = i - o * kStride;
        if (r < 0 || r >= kRows) continue;
        const V w = hn::Set(d, s.weights[r * kColumns + j]);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sums[o][v] = hn::MulAdd(x[v], w, sums[o][v]);
      }
    }
    in += s.pitch;
  }
#pragma GCC unroll 8
  for (int o = 0; o < kBlock; ++o) {
    if (row + o >= s.rows) break;
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sums[o][v], d, s.out + (row + o) * s.columns + column + v * kWidth);
    }
  }
}

template <class DV, int kBlock, int kVectors>
HWY_INLINE void any_block(const Strip& s, i64 row, i64 column) {
  const DV d;
  using V = hn::Vec<DV>;
  constexpr int kWidth = static_cast<int>(hn::MaxLanes(DV()));
  V sums[kBlock][kVectors];
#pragma GCC unroll 8
  for (int o = 0; o < kBlock; ++o) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sums[o][v] = hn::Zero(d);
  }
  const float* weights = s.weights;
  for (i64 plane = 0; plane < s.planes; ++plane) {
    for (i64 i = 0; i < s.row_taps; ++i) {
      const float* in = s.in + plane * s.plane + (row * s.row_stride + i * s.row_spacing) * s.pitch + column;
      for (i64 j = 0; j < s.column_taps; ++j) {
        const V w = hn::Set(d, *weights++);
#pragma GCC unroll 8
        for (int o = 0; o < kBlock; ++o) {
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v) {
            const V x = hn::LoadU(d, in + o * s.row_stride * s.pitch + s.column[j] + v * kWidth);
            sums[o][v] = hn::MulAdd(x, w, sums[o][v]);
          }
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int o = 0; o < kBlock; ++o) {
    if (row + o >= s.rows) break;
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sums[o][v], d, s.out + (row + o) * s.columns + column + v * kWidth);
    }
  }
}

// What one input row adds to the outputs [kBegin, kEnd) of a block; weights are output 0's for that row.
template <int kBegin, int kEnd, class DV, int kBlock, int kVectors>
HWY_INLINE void add_row(const Strip& s, const float* in, const float* weights,
                        hn::Vec<DV> (&sums)[kBlock][kVectors]) {
  const DV d;
  using V = hn::Vec<DV>;
  for (i64 j = 0; j < s.column_taps; ++j) {
    V x[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      x[v] = hn::LoadU(d, in + s.column[j] + v * static_cast<int>(hn::MaxLanes(DV())));
    }
#pragma GCC unroll 8
    for (int o = kBegin; o < kEnd; ++o) {
      const V w = hn::Set(d, weights[j - o * s.column_taps]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[o][v] = hn::MulAdd(x[v], w, sums[o][v]);
    }
  }
}

// The first kBlock - 1 rows of a block reach its first outputs alone, those behind the taps its last.
template <class DV, int kBlock, int kVectors, int... kI>
HWY_INLINE void add_rows(const Strip& s, const float* in, hn::Vec<DV> (&sums)[kBlock][kVectors],
                         std::integer_sequence<int, kI...>) {
  const i64 taps = s.column_taps, pitch = s.pitch, rows = s.row_taps;
  (add_row<0, kI + 1, DV>(s, in + kI * pitch, s.weights + kI * taps, sums), ...);
  for (i64 i = kBlock - 1; i < rows; ++i) {
    add_row<0, kBlock, DV>(s, in + i * pitch, s.weights + i * taps, sums);
  }
  (add_row<kI + 1, kBlock, DV>(s, in + (rows + kI) * pitch, s.weights + (rows + kI) * taps, sums), ...);
}

// As any_block, where taps of neighbouring rows touch and are no fewer than the block's rows but one: every
// loaded vector is used by all the rows it contributes to.
template <class DV, int kBlock, int kVectors>
HWY_INLINE void tall_block(const Strip& s, i64 row, i64 column) {
  const DV d;
  using V = hn::Vec<DV>;
  V sums[kBlock][kVectors];
#pragma GCC unroll 8
  for (int o = 0; o < kBlock; ++o) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sums[o][v] = hn::Zero(d);
  }
  add_rows<DV>(s, s.in + row * s.pitch + column, sums, std::make_integer_sequence<int, kBlock - 1>());
#pragma GCC unroll 8
  for (int o = 0; o < kBlock; ++o) {
    if (row + o >= s.rows) break;
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sums[o][v], d,
                 s.out + (row + o) * s.columns + column + v * static_cast<int>(hn::MaxLanes(DV())));
    }
  }
}

// All of a strip in blocks. Whole vectors are stored, beyond the end of a row too: what follows is written
// later, as blocks go right to left and rows down.
template <class DV, int kBlock, int kVectors, class Block>
HWY_INLINE void blocks(const Strip& s, const Block& block) {
  constexpr i64 kWidth = static_cast<i64>(hn::MaxLanes(DV())) * kVectors;
  const i64 rows_of_blocks = ceil_div(s.rows, kBlock);
  Stretch to_read(s.ahead.in, s.ahead.in_bytes, rows_of_blocks, 1);
  Stretch to_write(s.ahead.out, s.ahead.out_bytes, rows_of_blocks, 1);
  for (i64 row = 0; row < s.rows; row += kBlock) {
    fetch_next<0>(to_read), fetch_next<1>(to_write);
    for (i64 column = (s.columns - 1) / kWidth * kWidth; column >= 0; column -= kWidth) block(row, column);
  }
}

template <int kRows, int kColumns, int kStride>
void known_strip(const Strip& s) {
  if (kFloatLanes > 8 && s.columns <= kFloatLanes / 2) {
    using Half = hn::Half<D>;
    blocks<Half, 7, 1>(
        s, [&](i64 row, i64 column) { known_block<Half, kRows, kColumns, kStride, 7, 1>(s, row, column); });
  } else if (s.columns <= kFloatLanes) {
    blocks<D, 7, 1>(
        s, [&](i64 row, i64 column) { known_block<D, kRows, kColumns, kStride, 7, 1>(s, row, column); });
  } else {
    blocks<D, 4, 2>(
        s, [&](i64 row, i64 column) { known_block<D, kRows, kColumns, kStride, 4, 2>(s, row, column); });
  }
}

void any_strip(const Strip& s) {
  using Half = hn::Half<D>;
  constexpr int kTall = kFloatLanes > 8 ? 7 : 4;  // rows of two vectors that registers hold
  const bool tall = s.planes == 1 && s.row_spacing == 1 && s.row_stride == 1 && s.row_taps >= 7;
  if (tall && kFloatLanes > 8 && s.columns <= kFloatLanes / 2) {
    blocks<Half, 7, 1>(s, [&](i64 row, i64 column) { tall_block<Half, 7, 1>(s, row, column); });
  } else if (tall && s.columns <= kFloatLanes) {
    blocks<D, 7, 1>(s, [&](i64 row, i64 column) { tall_block<D, 7, 1>(s, row, column); });
  } else if (tall) {
    blocks<D, kTall, 2>(s, [&](i64 row, i64 column) { tall_block<D, kTall, 2>(s, row, column); });
  } else if (s.columns <= kFloatLanes) {
    blocks<D, 7, 1>(s, [&](i64 row, i64 column) { any_block<D, 7, 1>(s, row, column); });
  } else {
    blocks<D, 4, 2>(s, [&](i64 row, i64 column) { any_block<D, 4, 2>(s, row, column); });
  }
}

void sum_strip(const Strip& s) {
  if (!kHasVectors || s.planes > 1 || (s.row_spacing != 1 && s.row_taps > 1)) return any_strip(s);
  struct Known {
    i64 taps, stride;
    void (*strip)(const Strip&);
  };
  static constexpr Known kKnown[] = {{3, 1, known_strip<3, 3, 1>},
                                     {3, 2, known_strip<3, 3, 2>},
                                     {5, 1, known_strip<5, 5, 1>},
                                     {5, 2, known_strip<5, 5, 2>}};
  for (const Known& known : kKnown) {
    if (known.taps == s.row_taps && known.taps == s.column_taps && known.stride == s.row_stride) {
      return known.strip(s);
    }
  }
  any_strip(s);
}

// A row slide's strip of outputs: the columns of each column slide in turn, to be interleaved.
template <DType kType>
void merge_columns(const DepthwisePass& pass, const Slide& rows, i64 step, i64 count, const float* sums,
                   Element<kType>* out) {
  for (const Slide& columns : pass.columns) {
    for (i64 i = 0; i < count; ++i) {
      const float* from = sums + i * columns.count;
      auto* to = out + (rows.first + (step + i) * rows.step) * pass.out_w + columns.first;
      for (i64 t = 0; t < columns.count; ++t) store_one<kType>(from[t], to + t * columns.step);
    }
    sums += pass.stage.strip * columns.count;
  }
}

// What the strip behind that of `step` reads and writes: the rows that it adds to those of this one, or the
// next plane's.
template <DType kType>
DepthwiseAhead ahead_of(const DepthwisePass& pass, i64 step, const Element<kType>* in, Element<kType>* out) {
  const DepthwiseStage& stage = pass.stage;
  const bool ends = step + stage.strip >= pass.rows.front().count;
  const i64 first = stage.top + step * pass.rows.front().stride;
  const i64 last = std::clamp<i64>(first + stage.rows, 0, pass.in_h);
  const i64 read = ends ? pass.planes() * pass.in_h : last;
  const i64 written = ends ? pass.out_h : step + stage.strip;
  DepthwiseAhead ahead;
  // Of a result of fewer lines the stores wait for them in the core's buffer, and nothing for the stores.
  constexpr i64 kFewBytes = 8192;
  const i64 out_rows = std::min(stage.strip, pass.out_h - (ends ? 0 : written));
  if (const i64 bytes = out_rows * pass.out_w * size_of(kType);
      bytes >= kFewBytes && pass.rows.size() == 1 && pass.columns.size() == 1) {
    ahead.out = out + written * pass.out_w, ahead.out_bytes = bytes;
  }
  if (pass.multiplier > 1) return ahead;
  ahead.in = in + read * pass.in_w;
  ahead.in_bytes = std::min(stage.rows, ends ? pass.in_h : pass.in_h - last) * pass.in_w * size_of(kType);
  return ahead;
}

template <DType kType>
void run_plane(const DepthwisePass& pass, const DepthwiseTensors& tensors, i64 image, i64 channel,
               float* in_scratch, float* out_scratch) {
  const DepthwiseStage& stage = pass.stage;
  const Problem& p = pass.problem;
  const i64 planes = pass.planes();
  const i64 in_channel = p.direction == Direction::forward ? channel / pass.multiplier : channel * planes;
  const i64 in_plane = pass.in_h * pass.in_w, out_plane = pass.out_h * pass.out_w;
  const auto* in =
      static_cast<const Element<kType>*>(tensors.in) + (image * pass.in_channels + in_channel) * in_plane;
  const i64 out_offset = (image * pass.out_channels + channel) * out_plane;
  auto* out = static_cast<Element<kType>*>(tensors.out) + out_offset;
  const i64 most = pass.rows.front().count;  // of all row slides
  for (i64 step = 0; step < most; step += stage.strip) {
    const i64 first = stage.top + step * pass.rows.front().stride;
    for (i64 plane = 0; plane < planes; ++plane) {
      stage_channel<kType>(pass, tensors.affine, in_channel + plane, in + plane * in_plane, first,
                           stage.strip < most, in_scratch + plane * stage.plane);
    }
    DepthwiseAhead ahead = ahead_of<kType>(pass, step, in, out);
    if (image + 1 == p.n && channel + 1 == pass.out_channels && step + stage.strip >= most) ahead = {};
    const float* weights = tensors.packed + channel * planes * p.r * p.s;
    for (const Slide& rows : pass.rows) {
      const i64 count = std::min(stage.strip, rows.count - step);
      float* sums = out_scratch;
      const i64* offsets = stage.offsets.data();
      for (const Slide& columns : pass.columns) {
        Strip s;
        s.in = in_scratch + (rows.origin - stage.top) * stage.pitch;
        s.pitch = stage.pitch, s.plane = stage.plane, s.planes = planes;
        s.row_taps = rows.taps, s.row_spacing = rows.spacing, s.row_stride = rows.stride;
        s.column_taps = columns.taps, s.column = offsets;
        s.weights = weights;
        s.out = sums, s.rows = count, s.columns = columns.count;
        s.ahead = ahead;
        if (count > 0) sum_strip(s);
        weights += planes * rows.taps * columns.taps;
        sums += stage.strip * columns.count;
        offsets += columns.taps;
      }
      if (count <= 0) continue;
      if (pass.rows.size() == 1 && pass.columns.size() == 1) {
        const i64 offset = step * pass.out_w;
        const float bias = tensors.bias == nullptr
                               ? 0
                               : load_one<kType>(static_cast<const Element<kType>*>(tensors.bias) + channel);
        const auto* residual = static_cast<const Element<kType>*>(tensors.residual);
        EpilogueCall end;
        end.from = out_scratch, end.rows = 1, end.columns = count * pass.out_w;
        end.row_bias = tensors.bias == nullptr ? nullptr : &bias;
        end.residual = residual == nullptr ? nullptr : residual + out_offset + offset;
        end.residual_order = p.epilogue.residual_order;
        end.activation = activation_of(p.epilogue);
        end.row_slopes = tensors.slopes == nullptr ? nullptr : tensors.slopes + channel;
        end.dtype = kType, end.to = out + offset;
        epilogue_store(end);
      } else {
        merge_columns<kType>(pass, rows, step, count, out_scratch, out);
      }
    }
  }
}

template <DType kType>
void run_typed(const DepthwisePass& pass, const DepthwiseTensors& tensors, float* scratch, int worker,
               int workers) {
  std::fill_n(scratch, pass.stage.in_size, 0.0f);
  const Range part = share(pass.problem.n * pass.out_channels, worker, workers);
  for (i64 plane = part.begin; plane < part.end; ++plane) {
    run_plane<kType>(pass, tensors, plane / pass.out_channels, plane % pass.out_channels, scratch,
                     scratch + pass.stage.in_size);
  }
}

}  // namespace

void DepthwiseNchw(const DepthwisePass& pass, const DepthwiseTensors& tensors, float* scratch, int worker,
                   int workers) {
  with_dtype(pass.problem.dtype,
             [&](auto type) { run_typed<type>(pass, tensors, scratch, worker, workers); });
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace faltung {

HWY_EXPORT(DepthwiseNchw);

void depthwise_nchw(const DepthwisePass& pass, const DepthwiseTensors& tensors, std::byte* scratch,
                    int worker, int workers) {
  HWY_DYNAMIC_DISPATCH(DepthwiseNchw)
  (pass, tensors, reinterpret_cast<float*>(scratch), worker, workers);
}

}  // namespace faltung
#endif  // HWY_ONCE
