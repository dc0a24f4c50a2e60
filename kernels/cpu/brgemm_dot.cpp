#include "kernels/cpu/brgemm_dot.hpp"

#include "kernels/cpu/features.hpp"

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// The intrinsics' own headers, as g++ 12 has them, use variables that it takes for uninitialized.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace faltung {
namespace {

using i64 = std::int64_t;

#define FALTUNG_DOT __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

FALTUNG_DOT inline __m512 load_bf16(const std::uint16_t* from, __mmask16 mask) {
  const __m512i bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

// What is done to a row of sums on its way to memory. Beyond the columns is what lay there before: adding to
// it could raise flags, or take an assist.
struct RowEnd {
  __mmask32 mask;
  __m512 bias0, bias1;
};
FALTUNG_DOT inline RowEnd row_end(const PairStore& call) {
  RowEnd end;
  end.mask = static_cast<__mmask32>((std::uint64_t{1} << call.columns) - 1);
  end.bias0 = end.bias1 = _mm512_setzero_ps();
  if (call.bias != nullptr) {
    end.bias0 = _mm512_maskz_loadu_ps(static_cast<__mmask16>(end.mask), call.bias);
    end.bias1 = _mm512_maskz_loadu_ps(static_cast<__mmask16>(end.mask >> 16), call.bias + 16);
  }
  return end;
}

FALTUNG_DOT inline void finish_row(const PairStore& call, const RowEnd& end, int row, __m512 v0, __m512 v1) {
  v0 = _mm512_add_ps(v0, end.bias0), v1 = _mm512_add_ps(v1, end.bias1);
  if (call.residual != nullptr) {
    const std::uint16_t* const residual = call.residual + row * call.to_stride;
    v0 = _mm512_add_ps(v0, load_bf16(residual, static_cast<__mmask16>(end.mask)));
    v1 = _mm512_add_ps(v1, load_bf16(residual + 16, static_cast<__mmask16>(end.mask >> 16)));
  }
  if (call.relu) {  // the second operand is the result where it is NaN
    v0 = _mm512_max_ps(_mm512_setzero_ps(), v0);
    v1 = _mm512_max_ps(_mm512_setzero_ps(), v1);
  }
  const __m512bh rounded = _mm512_cvtne2ps_pbh(v1, v0);
  __m512i bits;
  std::memcpy(&bits, &rounded, sizeof bits);
  std::uint16_t* const to = call.to + row * call.to_stride;
  if (call.columns == kPairColumns) {
    _mm512_storeu_si512(to, bits);
  } else {
    _mm512_mask_storeu_epi16(to, end.mask, bits);
  }
}

// A pair that every lane multiplies, and the dot products with it.
FALTUNG_DOT inline __m512bh pair_at(const char* at) {
  int pair;
  std::memcpy(&pair, at, sizeof pair);
  return (__m512bh)_mm512_set1_epi32(pair);
}
FALTUNG_DOT inline __m512bh load_pairs(const char* at) { return (__m512bh)_mm512_loadu_si512(at); }

template <class T>
inline void keep(T& pointer) {
  asm("" : "+r"(pointer));  // one address for a group, not one a row, for which there are no registers
}

template <int kRows0, int kRows1, int kHalves>
FALTUNG_DOT void tile(const BrgemmCall& call, const PairStore* ends) {
  constexpr int kRows = kRows0 + kRows1;
  __m512 sum[kRows][kHalves];
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 2
    for (int n = 0; n < kHalves; ++n) sum[m][n] = _mm512_setzero_ps();
  }
  const i64 stride = 4 * call.a_row_stride, b_step = 4 * call.b_step;
  const i64 offsets[kDotRows] = {0, stride, 2 * stride, 3 * stride, 4 * stride, 5 * stride, 6 * stride};
  const char* ahead = static_cast<const char*>(call.ahead != nullptr ? call.ahead : call.a0);
  const BrgemmSegment* const end = call.segments + call.segment_count;
  for (const BrgemmSegment* segment = call.segments; segment != end; ++segment) {
    const char* a0 = static_cast<const char*>(call.a0) + 4 * segment->a;
    const char* a1 = kRows1 > 0 ? static_cast<const char*>(call.a1) + 4 * segment->a : nullptr;
    const char* b = static_cast<const char*>(call.b) + 4 * segment->b;
    i64 left = call.length;
    do {
      _mm_prefetch(ahead, _MM_HINT_T0);
      ahead += call.ahead_step;
      // Of packed weights, which come from the second-level cache: 16 steps ahead covers its latency.
      _mm_prefetch(b + 16 * b_step, _MM_HINT_T0);
      if constexpr (kHalves > 1) _mm_prefetch(b + 16 * b_step + 64, _MM_HINT_T0);
      __m512bh bs[kHalves];
#pragma GCC unroll 2
      for (int n = 0; n < kHalves; ++n) bs[n] = load_pairs(b + 64 * n);
#pragma GCC unroll 16
      for (int m = 0; m < kRows; ++m) {
        const __m512bh a = pair_at(m < kRows0 ? a0 + offsets[m] : a1 + offsets[m - kRows0]);
#pragma GCC unroll 2
        for (int n = 0; n < kHalves; ++n) sum[m][n] = _mm512_dpbf16_ps(sum[m][n], bs[n], a);
      }
      a0 += 4, b += b_step;
      if constexpr (kRows1 > 0) a1 += 4;
      keep(a0), keep(a1), keep(b);
    } while (--left != 0);
  }
  if (ends != nullptr) {
    const RowEnd row = row_end(ends[0]);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      const __m512 second = kHalves > 1 ? sum[m][kHalves - 1] : _mm512_setzero_ps();
      finish_row(ends[m < kRows0 ? 0 : 1], row, m < kRows0 ? m : m - kRows0, sum[m][0], second);
    }
    return;
  }
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
    float* const to =
        m < kRows0 ? call.c0 + m * call.c_row_stride : call.c1 + (m - kRows0) * call.c_row_stride;
#pragma GCC unroll 2
    for (int n = 0; n < kHalves; ++n) _mm512_storeu_ps(to + 16 * n, sum[m][n]);
  }
}

using Tile = void (*)(const BrgemmCall&, const PairStore*);

// The second group has as many rows as the first, one less, or none: parts of a row are as even as they can
// be.
template <int kHalves, int... kRows>
Tile pick(int rows0, int rows1, std::integer_sequence<int, kRows...>) {
  static constexpr Tile kAlike[] = {tile<kRows + 1, kRows + 1, kHalves>...};
  static constexpr Tile kLess[] = {tile<kRows + 1, kRows, kHalves>...};
  static constexpr Tile kAlone[] = {tile<kRows + 1, 0, kHalves>...};
  return (rows1 == rows0 ? kAlike : rows1 == 0 ? kAlone : kLess)[rows0 - 1];
}

Tile pick(int rows0, int rows1, bool two_halves) {
  constexpr auto kAll = std::make_integer_sequence<int, kDotRows>();
  return two_halves ? pick<2>(rows0, rows1, kAll) : pick<1>(rows0, rows1, kAll);
}

}  // namespace

FALTUNG_DOT void store_pairs(const PairStore& call) {
  const RowEnd end = row_end(call);
  const __mmask16 low = static_cast<__mmask16>(end.mask), high = static_cast<__mmask16>(end.mask >> 16);
  for (int row = 0; row < call.rows; ++row) {
    const float* const from = call.from + row * kPairColumns;
    finish_row(call, end, row, _mm512_maskz_loadu_ps(low, from), _mm512_maskz_loadu_ps(high, from + 16));
  }
}

FALTUNG_DOT void stage_pairs(const std::uint16_t* from, i64 from_step, i64 elements, i64 count,
                             std::uint16_t* to, i64 padded, i64 to_step) {
  constexpr i64 kLanes = 32;
  const auto first = [](i64 lanes) {
    return static_cast<__mmask32>((std::uint64_t{1} << std::clamp<i64>(lanes, 0, 32)) - 1);
  };
  for (i64 i = 0; i < count; ++i) {
    const std::uint16_t* const window = from + i * from_step;
    std::uint16_t* const pixel = to + i * to_step;
    for (i64 j = 0; j < padded; j += kLanes) {
      const __m512i v = _mm512_maskz_loadu_epi16(first(elements - j), window + j);
      if (padded - j >= kLanes) {
        _mm512_storeu_si512(pixel + j, v);
      } else {
        _mm512_mask_storeu_epi16(pixel + j, first(padded - j), v);
      }
    }
  }
}

FALTUNG_DOT void pack_pairs(const PairPack& call) {
  if (call.column_stride != 1) {
    for (int column = 0; column < kPairColumns; ++column) {
      const auto at = [&](const std::uint16_t* row) -> std::uint32_t {
        return row == nullptr || column >= call.columns ? 0 : row[column * call.column_stride];
      };
      call.to[column] = at(call.low) | at(call.high) << 16;
    }
    return;
  }
  const __mmask32 mask = static_cast<__mmask32>((std::uint64_t{1} << call.columns) - 1), none = 0;
  const __m512i low = _mm512_maskz_loadu_epi16(call.low == nullptr ? none : mask, call.low);
  const __m512i high = _mm512_maskz_loadu_epi16(call.high == nullptr ? none : mask, call.high);
  // As 32-bit numbers: the lower half of the columns, and the upper.
  for (int half = 0; half < 2; ++half) {
    const __m256i l = half == 0 ? _mm512_castsi512_si256(low) : _mm512_extracti64x4_epi64(low, 1);
    const __m256i h = half == 0 ? _mm512_castsi512_si256(high) : _mm512_extracti64x4_epi64(high, 1);
    const __m512i pairs =
        _mm512_or_si512(_mm512_cvtepu16_epi32(l), _mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
    _mm512_storeu_si512(call.to + 16 * half, pairs);
  }
}

bool dot_usable() { return has_avx512_bf16(); }

void brgemm_dot(const BrgemmCall& call, int rows0, int rows1, const PairStore* ends) {
  const bool two_halves = call.columns > 16, one_tile = rows1 == rows0 || rows1 == rows0 - 1;
  pick(rows0, one_tile ? rows1 : 0, two_halves)(call, ends);
  if (one_tile || rows1 == 0) return;
  BrgemmCall second = call;
  second.a0 = call.a1, second.c0 = call.c1;
  pick(rows1, 0, two_halves)(second, ends == nullptr ? nullptr : ends + 1);
}

}  // namespace faltung

#else

namespace faltung {

bool dot_usable() { return false; }
void store_pairs(const PairStore&) {}
void stage_pairs(const std::uint16_t*, std::int64_t, std::int64_t, std::int64_t, std::uint16_t*, std::int64_t,
                 std::int64_t) {}
void pack_pairs(const PairPack&) {}
void brgemm_dot(const BrgemmCall&, int, int, const PairStore*) {}

}  // namespace faltung

#endif
