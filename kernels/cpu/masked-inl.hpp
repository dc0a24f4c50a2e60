// Some lanes of a vector from and to memory, whose other lanes are not touched: they may lie outside the
// tensor, or be what another thread writes. For one instruction set; included once for each, by files that
// use foreach_target.
#if defined(FALTUNG_KERNELS_CPU_MASKED_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef FALTUNG_KERNELS_CPU_MASKED_INL_HPP_
#undef FALTUNG_KERNELS_CPU_MASKED_INL_HPP_
#else
#define FALTUNG_KERNELS_CPU_MASKED_INL_HPP_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using MaskedTag = hn::ScalableTag<float>;

// Where the processor has no such instructions Highway reads whole vectors, and writes them back: lane by
// lane there.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

// Zero where the mask is not set.
HWY_INLINE hn::Vec<MaskedTag> load_masked(hn::Mask<MaskedTag> mask, const float* from) {
  return hn::MaskedLoad(mask, MaskedTag(), from);
}

HWY_INLINE void store_masked(hn::Vec<MaskedTag> v, hn::Mask<MaskedTag> mask, float* to) {
  hn::BlendedStore(v, mask, MaskedTag(), to);
}

#else

HWY_INLINE unsigned mask_bits(hn::Mask<MaskedTag> mask) {
  std::uint8_t bits[8] = {};
  static_cast<void>(hn::StoreMaskBits(MaskedTag(), mask, bits));
  return bits[0];
}

HWY_INLINE hn::Vec<MaskedTag> load_masked(hn::Mask<MaskedTag> mask, const float* from) {
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(MaskedTag()));
  static_assert(kLanes <= 8);
  HWY_ALIGN float values[kLanes] = {};
  const unsigned bits = mask_bits(mask);
  for (int i = 0; i < kLanes; ++i) {
    if ((bits >> i & 1) != 0) values[i] = from[i];
  }
  return hn::Load(MaskedTag(), values);
}

HWY_INLINE void store_masked(hn::Vec<MaskedTag> v, hn::Mask<MaskedTag> mask, float* to) {
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(MaskedTag()));
  HWY_ALIGN float values[kLanes];
  hn::Store(v, MaskedTag(), values);
  const unsigned bits = mask_bits(mask);
  for (int i = 0; i < kLanes; ++i) {
    if ((bits >> i & 1) != 0) to[i] = values[i];
  }
}

#endif

// The first count lanes, or all. AVX2's masked store is microcode on AMD's processors, tens of cycles long.
HWY_INLINE void store_first(hn::Vec<MaskedTag> v, std::size_t count, float* to) {
#if HWY_TARGET == HWY_AVX2
  if (count >= hn::MaxLanes(MaskedTag())) return hn::StoreU(v, MaskedTag(), to);
  const hn::Half<MaskedTag> d4;
  const hn::Half<hn::Half<MaskedTag>> d2;
  auto four = hn::LowerHalf(d4, v);
  if ((count & 4) != 0) {
    hn::StoreU(four, d4, to);
    four = hn::UpperHalf(d4, v), to += 4;
  }
  auto two = hn::LowerHalf(d2, four);
  if ((count & 2) != 0) {
    hn::StoreU(two, d2, to);
    two = hn::UpperHalf(d2, four), to += 2;
  }
  if ((count & 1) != 0) *to = hn::GetLane(two);
#else
  store_masked(v, hn::FirstN(MaskedTag(), count), to);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();
#endif
