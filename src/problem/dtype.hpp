// The element types: their size, name, and conversion to and from float. One row here is a new dtype's first
// step.
#ifndef FALTUNG_SRC_PROBLEM_DTYPE_HPP_
#define FALTUNG_SRC_PROBLEM_DTYPE_HPP_

#include <bit>
#include <cstdint>
#include <cstring>

#include "faltung/faltung.hpp"

namespace faltung {

struct DTypeInfo {
  DType dtype;
  const char* name;
  int bytes;
  double unit_roundoff;  // half the distance from 1 to the next value
  double smallest;       // the smallest positive subnormal
};

inline constexpr DTypeInfo kDTypes[] = {
    {DType::f32, "f32", 4, 0x1p-24, 0x1p-149},
    {DType::f16, "f16", 2, 0x1p-11, 0x1p-24},
    {DType::bf16, "bf16", 2, 0x1p-8, 0x1p-133},
};

inline constexpr const DTypeInfo& info(DType dtype) { return kDTypes[static_cast<int>(dtype)]; }
inline constexpr int size_of(DType dtype) { return info(dtype).bytes; }

inline float bf16_to_float(std::uint16_t v) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16);
}

// Round to nearest, ties to even; NaN stays NaN.
inline std::uint16_t float_to_bf16(float f) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40);
  return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

inline float f16_to_float(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000) << 16;
  const std::uint32_t magnitude = h & 0x7fff;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ff) << 13));
  // f16's subnormal numbers are normal floats. No other float occurs on the way to one, so that it is exact
  // where denormals are flushed, too.
  const float value = magnitude < 0x400 ? static_cast<float>(magnitude) * 0x1p-24f
                                        : std::bit_cast<float>((magnitude << 13) + 0x38000000u);
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

// Round to nearest, ties to even; beyond 65504 to infinity; NaN stays NaN.
inline std::uint16_t float_to_f16(float f) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(f);
  const std::uint16_t sign = static_cast<std::uint16_t>((u >> 16) & 0x8000);
  const std::uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00;  // rounds to 2^16 or above
  if (magnitude < 0x38800000u) {                       // subnormal: adding 0.5 aligns the bits and rounds
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u);
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1);
  return sign | static_cast<std::uint16_t>((rounded - 0x38000000u) >> 13);
}

// Element i of an array of dtype.
inline float load_element(DType dtype, const void* data, std::int64_t i) {
  switch (dtype) {
    case DType::f32:
      return static_cast<const float*>(data)[i];
    case DType::f16:
      return f16_to_float(static_cast<const std::uint16_t*>(data)[i]);
    case DType::bf16:
      return bf16_to_float(static_cast<const std::uint16_t*>(data)[i]);
  }
  return 0;
}

inline void store_element(DType dtype, void* data, std::int64_t i, float value) {
  switch (dtype) {
    case DType::f32:
      static_cast<float*>(data)[i] = value;
      return;
    case DType::f16:
      static_cast<std::uint16_t*>(data)[i] = float_to_f16(value);
      return;
    case DType::bf16:
      static_cast<std::uint16_t*>(data)[i] = float_to_bf16(value);
      return;
  }
}

// value rounded to dtype, as a float.
inline float round_to(DType dtype, float value) {
  switch (dtype) {
    case DType::f32:
      return value;
    case DType::f16:
      return f16_to_float(float_to_f16(value));
    case DType::bf16:
      return bf16_to_float(float_to_bf16(value));
  }
  return value;
}

}  // namespace faltung

#endif  // FALTUNG_SRC_PROBLEM_DTYPE_HPP_
