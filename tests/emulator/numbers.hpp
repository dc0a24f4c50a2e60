// The kinds of numbers that AMD's instructions compute with, and how they lie in registers.
#ifndef FALTUNG_TESTS_EMULATOR_NUMBERS_HPP_
#define FALTUNG_TESTS_EMULATOR_NUMBERS_HPP_

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "src/problem/dtype.hpp"

namespace faltung::emulator {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i8 = std::int8_t;
using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;

// Rounds a double to f16, to the nearest, ties to even, once.
inline u16 double_to_f16(double value) {
  const double magnitude = std::fabs(value);
  const u16 sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7e00;
  if (magnitude >= 65520) return sign | 0x7c00;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int last = std::max(exponent - 11, -24);  // the last bit's
  return sign |
         float_to_f16(static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(magnitude, -last)), last)));
}

struct Half {
  u16 bits = 0;
  operator float() const { return f16_to_float(bits); }
  static Half of(double value) { return {double_to_f16(value)}; }
};
inline u32 pair_bits(Half low, Half high) { return low.bits | static_cast<u32>(high.bits) << 16; }
struct Brain {
  u16 bits = 0;
  operator float() const { return bf16_to_float(bits); }
};

template <class T>
u32 leading_zeros(T value, u32 none) {
  return value == 0 ? none : static_cast<u32>(std::countl_zero(value));
}

// Exactly a * b + c, then rounded once: what a double cannot hold of it is kept as a bit below its last.
inline Half fused(Half a, Half b, Half c) {
  const double product = static_cast<double>(static_cast<float>(a)) * static_cast<float>(b),
               addend = static_cast<float>(c);
  double sum = product + addend;
  const double lost =
      std::fabs(product) > std::fabs(addend) ? addend - (sum - product) : product - (sum - addend);
  if (lost != 0 && std::isfinite(sum) && (std::bit_cast<u64>(sum) & 1) == 0)
    sum = std::nextafter(sum, lost > 0 ? INFINITY : -INFINITY);
  return Half::of(sum);
}

template <class T>
struct Pair {
  T low{}, high{};
};
// An operand that each instruction says to be f32, or which half of a register as f16.
struct Mixed {
  float value = 0;
  operator float() const { return value; }
};
// The old content of what the instruction writes, as one of its sources.
template <class T>
struct Old {
  T value{};
};
// A result, and beside it a bit of a lane mask.
template <class T>
struct WithCarry {
  T value{};
  bool carry = false;
};

// How an operand lies in registers.
enum class Form : u8 { none, mask, half, word, mixed, pair_of_halves, wide, pair_of_words };
// What its modifiers and inline constants mean.
enum class Number : u8 { integer, f16, f32, f64 };

struct OperandType {
  Form form = Form::none;
  Number number = Number::integer;
  bool is_old = false;
};

template <class T>
struct Registers;  // type, and conversion from and to the bits of a lane
#define FALTUNG_EMULATOR_NUMBER(T, FORM, NUMBER)                          \
  template <>                                                             \
  struct Registers<T> {                                                   \
    static constexpr OperandType type{Form::FORM, Number::NUMBER, false}; \
    static T of(u64 bits) {                                               \
      T value;                                                            \
      std::memcpy(static_cast<void*>(&value), &bits, sizeof value);       \
      return value;                                                       \
    }                                                                     \
    static u64 bits(T value) {                                            \
      u64 bits = 0;                                                       \
      std::memcpy(&bits, &value, sizeof value);                           \
      return bits;                                                        \
    }                                                                     \
  };
FALTUNG_EMULATOR_NUMBER(u32, word, integer)
FALTUNG_EMULATOR_NUMBER(i32, word, integer)
FALTUNG_EMULATOR_NUMBER(float, word, f32)
FALTUNG_EMULATOR_NUMBER(Mixed, mixed, f32)
FALTUNG_EMULATOR_NUMBER(u16, half, integer)
FALTUNG_EMULATOR_NUMBER(i16, half, integer)
FALTUNG_EMULATOR_NUMBER(Half, half, f16)
FALTUNG_EMULATOR_NUMBER(u64, wide, integer)
FALTUNG_EMULATOR_NUMBER(i64, wide, integer)
FALTUNG_EMULATOR_NUMBER(double, wide, f64)
FALTUNG_EMULATOR_NUMBER(Pair<u16>, pair_of_halves, integer)
FALTUNG_EMULATOR_NUMBER(Pair<i16>, pair_of_halves, integer)
FALTUNG_EMULATOR_NUMBER(Pair<Half>, pair_of_halves, f16)
FALTUNG_EMULATOR_NUMBER(Pair<Brain>, pair_of_halves, integer)
FALTUNG_EMULATOR_NUMBER(Pair<float>, pair_of_words, f32)
FALTUNG_EMULATOR_NUMBER(Pair<u32>, pair_of_words, integer)
#undef FALTUNG_EMULATOR_NUMBER

template <>
struct Registers<bool> {
  static constexpr OperandType type{Form::mask, Number::integer, false};
  static bool of(u64 bits) { return bits != 0; }
  static u64 bits(bool value) { return value ? 1 : 0; }
};
template <class T>
struct Registers<Old<T>> {
  static constexpr OperandType type{Registers<T>::type.form, Registers<T>::type.number, true};
  static Old<T> of(u64 bits) { return {Registers<T>::of(bits)}; }
};

}  // namespace faltung::emulator

#endif  // FALTUNG_TESTS_EMULATOR_NUMBERS_HPP_
