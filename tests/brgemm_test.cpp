// Every shape of the micro-kernel against a plain loop nest, exact on small integers, with all it can do to
// the sum, and with nothing written outside the tile.
#include "kernels/cpu/brgemm.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/epilogue.hpp"

namespace faltung {
namespace {

constexpr float kUntouched = 12345;

struct Product {
  BrgemmRows rows;
  int m, vectors, columns;
};

std::vector<Product> all_shapes() {
  std::vector<Product> shapes;
  for (const BrgemmRows rows : {BrgemmRows::strided, BrgemmRows::contiguous}) {
    for (int vectors = 1; vectors <= kBrgemmMaxVectors; ++vectors) {
      for (int m = 1; m <= brgemm_max_rows(vectors); ++m) {
        const int width = vectors * brgemm_lanes();
        shapes.push_back({rows, m, vectors, width});
        shapes.push_back({rows, m, vectors, width - brgemm_lanes() + 1 + m % brgemm_lanes()});
      }
    }
  }
  return shapes;
}

std::vector<float> small_integers(std::size_t size, std::mt19937& random) {
  std::uniform_int_distribution<int> small(-3, 3);
  std::vector<float> values(size);
  for (float& v : values) v = static_cast<float>(small(random));
  return values;
}

// gap: between the vectors of one step and the next one's; without, steps are written out side by side.
void check(const Product& shape, bool everything, std::int64_t gap) {
  std::mt19937 random(1);
  const int width = shape.vectors * brgemm_lanes();
  constexpr std::int64_t kLength = 5;
  const bool contiguous = shape.rows == BrgemmRows::contiguous;
  const std::int64_t row_stride = contiguous ? 1 : 9, a_step = contiguous ? 16 : 1, b_step = width + gap;
  const std::int64_t group1 = contiguous ? 7 : 120;  // where row 7 is
  const BrgemmSegment segments[] = {{0, 0}, {300, 5 * b_step}, {31, 2}};
  const std::vector<float> a = small_integers(800, random);
  const std::vector<float> b = small_integers(static_cast<std::size_t>(10 * b_step + 8), random);
  const std::vector<float> bias = small_integers(128, random);
  const std::int64_t c_stride = width + 5, c_group1 = 8 * c_stride;
  const std::size_t c_size = static_cast<std::size_t>(16 * c_stride);
  const std::vector<float> addend = small_integers(c_size, random), residual = small_integers(c_size, random);
  std::vector<float> c(c_size, kUntouched), expected = c;
  const auto at = [](const std::vector<float>& v, std::int64_t i) { return v[static_cast<std::size_t>(i)]; };

  BrgemmCall call;
  call.a0 = a.data(), call.a1 = a.data() + group1, call.a_row_stride = row_stride, call.a_step = a_step;
  call.b = b.data(), call.b_step = b_step;
  call.segments = segments, call.segment_count = 3, call.length = kLength;
  call.c0 = c.data(), call.c1 = c.data() + c_group1, call.c_row_stride = c_stride,
  call.columns = shape.columns;
  if (everything) {
    call.column_bias = bias.data(), call.row_bias = bias.data() + 100;
    call.addend0 = addend.data(), call.addend1 = addend.data() + c_group1;
    call.residual0 = residual.data(), call.residual1 = residual.data() + c_group1;
    call.activation = {Activation::relu};
  }
  for (int m = 0; m < shape.m; ++m) {
    const std::int64_t row = m < 7 ? m * row_stride : group1 + (m - 7) * row_stride;
    const std::int64_t c_row = m < 7 ? m * c_stride : c_group1 + (m - 7) * c_stride;
    for (int n = 0; n < shape.columns; ++n) {
      float sum = 0;
      for (const BrgemmSegment& s : segments) {
        for (std::int64_t i = 0; i < kLength; ++i) {
          sum += at(a, s.a + row + i * a_step) * at(b, s.b + i * b_step + n);
        }
      }
      if (everything) {
        sum += at(bias, n) + at(bias, 100 + m) + at(addend, c_row + n) + at(residual, c_row + n);
        sum = std::max(sum, 0.0f);
      }
      expected[static_cast<std::size_t>(c_row + n)] = sum;
    }
  }
  brgemm_kernel(shape.rows, shape.m, shape.vectors)(call);
  EXPECT_EQ(c, expected) << "m " << shape.m << ", vectors " << shape.vectors << ", columns " << shape.columns;
}

TEST(Brgemm, EveryShapeIsExactOnIntegers) {
  for (const Product& shape : all_shapes()) {
    for (const bool everything : {false, true}) {
      for (const std::int64_t gap : {0, 3}) check(shape, everything, gap);
    }
  }
}

// Several tiles of one call are those of as many calls: the last one's columns are cut short, and what each
// one adds lies where it is stored. Side by side in C, of a B of their own each.
TEST(Brgemm, TilesOfACallAreThoseOfAsManyCalls) {
  constexpr std::int64_t kTiles = 3, kLength = 5;
  std::mt19937 random(1);
  for (const Product& shape : all_shapes()) {
    const bool contiguous = shape.rows == BrgemmRows::contiguous;
    const std::int64_t width = shape.vectors * brgemm_lanes(), c_stride = kTiles * width + 5;
    const std::vector<float> a = small_integers(16 * kLength, random);
    const std::vector<float> b =
        small_integers(static_cast<std::size_t>(kTiles * kLength * width + 8), random);
    const std::vector<float> added = small_integers(static_cast<std::size_t>(16 * c_stride), random);
    std::vector<float> together(added.size(), kUntouched), apart = together;
    const BrgemmSegment segment{0, 0};
    BrgemmCall call;
    call.a0 = a.data(), call.a1 = a.data() + (contiguous ? 7 : 7 * kLength);
    call.a_step = contiguous ? 16 : 1, call.a_row_stride = kLength;
    call.segments = &segment, call.segment_count = 1, call.length = kLength;
    call.b_step = width, call.c_row_stride = c_stride, call.activation = {Activation::relu};
    call.row_bias = added.data(), call.fetches_c = true;
    const auto run = [&](std::vector<float>& c, std::int64_t first, std::int64_t tiles) {
      const bool last = first + tiles == kTiles;
      call.tiles = tiles, call.b_tile = kLength * width, call.c_tile = width;
      if (!contiguous) call.column_bias = added.data() + first * width, call.bias_tile = width;
      call.columns = static_cast<int>(last ? shape.columns : width);
      call.b = b.data() + first * call.b_tile;
      const auto rows = [&](auto* from, auto*& rows0, auto*& rows1) {
        rows0 = from + first * width, rows1 = rows0 + 7 * c_stride;
      };
      rows(c.data(), call.c0, call.c1), rows(added.data(), call.addend0, call.addend1);
      rows(added.data() + 1, call.residual0, call.residual1);
      brgemm_kernel(shape.rows, shape.m, shape.vectors)(call);
    };
    run(together, 0, kTiles);
    for (std::int64_t tile = 0; tile < kTiles; ++tile) run(apart, tile, 1);
    EXPECT_EQ(together, apart) << shape.m << " x " << shape.vectors;
    EXPECT_NE(together[0], kUntouched);
  }
}

// Of a B for all, one below the other in C, as pixels of the same channels are.
TEST(Brgemm, RowsOfACallAreThoseOfAsManyCalls) {
  constexpr std::int64_t kTiles = 3, kLength = 9;
  std::mt19937 random(1);
  for (const Product& shape : all_shapes()) {
    if (shape.rows != BrgemmRows::strided || shape.columns % brgemm_lanes() != 0) continue;
    const std::int64_t width = shape.vectors * brgemm_lanes(), c_stride = width + 5, rows = kTiles * shape.m;
    const std::vector<float> a = small_integers(static_cast<std::size_t>(rows * kLength), random);
    const std::vector<float> b = small_integers(static_cast<std::size_t>(kLength * width), random);
    std::vector<float> together(static_cast<std::size_t>(rows * c_stride), kUntouched), apart = together;
    const BrgemmSegment segment{0, 0};
    BrgemmCall call;
    call.a_row_stride = kLength, call.b = b.data(), call.b_step = width;
    call.segments = &segment, call.segment_count = 1, call.length = kLength;
    call.c_row_stride = c_stride, call.columns = static_cast<int>(width), call.column_bias = b.data();
    call.a_tile = shape.m * kLength, call.c_tile = shape.m * c_stride;
    const auto run = [&](std::vector<float>& c, std::int64_t first, std::int64_t tiles) {
      call.tiles = tiles;
      call.a0 = a.data() + first * call.a_tile, call.a1 = static_cast<const float*>(call.a0) + 7 * kLength;
      call.c0 = c.data() + first * call.c_tile, call.c1 = call.c0 + 7 * c_stride;
      brgemm_kernel(shape.rows, shape.m, shape.vectors)(call);
    };
    run(together, 0, kTiles);
    for (std::int64_t tile = 0; tile < kTiles; ++tile) run(apart, tile, 1);
    EXPECT_EQ(together, apart) << shape.m << " x " << shape.vectors;
    EXPECT_NE(together[0], kUntouched);
  }
}

// In the kernel as behind it, bit for bit.
TEST(Brgemm, ActivationsAreTheEpilogues) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr ActivationCall kActivations[] = {
      {Activation::relu},       {Activation::relu6},     {Activation::leaky_relu, 0.1f},
      {Activation::sigmoid},    {Activation::silu},      {Activation::gelu},
      {Activation::gelu_tanh},  {Activation::hardswish}, {Activation::hardsigmoid, 0.2f},
      {Activation::clip, -1, 6}};
  const std::vector<float> a{-8, -3, -2.9f, -1, 0, 0.3f, 1, 2.9f, 3, 7, 1e30f, kInfinity};
  for (const BrgemmRows rows : {BrgemmRows::strided, BrgemmRows::contiguous}) {
    for (int vectors = 1; vectors <= kBrgemmMaxVectors; ++vectors) {
      const int m = std::min(brgemm_max_rows(vectors), 12),
                columns = vectors * brgemm_lanes() - (brgemm_lanes() > 1 ? 1 : 0);
      const std::vector<float> b(static_cast<std::size_t>(vectors * brgemm_lanes()), 1);
      std::vector<float> plain(static_cast<std::size_t>(m * columns)), inside = plain, behind = plain;
      const BrgemmSegment segment{0, 0};
      BrgemmCall call;
      call.a0 = a.data(), call.a1 = a.data() + 7, call.a_row_stride = 1, call.b = b.data();
      call.segments = &segment, call.segment_count = 1, call.length = 1;
      call.c_row_stride = call.columns = columns;
      const auto run = [&](std::vector<float>& c) {
        call.c0 = c.data(), call.c1 = m > 7 ? c.data() + 7 * columns : c.data();
        brgemm_kernel(rows, m, vectors)(call);
      };
      run(plain);
      for (const ActivationCall activation : kActivations) {
        call.activation = activation;
        run(inside);
        EpilogueCall end;
        end.from = plain.data(), end.to = behind.data(), end.rows = m;
        end.columns = end.from_stride = end.to_stride = columns;
        end.activation = activation;
        epilogue_store(end);
        EXPECT_EQ(std::memcmp(inside.data(), behind.data(), inside.size() * sizeof(float)), 0)
            << name(activation.kind) << " of " << m << " x " << vectors;
        EXPECT_NE(inside[0], plain[0]);
      }
      call.activation = {};
    }
  }
}

// Rows at a stride, of which a group's channels are a part; the last vector may be stored in part.
void check_groups(int rows, int taps, int length, int columns) {
  std::mt19937 random(1);
  const std::int64_t lanes = brgemm_lanes(), pixel = lanes + 3, c_stride = lanes + 5;
  const BrgemmSegment segments[] = {{0, 0}, {40, 2 * lanes}};
  const std::vector<float> a = small_integers(static_cast<std::size_t>(60 + 20 * pixel), random);
  const std::vector<float> b = small_integers(static_cast<std::size_t>(60 * lanes), random);
  const std::vector<float> bias = small_integers(16, random);
  std::vector<float> c(static_cast<std::size_t>(16 * c_stride), kUntouched), expected = c;
  BrgemmCall call;
  call.a0 = a.data(), call.a_row_stride = pixel, call.b = b.data();
  call.segments = segments, call.segment_count = 2, call.length = length;
  call.c0 = c.data(), call.c1 = c.data() + 7 * c_stride, call.c_row_stride = c_stride;
  call.columns = columns, call.column_bias = bias.data();
  for (int row = 0; row < rows; ++row) {
    for (int j = 0; j < columns; ++j) {
      float sum = bias[static_cast<std::size_t>(j)];
      for (const BrgemmSegment& s : segments) {
        for (int i = 0; i < length; ++i) {
          for (int tap = 0; tap < taps; ++tap) {
            sum += a[static_cast<std::size_t>(s.a + (row + tap) * pixel + j / length * length + i)] *
                   b[static_cast<std::size_t>(s.b + (i * taps + tap) * lanes + j)];
          }
        }
      }
      expected[static_cast<std::size_t>(row * c_stride + j)] = sum;
    }
  }
  brgemm_group_kernel(rows, taps)(call);
  EXPECT_EQ(c, expected) << rows << " rows, " << taps << " taps, groups of " << length << ", " << columns
                         << " columns";
}

TEST(Brgemm, GroupsInAVectorAreExactOnIntegers) {
  for (int length = 1; length <= brgemm_lanes(); length *= 2) {
    for (int rows = 1; rows <= brgemm_max_group_rows(); ++rows) {
      for (const int taps : {1, 3}) {
        for (const int columns : {1, brgemm_lanes() - 1, brgemm_lanes()})
          check_groups(rows, taps, length, columns);
      }
    }
  }
}

TEST(Brgemm, NoSegmentsGiveZero) {
  std::vector<float> c(64, kUntouched);
  BrgemmCall call;
  call.a0 = call.a1 = call.b = c.data(), call.c0 = call.c1 = c.data();
  call.length = 1, call.columns = 1;
  brgemm_kernel(BrgemmRows::strided, 1, 1)(call);
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
  call.length = 1, call.c0 = c.data(), call.columns = 1, call.activation = {Activation::relu};
  brgemm_kernel(BrgemmRows::strided, 1, 1)(call);
  EXPECT_NE(c[0], c[0]);
}

TEST(Brgemm, PackedPanelsReadBack) {
  const auto value = [](std::int64_t i, std::int64_t n) { return static_cast<float>(10 * i + n); };
  std::vector<float> to(static_cast<std::size_t>(packed_brgemm_b_elements(3, 5, 4)), -1.0f);
  pack_brgemm_b(to.data(), 3, 5, 4, value);
  EXPECT_EQ(to, (std::vector<float>{0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23,
                                    4, 0, 0, 0, 14, 0,  0,  0,  24, 0,  0,  0}));
}

}  // namespace
}  // namespace faltung
