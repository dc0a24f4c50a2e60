#include "kernels/cpu/epilogue.hpp"

#include <cstddef>

#include "kernels/cpu/each_target.hpp"

#include <hwy/cache_control.h>

#include "kernels/cpu/transpose-inl.hpp"
#include "kernels/cpu/vec-inl.hpp"
#include "kernels/cpu/with_dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {

// The address of element i.
template <DType kType, class T>
HWY_INLINE T* at(T* data, i64 i) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(data) +
                              static_cast<std::uintptr_t>(i * size_of(kType)));
}

// Columns [begin, end) of all rows, a vector each step or, with kPart, less than one in all.
template <Activation kActivation, DType kType, bool kPart>
HWY_INLINE void store_columns(const EpilogueCall& call, i64 begin, i64 end) {
  const FloatTag d;
  const FloatVec a = hn::Set(d, call.activation.a), b = hn::Set(d, call.activation.b);
  const bool after = call.residual_order == ResidualOrder::after_activation;
  const int rest = static_cast<int>(end - begin);
  const auto floats = [&](const float* from)
                          HWY_ATTR { return kPart ? load_part<DType::f32>(from, rest) : hn::LoadU(d, from); };
  for (i64 row = 0; row < call.rows; ++row) {
    const float* const from = call.from + row * call.from_stride;
    void* const to = at<kType>(call.to, row * call.to_stride);
    const void* const residual =
        call.residual == nullptr ? nullptr : at<kType>(call.residual, row * call.to_stride);
    const FloatVec row_bias = hn::Set(d, call.row_bias == nullptr ? 0.0f : call.row_bias[row]);
    const FloatVec row_a = call.row_slopes == nullptr ? a : hn::Set(d, call.row_slopes[row]);
    for (i64 i = begin; i < end; i += kFloatLanes) {
      FloatVec v = floats(from + i), more = hn::Zero(d);
      if (call.row_bias != nullptr) v = hn::Add(v, row_bias);
      if (call.column_bias != nullptr) v = hn::Add(v, floats(call.column_bias + i));
      if (residual != nullptr) {
        more =
            kPart ? load_part<kType>(at<kType>(residual, i), rest) : load_vec<kType>(at<kType>(residual, i));
        if (!after) v = hn::Add(v, more);
      }
      FloatVec own_a = row_a;
      if constexpr (kActivation == Activation::prelu) {
        if (call.column_slopes != nullptr) own_a = floats(call.column_slopes + i);
      }
      v = vec_activate<kActivation>(v, own_a, b);
      if (residual != nullptr && after) v = hn::Add(v, more);
      if constexpr (kPart) {
        store_part<kType>(v, at<kType>(to, i), rest);
      } else {
        store_vec<kType>(v, at<kType>(to, i));
      }
    }
  }
}

// All whole vectors first: the activation's constants stay in registers from row to row.
template <Activation kActivation, DType kType>
void StoreRows(const EpilogueCall& call) {
  const i64 whole = call.columns / kFloatLanes * kFloatLanes;
  if (whole > 0) store_columns<kActivation, kType, false>(call, 0, whole);
  if (whole < call.columns) store_columns<kActivation, kType, true>(call, whole, call.columns);
}

template <DType kType>
void StoreType(const EpilogueCall& call) {
  switch (call.activation.kind) {
#define FALTUNG_ACTIVATION(op, value) \
  case Activation::op:                \
    return StoreRows<Activation::op, kType>(call);
#include "kernels/common/epilogue_ops.inc"
#undef FALTUNG_ACTIVATION
  }
}

void Store(const EpilogueCall& call) {
  with_dtype(call.dtype, [&](auto type) { StoreType<type>(call); });
}

// Whole vectors of each phase; the others follow one by one.
template <int kPhases>
HWY_INLINE i64 interleave_vectors([[maybe_unused]] const InterleaveCall& call,
                                  [[maybe_unused]] const float* from, [[maybe_unused]] float* to) {
  i64 i = 0;
#if HWY_TARGET != HWY_SCALAR
  const FloatTag d;
  const auto phase = [&](i64 f) HWY_ATTR { return hn::LoadU(d, from + f * call.from_phase + i / kPhases); };
  for (; i + kPhases * kFloatLanes <= call.elements; i += kPhases * kFloatLanes) {
    if constexpr (kPhases == 2) hn::StoreInterleaved2(phase(0), phase(1), d, to + i);
    if constexpr (kPhases == 3) hn::StoreInterleaved3(phase(0), phase(1), phase(2), d, to + i);
    if constexpr (kPhases == 4) hn::StoreInterleaved4(phase(0), phase(1), phase(2), phase(3), d, to + i);
  }
#endif
  return i;
}

void Interleave(const InterleaveCall& call) {
  for (i64 row = 0; row < call.rows; ++row) {
    const float* const from = call.from + row * call.from_row;
    float* const to = call.to + row * call.to_row;
    i64 i = 0;
    if (call.phases == 2) i = interleave_vectors<2>(call, from, to);
    if (call.phases == 3) i = interleave_vectors<3>(call, from, to);
    if (call.phases == 4) i = interleave_vectors<4>(call, from, to);
    for (i64 column = i / call.phases; i < call.elements; ++column) {
      for (i64 phase = 0; phase < call.phases && i < call.elements; ++phase, ++i)
        to[i] = from[phase * call.from_phase + column];
    }
  }
}

template <DType kType>
void ToFloatType(const void* from, float* to, i64 count) {
  const FloatTag d;
  i64 i = 0;
  for (; i + kFloatLanes <= count; i += kFloatLanes) {
    hn::StoreU(load_vec<kType>(at<kType>(from, i)), d, to + i);
  }
  if (i < count) {
    const int rest = static_cast<int>(count - i);
    store_part<DType::f32>(load_part<kType>(at<kType>(from, i), rest), to + i, rest);
  }
}

void ToFloat(DType dtype, const void* from, float* to, i64 count) {
  with_dtype(dtype, [&](auto type) { ToFloatType<type>(from, to, count); });
}

template <DType kType>
void FromFloatType(const float* from, void* to, i64 count) {
  const FloatTag d;
  i64 i = 0;
  for (; i + kFloatLanes <= count; i += kFloatLanes) {
    store_vec<kType>(hn::LoadU(d, from + i), at<kType>(to, i));
  }
  if (i < count) {
    const int rest = static_cast<int>(count - i);
    store_part<kType>(load_part<DType::f32>(from + i, rest), at<kType>(to, i), rest);
  }
}

void FromFloat(DType dtype, const float* from, void* to, i64 count) {
  with_dtype(dtype, [&](auto type) { FromFloatType<type>(from, to, count); });
}

template <DType kType, bool kPast = false>
void TransposeType(const void* from, i64 from_stride, i64 rows, i64 columns, float* to, i64 to_stride) {
  // Squares of a cache line's floats, so that the lines of both sides are used whole while they are in L1.
  // Rows lie far apart: a processor does not fetch their next lines by itself. What is written is fetched for
  // the square after the next, which may be of the next columns.
  constexpr i64 kBlock = 16, kAhead = 2;
  const i64 squares = (rows + kBlock - 1) / kBlock;  // of the same columns
  for (i64 c0 = 0; c0 < columns; c0 += kBlock) {
    const i64 c1 = HWY_MIN(columns, c0 + kBlock);
    for (i64 r0 = 0; r0 < rows; r0 += kBlock) {
      const i64 r1 = HWY_MIN(rows, r0 + kBlock);
      i64 whole = c0;  // columns before it are done
      if constexpr (kType == DType::f32) {
        if (r1 - r0 == kBlock) {
          const float* const floats = static_cast<const float*>(from) + r0 * from_stride;
          for (i64 r = 0; r < kBlock; ++r)
            __builtin_prefetch(floats + r * from_stride + c0 + 2 * kBlock, 0, 3);
          if constexpr (!kPast) {
            const i64 square = r0 / kBlock + kAhead, next_c0 = c0 + square / squares * kBlock;
            float* const next = to + square % squares * kBlock;
            const i64 next_c1 = HWY_MIN(columns, next_c0 + kBlock);
            for (i64 c = next_c0; c < next_c1; ++c) __builtin_prefetch(next + c * to_stride, 1, 3);
          }
          for (; whole + 4 <= c1; whole += 4) {
            for (i64 r = 0; r < kBlock; r += kFloatLanes)
              transpose_four<kPast>(floats + r * from_stride + whole, from_stride,
                                    to + whole * to_stride + r0 + r, to_stride);
          }
        }
      }
      for (i64 c = whole; c < c1; ++c) {
        for (i64 r = r0; r < r1; ++r) to[c * to_stride + r] = load_element(kType, from, r * from_stride + c);
      }
    }
  }
}

void Transpose(DType dtype, const void* from, i64 from_stride, i64 rows, i64 columns, float* to,
               i64 to_stride) {
  with_dtype(dtype, [&](auto type) { TransposeType<type>(from, from_stride, rows, columns, to, to_stride); });
}

void TransposePast(const float* from, i64 from_stride, i64 rows, i64 columns, float* to, i64 to_stride) {
  constexpr i64 kVector = kFloatLanes * static_cast<i64>(sizeof(float));
  const i64 offsets = static_cast<i64>(reinterpret_cast<std::intptr_t>(to)) | to_stride * 4;
  if (offsets % kVector != 0)
    return TransposeType<DType::f32>(from, from_stride, rows, columns, to, to_stride);
  TransposeType<DType::f32, true>(from, from_stride, rows, columns, to, to_stride);
  hwy::FlushStream();  // before others are told that it is there
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace faltung {

HWY_EXPORT(Store);
HWY_EXPORT(Interleave);
HWY_EXPORT(ToFloat);
HWY_EXPORT(FromFloat);
HWY_EXPORT(Transpose);
HWY_EXPORT(TransposePast);

void epilogue_store(const EpilogueCall& call) { HWY_DYNAMIC_DISPATCH(Store)(call); }
void interleave_columns(const InterleaveCall& call) { HWY_DYNAMIC_DISPATCH(Interleave)(call); }
void convert_to_float(DType dtype, const void* from, float* to, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(ToFloat)(dtype, from, to, count);
}
void convert_from_float(DType dtype, const float* from, void* to, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(FromFloat)(dtype, from, to, count);
}
void transpose_to_float(DType dtype, const void* from, std::int64_t from_stride, std::int64_t rows,
                        std::int64_t columns, float* to, std::int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(Transpose)(dtype, from, from_stride, rows, columns, to, to_stride);
}
void transpose_past_caches(const float* from, std::int64_t from_stride, std::int64_t rows,
                           std::int64_t columns, float* to, std::int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(TransposePast)(from, from_stride, rows, columns, to, to_stride);
}

}  // namespace faltung
#endif  // HWY_ONCE
