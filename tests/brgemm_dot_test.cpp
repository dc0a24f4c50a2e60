// Tiles of bf16 dot products against plain loops, over every shape of tile and either end.
#include "kernels/cpu/brgemm_dot.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/problem/dtype.hpp"
#include "tests/bf16_integers.hpp"

namespace faltung {
namespace {

class BrgemmDot : public testing::Test {
 protected:
  static constexpr int kLength = 5, kSegments = 3, kStride = kLength + 4;  // pairs
  static constexpr std::int64_t kOutStride = kPairColumns + 3;
  static constexpr std::uint16_t kUntouched = 0x7FC1;  // a NaN that no sum is

  void SetUp() override {
    if (!dot_usable()) GTEST_SKIP() << "no dot product of bf16 here";
    call_.a0 = a_.data(), call_.a1 = a_.data() + 2 * kDotRows * kStride;
    call_.a_row_stride = kStride, call_.b = b_.data(), call_.b_step = kPairColumns;
    call_.segments = segments_.data(), call_.segment_count = kSegments, call_.length = kLength;
  }

  float sum(int row, int column) const {
    float sum = 0;
    for (const BrgemmSegment& segment : segments_) {
      for (int i = 0; i < 2 * kLength; ++i) {
        const std::int64_t at = 2 * (segment.a + row * kStride) + i;
        const std::int64_t with = 2 * (segment.b + i / 2 * kPairColumns + column) + i % 2;
        sum += bf16_to_float(a_[static_cast<std::size_t>(at)]) *
               bf16_to_float(b_[static_cast<std::size_t>(with)]);
      }
    }
    return sum;
  }

  const std::vector<BrgemmSegment> segments_ = {
      {0, 0}, {20 * kStride, kLength* kPairColumns}, {40 * kStride, 2 * kLength* kPairColumns}};
  const std::vector<std::uint16_t> a_ = bf16_integers(2 * 60 * kStride, 1),
                                   b_ = bf16_integers(2 * kSegments * kLength * kPairColumns, 2);
  BrgemmCall call_;
};

TEST_F(BrgemmDot, EveryTileShapeIsExact) {
  for (int rows0 = 1; rows0 <= kDotRows; ++rows0) {
    for (int rows1 = 0; rows1 <= kDotRows; ++rows1) {
      for (const int columns : {1, 16, 17, 32}) {
        std::vector<float> c(2 * kDotRows * kPairColumns, NAN);
        call_.c0 = c.data(), call_.c1 = c.data() + kDotRows * kPairColumns, call_.c_row_stride = kPairColumns;
        call_.columns = columns;
        brgemm_dot(call_, rows0, rows1, nullptr);
        for (int row = 0; row < 2 * kDotRows; ++row) {
          const bool inside = row < kDotRows ? row < rows0 : row - kDotRows < rows1;
          for (int column = 0; column < kPairColumns; ++column) {
            const float actual = c[static_cast<std::size_t>(row * kPairColumns + column)];
            if (inside && column < columns) {
              ASSERT_EQ(actual, sum(row, column)) << rows0 << "+" << rows1 << "x" << columns << " at " << row;
            } else if (!inside) {
              ASSERT_TRUE(std::isnan(actual)) << "written outside the tile";
            }
          }
        }
      }
    }
  }
}

TEST_F(BrgemmDot, FinishesInRegistersAsFromMemory) {
  const std::vector<float> bias = {1, -2, 3, 0, 5, -6, 7, 8, 1, -2, 3, 0, 5, -6, 7, 8,
                                   2, -1, 3, 1, 4, -6, 7, 8, 1, -2, 3, 0, 5, -6, 7, 9};
  const std::vector<std::uint16_t> residual = bf16_integers(2 * kDotRows * kOutStride, 3);
  for (const auto& [rows0, rows1] : {std::pair{7, 7}, std::pair{7, 6}, std::pair{5, 7}, std::pair{3, 0}}) {
    for (const int columns : {7, 16, 21, 32}) {
      for (int with = 0; with < 8; ++with) {
        std::vector<std::uint16_t> y(2 * kDotRows * kOutStride, kUntouched), twice = y;
        PairStore ends[2];
        for (int group = 0; group < 2; ++group) {
          const std::int64_t at = group * kDotRows * kOutStride;
          ends[group].columns = columns, ends[group].to_stride = kOutStride, ends[group].to = y.data() + at;
          ends[group].bias = (with & 1) != 0 ? bias.data() : nullptr;
          ends[group].residual = (with & 2) != 0 ? residual.data() + at : nullptr;
          ends[group].relu = (with & 4) != 0;
        }
        call_.columns = columns;
        brgemm_dot(call_, rows0, rows1, ends);
        std::vector<float> c(2 * kDotRows * kPairColumns, NAN);
        call_.c0 = c.data(), call_.c1 = c.data() + kDotRows * kPairColumns, call_.c_row_stride = kPairColumns;
        brgemm_dot(call_, rows0, rows1, nullptr);
        for (int group = 0; group < 2; ++group) {
          PairStore end = ends[group];
          end.from = c.data() + group * kDotRows * kPairColumns, end.rows = group == 0 ? rows0 : rows1;
          end.to = twice.data() + group * kDotRows * kOutStride;
          store_pairs(end);
        }
        EXPECT_EQ(y, twice) << rows0 << "+" << rows1 << "x" << columns << " with " << with;
        for (std::int64_t i = 0; i < 2 * kDotRows * kOutStride; ++i) {
          const int row = static_cast<int>(i / kOutStride), column = static_cast<int>(i % kOutStride);
          const bool inside = (row < kDotRows ? row < rows0 : row - kDotRows < rows1) && column < columns;
          float value = sum(row, std::min(column, kPairColumns - 1));
          if ((with & 1) != 0 && column < kPairColumns) value += bias[static_cast<std::size_t>(column)];
          if ((with & 2) != 0) value += bf16_to_float(residual[static_cast<std::size_t>(i)]);
          if ((with & 4) != 0) value = std::max(value, 0.0f);
          ASSERT_EQ(y[static_cast<std::size_t>(i)], inside ? float_to_bf16(value) : kUntouched)
              << rows0 << "+" << rows1 << "x" << columns << " with " << with << " at " << row << ", "
              << column;
        }
      }
    }
  }
}

TEST_F(BrgemmDot, StagesWindowsWithoutWritingBesideThem) {
  const std::vector<std::uint16_t> from = bf16_integers(400, 4);
  for (const std::int64_t elements : {1, 21, 32, 45, 64}) {
    for (const std::int64_t padded : {elements, elements + 1, elements + 33}) {
      constexpr std::int64_t kStep = 11, kCount = 3, kPitch = 101;
      std::vector<std::uint16_t> to(kCount * kPitch, kUntouched);
      stage_pairs(from.data(), kStep, elements, kCount, to.data(), padded, kPitch);
      for (std::int64_t i = 0; i < kCount * kPitch; ++i) {
        const std::int64_t pixel = i / kPitch, element = i % kPitch;
        ASSERT_EQ(to[static_cast<std::size_t>(i)],
                  element < elements ? from[static_cast<std::size_t>(pixel * kStep + element)]
                  : element < padded ? 0
                                     : kUntouched)
            << elements << " of " << padded << " at " << pixel << ", " << element;
      }
    }
  }
}

TEST_F(BrgemmDot, PacksPairsOfRows) {
  const std::vector<std::uint16_t> rows = bf16_integers(1000, 5);
  for (const std::int64_t stride : {1, 3}) {
    for (const int columns : {1, 16, 17, 32}) {
      for (const bool with_high : {true, false}) {
        std::vector<std::uint32_t> to(kPairColumns + 1, 7);
        PairPack call;
        call.low = rows.data() + 1, call.high = with_high ? rows.data() + 500 : nullptr;
        call.column_stride = stride, call.columns = columns, call.to = to.data();
        pack_pairs(call);
        EXPECT_EQ(to.back(), 7u);
        for (int column = 0; column < kPairColumns; ++column) {
          const auto at = [&](std::int64_t first) -> std::uint32_t {
            return column < columns ? rows[static_cast<std::size_t>(first + column * stride)] : 0;
          };
          ASSERT_EQ(to[static_cast<std::size_t>(column)], at(1) | (with_high ? at(500) << 16 : 0)) << columns;
        }
      }
    }
  }
}

}  // namespace
}  // namespace faltung
