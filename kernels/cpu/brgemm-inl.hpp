// The micro-kernel of brgemm.hpp for one instruction set. Included by brgemm.cpp once for each.
#if defined(FALTUNG_KERNELS_CPU_BRGEMM_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef FALTUNG_KERNELS_CPU_BRGEMM_INL_HPP_
#undef FALTUNG_KERNELS_CPU_BRGEMM_INL_HPP_
#else
#define FALTUNG_KERNELS_CPU_BRGEMM_INL_HPP_
#endif

#include <hwy/highway.h>

#include <utility>

#include "kernels/cpu/brgemm.hpp"
#include "kernels/cpu/masked-inl.hpp"
#include "kernels/cpu/vec-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {

using BrgemmTag = hn::ScalableTag<float>;
using BrgemmVec = hn::Vec<BrgemmTag>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(BrgemmTag()));

// Of a tile 1, 2, 3 and 4 vectors wide: accumulators, the vectors of B and one broadcast of A fit in the
// registers, of which AVX-512 has 32, AVX2 16.
#if HWY_TARGET == HWY_AVX3
inline constexpr int kMaxRows[] = {14, 14, 9, 6};
#elif HWY_TARGET == HWY_AVX2
inline constexpr int kMaxRows[] = {12, 6, 4, 2};
#else
inline constexpr int kMaxRows[] = {4, 4, 2, 1};
#endif

// Keeps the compiler from replacing the pointer by others it finds cheaper: one for each row would not fit in
// the registers.
template <class T>
HWY_INLINE void keep(T& pointer) {
#if defined(__GNUC__)
  asm("" : "+r"(pointer));
#endif
}

// Keeps it from moving loads from one side to the other.
HWY_INLINE void keep_order() {
#if defined(__GNUC__)
  asm volatile("" : : : "memory");
#endif
}

// Row r of a group: an address as x86 has it, base + {1, 2, 4} * a multiple of the stride, of which 1, 3 and
// 5 are kept.
HWY_INLINE const float* a_row(const char* group, int r, std::int64_t stride, std::int64_t stride3,
                              std::int64_t stride5) {
  const std::int64_t offsets[] = {0, stride, 2 * stride, stride3, 4 * stride, stride5, 2 * stride3};
  return reinterpret_cast<const float*>(group + offsets[r]);
}

// The first row's group or the second's.
template <class T>
HWY_INLINE T* row_of(int m, T* group0, T* group1, std::int64_t stride) {
  return m < 7 ? group0 + m * stride : group1 + (m - 7) * stride;
}

// The lines of a BrgemmFetch.
struct Lines {
  const char* at;
  std::int64_t left, run_left, run_lines, skip;
  explicit Lines(const BrgemmFetch& fetch)
      : at(fetch.at),
        left(fetch.lines),
        run_left(fetch.run_left),
        run_lines(fetch.run_lines),
        skip(fetch.run_stride - 64 * (fetch.run_lines - 1)) {}

  template <int kLocality>
  HWY_INLINE void fetch() {
    __builtin_prefetch(at, 0, kLocality);
    const bool end = --run_left == 0;
    at += end ? skip : 64;
    run_left = end ? run_lines : run_left;
    --left;
    keep(at);
  }
};

// Whether an activation has more constants than registers are left beside a tile's sums.
inline bool is_activated_in_memory(Activation activation) {
  return activation != Activation::none && activation != Activation::relu &&
         activation != Activation::hardswish;
}

// What is done to a tile's sums, and storing so many columns of them, offset elements behind C's begin; its
// bias is so many behind the first's.
template <int kM, int kVectors>
HWY_INLINE void finish_tile(const BrgemmCall& call, std::int64_t offset, std::int64_t bias_offset,
                            int columns, BrgemmVec (&sum)[kM][kVectors]) {
  const BrgemmTag d;
  // The last vector is the one that may be stored in part.
  const bool whole = columns == kVectors * kLanes;
  const std::size_t last_lanes = static_cast<std::size_t>(columns - (kVectors - 1) * kLanes);
  const auto last = hn::FirstN(d, last_lanes);
  if (call.column_bias != nullptr) {
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) {
      const float* from = call.column_bias + bias_offset + n * kLanes;
      const BrgemmVec bias = n + 1 < kVectors || whole ? hn::LoadU(d, from) : load_masked(last, from);
#pragma GCC unroll 16
      for (int m = 0; m < kM; ++m) sum[m][n] = hn::Add(sum[m][n], bias);
    }
  }
  if (call.row_bias != nullptr) {
#pragma GCC unroll 16
    for (int m = 0; m < kM; ++m) {
      const BrgemmVec bias = hn::Set(d, call.row_bias[m]);
#pragma GCC unroll 4
      for (int n = 0; n < kVectors; ++n) sum[m][n] = hn::Add(sum[m][n], bias);
    }
  }
  const float* const matrices[2][2] = {{call.addend0, call.addend1}, {call.residual0, call.residual1}};
  for (const auto& matrix : matrices) {
    if (matrix[0] == nullptr) continue;
#pragma GCC unroll 16
    for (int m = 0; m < kM; ++m) {
      const float* row = row_of(m, matrix[0], matrix[1], call.c_row_stride) + offset;
#pragma GCC unroll 4
      for (int n = 0; n < kVectors; ++n) {
        const float* from = row + n * kLanes;
        const BrgemmVec v = n + 1 < kVectors || whole ? hn::LoadU(d, from) : load_masked(last, from);
        sum[m][n] = hn::Add(sum[m][n], v);
      }
    }
  }
  if (call.activation.kind == Activation::relu) {
    const BrgemmVec zero = hn::Zero(d);
#pragma GCC unroll 16
    for (int m = 0; m < kM; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < kVectors; ++n) {
        sum[m][n] = hn::IfThenElse(hn::Lt(sum[m][n], zero), zero, sum[m][n]);  // NaN stays
      }
    }
  }
  if (call.activation.kind == Activation::hardswish) {
#pragma GCC unroll 16
    for (int m = 0; m < kM; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < kVectors; ++n)
        sum[m][n] = vec_activate<Activation::hardswish>(sum[m][n], sum[m][n], sum[m][n]);
    }
  }
  if (is_activated_in_memory(call.activation.kind)) {
    HWY_ALIGN float held[kM][kVectors][kLanes];
#pragma GCC unroll 16
    for (int m = 0; m < kM; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < kVectors; ++n) hn::Store(sum[m][n], d, held[m][n]);
    }
    activate_vectors(call.activation, held[0][0], kM * kVectors, 1, hn::Set(d, call.activation.a));
#pragma GCC unroll 16
    for (int m = 0; m < kM; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < kVectors; ++n) sum[m][n] = hn::Load(d, held[m][n]);
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < kM; ++m) {
    float* row = row_of(m, call.c0, call.c1, call.c_row_stride) + offset;
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) {
      if (n + 1 < kVectors || whole) {
        hn::StoreU(sum[m][n], d, row + n * kLanes);
      } else {
        store_first(sum[m][n], last_lanes, row + n * kLanes);
      }
    }
  }
}

// Steps that are written out one after the other where those of A and B lie side by side: with the few
// registers of AVX2 a step has 12 multiply-adds, and each address, counter and prefetch takes the place of
// one.
inline constexpr int kSteps = HWY_TARGET == HWY_AVX3 ? 1 : 4;

// sum += a * b. With as few registers as sums and operands take, a compiler that writes a product over its
// factor has to move sums about, and to spill them.
HWY_INLINE void multiply_add(BrgemmVec& sum, BrgemmVec a, BrgemmVec b) {
#if defined(__GNUC__) && HWY_TARGET == HWY_AVX2
  auto raw = sum.raw;
  asm("vfmadd231ps %2, %1, %0" : "+x"(raw) : "x"(a.raw), "x"(b.raw));
  sum.raw = raw;
#else
  sum = hn::MulAdd(a, b, sum);
#endif
}

// Multiplies a step's vectors of B with its values of A, of row m at row_at(m).
template <int kM, int kVectors, class RowAt>
HWY_INLINE void sum_step(const char* b, const RowAt& row_at, BrgemmVec (&sum)[kM][kVectors]) {
  const BrgemmTag d;
  BrgemmVec bs[kVectors];
#pragma GCC unroll 4
  for (int n = 0; n < kVectors; ++n) bs[n] = hn::LoadU(d, reinterpret_cast<const float*>(b) + n * kLanes);
#pragma GCC unroll 16
  for (int m = 0; m < kM; ++m) {
    const BrgemmVec a = hn::Set(d, *row_at(m));
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) multiply_add(sum[m][n], a, bs[n]);
  }
}

// What a tile is summed over: where its rows of A and its B begin, and what is brought to the cache
// meanwhile.
struct Operands {
  const char *a0, *a1, *b, *ahead;
};

// Sums one tile.
template <BrgemmRows kRows, int kM, int kVectors>
HWY_INLINE void sum_tile(const BrgemmCall& call, Operands& of, Lines& near, Lines& far,
                         BrgemmVec (&sum)[kM][kVectors]) {
  const BrgemmTag d;
#pragma GCC unroll 16
  for (int m = 0; m < kM; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) sum[m][n] = hn::Zero(d);
  }

  std::int64_t stride = 4 * call.a_row_stride, stride3 = 3 * stride, stride5 = 5 * stride;
  const std::int64_t a_step = 4 * call.a_step, b_step = 4 * call.b_step;
  const char* ahead = of.ahead;
  const std::int64_t ahead_step = call.ahead_step;
  constexpr std::int64_t kStepBytes = 4 * kVectors * kLanes;
  const BrgemmSegment* const end = call.segments + call.segment_count;
  for (const BrgemmSegment* segment = call.segments; segment != end; ++segment) {
    const char* a0 = of.a0 + 4 * segment->a;
    const char* a1 = kM > 7 ? of.a1 + 4 * segment->a : nullptr;
    const char* b = of.b + 4 * segment->b;
    std::int64_t left = call.length;
    if constexpr (kRows == BrgemmRows::strided && kSteps > 1) {
      constexpr int kFetches = 2;  // of lines ahead, in so many steps together
      if (a_step == 4 && b_step == kStepBytes && kSteps / kFetches * ahead_step <= 64) {
        for (; left >= kSteps; left -= kSteps) {
#pragma GCC unroll 2
          for (int i = 0; i < kFetches; ++i) {
            __builtin_prefetch(ahead, 0, 3);
            ahead += kSteps / kFetches * ahead_step;
            keep(ahead);
          }
#pragma GCC unroll 4
          for (int i = 0; i < kSteps; ++i) {
            sum_step(
                b + i * kStepBytes,
                [&](int m) { return a_row(m < 7 ? a0 : a1, m % 7, stride, stride3, stride5) + i; }, sum);
            // Else each distance and number of steps is a register of its own, and loads of the next step
            // come before this one has done with its registers.
            keep(stride), keep(stride3), keep(stride5), keep_order();
          }
          a0 += 4 * kSteps;
          if constexpr (kM > 7) a1 += 4 * kSteps;
          b += kSteps * kStepBytes;
          keep(a0), keep(a1), keep(b);
        }
      }
    }
    for (; left != 0; --left) {
      if constexpr (kRows == BrgemmRows::strided) {
        __builtin_prefetch(ahead, 0, 3);
        ahead += ahead_step;
        keep(ahead);
      }
      if constexpr (kRows == BrgemmRows::contiguous) {
        if (near.left > 0) near.fetch<3>();
        if (far.left > 0) far.fetch<2>();
      }
      if constexpr (kRows == BrgemmRows::strided && kVectors > 1) {
        // Of packed weights, which come from L2 where they are read again for each tile: 16 steps ahead
        // covers its latency.
#pragma GCC unroll 4
        for (int n = 0; n < kVectors; ++n) __builtin_prefetch(b + (16 * kVectors + n) * kLanes * 4, 0, 3);
      }
      sum_step(
          b,
          [&](int m) {
            const char* const group = m < 7 ? a0 : a1;
            if constexpr (kRows == BrgemmRows::contiguous) {
              return reinterpret_cast<const float*>(group) + m % 7;
            } else {
              return a_row(group, m % 7, stride, stride3, stride5);
            }
          },
          sum);
      a0 += a_step;
      if constexpr (kM > 7) a1 += a_step;
      b += b_step;
      keep(a0), keep(a1), keep(b);
    }
  }
  of.ahead = ahead;
}

// The lines of C that a tile is stored to.
template <int kM, int kVectors>
HWY_INLINE void fetch_c(const BrgemmCall& call, std::int64_t offset) {
  constexpr int kLineFloats = 16;
#pragma GCC unroll 16
  for (int m = 0; m < kM; ++m) {
    const float* const row = row_of(m, call.c0, call.c1, call.c_row_stride) + offset;
#pragma GCC unroll 4
    for (int i = 0; i < kVectors * kLanes; i += kLineFloats) __builtin_prefetch(row + i, 1, 3);
  }
}

// One of a call's tiles, which is stored offset elements behind C's begin. Not inlined: what is the same for
// all tiles, constants of activations too, would take registers from the sums.
template <int kM, int kVectors>
HWY_NOINLINE void strided_tile(const BrgemmCall& call, Operands& of, std::int64_t offset, std::int64_t bias,
                               int columns) {
  BrgemmVec sum[kM][kVectors];
  Lines none{{}};
  if (call.fetches_c) fetch_c<kM, kVectors>(call, offset);
  sum_tile<BrgemmRows::strided>(call, of, none, none, sum);
  finish_tile(call, offset, bias, columns, sum);
}

template <int kM, int kVectors>
void strided_tiles(const BrgemmCall& call) {
  Operands of{static_cast<const char*>(call.a0), static_cast<const char*>(call.a1),
              static_cast<const char*>(call.b),
              static_cast<const char*>(call.ahead != nullptr ? call.ahead : call.a0)};
  std::int64_t offset = 0, bias = 0;
  for (std::int64_t left = call.tiles - 1; left > 0; --left) {
    strided_tile<kM, kVectors>(call, of, offset, bias, kVectors * kLanes);
    of.a0 += 4 * call.a_tile, of.b += 4 * call.b_tile;
    if constexpr (kM > 7) of.a1 += 4 * call.a_tile;
    offset += call.c_tile, bias += call.bias_tile;
  }
  strided_tile<kM, kVectors>(call, of, offset, bias, call.columns);
}

template <int kM, int kVectors>
void contiguous_tiles(const BrgemmCall& call) {
  constexpr std::int64_t kLine = 64, kRunLines = (kVectors * kLanes * 4 + kLine - 1) / kLine;
  BrgemmVec sum[kM][kVectors];
  Lines near(call.near), far(call.far);
  Operands of{static_cast<const char*>(call.a0), static_cast<const char*>(call.a1),
              static_cast<const char*>(call.b), nullptr};
  std::int64_t left = call.tiles, offset = 0;  // of C
  for (;; offset += call.c_tile, of.b += 4 * call.b_tile) {
    const bool last = --left == 0;
    if (!last) {
      const float* const next = call.c0 + offset + call.c_tile;
      near = Lines(
          {reinterpret_cast<const char*>(next), kM * kRunLines, kRunLines, kRunLines, 4 * call.c_row_stride});
      for (const std::int64_t steps = call.segment_count * call.length; near.left > steps;) near.fetch<3>();
    } else {
      near = Lines(call.near);
    }
    sum_tile<BrgemmRows::contiguous>(call, of, near, far, sum);
    finish_tile(call, offset, 0, last ? call.columns : kVectors * kLanes, sum);
    if (last) return;
  }
}

template <BrgemmRows kRows, int kM, int kVectors>
void brgemm_tiles(const BrgemmCall& call) {
  if constexpr (kRows == BrgemmRows::strided) {
    strided_tiles<kM, kVectors>(call);
  } else {
    contiguous_tiles<kM, kVectors>(call);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();
#endif
