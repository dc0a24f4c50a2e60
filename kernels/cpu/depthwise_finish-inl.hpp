#if defined(FALTUNG_KERNELS_CPU_DEPTHWISE_FINISH_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef FALTUNG_KERNELS_CPU_DEPTHWISE_FINISH_INL_HPP_
#undef FALTUNG_KERNELS_CPU_DEPTHWISE_FINISH_INL_HPP_
#else
#define FALTUNG_KERNELS_CPU_DEPTHWISE_FINISH_INL_HPP_
#endif
#include <hwy/highway.h>
#include "include/faltung/faltung.hpp"
HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
template <class D>
HWY_INLINE hn::Vec<D> activate(D d, Activation activation, float, hn::Vec<D> x) {
  if (activation == Activation::relu) return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x);
  return x;
}
}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();
#endif
