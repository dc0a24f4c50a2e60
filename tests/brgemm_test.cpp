// Every shape of the micro-kernel against a plain loop nest, exact on small integers, with all it can do to
// the sum, and with nothing written outside the tile.
#include "kernels/cpu/brgemm.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace faltung {
namespace {

constexpr float kUntouched = 12345;

struct Shape {
  BrgemmElement element;
  BrgemmRows rows;
  int m, vectors, columns;
};

std::vector<Shape> all_shapes() {
  std::vector<Shape> shapes;
  for (const BrgemmElement element : {BrgemmElement::f32, BrgemmElement::bf16_pair}) {
    if (!brgemm_has(element)) continue;
    for (const BrgemmRows rows : {BrgemmRows::strided, BrgemmRows::contiguous}) {
      for (int vectors = 1; vectors <= kBrgemmMaxVectors; ++vectors) {
        for (int m = 1; m <= brgemm_max_rows(vectors); ++m) {
          const int width = vectors * brgemm_lanes();
          shapes.push_back({element, rows, m, vectors, width});
          shapes.push_back({element, rows, m, vectors, width - brgemm_lanes() + 1 + m % brgemm_lanes()});
        }
      }
    }
  }
  return shapes;
}

// Small integers, held as floats or as pairs of bf16.
class Operand {
 public:
  Operand(BrgemmElement element, std::size_t size, std::mt19937& random) : values_(2 * size), data_(size) {
    std::uniform_int_distribution<int> small(-3, 3);
    const bool pairs = element == BrgemmElement::bf16_pair;
    for (std::size_t i = 0; i < size; ++i) {
      values_[2 * i] = static_cast<float>(small(random));
      values_[2 * i + 1] = pairs ? static_cast<float>(small(random)) : 0.0f;
      data_[i] = pairs ? float_to_bf16(values_[2 * i]) |
                             static_cast<std::uint32_t>(float_to_bf16(values_[2 * i + 1])) << 16
                       : std::bit_cast<std::uint32_t>(values_[2 * i]);
    }
  }
  const void* data() const { return data_.data(); }
  const std::uint32_t* at(std::int64_t i) const { return data_.data() + i; }
  float product(std::int64_t i, const Operand& other, std::int64_t j) const {
    const auto a = static_cast<std::size_t>(2 * i), b = static_cast<std::size_t>(2 * j);
    return values_[a] * other.values_[b] + values_[a + 1] * other.values_[b + 1];
  }

 private:
  std::vector<float> values_;
  std::vector<std::uint32_t> data_;
};

void check(const Shape& shape, bool everything) {
  std::mt19937 random(1);
  const int width = shape.vectors * brgemm_lanes();
  constexpr std::int64_t kLength = 5;
  const bool contiguous = shape.rows == BrgemmRows::contiguous;
  const std::int64_t row_stride = contiguous ? 1 : 9, a_step = contiguous ? 16 : 1, b_step = width + 3;
  const std::int64_t group1 = contiguous ? 7 : 120;  // where row 7 is
  const BrgemmSegment segments[] = {{0, 0}, {300, 5 * b_step}, {31, 2}};
  const Operand a(shape.element, 800, random),
      b(shape.element, static_cast<std::size_t>(10 * b_step + 8), random);
  const Operand bias(BrgemmElement::f32, 128, random);
  const std::int64_t c_stride = width + 5, c_group1 = 8 * c_stride;
  const std::size_t c_size = static_cast<std::size_t>(16 * c_stride);
  const Operand addend(BrgemmElement::f32, c_size, random), residual(BrgemmElement::f32, c_size, random);
  std::vector<float> c(c_size, kUntouched), expected = c;
  const auto floats = [](const Operand& o, std::int64_t i) {
    return reinterpret_cast<const float*>(o.at(i));
  };

  BrgemmCall call;
  call.a0 = a.data(), call.a1 = a.at(group1), call.a_row_stride = row_stride, call.a_step = a_step;
  call.b = b.data(), call.b_step = b_step;
  call.segments = segments, call.segment_count = 3, call.length = kLength;
  call.c0 = c.data(), call.c1 = c.data() + c_group1, call.c_row_stride = c_stride,
  call.columns = shape.columns;
  if (everything) {
    call.column_bias = floats(bias, 0), call.row_bias = floats(bias, 100);
    call.addend0 = floats(addend, 0), call.addend1 = floats(addend, c_group1);
    call.residual0 = floats(residual, 0), call.residual1 = floats(residual, c_group1);
    call.relu = true;
  }
  for (int m = 0; m < shape.m; ++m) {
    const std::int64_t row = m < 7 ? m * row_stride : group1 + (m - 7) * row_stride;
    const std::int64_t c_row = m < 7 ? m * c_stride : c_group1 + (m - 7) * c_stride;
    for (int n = 0; n < shape.columns; ++n) {
      float sum = 0;
      for (const BrgemmSegment& s : segments) {
        for (std::int64_t i = 0; i < kLength; ++i) {
          sum += a.product(s.a + row + i * a_step, b, s.b + i * b_step + n);
        }
      }
      if (everything) {
        sum += *floats(bias, n) + *floats(bias, 100 + m) + *floats(addend, c_row + n) +
               *floats(residual, c_row + n);
        sum = std::max(sum, 0.0f);
      }
      expected[static_cast<std::size_t>(c_row + n)] = sum;
    }
  }
  brgemm_kernel(shape.element, shape.rows, shape.m, shape.vectors)(call);
  EXPECT_EQ(c, expected) << "m " << shape.m << ", vectors " << shape.vectors << ", columns " << shape.columns;
}

TEST(Brgemm, EveryShapeIsExactOnIntegers) {
  for (const Shape& shape : all_shapes()) {
    for (const bool everything : {false, true}) check(shape, everything);
  }
}

TEST(Brgemm, NoSegmentsGiveZero) {
  std::vector<float> c(64, kUntouched);
  BrgemmCall call;
  call.a0 = call.a1 = call.b = c.data(), call.c0 = call.c1 = c.data();
  call.length = 1, call.columns = 1;
  brgemm_kernel(BrgemmElement::f32, BrgemmRows::strided, 1, 1)(call);
  EXPECT_EQ(c[0], 0);
  EXPECT_EQ(c[1], kUntouched);
}

TEST(Brgemm, NanPassesRelu) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> a(1, nan), b(64, 1.0f);
  std::vector<float> c(64, kUntouched);
  const BrgemmSegment segment{0, 0};
  BrgemmCall call;
  call.a0 = a.data(), call.b = b.data(), call.segments = &segment, call.segment_count = 1;
  call.length = 1, call.c0 = c.data(), call.columns = 1, call.relu = true;
  brgemm_kernel(BrgemmElement::f32, BrgemmRows::strided, 1, 1)(call);
  EXPECT_NE(c[0], c[0]);
}

TEST(Brgemm, PackedPanelsReadBack) {
  const auto value = [](std::int64_t i, std::int64_t n) { return static_cast<float>(10 * i + n); };
  std::vector<float> to(static_cast<std::size_t>(packed_brgemm_b_elements(3, 5, 4)), -1.0f);
  pack_brgemm_b(to.data(), 3, 5, 4, value);
  EXPECT_EQ(to, (std::vector<float>{0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23,
                                    4, 0, 0, 0, 14, 0,  0,  0,  24, 0,  0,  0}));
  std::vector<std::uint32_t> pairs(4);
  pack_brgemm_b_pairs(pairs.data(), 1, 3, 4, value);
  EXPECT_EQ(pairs[1], float_to_bf16(1.0f) | static_cast<std::uint32_t>(float_to_bf16(11.0f)) << 16);
  EXPECT_EQ(pairs[3], 0u);
}

}  // namespace
}  // namespace faltung
