#include "kernels/cpu/affine.hpp"

#include <algorithm>

#include "kernels/cpu/each_target.hpp"

#include "kernels/cpu/affine-inl.hpp"
#include "kernels/cpu/with_dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace {

// A pixel, or a plane of a channel, after the other: of a slice they are no neighbours in memory.
template <DType kType>
void affine_elements(const Problem& p, const std::byte* x, const InputAffine& affine, std::byte* to,
                     i64 first, i64 count) {
  constexpr i64 kBytes = size_of(kType);
  const bool planes = p.layout == Layout::nchw;
  const i64 run = planes ? p.d * p.h * p.w : p.c, channels = planes ? p.c : 1, pitch = x_pitch(p);
  i64 at = first % run, c = first / run % channels, outer = first / run / channels;
  for (i64 i = first; i < first + count; at = 0) {
    const i64 length = std::min(run - at, first + count - i);
    if (planes) {
      const i64 from = (outer * pitch + c) * run + at;
      affine_run<kType, kType, true>(x + from * kBytes, affine.from(c), to + i * kBytes, length);
    } else {
      const i64 from = outer * pitch + at;
      affine_run<kType, kType, false>(x + from * kBytes, affine.from(at), to + i * kBytes, length);
    }
    i += length;
    if (++c == channels) c = 0, ++outer;
  }
}

}  // namespace

void ThroughAffine(const Problem& p, const void* x, const InputAffine& affine, void* to, i64 first,
                   i64 count) {
  with_dtype(p.dtype, [&](auto type) {
    affine_elements<type>(p, static_cast<const std::byte*>(x), affine, static_cast<std::byte*>(to), first,
                          count);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace faltung {

HWY_EXPORT(ThroughAffine);

void through_affine(const Problem& problem, const void* x, const InputAffine& affine, void* to,
                    std::int64_t first, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(ThroughAffine)(problem, x, affine, to, first, count);
}

}  // namespace faltung
#endif  // HWY_ONCE
