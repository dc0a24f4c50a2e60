// Of a network's weights, which are looked through as they are loaded.
#include <algorithm>
#include <bit>

#include "kernels/cpu/convert.hpp"
#include "kernels/cpu/each_target.hpp"

#include "kernels/cpu/vec-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {

// Magnitudes have the order of their bits.
Magnitudes MagnitudesOf(const float* values, i64 count) {
  constexpr std::int32_t kInfinity = 0x7f800000, kMagnitude = 0x7fffffff;
  const hn::RebindToSigned<FloatTag> d;
  const auto infinity = hn::Set(d, kInfinity), magnitude = hn::Set(d, kMagnitude);
  auto smallest = infinity, largest = hn::Zero(d);
  const auto look_at = [&](auto bits) HWY_ATTR {
    bits = hn::And(bits, magnitude);
    bits = hn::IfThenZeroElse(hn::Gt(bits, infinity), bits);
    largest = hn::Max(largest, bits);
    smallest = hn::Min(smallest, hn::IfThenElse(hn::Eq(bits, hn::Zero(d)), infinity, bits));
  };
  i64 i = 0;
  for (; i + kFloatLanes <= count; i += kFloatLanes)
    look_at(hn::BitCast(d, hn::LoadU(FloatTag(), values + i)));
  HWY_ALIGN float rest[kFloatLanes] = {};  // zeros are no magnitudes
  std::copy_n(values + i, count - i, rest);
  look_at(hn::BitCast(d, hn::Load(FloatTag(), rest)));
  HWY_ALIGN std::int32_t least[kFloatLanes], most[kFloatLanes];
  hn::Store(smallest, d, least);
  hn::Store(largest, d, most);
  return {std::bit_cast<float>(*std::min_element(least, least + kFloatLanes)),
          std::bit_cast<float>(*std::max_element(most, most + kFloatLanes))};
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace faltung {

HWY_EXPORT(MagnitudesOf);

Magnitudes magnitudes(const float* values, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(MagnitudesOf)(values, count);
}

}  // namespace faltung
#endif  // HWY_ONCE
