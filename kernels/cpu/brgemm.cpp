#include "kernels/cpu/brgemm.hpp"

#include "kernels/cpu/each_target.hpp"

#include "kernels/cpu/brgemm-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace {

constexpr int kGroup = 7;  // rows of a group

template <BrgemmRows kRows, int kVectors, int... kM>
BrgemmKernel pick(int rows, std::integer_sequence<int, kM...>) {
  static constexpr BrgemmKernel kKernels[] = {brgemm_tiles<kRows, kM + 1, kVectors>...};
  return kKernels[rows - 1];
}

template <BrgemmRows kRows>
BrgemmKernel pick(int rows, int vectors) {
  switch (vectors) {
    case 1:
      return pick<kRows, 1>(rows, std::make_integer_sequence<int, kMaxRows[0]>());
    case 2:
      return pick<kRows, 2>(rows, std::make_integer_sequence<int, kMaxRows[1]>());
    case 3:
      return pick<kRows, 3>(rows, std::make_integer_sequence<int, kMaxRows[2]>());
    default:
      return pick<kRows, 4>(rows, std::make_integer_sequence<int, kMaxRows[3]>());
  }
}

}  // namespace

BrgemmKernel Kernel(BrgemmRows a_rows, int rows, int vectors) {
  return a_rows == BrgemmRows::strided ? pick<BrgemmRows::strided>(rows, vectors)
                                       : pick<BrgemmRows::contiguous>(rows, vectors);
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
BrgemmKernel brgemm_kernel(BrgemmRows a_rows, int rows, int vectors) {
  return HWY_DYNAMIC_DISPATCH(Kernel)(a_rows, rows, vectors);
}

}  // namespace faltung
#endif  // HWY_ONCE
