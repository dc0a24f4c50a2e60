// Staging of a plane of nchw, as DepthwiseStage describes it, for one instruction set.
#if defined(FALTUNG_KERNELS_CPU_DEPTHWISE_STAGE_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef FALTUNG_KERNELS_CPU_DEPTHWISE_STAGE_INL_HPP_
#undef FALTUNG_KERNELS_CPU_DEPTHWISE_STAGE_INL_HPP_
#else
#define FALTUNG_KERNELS_CPU_DEPTHWISE_STAGE_INL_HPP_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "kernels/cpu/depthwise.hpp"
#include "kernels/cpu/direct-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {

// One input row into the scratch.
template <DType kType>
HWY_INLINE void stage_row(const DepthwiseStage& stage, const Element<kType>* in, std::int64_t size,
                          float* row) {
  const FloatTag d;
  constexpr std::int64_t kLanes = kFloatLanes;
  const std::int64_t begin = std::max<std::int64_t>(0, stage.left),
                     end = std::min(size, stage.left + stage.columns);
  std::int64_t column = begin;
  if (stage.phases == 1) {
    float* to = row - stage.left;
    for (; column + kLanes <= end; column += kLanes) {
      hn::StoreU(load_vec<kType>(in + column), d, to + column);
    }
    if (column < end) {
      const std::size_t n = static_cast<std::size_t>(end - column);
      store_lanes<DType::f32, true>(load_lanes<kType, true>(in + column, n), to + column, n);
    }
    return;
  }
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  if (stage.phases == 2) {
    const std::int64_t at = column - stage.left;
    float* even = row + at % 2 * stage.phase + at / 2;
    float* odd = row + (at + 1) % 2 * stage.phase + (at + 1) / 2;
    for (; column + 2 * kLanes <= end; column += 2 * kLanes, even += kLanes, odd += kLanes) {
      const auto low = load_vec<kType>(in + column), high = load_vec<kType>(in + column + kLanes);
      hn::StoreU(hn::ConcatEven(d, high, low), d, even);
      hn::StoreU(hn::ConcatOdd(d, high, low), d, odd);
    }
    if (column < end) {
      const std::size_t n = static_cast<std::size_t>(end - column), lanes = static_cast<std::size_t>(kLanes);
      const auto low = load_lanes<kType, true>(in + column, std::min(n, lanes));
      const auto high = n > lanes ? load_lanes<kType, true>(in + column + kLanes, n - lanes) : hn::Zero(d);
      store_lanes<DType::f32, true>(hn::ConcatEven(d, high, low), even, (n + 1) / 2);
      store_lanes<DType::f32, true>(hn::ConcatOdd(d, high, low), odd, n / 2);
    }
    return;
  }
#endif
  for (; column < end; ++column) {
    const std::int64_t at = column - stage.left;
    row[at % stage.phases * stage.phase + at / stage.phases] = load_one<kType>(in + column);
  }
}

// Rows [first, first + rows) of a plane. The columns beside the image have been zeroed before; rows beyond it
// have too if the plane is a single strip.
template <DType kType>
void stage_plane(const DepthwiseStage& stage, const Element<kType>* in, std::int64_t h, std::int64_t w,
                 std::int64_t first, bool zero_rows, float* scratch) {
  for (std::int64_t i = 0; i < stage.rows; ++i) {
    const std::int64_t row = first + i;
    if (row >= 0 && row < h) {
      stage_row<kType>(stage, in + row * w, w, scratch + i * stage.pitch);
    } else if (zero_rows) {
      std::fill_n(scratch + i * stage.pitch, stage.pitch, 0.0f);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();
#endif
