// Tensors as a network has them: an element type, a shape, and where they are constant their elements.
#ifndef FALTUNG_SRC_NETWORK_TENSOR_HPP_
#define FALTUNG_SRC_NETWORK_TENSOR_HPP_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "faltung/faltung.hpp"

namespace faltung::network {

// Numbered as ONNX's files have them.
enum class Type : std::uint8_t {
  unknown = 0,
  f32 = 1,
  u8 = 2,
  i8 = 3,
  u16 = 4,
  i16 = 5,
  i32 = 6,
  i64 = 7,
  text = 8,
  boolean = 9,
  f16 = 10,
  f64 = 11,
  u32 = 12,
  u64 = 13,
  bf16 = 16,
};

// Of the type with that number in a file; unknown for one that is not in the list above.
Type type_of_number(std::int64_t number);
const char* name(Type type);
// Of an element in memory; 0 for texts and what is unknown.
std::size_t size_of(Type type);
bool is_float(Type type);
// Of a convolution on elements of the type. Throws Error(unsupported) where there is none.
DType dtype_of(Type type, const std::string& where);

using Shape = std::vector<std::int64_t>;

std::string to_string(const Shape& shape);  // [1, 3, 224, 224]
// The product of the sizes. Throws Error(bad_problem) if one is negative, or if there are more than 2^48.
std::int64_t elements(const Shape& shape);
// Of elements between one index and the next of each dimension, the last varying fastest.
Shape contiguous_strides(const Shape& shape);
// ONNX's (NumPy's) broadcasting. Throws Error(bad_problem) if the two do not fit.
Shape broadcast(const Shape& a, const Shape& b);

// A constant's elements as they lie in the file, which lives as long as `owner`.
struct Constant {
  Type type = Type::unknown;
  Shape shape;
  std::shared_ptr<const void> owner;
  const std::byte* data = nullptr;
};

// A tensor in the arithmetic of the reference: each element a double, whatever the type. Integers are exact
// to 2^53, beyond which no shape, index or size reaches.
struct Array {
  Type type = Type::f32;
  Shape shape;
  std::vector<double> data;
};

Array decode(const Constant& constant);
// Rounds to the type, as a store does.
Constant encode(const Array& array);
// Values rounded to what the type can hold: integers towards zero and into their range, floats to nearest
// where they are narrower than f32 (f32 itself stays in doubles: that is the reference's point).
double round_to(Type type, double value);

// Names from files, for messages: printable, no longer than a line; and in quotes.
std::string printable(std::string_view name);
std::string in_quotes(std::string_view name);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_TENSOR_HPP_
