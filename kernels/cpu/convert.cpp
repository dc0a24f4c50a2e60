#include "kernels/cpu/convert.hpp"

#include <cmath>
#include <cstring>

namespace faltung {
namespace {

struct ElementF32 {
  using Bits = float;
  static float load(Bits bits) { return bits; }
  static Bits store(float value) { return value; }
};
struct ElementF16 {
  using Bits = std::uint16_t;
  static float load(Bits bits) { return f16_to_float(bits); }
  static Bits store(float value) { return float_to_f16(value); }
};
struct ElementBf16 {
  using Bits = std::uint16_t;
  static float load(Bits bits) { return bf16_to_float(bits); }
  static Bits store(float value) { return float_to_bf16(value); }
};

bool is_lost(float before, float after) { return std::isfinite(before) && !std::isfinite(after); }

template <class From, class To>
std::int64_t convert_as(const std::byte* from, std::int64_t count, std::byte* to) {
  typename From::Bits read;
  const auto load = [&](std::int64_t i) {
    std::memcpy(&read, from + i * static_cast<std::int64_t>(sizeof read), sizeof read);
    return From::load(read);
  };
  bool lost = false;
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = load(i);
    const typename To::Bits bits = To::store(value);
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof bits), &bits, sizeof bits);
    lost |= is_lost(value, To::load(bits));
  }
  if (!lost) return count;
  std::int64_t first = 0;
  while (!is_lost(load(first), To::load(To::store(load(first))))) ++first;
  return first;
}

template <class From>
std::int64_t convert_from(const std::byte* from, std::int64_t count, DType dtype, std::byte* to) {
  switch (dtype) {
    case DType::f16:
      return convert_as<From, ElementF16>(from, count, to);
    case DType::bf16:
      return convert_as<From, ElementBf16>(from, count, to);
    default:
      return convert_as<From, ElementF32>(from, count, to);
  }
}

}  // namespace

std::int64_t convert_elements(DType from_dtype, const std::byte* from, std::int64_t count, DType to_dtype,
                              std::byte* to) {
  if (from_dtype == to_dtype) {
    std::memcpy(to, from, static_cast<std::size_t>(count * size_of(to_dtype)));
    return count;
  }
  switch (from_dtype) {
    case DType::f16:
      return convert_from<ElementF16>(from, count, to_dtype, to);
    case DType::bf16:
      return convert_from<ElementBf16>(from, count, to_dtype, to);
    default:
      return convert_from<ElementF32>(from, count, to_dtype, to);
  }
}

void zero_below(float magnitude, float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = std::abs(values[i]) < magnitude ? 0 : values[i];
}

}  // namespace faltung
