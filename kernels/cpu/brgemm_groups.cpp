// The micro-kernel for groups of few channels.
#include <utility>

#include "kernels/cpu/brgemm.hpp"

#include "kernels/cpu/each_target.hpp"

#include "kernels/cpu/brgemm-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace {

// Accumulators, the taps' vectors of B, a vector of A and where its lanes come from fit in the registers.
#if HWY_TARGET == HWY_AVX3
constexpr int kMostRows = 14;
#elif HWY_TARGET == HWY_AVX2
constexpr int kMostRows = 10;
#else
constexpr int kMostRows = 4;
#endif

// A group fills a vector, and a load spreads its channels; or vectors are permuted.
enum class Spread { load, permute };

template <Spread kSpread, int kM, int kTaps>
HWY_INLINE void sum_groups(const BrgemmCall& call, BrgemmVec (&sum)[kM][1]) {
  const BrgemmTag d;
  const hn::RebindToSigned<BrgemmTag> di;
  const auto first = hn::AndNot(hn::Set(di, static_cast<int>(call.length) - 1), hn::Iota(di, 0));
  const BrgemmSegment* const end = call.segments + call.segment_count;
  for (const BrgemmSegment* segment = call.segments; segment != end; ++segment) {
    const float* const a0 = static_cast<const float*>(call.a0) + segment->a;
    const float* b = static_cast<const float*>(call.b) + segment->b;
    for (int i = 0; i < call.length; ++i) {
      const auto lanes = hn::IndicesFromVec(d, hn::Add(first, hn::Set(di, i)));
      BrgemmVec bs[kTaps];
#pragma GCC unroll 4
      for (int tap = 0; tap < kTaps; ++tap) bs[tap] = hn::LoadU(d, b + tap * kLanes);
      b += kTaps * kLanes;
      const float* a = kSpread == Spread::load ? a0 + i : a0;
#pragma GCC unroll 16
      for (int pixel = 0; pixel < kM + kTaps - 1; ++pixel) {
        BrgemmVec v;
        if constexpr (kSpread == Spread::load) {
          v = hn::Set(d, *a);
        } else {
          v = hn::TableLookupLanes(hn::LoadU(d, a), lanes);
        }
        a += call.a_row_stride;
        keep(a);
#pragma GCC unroll 4
        for (int tap = 0; tap < kTaps; ++tap) {
          const int m = pixel - tap;
          if (m >= 0 && m < kM) sum[m][0] = hn::MulAdd(v, bs[tap], sum[m][0]);
        }
      }
    }
  }
}

template <int kM, int kTaps>
void group_tile(const BrgemmCall& call) {
  BrgemmVec sum[kM][1];
#pragma GCC unroll 16
  for (int m = 0; m < kM; ++m) sum[m][0] = hn::Zero(BrgemmTag());
  if (call.length == kLanes) {
    sum_groups<Spread::load, kM, kTaps>(call, sum);
  } else {
    sum_groups<Spread::permute, kM, kTaps>(call, sum);
  }
  finish_tile(call, 0, 0, call.columns, sum);
}

template <int kTaps, int... kM>
BrgemmKernel pick_group(int rows, std::integer_sequence<int, kM...>) {
  static constexpr BrgemmKernel kKernels[] = {group_tile<kM + 1, kTaps>...};
  return kKernels[rows - 1];
}

}  // namespace

BrgemmKernel GroupKernel(int rows, int taps) {
  using Rows = std::make_integer_sequence<int, kMostRows>;
  return taps == 1 ? pick_group<1>(rows, Rows()) : pick_group<3>(rows, Rows());
}
int MaxGroupRows() { return kMostRows; }

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace faltung {

HWY_EXPORT(GroupKernel);
HWY_EXPORT(MaxGroupRows);

BrgemmKernel brgemm_group_kernel(int rows, int taps) { return HWY_DYNAMIC_DISPATCH(GroupKernel)(rows, taps); }
int brgemm_max_group_rows() { return HWY_DYNAMIC_DISPATCH(MaxGroupRows)(); }

}  // namespace faltung
#endif  // HWY_ONCE
