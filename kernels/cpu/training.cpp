#include "kernels/cpu/training.hpp"

#include <algorithm>
#include <array>

#include "src/problem/dtype.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr i64 kSumLanes = 16;

float element_value(DType, float v) { return v; }
float element_value(DType dtype, std::uint16_t v) {
  return dtype == DType::f16 ? f16_to_float(v) : bf16_to_float(v);
}

struct ChannelSums {
  std::array<double, kSumLanes> values{}, squares{};
};

// Terms [begin, begin + count step) of a tensor, in so many lanes side by side.
template <class Element>
void add_terms(ChannelSums& sums, DType dtype, const Element* terms, i64 count, i64 step, i64 lanes) {
  for (i64 i = 0; i < count; ++i, terms += step) {
    for (i64 lane = 0; lane < lanes; ++lane) {
      const double value = element_value(dtype, terms[lane]);
      const auto at = static_cast<std::size_t>(lane);
      sums.values[at] += value, sums.squares[at] += value * value;
    }
  }
}

void store_sums(const Problem& p, float* sums, i64 channel, double value, double square) {
  sums[channel] = static_cast<float>(value);
  if (sums_of_channel(p) > 1) sums[p.k + channel] = static_cast<float>(square);
}

template <class Element>
void channel_sums_of(const Problem& p, const Element* y, float* out, i64 first, i64 count) {
  const TensorShape shape = summed_shape(p);
  const i64 pixels = shape.d * shape.h * shape.w;
  ChannelSums sums;
  if (p.layout == Layout::nhwc) {
    add_terms(sums, p.dtype, y + first, shape.n * pixels, p.k, count);
    for (i64 i = 0; i < count; ++i)
      store_sums(p, out, first + i, sums.values[static_cast<std::size_t>(i)],
                 sums.squares[static_cast<std::size_t>(i)]);
    return;
  }
  // The lanes are neighbouring pixels.
  for (i64 n = 0; n < shape.n; ++n) {
    const Element* const plane = y + (n * p.k + first) * pixels;
    const i64 whole = pixels / kSumLanes * kSumLanes;
    add_terms(sums, p.dtype, plane, whole / kSumLanes, kSumLanes, kSumLanes);
    add_terms(sums, p.dtype, plane + whole, 1, 0, pixels - whole);
  }
  double value = 0, square = 0;
  for (std::size_t i = 0; i < kSumLanes; ++i) value += sums.values[i], square += sums.squares[i];
  store_sums(p, out, first, value, square);
}

// Not above zero, and not NaN.
bool relu_stops(DType, float v) { return v <= 0; }
bool relu_stops(DType dtype, std::uint16_t v) {
  const unsigned size = v & 0x7fffu, infinity = dtype == DType::f16 ? 0x7c00u : 0x7f80u;
  return size <= infinity && (size == 0 || size != v);
}

template <class Element>
void through_relu_of(DType dtype, Element* dx, const Element* relu, i64 count) {
  for (i64 i = 0; i < count; ++i) dx[i] = relu_stops(dtype, relu[i]) ? Element{} : dx[i];
}

}  // namespace

i64 channels_at_once(const Problem& p) { return p.layout == Layout::nhwc ? kSumLanes : 1; }

void channel_sums(const Problem& p, const void* summed, float* sums, i64 first, i64 count) {
  if (p.dtype == DType::f32) {
    channel_sums_of(p, static_cast<const float*>(summed), sums, first, count);
  } else {
    channel_sums_of(p, static_cast<const std::uint16_t*>(summed), sums, first, count);
  }
}

void through_relu(DType dtype, void* dx, const void* relu, i64 first, i64 count) {
  if (dtype == DType::f32) {
    through_relu_of(dtype, static_cast<float*>(dx) + first, static_cast<const float*>(relu) + first, count);
  } else {
    through_relu_of(dtype, static_cast<std::uint16_t*>(dx) + first,
                    static_cast<const std::uint16_t*>(relu) + first, count);
  }
}

}  // namespace faltung
