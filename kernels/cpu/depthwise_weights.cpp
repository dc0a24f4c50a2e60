// The filter's gradient of a depthwise convolution: for every output channel and tap, the sum over images and
// pixels of dy times the x that the tap saw. What is summed by whom depends on the number of workers alone.
#include <algorithm>

#include "kernels/cpu/depthwise.hpp"
#include "src/backend/parallel.hpp"
#include "src/problem/dtype.hpp"

#include "kernels/cpu/each_target.hpp"

#include "kernels/cpu/depthwise_stage-inl.hpp"
#include "kernels/cpu/direct-inl.hpp"
#include "kernels/cpu/with_dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace {

using V = FloatVec;

bool is_inside(i64 index, i64 size) {
  return static_cast<std::uint64_t>(index) < static_cast<std::uint64_t>(size);
}

// ---------------------------------------------------------------------------------------------- nhwc

// An output row: what it adds to the sums of all taps. sums: [tap][K].
template <DType kType>
struct WeightsRow {
  const Problem* problem;
  const Element<kType>* x;  // the image
  const Element<kType>* dy;
  i64 row;
  float* sums;
};

// All taps of the filter in registers.
template <DType kType, int kR, int kS, bool kPart>
void known_channels(const WeightsRow<kType>& row, i64 channel, std::size_t lanes) {
  const Problem& p = *row.problem;
  V sums[kR][kS];
#pragma GCC unroll 8
  for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 8
    for (int s = 0; s < kS; ++s) {
      sums[r][s] = load_lanes<DType::f32, kPart>(row.sums + (r * kS + s) * p.k + channel, lanes);
    }
  }
  const i64 top = row.row * p.stride_h - p.pad_top, pitch = p.dilation_h * p.w * p.c, columns = p.q();
  const auto* x = row.x + top * p.w * p.c + channel;
  // What the next row will read beyond this one's lies far apart: no prefetcher follows it.
  const i64 below = top + (kR - 1) * p.dilation_h + 1;
  const i64 fetched = std::clamp<i64>(p.h - below, 0, p.stride_h);
  const auto* const next = row.x + std::max<i64>(0, below) * p.w * p.c + channel;
  for (i64 q = 0; q < columns; ++q) {
    const V g = load_lanes<kType, kPart>(row.dy + q * p.k + channel, lanes);
    if (row.row + 1 < p.p()) __builtin_prefetch(row.dy + (columns + q) * p.k + channel, 0, 2);
    const i64 left = q * p.stride_w - p.pad_left;
    for (i64 i = 0; i < fetched; ++i) {
      for (i64 j = 0; j < p.stride_w; ++j)
        __builtin_prefetch(next + (i * p.w + std::min(q * p.stride_w + j, p.w - 1)) * p.c, 0, 2);
    }
#pragma GCC unroll 8
    for (int s = 0; s < kS; ++s) {
      const i64 column = left + s * p.dilation_w;
      if (!is_inside(column, p.w)) continue;
#pragma GCC unroll 8
      for (int r = 0; r < kR; ++r) {
        if (!is_inside(top + r * p.dilation_h, p.h)) continue;
        sums[r][s] = hn::MulAdd(load_lanes<kType, kPart>(x + r * pitch + column * p.c, lanes), g, sums[r][s]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 8
    for (int s = 0; s < kS; ++s) {
      store_lanes<DType::f32, kPart>(sums[r][s], row.sums + (r * kS + s) * p.k + channel, lanes);
    }
  }
}

template <DType kType, int kR, int kS>
void known_row(const WeightsRow<kType>& row) {
  i64 channel = 0;
  for (; channel + kFloatLanes <= row.problem->k; channel += kFloatLanes) {
    known_channels<kType, kR, kS, false>(row, channel, kFloatLanes);
  }
  if (channel < row.problem->k) {
    known_channels<kType, kR, kS, true>(row, channel, static_cast<std::size_t>(row.problem->k - channel));
  }
}

// Any filter and channel multiplier.
template <DType kType>
void any_row(const WeightsRow<kType>& row) {
  const Problem& p = *row.problem;
  const FloatTag d;
  const i64 multiplier = p.k / p.c, columns = p.q();
  for (i64 r = 0; r < p.r; ++r) {
    const i64 h = row.row * p.stride_h - p.pad_top + r * p.dilation_h;
    if (!is_inside(h, p.h)) continue;
    for (i64 s = 0; s < p.s; ++s) {
      float* sums = row.sums + (r * p.s + s) * p.k;
      for (i64 channel = 0; channel < p.k; channel += kFloatLanes) {
        const std::size_t lanes = static_cast<std::size_t>(std::min<i64>(kFloatLanes, p.k - channel));
        V sum = load_lanes<DType::f32, true>(sums + channel, lanes);
        for (i64 q = 0; q < columns; ++q) {
          const i64 column = q * p.stride_w - p.pad_left + s * p.dilation_w;
          if (!is_inside(column, p.w)) continue;
          const auto* pixel = row.x + (h * p.w + column) * p.c;
          V x;
          if (multiplier == 1) {
            x = load_lanes<kType, true>(pixel + channel, lanes);
          } else {
            HWY_ALIGN float values[kFloatLanes] = {};
            for (std::size_t lane = 0; lane < lanes; ++lane) {
              values[lane] = load_one<kType>(pixel + (channel + static_cast<i64>(lane)) / multiplier);
            }
            x = hn::Load(d, values);
          }
          sum = hn::MulAdd(x, load_lanes<kType, true>(row.dy + q * p.k + channel, lanes), sum);
        }
        store_lanes<DType::f32, true>(sum, sums + channel, lanes);
      }
    }
  }
}

template <DType kType>
void run_nhwc(const Problem& p, const void* x, const void* dy, float* sums, int worker, int workers) {
  std::fill_n(sums, p.r * p.s * p.k, 0.0f);
  const i64 rows = p.p(), columns = p.q();
  const Range part = share(p.n * rows, worker, workers);
  const bool known = kHasVectors && p.c == p.k && p.r == p.s;
  for (i64 i = part.begin; i < part.end; ++i) {
    const WeightsRow<kType> row{&p, static_cast<const Element<kType>*>(x) + i / rows * p.h * p.w * p.c,
                                static_cast<const Element<kType>*>(dy) + i * columns * p.k, i % rows, sums};
    if (known && p.r == 3) {
      known_row<kType, 3, 3>(row);
    } else if (known && p.r == 5) {
      known_row<kType, 5, 5>(row);
    } else {
      any_row<kType>(row);
    }
  }
}

// ---------------------------------------------------------------------------------------------- nchw

// What is read.
struct Operands {
  const void *x, *dy;
  InputAffine affine;
};

// A strip of outputs of one plane.
template <DType kType>
struct WeightsStrip {
  const DepthwisePass* pass;
  const float* x;            // staged
  const Element<kType>* dy;  // of the strip's first row
  i64 rows;
};

// Adds to the vector of sums of each tap.
template <DType kType, int kR, int kS>
void known_strip(const WeightsStrip<kType>& strip, V (&total)[kR][kS]) {
  const FloatTag d;
  const DepthwisePass& pass = *strip.pass;
  const DepthwiseStage& stage = pass.stage;
  const Slide& rows = pass.rows.front();
  V sums[kR][kS];
#pragma GCC unroll 8
  for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 8
    for (int s = 0; s < kS; ++s) sums[r][s] = total[r][s];
  }
  for (i64 row = 0; row < strip.rows; ++row) {
    for (i64 q = 0; q < pass.out_w; q += kFloatLanes) {
      const std::size_t lanes = static_cast<std::size_t>(std::min<i64>(kFloatLanes, pass.out_w - q));
      const V g = load_lanes<kType, true>(strip.dy + row * pass.out_w + q, lanes);
      const auto mask = hn::FirstN(d, lanes);
      const float* x = strip.x + row * rows.stride * stage.pitch + q;
#pragma GCC unroll 8
      for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 8
        for (int s = 0; s < kS; ++s) {
          // Lanes beyond the row see columns that are not the tap's, perhaps infinite: zero times them is not
          // 0.
          const V seen =
              hn::LoadU(d, x + r * rows.spacing * stage.pitch + stage.offsets[static_cast<std::size_t>(s)]);
          sums[r][s] = hn::MulAdd(hn::IfThenElseZero(mask, seen), g, sums[r][s]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 8
    for (int s = 0; s < kS; ++s) total[r][s] = sums[r][s];
  }
}

template <DType kType>
float any_tap(const WeightsStrip<kType>& strip, i64 r, i64 s) {
  const FloatTag d;
  const DepthwisePass& pass = *strip.pass;
  const DepthwiseStage& stage = pass.stage;
  const Slide& rows = pass.rows.front();
  V sum = hn::Zero(d);
  for (i64 row = 0; row < strip.rows; ++row) {
    const float* x = strip.x + (row * rows.stride + r * rows.spacing) * stage.pitch +
                     stage.offsets[static_cast<std::size_t>(s)];
    for (i64 q = 0; q < pass.out_w; q += kFloatLanes) {
      const std::size_t lanes = static_cast<std::size_t>(std::min<i64>(kFloatLanes, pass.out_w - q));
      const V seen = hn::IfThenElseZero(hn::FirstN(d, lanes), hn::LoadU(d, x + q));
      sum = hn::MulAdd(seen, load_lanes<kType, true>(strip.dy + row * pass.out_w + q, lanes), sum);
    }
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// body(strip) for the strips of every image of output channel k.
template <DType kType, class Body>
void each_strip(const DepthwisePass& pass, const Operands& operands, i64 k, float* scratch,
                const Body& body) {
  const DepthwiseStage& stage = pass.stage;
  const i64 in_plane = pass.in_h * pass.in_w, out_plane = pass.out_h * pass.out_w;
  const i64 channel = k / pass.multiplier;
  for (i64 n = 0; n < pass.problem.n; ++n) {
    const auto* from =
        static_cast<const Element<kType>*>(operands.x) + (n * pass.in_channels + channel) * in_plane;
    const auto* gradient =
        static_cast<const Element<kType>*>(operands.dy) + (n * pass.out_channels + k) * out_plane;
    for (i64 step = 0; step < pass.out_h; step += stage.strip) {
      stage_channel<kType>(pass, operands.affine, channel, from, stage.top + step * pass.rows.front().stride,
                           stage.strip < pass.out_h, scratch);
      body(WeightsStrip<kType>{&pass, scratch, gradient + step * pass.out_w,
                               std::min(stage.strip, pass.out_h - step)});
    }
  }
}

template <DType kType, int kR, int kS>
void known_channel(const DepthwisePass& pass, const Operands& operands, i64 k, float* scratch,
                   Element<kType>* dw) {
  const FloatTag d;
  V sums[kR][kS];
  for (int r = 0; r < kR; ++r) {
    for (int s = 0; s < kS; ++s) sums[r][s] = hn::Zero(d);
  }
  each_strip<kType>(pass, operands, k, scratch,
                    [&](const WeightsStrip<kType>& strip) { known_strip<kType, kR, kS>(strip, sums); });
  for (int r = 0; r < kR; ++r) {
    for (int s = 0; s < kS; ++s) {
      store_one<kType>(hn::GetLane(hn::SumOfLanes(d, sums[r][s])), dw + (k * kR + r) * kS + s);
    }
  }
}

template <DType kType>
void any_channel(const DepthwisePass& pass, const Operands& operands, i64 k, float* scratch,
                 Element<kType>* dw) {
  const i64 taps_r = pass.problem.r, taps_s = pass.problem.s;
  float* sums = scratch + pass.stage.in_size;
  std::fill_n(sums, taps_r * taps_s, 0.0f);
  each_strip<kType>(pass, operands, k, scratch, [&](const WeightsStrip<kType>& strip) {
    for (i64 r = 0; r < taps_r; ++r) {
      for (i64 s = 0; s < taps_s; ++s) sums[r * taps_s + s] += any_tap<kType>(strip, r, s);
    }
  });
  for (i64 i = 0; i < taps_r * taps_s; ++i) store_one<kType>(sums[i], dw + k * taps_r * taps_s + i);
}

template <DType kType>
void run_nchw(const DepthwisePass& pass, const Operands& operands, void* dw, float* scratch, int worker,
              int workers) {
  std::fill_n(scratch, pass.stage.in_size, 0.0f);
  const Problem& p = pass.problem;
  const Range part = share(p.k, worker, workers);
  auto* to = static_cast<Element<kType>*>(dw);
  for (i64 k = part.begin; k < part.end; ++k) {
    if (kHasVectors && p.r == 3 && p.s == 3) {
      known_channel<kType, 3, 3>(pass, operands, k, scratch, to);
    } else if (kHasVectors && p.r == 5 && p.s == 5) {
      known_channel<kType, 5, 5>(pass, operands, k, scratch, to);
    } else {
      any_channel<kType>(pass, operands, k, scratch, to);
    }
  }
}

template <DType kType>
void run_typed(const DepthwisePass& pass, const Operands& operands, void* dw, float* scratch, int worker,
               int workers) {
  if (pass.problem.layout == Layout::nhwc) {
    run_nhwc<kType>(pass.problem, operands.x, operands.dy, scratch, worker, workers);
  } else {
    run_nchw<kType>(pass, operands, dw, scratch, worker, workers);
  }
}

}  // namespace

void DepthwiseWeights(const DepthwisePass& pass, const void* x, const void* dy, const InputAffine& affine,
                      void* dw, float* scratch, int worker, int workers) {
  with_dtype(pass.problem.dtype, [&](auto type) {
    run_typed<type>(pass, {x, dy, affine}, dw, scratch, worker, workers);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace faltung {

HWY_EXPORT(DepthwiseWeights);

std::size_t depthwise_weights_scratch_bytes(const DepthwisePass& pass) {
  const Problem& p = pass.problem;
  const std::int64_t floats = p.layout == Layout::nhwc ? p.r * p.s * p.k : pass.stage.in_size + p.r * p.s;
  return static_cast<std::size_t>(floats) * sizeof(float);
}

void depthwise_weights(const DepthwisePass& pass, const void* x, const void* dy, const InputAffine& affine,
                       void* dw, std::byte* scratch, int worker, int workers) {
  HWY_DYNAMIC_DISPATCH(DepthwiseWeights)
  (pass, x, dy, affine, dw, reinterpret_cast<float*>(scratch), worker, workers);
}

void depthwise_weights_reduce(const DepthwisePass& pass, const std::byte* scratch, std::size_t scratch_bytes,
                              void* dw, int worker, int workers) {
  const Problem& p = pass.problem;
  const std::int64_t taps = p.r * p.s;
  const Range part = share(p.k, worker, workers);
  for (std::int64_t k = part.begin; k < part.end; ++k) {
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      float sum = 0;
      for (int w = 0; w < workers; ++w) {
        const auto* sums =
            reinterpret_cast<const float*>(scratch + scratch_bytes * static_cast<std::size_t>(w));
        sum += sums[tap * p.k + k];
      }
      store_element(p.dtype, dw, k * taps + tap, sum);
    }
  }
}

}  // namespace faltung
#endif  // HWY_ONCE
