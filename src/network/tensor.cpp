#include "src/network/tensor.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "src/problem/dtype.hpp"
#include "src/problem/text.hpp"

namespace faltung::network {
namespace {

struct TypeInfo {
  Type type;
  const char* name;
  std::size_t bytes;
};

constexpr TypeInfo kTypes[] = {
    {Type::unknown, "unknown", 0}, {Type::f32, "f32", 4},      {Type::u8, "u8", 1},     {Type::i8, "i8", 1},
    {Type::u16, "u16", 2},         {Type::i16, "i16", 2},      {Type::i32, "i32", 4},   {Type::i64, "i64", 8},
    {Type::text, "text", 0},       {Type::boolean, "bool", 1}, {Type::f16, "f16", 2},   {Type::f64, "f64", 8},
    {Type::u32, "u32", 4},         {Type::u64, "u64", 8},      {Type::bf16, "bf16", 2},
};

const TypeInfo& info(Type type) {
  for (const TypeInfo& t : kTypes) {
    if (t.type == type) return t;
  }
  return kTypes[0];
}

// Calls with a value of the C++ type that holds an element; 16-bit floats are handled apart.
template <class Work>
void with_number(Type type, const Work& work) {
  switch (type) {
    case Type::f32:
      return work(float{});
    case Type::f64:
      return work(double{});
    case Type::u8:
    case Type::boolean:
      return work(std::uint8_t{});
    case Type::i8:
      return work(std::int8_t{});
    case Type::u16:
      return work(std::uint16_t{});
    case Type::i16:
      return work(std::int16_t{});
    case Type::i32:
      return work(std::int32_t{});
    case Type::u32:
      return work(std::uint32_t{});
    case Type::i64:
      return work(std::int64_t{});
    case Type::u64:
      return work(std::uint64_t{});
    default:
      throw Error(Status::unsupported,
                  fmt::format("elements of type {} cannot be computed with", name(type)));
  }
}

// Into the range of T, towards zero; NaN is 0.
template <class T>
T saturate(double value) {
  if (std::isnan(value)) return T{0};
  // The largest i64 and u64 are no doubles; the next one above is out of range.
  if (value >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  if (value <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return static_cast<T>(value);
}

}  // namespace

Type type_of_number(std::int64_t number) {
  for (const TypeInfo& t : kTypes) {
    if (static_cast<std::int64_t>(t.type) == number) return t.type;
  }
  return Type::unknown;
}

const char* name(Type type) { return info(type).name; }
std::size_t size_of(Type type) { return info(type).bytes; }

bool is_float(Type type) {
  return type == Type::f32 || type == Type::f16 || type == Type::bf16 || type == Type::f64;
}

DType dtype_of(Type type, const std::string& where) {
  if (type == Type::f32) return DType::f32;
  if (type == Type::f16) return DType::f16;
  if (type == Type::bf16) return DType::bf16;
  throw Error(Status::unsupported, where + ": nothing convolves elements of type " + name(type));
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += shape[i] < 0 ? "?" : std::to_string(shape[i]);
  }
  return text + "]";
}

namespace {

// Throws Error(bad_problem) where so many elements of this size are too many.
std::int64_t product_within(std::int64_t product, std::int64_t size, const Shape& shape) {
  constexpr std::int64_t kMost = std::int64_t{1} << 48;
  if (size > 0 && product > kMost / size)
    throw Error(Status::bad_problem, "a shape of more than 2^48 elements: " + to_string(shape));
  return product * size;
}

}  // namespace

std::int64_t elements(const Shape& shape) {
  std::int64_t product = 1;
  bool zero = false;
  for (const std::int64_t size : shape) {
    if (size < 0)
      throw Error(Status::bad_problem, "a shape with a negative or unknown size: " + to_string(shape));
    zero = zero || size == 0;
    product = product_within(product, std::max<std::int64_t>(size, 1), shape);
  }
  return zero ? 0 : product;
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i > 1; --i)
    strides[i - 2] = product_within(strides[i - 1], shape[i - 1], shape);
  return strides;
}

Shape broadcast(const Shape& a, const Shape& b) {
  const std::size_t rank = std::max(a.size(), b.size());
  Shape result(rank, 1);
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t p = i + a.size() < rank ? 1 : a[i + a.size() - rank];
    const std::int64_t q = i + b.size() < rank ? 1 : b[i + b.size() - rank];
    if (p != q && p != 1 && q != 1) {
      throw Error(Status::bad_problem,
                  fmt::format("shapes {} and {} do not broadcast", to_string(a), to_string(b)));
    }
    result[i] = p == 1 ? q : p;
  }
  return result;
}

double round_to(Type type, double value) {
  switch (type) {
    case Type::f32:
    case Type::f64:
      return value;
    case Type::f16:
      return f16_to_float(float_to_f16(static_cast<float>(value)));
    case Type::bf16:
      return bf16_to_float(float_to_bf16(static_cast<float>(value)));
    case Type::boolean:
      return value != 0 ? 1 : 0;
    default: {
      double result = value;
      with_number(type, [&]<class T>(T) { result = static_cast<double>(saturate<T>(value)); });
      return result;
    }
  }
}

Array decode(const Constant& constant) {
  Array array{constant.type, constant.shape, {}};
  const std::size_t count = static_cast<std::size_t>(elements(constant.shape));
  array.data.resize(count);
  if (constant.type == Type::f16 || constant.type == Type::bf16) {
    for (std::size_t i = 0; i < count; ++i) {
      std::uint16_t bits;
      std::memcpy(&bits, constant.data + 2 * i, 2);
      array.data[i] = constant.type == Type::f16 ? f16_to_float(bits) : bf16_to_float(bits);
    }
    return array;
  }
  with_number(constant.type, [&]<class T>(T value) {
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(&value, constant.data + i * sizeof(T), sizeof(T));  // files do not align their data
      array.data[i] = static_cast<double>(value);
    }
  });
  return array;
}

Constant encode(const Array& array) {
  const std::size_t count = array.data.size(), size = size_of(array.type);
  const auto bytes = std::make_shared<std::vector<std::byte>>(count * size);
  std::byte* const to = bytes->data();
  if (array.type == Type::f16 || array.type == Type::bf16) {
    for (std::size_t i = 0; i < count; ++i) {
      const float value = static_cast<float>(array.data[i]);
      const std::uint16_t bits = array.type == Type::f16 ? float_to_f16(value) : float_to_bf16(value);
      std::memcpy(to + 2 * i, &bits, 2);
    }
  } else {
    with_number(array.type, [&]<class T>(T value) {
      for (std::size_t i = 0; i < count; ++i) {
        if constexpr (std::is_floating_point_v<T>) {
          value = static_cast<T>(array.data[i]);
        } else {
          value = saturate<T>(array.data[i]);
        }
        std::memcpy(to + i * sizeof(T), &value, sizeof(T));
      }
    });
  }
  return {array.type, array.shape, bytes, to};
}

std::string printable(std::string_view name) {
  constexpr std::size_t kMost = 80;
  return faltung::printable(name, kMost);
}

std::string in_quotes(std::string_view name) { return "'" + printable(name) + "'"; }

}  // namespace faltung::network
