#include "kernels/cpu/brgemm.hpp"

#include "kernels/cpu/features.hpp"
#include "kernels/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/brgemm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/brgemm-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace {

constexpr int kGroup = 7;  // rows of a group

template <BrgemmElement kElement, BrgemmRows kRows, int kVectors, int... kM>
BrgemmKernel pick(int rows, std::integer_sequence<int, kM...>) {
  static constexpr BrgemmKernel kKernels[] = {brgemm_tile<kElement, kRows, kM + 1, kVectors>...};
  return kKernels[rows - 1];
}

template <BrgemmElement kElement, BrgemmRows kRows>
BrgemmKernel pick(int rows, int vectors) {
  switch (vectors) {
    case 1:
      return pick<kElement, kRows, 1>(rows, std::make_integer_sequence<int, kMaxRows[0]>());
    case 2:
      return pick<kElement, kRows, 2>(rows, std::make_integer_sequence<int, kMaxRows[1]>());
    case 3:
      return pick<kElement, kRows, 3>(rows, std::make_integer_sequence<int, kMaxRows[2]>());
    default:
      return pick<kElement, kRows, 4>(rows, std::make_integer_sequence<int, kMaxRows[3]>());
  }
}

template <BrgemmElement kElement>
BrgemmKernel pick(BrgemmRows a_rows, int rows, int vectors) {
  return a_rows == BrgemmRows::strided ? pick<kElement, BrgemmRows::strided>(rows, vectors)
                                       : pick<kElement, BrgemmRows::contiguous>(rows, vectors);
}

}  // namespace

BrgemmKernel Kernel(BrgemmElement element, BrgemmRows a_rows, int rows, int vectors) {
#if FALTUNG_BRGEMM_BF16
  if (element == BrgemmElement::bf16_pair) return pick<BrgemmElement::bf16_pair>(a_rows, rows, vectors);
#endif
  (void)element;
  return pick<BrgemmElement::f32>(a_rows, rows, vectors);
}
int Lanes() { return kLanes; }
int MaxRows(int vectors) { return kMaxRows[vectors - 1]; }

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace faltung {

HWY_EXPORT(Kernel);
HWY_EXPORT(Lanes);
HWY_EXPORT(MaxRows);

int brgemm_lanes() { return HWY_DYNAMIC_DISPATCH(Lanes)(); }
int brgemm_max_rows(int vectors) { return HWY_DYNAMIC_DISPATCH(MaxRows)(vectors); }
bool brgemm_has(BrgemmElement element) { return element == BrgemmElement::f32 || has_avx512_bf16(); }
bool brgemm_bf16_is_fast() { return has_avx512_bf16() && !has_amx_bf16(); }
BrgemmKernel brgemm_kernel(BrgemmElement element, BrgemmRows a_rows, int rows, int vectors) {
  return HWY_DYNAMIC_DISPATCH(Kernel)(element, a_rows, rows, vectors);
}

}  // namespace faltung
#endif  // HWY_ONCE
