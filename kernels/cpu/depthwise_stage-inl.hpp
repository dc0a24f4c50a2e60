// Staging of a plane of nchw, as DepthwiseStage describes it, for one instruction set.
#if defined(FALTUNG_KERNELS_CPU_DEPTHWISE_STAGE_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef FALTUNG_KERNELS_CPU_DEPTHWISE_STAGE_INL_HPP_
#undef FALTUNG_KERNELS_CPU_DEPTHWISE_STAGE_INL_HPP_
#else
#define FALTUNG_KERNELS_CPU_DEPTHWISE_STAGE_INL_HPP_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "kernels/cpu/affine-inl.hpp"
#include "kernels/cpu/depthwise.hpp"
#include "kernels/cpu/direct-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {

// What a staged plane's elements go through: nothing, or its channel's scale and shift.
struct AsTheyAre {
  HWY_INLINE FloatVec operator()(FloatVec v) const { return v; }
  HWY_INLINE float operator()(float v) const { return v; }
};
template <DType kType, bool kRelu>
struct ScaledAndShifted {
  float scale, shift;
  HWY_INLINE FloatVec operator()(FloatVec v) const {
    const FloatTag d;
    return rounded_vec<kType>(affine_vec<kRelu>(v, hn::Set(d, scale), hn::Set(d, shift)));
  }
  HWY_INLINE float operator()(float v) const { return affine_element<kType, kRelu>(v, scale, shift); }
};

// One input row into the scratch.
template <DType kType, class Through>
HWY_INLINE void stage_row(const DepthwiseStage& stage, const Element<kType>* in, std::int64_t size,
                          float* row, const Through& through) {
  const FloatTag d;
  constexpr std::int64_t kLanes = kFloatLanes;
  const std::int64_t begin = std::max<std::int64_t>(0, stage.left),
                     end = std::min(size, stage.left + stage.columns);
  std::int64_t column = begin;
  if (stage.phases == 1) {
    float* to = row - stage.left;
    for (; column + kLanes <= end; column += kLanes) {
      hn::StoreU(through(load_vec<kType>(in + column)), d, to + column);
    }
    if (column < end) {
      const std::size_t n = static_cast<std::size_t>(end - column);
      store_lanes<DType::f32, true>(through(load_lanes<kType, true>(in + column, n)), to + column, n);
    }
    return;
  }
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  if (stage.phases == 2) {
    const std::int64_t at = column - stage.left;
    float* even = row + at % 2 * stage.phase + at / 2;
    float* odd = row + (at + 1) % 2 * stage.phase + (at + 1) / 2;
    for (; column + 2 * kLanes <= end; column += 2 * kLanes, even += kLanes, odd += kLanes) {
      const auto low = through(load_vec<kType>(in + column)),
                 high = through(load_vec<kType>(in + column + kLanes));
      hn::StoreU(hn::ConcatEven(d, high, low), d, even);
      hn::StoreU(hn::ConcatOdd(d, high, low), d, odd);
    }
    if (column < end) {
      const std::size_t n = static_cast<std::size_t>(end - column), lanes = static_cast<std::size_t>(kLanes);
      const auto low = through(load_lanes<kType, true>(in + column, std::min(n, lanes)));
      const auto high =
          n > lanes ? through(load_lanes<kType, true>(in + column + kLanes, n - lanes)) : hn::Zero(d);
      store_lanes<DType::f32, true>(hn::ConcatEven(d, high, low), even, (n + 1) / 2);
      store_lanes<DType::f32, true>(hn::ConcatOdd(d, high, low), odd, n / 2);
    }
    return;
  }
#endif
  for (; column < end; ++column) {
    const std::int64_t at = column - stage.left;
    row[at % stage.phases * stage.phase + at / stage.phases] = through(load_one<kType>(in + column));
  }
}

// Rows [first, first + rows) of a plane. The columns beside the image have been zeroed before; rows beyond it
// have too if the plane is a single strip.
template <DType kType, class Through>
void stage_plane(const DepthwiseStage& stage, const Element<kType>* in, std::int64_t h, std::int64_t w,
                 std::int64_t first, bool zero_rows, float* scratch, const Through& through) {
  for (std::int64_t i = 0; i < stage.rows; ++i) {
    const std::int64_t row = first + i;
    if (row >= 0 && row < h) {
      stage_row<kType>(stage, in + row * w, w, scratch + i * stage.pitch, through);
    } else if (zero_rows) {
      std::fill_n(scratch + i * stage.pitch, stage.pitch, 0.0f);
    }
  }
}

// The same of a channel of the pass's input.
template <DType kType>
void stage_channel(const DepthwisePass& pass, const InputAffine& affine, std::int64_t channel,
                   const Element<kType>* in, std::int64_t first, bool zero_rows, float* scratch) {
  const auto stage = [&](const auto& through) {
    stage_plane<kType>(pass.stage, in, pass.in_h, pass.in_w, first, zero_rows, scratch, through);
  };
  if (!affine) return stage(AsTheyAre{});
  const float scale = affine.scale[channel], shift = affine.shift[channel];
  if (affine.relu) return stage(ScaledAndShifted<kType, true>{scale, shift});
  stage(ScaledAndShifted<kType, false>{scale, shift});
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();
#endif
