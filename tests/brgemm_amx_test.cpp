// The AMX tiles against plain loops, over every shape of tile.
#include "kernels/cpu/brgemm_amx.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "src/problem/dtype.hpp"
#include "tests/bf16_integers.hpp"

namespace faltung {
namespace {

TEST(BrgemmAmx, EveryTileShapeIsExact) {
  if (!amx_usable()) GTEST_SKIP() << "no AMX here";
  constexpr int kLength = 2 * kAmxLength, kSegments = 3, kStride = kLength + 5;  // pairs
  const std::vector<std::uint16_t> a = bf16_integers(2 * 40 * kStride * kSegments, 1);
  const std::vector<std::uint16_t> b = bf16_integers(2 * kSegments * kLength * kPairColumns, 2);
  const BrgemmSegment segments[kSegments] = {
      {0, 0}, {32 * kStride, kLength * kPairColumns}, {64 * kStride, 2 * kLength * kPairColumns}};
  const auto a_at = [&](int segment, int row, int i, int half) {
    return bf16_to_float(a[static_cast<std::size_t>(2 * (segments[segment].a + row * kStride + i) + half)]);
  };
  const auto b_at = [&](int segment, int i, int column, int half) {
    return bf16_to_float(
        b[static_cast<std::size_t>(2 * (segments[segment].b + i * kPairColumns + column) + half)]);
  };
  AmxThread amx;
  for (const int rows0 : {1, 3, 7, 16}) {
    for (const int rows1 : {0, 1, 9, 16}) {
      for (const int columns : {1, 8, 16, 17, 31, 32}) {
        for (const bool accumulate : {false, true}) {
          std::vector<float> c(2 * kAmxRows * kPairColumns, accumulate ? 5.0f : NAN);
          BrgemmCall call;
          call.a0 = a.data();
          call.a1 = a.data() + 2 * kAmxRows * kStride;
          call.a_row_stride = kStride;
          call.b = b.data();
          call.b_step = kPairColumns;
          call.segments = segments;
          call.segment_count = kSegments;
          call.length = kLength;
          call.c0 = c.data();
          call.c1 = c.data() + kAmxRows * kPairColumns;
          call.c_row_stride = kPairColumns;
          call.columns = columns;
          if (accumulate) call.addend0 = call.c0, call.addend1 = call.c1;
          amx.run(call, rows0, rows1);
          for (int row = 0; row < 2 * kAmxRows; ++row) {
            for (int column = 0; column < kPairColumns; ++column) {
              const bool written = column < columns && (row < 16 ? row < rows0 : row - 16 < rows1);
              float expected = accumulate ? 5.0f : 0.0f;
              for (int s = 0; s < kSegments && written; ++s) {
                for (int i = 0; i < kLength; ++i) {
                  for (int half = 0; half < 2; ++half)
                    expected += a_at(s, row, i, half) * b_at(s, i, column, half);
                }
              }
              const float actual = c[static_cast<std::size_t>(row * kPairColumns + column)];
              if (written) {
                ASSERT_EQ(actual, expected)
                    << rows0 << "+" << rows1 << "x" << columns << " at " << row << "," << column;
              } else {
                ASSERT_TRUE(accumulate ? actual == 5.0f : std::isnan(actual)) << "written outside the tile";
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace faltung
