#include "kernels/cpu/winograd.hpp"

#include <algorithm>

#include "kernels/cpu/each_target.hpp"

#include "kernels/cpu/winograd_nchw-inl.hpp"
#include "kernels/cpu/winograd_nhwc-inl.hpp"
#include "kernels/cpu/with_dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace winograd {
namespace {

template <DType kType>
WinogradInputKernel pick_input(const WinogradShape& s) {
  if (s.layout == Layout::nhwc) return s.m == 2 ? input_nhwc<2, kType> : input_nhwc<4, kType>;
  return s.m == 2 ? input_nchw<2, kType> : input_nchw<4, kType>;
}

template <DType kType>
WinogradOutputKernel pick_output(const WinogradShape& s) {
  if (s.layout == Layout::nhwc) return s.m == 2 ? output_nhwc<2, kType> : output_nhwc<4, kType>;
  return s.m == 2 ? output_nchw<2, kType> : output_nchw<4, kType>;
}

// A filter a lane.
template <int m>
void filters(i64 count, const float* w, float* u, i64 u_stride) {
  constexpr int a = m + 2;
  const auto& g = WinogradMatrices<m>::g;
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> f;
  using V = hn::Vec<decltype(d)>;
  constexpr i64 kLanes = static_cast<i64>(hn::MaxLanes(d));
  const auto transformed = [&](int row, const V* x, std::size_t step) HWY_ATTR {
    V sum = hn::Mul(hn::Set(d, g[row][0]), x[0]);
    sum = hn::Add(sum, hn::Mul(hn::Set(d, g[row][1]), x[step]));
    return hn::Add(sum, hn::Mul(hn::Set(d, g[row][2]), x[2 * step]));
  };
  // An infinity stays one: without vectors DemoteTo would make it the largest number.
  const auto narrowed = [&](V v) HWY_ATTR {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
    HWY_ALIGN double wide[kLanes];
    HWY_ALIGN float narrow[kLanes];
    hn::Store(v, d, wide);
    for (i64 i = 0; i < kLanes; ++i) narrow[i] = static_cast<float>(wide[i]);
    return hn::Load(f, narrow);
#else
    return hn::DemoteTo(f, v);
#endif
  };
  for (i64 first = 0; first < count; first += kLanes) {
    V taps[9], rows[a][3];
    for (int t = 0; t < 9; ++t) taps[t] = hn::PromoteTo(d, hn::LoadU(f, w + t * kMostFilters + first));
    for (int i = 0; i < a; ++i) {
      for (int s = 0; s < 3; ++s) rows[i][s] = transformed(i, taps + s, 3);
    }
    for (int i = 0; i < a; ++i) {
      for (int j = 0; j < a; ++j) {
        const auto v = narrowed(transformed(j, rows[i], 1));
        float* const to = u + (i * a + j) * u_stride + first;
        if (first + kLanes <= count) {
          hn::StoreU(v, f, to);
          continue;
        }
        HWY_ALIGN float part[kFloatLanes];
        hn::StoreU(v, f, part);
        std::copy_n(part, count - first, to);
      }
    }
  }
}

}  // namespace
}  // namespace winograd

void WinogradFilters(int m, i64 count, const float* w, float* u, i64 u_stride) {
  m == 2 ? winograd::filters<2>(count, w, u, u_stride) : winograd::filters<4>(count, w, u, u_stride);
}

WinogradInputKernel WinogradInputFor(const WinogradShape& s) {
  return with_dtype(s.dtype, [&](auto type) { return winograd::pick_input<type>(s); });
}

WinogradOutputKernel WinogradOutputFor(const WinogradShape& s) {
  return with_dtype(s.dtype, [&](auto type) { return winograd::pick_output<type>(s); });
}

std::int64_t WinogradScratch(const WinogradShape& s, std::int64_t tiles) {
  if (s.layout == Layout::nhwc) return 0;
  return s.m == 2 ? winograd::scratch_size<2>(tiles) : winograd::scratch_size<4>(tiles);
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace faltung {
namespace {

HWY_EXPORT(WinogradInputFor);
HWY_EXPORT(WinogradOutputFor);
HWY_EXPORT(WinogradScratch);
HWY_EXPORT(WinogradFilters);

}  // namespace

WinogradInputKernel winograd_input_kernel(const WinogradShape& shape) {
  return HWY_DYNAMIC_DISPATCH(WinogradInputFor)(shape);
}
WinogradOutputKernel winograd_output_kernel(const WinogradShape& shape) {
  return HWY_DYNAMIC_DISPATCH(WinogradOutputFor)(shape);
}
std::int64_t winograd_scratch(const WinogradShape& shape, std::int64_t tiles) {
  return HWY_DYNAMIC_DISPATCH(WinogradScratch)(shape, tiles);
}

void winograd_filters(int m, std::int64_t count, const float* w, float* u, std::int64_t u_stride) {
  HWY_DYNAMIC_DISPATCH(WinogradFilters)(m, count, w, u, u_stride);
}

}  // namespace faltung
#endif  // HWY_ONCE
