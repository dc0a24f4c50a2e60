// The 16-bit types against a reference in double: every value, and every tie.
#include "src/problem/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/convert.hpp"
#include "src/problem/float_mode.hpp"

namespace faltung {
namespace {

// An IEEE-like type with so many bits of mantissa (the leading one counted) and exponents from min to max.
struct Format {
  DType dtype;
  int precision, min_exponent, max_exponent;
  float (*to_float)(std::uint16_t);
  std::uint16_t (*from_float)(float);
};

const Format kFormats[] = {
    {DType::f16, 11, -14, 15, f16_to_float, float_to_f16},
    {DType::bf16, 8, -126, 127, bf16_to_float, float_to_bf16},
};

// What the bits mean, by the definition.
double decode(const Format& f, std::uint16_t bits) {
  const int mantissa_bits = f.precision - 1;
  const int exponent = (bits & 0x7fff) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == f.max_exponent - f.min_exponent + 2) return mantissa == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, f.min_exponent - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - 1 + f.min_exponent - mantissa_bits);
}

// x rounded to the nearest, ties to even.
double round(const Format& f, double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), f.min_exponent);
  const double unit = std::ldexp(1, exponent - f.precision + 1);
  const double rounded = std::nearbyint(x / unit) * unit;
  return std::abs(rounded) >= std::ldexp(1, f.max_exponent + 1) ? std::copysign(INFINITY, x) : rounded;
}

class Rounding : public testing::TestWithParam<Format> {
 protected:
  void expect_rounded(float x) const {
    const Format& f = GetParam();
    const double wanted = round(f, x), got = decode(f, f.from_float(x));
    ASSERT_EQ(got, wanted) << std::hexfloat << x;
    ASSERT_EQ(std::signbit(got), std::signbit(wanted)) << x;
    ASSERT_EQ(round_to(f.dtype, x), wanted);
  }
};

TEST_P(Rounding, EveryValueSurvives) {
  const Format& f = GetParam();
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto b = static_cast<std::uint16_t>(bits);
    const double meaning = decode(f, b);
    const float value = f.to_float(b);
    if (std::isnan(meaning)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(std::isnan(decode(f, f.from_float(value)))) << bits;
    } else {
      ASSERT_EQ(value, meaning) << bits;
      ASSERT_EQ(std::signbit(value), std::signbit(meaning)) << bits;
      ASSERT_EQ(f.from_float(value), b) << bits;
    }
  }
}

TEST_P(Rounding, EveryTieAndItsNeighbours) {
  const Format& f = GetParam();
  const unsigned infinity = f.from_float(INFINITY);
  for (unsigned bits = 0; bits < infinity; ++bits) {
    const double here = decode(f, static_cast<std::uint16_t>(bits));
    const double next = bits + 1 == infinity ? std::ldexp(1, f.max_exponent + 1)
                                             : decode(f, static_cast<std::uint16_t>(bits + 1));
    const auto middle = static_cast<float>((here + next) / 2);
    ASSERT_EQ(middle, (here + next) / 2);
    for (const float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, INFINITY)}) {
      expect_rounded(x);
      expect_rounded(-x);
    }
  }
}

TEST_P(Rounding, RandomFloats) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000000; ++i) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(decode(GetParam(), GetParam().from_float(x))));
    } else {
      expect_rounded(x);
    }
    if (HasFatalFailure()) return;
  }
}

TEST_P(Rounding, TheTableIsTrue) {
  const Format& f = GetParam();
  EXPECT_EQ(info(f.dtype).dtype, f.dtype);
  EXPECT_EQ(info(f.dtype).unit_roundoff, std::ldexp(1, -f.precision));
  EXPECT_EQ(info(f.dtype).smallest, decode(f, 1));
  EXPECT_EQ(size_of(f.dtype), 2);
}

INSTANTIATE_TEST_SUITE_P(, Rounding, testing::ValuesIn(kFormats), [](const auto& param) {
  return std::string(param.param.dtype == DType::f16 ? "f16" : "bf16");
});

TEST(F32, IsAsItIs) {
  EXPECT_EQ(info(DType::f32).dtype, DType::f32);
  EXPECT_EQ(size_of(DType::f32), 4);
  EXPECT_EQ(info(DType::f32).unit_roundoff, std::ldexp(1, -24));
  EXPECT_EQ(info(DType::f32).smallest, std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(round_to(DType::f32, 0.1f), 0.1f);
}

TEST(F16, SubnormalsAreNoDenormalFloats) {
  for (std::uint16_t bits = 1; bits < 0x400; ++bits) {
    float value;
    {
      const FloatMode mode(Denormals::flush);
      value = f16_to_float(bits);
    }
    ASSERT_EQ(value, std::ldexp(static_cast<double>(bits), -24)) << bits;
  }
}

TEST(Elements, LoadWhatWasStored) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    alignas(4) std::byte data[16] = {};
    store_element(dtype, data, 2, -1.5f);
    store_element(dtype, data, 3, 3.0f);
    EXPECT_EQ(load_element(dtype, data, 0), 0);
    EXPECT_EQ(load_element(dtype, data, 2), -1.5f);
    EXPECT_EQ(load_element(dtype, data, 3), 3);
  }
}

// Many at once, from and to addresses that are no multiple of anything, as each alone.
TEST(ConvertElements, IsAsEachAlone) {
  constexpr DType kAll[] = {DType::f32, DType::f16, DType::bf16};
  constexpr std::int64_t kCount = 1000;
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 1e-3f);  // of f16 also numbers below the normal ones
  for (const DType from : kAll) {
    for (const DType to : kAll) {
      std::vector<std::byte> bytes(1 + kCount * 4), results(1 + kCount * 4);
      std::vector<float> numbers;
      for (std::int64_t i = 0; i < kCount; ++i) {
        alignas(float) std::byte element[4];
        store_element(from, element, 0, i == 7 ? INFINITY : i == 8 ? NAN : normal(random));
        numbers.push_back(load_element(from, element, 0));
        std::memcpy(bytes.data() + 1 + i * size_of(from), element, static_cast<std::size_t>(size_of(from)));
      }
      EXPECT_EQ(convert_elements(from, bytes.data() + 1, kCount, to, results.data() + 1), kCount);
      for (std::int64_t i = 0; i < kCount; ++i) {
        alignas(float) std::byte element[4];
        std::memcpy(element, results.data() + 1 + i * size_of(to), static_cast<std::size_t>(size_of(to)));
        const float got = load_element(to, element, 0),
                    wanted = round_to(to, numbers[static_cast<std::size_t>(i)]);
        if (std::isnan(wanted))
          EXPECT_TRUE(std::isnan(got));
        else
          ASSERT_EQ(got, wanted) << info(from).name << " to " << info(to).name << " at " << i;
      }
    }
  }
}

TEST(Magnitudes, AreThoseOfNumbersThatAreNotZero) {
  const auto of = [](std::vector<float> values) {
    const Magnitudes m = magnitudes(values.data(), static_cast<std::int64_t>(values.size()));
    return std::pair(m.least, m.most);
  };
  EXPECT_EQ(of({}), std::pair(INFINITY, 0.0f));
  EXPECT_EQ(of({0, -0.0f, NAN}), std::pair(INFINITY, 0.0f));
  EXPECT_EQ(of({3, -7, 0, 0x1p-149f, -NAN}), std::pair(0x1p-149f, 7.0f));
  EXPECT_EQ(of({-INFINITY, -2}), std::pair(2.0f, INFINITY));
  std::vector<float> many(1003, 1.0f);
  many[1002] = -8, many[501] = 0.25f;
  EXPECT_EQ(of(many), std::pair(0.25f, 8.0f));
}

TEST(Magnitudes, WhatIsSmallerBecomesZero) {
  std::vector<float> values{1, -1, 0.5f, -0.5f, 0.4f, -0.4f, 0x1p-149f, INFINITY, NAN, 0};
  zero_below(0.5f, values.data(), static_cast<std::int64_t>(values.size()));
  EXPECT_TRUE(std::isnan(values[8]));
  values[8] = 8;
  EXPECT_EQ(values, (std::vector<float>{1, -1, 0.5f, -0.5f, 0, 0, 0, INFINITY, 8, 0}));
}

TEST(ConvertElements, TellsTheFirstThatIsLost) {
  float numbers[] = {1, -INFINITY, 65504, 65520, 1e30f, 0};
  std::byte to[sizeof numbers];
  EXPECT_EQ(convert_elements(DType::f32, reinterpret_cast<std::byte*>(numbers), 6, DType::f16, to), 3);
  EXPECT_EQ(convert_elements(DType::f32, reinterpret_cast<std::byte*>(numbers), 6, DType::bf16, to), 6);
  numbers[5] = 3.4e38f;  // rounds to 2^128
  EXPECT_EQ(convert_elements(DType::f32, reinterpret_cast<std::byte*>(numbers), 6, DType::bf16, to), 5);
}

}  // namespace
}  // namespace faltung
