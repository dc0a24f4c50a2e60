#include "kernels/cpu/winograd.hpp"

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

}  // namespace
}  // namespace winograd

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

template <int m>
void filter(const float (&w)[3][3], float* u) {
  constexpr int a = m + 2;
  const auto& g = WinogradMatrices<m>::g;
  double rows[a][3];
  for (int i = 0; i < a; ++i) {
    for (int s = 0; s < 3; ++s) {
      rows[i][s] = g[i][0] * static_cast<double>(w[0][s]) + g[i][1] * static_cast<double>(w[1][s]) +
                   g[i][2] * static_cast<double>(w[2][s]);
    }
  }
  for (int i = 0; i < a; ++i) {
    for (int j = 0; j < a; ++j) {
      u[i * a + j] = static_cast<float>(rows[i][0] * g[j][0] + rows[i][1] * g[j][1] + rows[i][2] * g[j][2]);
    }
  }
}

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

void winograd_filter(int m, const float (&w)[3][3], float* u) { m == 2 ? filter<2>(w, u) : filter<4>(w, u); }

}  // namespace faltung
#endif  // HWY_ONCE
