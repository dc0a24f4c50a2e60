// Maps that only copy, for one instruction set: runs of memory, matrices that are turned, and any strides.
#if defined(FALTUNG_KERNELS_CPU_MAP_COPY_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef FALTUNG_KERNELS_CPU_MAP_COPY_INL_HPP_
#undef FALTUNG_KERNELS_CPU_MAP_COPY_INL_HPP_
#else
#define FALTUNG_KERNELS_CPU_MAP_COPY_INL_HPP_
#endif

#include <algorithm>
#include <cstring>

#include "kernels/cpu/map_grid.hpp"
#include "kernels/cpu/transpose-inl.hpp"
#include "kernels/cpu/vec-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace {

// Of a matrix whose input is contiguous down the rows and whose result along the columns: in squares of cache
// lines, so that the lines of both sides are used whole while they are near; down the rows first, so that few
// streams are read, each for long.
void turn(const float* from, i64 from_stride, i64 rows, i64 columns, float* to, i64 to_stride) {
  constexpr i64 kBlock = 16;
  for (i64 c0 = 0; c0 < columns; c0 += kBlock) {
    const i64 c1 = std::min(columns, c0 + kBlock);
    for (i64 r0 = 0; r0 < rows; r0 += kBlock) {
      const i64 r1 = std::min(rows, r0 + kBlock);
      const bool whole = r1 - r0 == kBlock && c1 - c0 == kBlock;
      if (whole) {
        for (i64 c = c0; c < c1; c += kFloatLanes)
          for (i64 r = r0; r < r1; r += 4)
            transpose_four(from + c * from_stride + r, from_stride, to + r * to_stride + c, to_stride);
      } else {
        for (i64 r = r0; r < r1; ++r)
          for (i64 c = c0; c < c1; ++c) to[r * to_stride + c] = from[c * from_stride + r];
      }
    }
  }
}

// Planes of a few channels as pixels one after the other: with rows of so many columns that lie together.
template <int kColumns>
HWY_INLINE i64 interleave([[maybe_unused]] const float* from, [[maybe_unused]] i64 from_stride,
                          [[maybe_unused]] i64 rows, [[maybe_unused]] float* to) {
  i64 r = 0;
#if HWY_TARGET != HWY_SCALAR
  const FloatTag d;
  for (; r + kFloatLanes <= rows; r += kFloatLanes) {
    const auto plane = [&](i64 c) HWY_ATTR { return hn::LoadU(d, from + c * from_stride + r); };
    float* const there = to + r * kColumns;
    if constexpr (kColumns == 2) hn::StoreInterleaved2(plane(0), plane(1), d, there);
    if constexpr (kColumns == 3) hn::StoreInterleaved3(plane(0), plane(1), plane(2), d, there);
    if constexpr (kColumns == 4) hn::StoreInterleaved4(plane(0), plane(1), plane(2), plane(3), d, there);
  }
#endif
  return r;
}

void turn_few(const float* from, i64 from_stride, i64 rows, i64 columns, float* to) {
  const i64 done = columns == 2   ? interleave<2>(from, from_stride, rows, to)
                   : columns == 3 ? interleave<3>(from, from_stride, rows, to)
                                  : interleave<4>(from, from_stride, rows, to);
  turn(from + done, from_stride, rows - done, columns, to + done * columns, columns);
}

template <class T>
void copy_elements(const std::byte* from, i64 from_row, i64 from_stride, std::byte* to, i64 to_row,
                   i64 to_stride, const MapPart& part) {
  const T* const source = reinterpret_cast<const T*>(from);
  T* const target = reinterpret_cast<T*>(to);
  for (i64 r = 0; r < part.rows; ++r) {
    for (i64 i = 0; i < part.columns; ++i)
      target[r * to_row + i * to_stride] = source[r * from_row + i * from_stride];
  }
}

void copy(const MapCall& call, const MapPart& part, const std::byte* input, std::byte* output) {
  const MapOperand &in = call.inputs.front(), &out = call.output;
  const std::size_t last = static_cast<std::size_t>(call.rank - 1), size = size_of(in.element);
  const i64 from_row = part.row_stride(in), to_row = part.row_stride(out);
  const i64 from_stride = in.strides[last], to_stride = out.strides[last];
  const std::byte* const from = input + part.offset(in) * static_cast<i64>(size);
  std::byte* const to = output + part.offset(out) * static_cast<i64>(size);
  if (from_stride == 1 && to_stride == 1) {
    // Short rows with gaps between them are no stream to a processor: lines of some rows ahead are asked for.
    constexpr i64 kShort = 1024, kAhead = 2048, kCopiedLine = 64;  // bytes
    const i64 bytes = part.columns * static_cast<i64>(size), rows_ahead = kAhead / std::max<i64>(bytes, 1);
    const bool is_short = bytes <= kShort && bytes >= kCopiedLine;
    for (i64 r = 0; r < part.rows; ++r) {
      if (is_short && r + rows_ahead < part.rows) {
        const i64 next = (r + rows_ahead) * static_cast<i64>(size);
        for (i64 at = 0; from_row != part.columns && at < bytes; at += kCopiedLine)
          __builtin_prefetch(from + next * from_row + at, 0, 3);
        for (i64 at = 0; to_row != part.columns && at < bytes; at += kCopiedLine)
          __builtin_prefetch(to + next * to_row + at, 1, 3);
      }
      std::memcpy(to + r * to_row * static_cast<i64>(size), from + r * from_row * static_cast<i64>(size),
                  static_cast<std::size_t>(part.columns) * size);
    }
  } else if (size == 4 && from_row == 1 && to_stride == 1 && to_row == part.columns && to_row > 1 &&
             to_row <= 4) {
    turn_few(reinterpret_cast<const float*>(from), from_stride, part.rows, part.columns,
             reinterpret_cast<float*>(to));
  } else if (size == 4 && from_row == 1 && to_stride == 1) {
    turn(reinterpret_cast<const float*>(from), from_stride, part.rows, part.columns,
         reinterpret_cast<float*>(to), to_row);
  } else if (size == 1) {
    copy_elements<std::uint8_t>(from, from_row, from_stride, to, to_row, to_stride, part);
  } else if (size == 2) {
    copy_elements<std::uint16_t>(from, from_row, from_stride, to, to_row, to_stride, part);
  } else if (size == 4) {
    copy_elements<std::uint32_t>(from, from_row, from_stride, to, to_row, to_stride, part);
  } else {
    copy_elements<std::uint64_t>(from, from_row, from_stride, to, to_row, to_stride, part);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();
#endif
