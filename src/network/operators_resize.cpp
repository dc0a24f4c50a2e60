// Resize and Upsample.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/network/resize.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

struct Axis {
  i64 in, out;
  double scale;
};

enum class Coordinates {
  half_pixel,
  half_pixel_symmetric,
  pytorch_half_pixel,
  align_corners,
  asymmetric,
  tf_half_pixel
};
enum class Rounding { prefer_floor, prefer_ceil, floor, ceil };

Coordinates coordinates(const Site& s) {
  if (s.node().op == "Upsample" || s.opset() < 11) return Coordinates::asymmetric;
  const std::string mode = s.node().text("coordinate_transformation_mode", "half_pixel");
  if (mode == "half_pixel") return Coordinates::half_pixel;
  if (mode == "half_pixel_symmetric") return Coordinates::half_pixel_symmetric;
  if (mode == "pytorch_half_pixel") return Coordinates::pytorch_half_pixel;
  if (mode == "align_corners") return Coordinates::align_corners;
  if (mode == "asymmetric") return Coordinates::asymmetric;
  if (mode == "tf_half_pixel_for_nn") return Coordinates::tf_half_pixel;
  s.decline("its coordinate_transformation_mode " + in_quotes(mode) + " is not known");
}

Rounding rounding(const Site& s, double scale) {
  // Before opset 11 no mode says it: ONNX Runtime goes up where the image becomes smaller.
  if (s.node().op == "Upsample" || s.opset() < 11) return scale < 1 ? Rounding::ceil : Rounding::floor;
  const std::string mode = s.node().text("nearest_mode", "round_prefer_floor");
  if (mode == "round_prefer_floor") return Rounding::prefer_floor;
  if (mode == "round_prefer_ceil") return Rounding::prefer_ceil;
  if (mode == "floor") return Rounding::floor;
  if (mode == "ceil") return Rounding::ceil;
  s.decline("its nearest_mode " + in_quotes(mode) + " is not known");
}

// Where in the input the result's element lies. Real: of which numbers it is computed.
template <class Real>
Real position(Coordinates mode, const Axis& a, i64 index) {
  const auto x = static_cast<Real>(index), half = static_cast<Real>(0.5), scale = static_cast<Real>(a.scale);
  const auto in = static_cast<Real>(a.in), out = static_cast<Real>(a.out);
  switch (mode) {
    case Coordinates::half_pixel:
      return (x + half) / scale - half;
    case Coordinates::half_pixel_symmetric:
      return in / 2 * (1 - out / (scale * in)) + (x + half) / scale - half;
    case Coordinates::pytorch_half_pixel:
      return a.out > 1 ? (x + half) / scale - half : 0;
    case Coordinates::align_corners:
      return a.out > 1 ? x * (in - 1) / (out - 1) : 0;
    case Coordinates::asymmetric:
      return x / scale;
    case Coordinates::tf_half_pixel:
      return (x + half) / scale;
  }
  return 0;
}

double round_by(Rounding mode, double x) {
  switch (mode) {
    case Rounding::prefer_floor:
      return std::ceil(x - 0.5);
    case Rounding::prefer_ceil:
      return std::floor(x + 0.5);
    case Rounding::floor:
      return std::floor(x);
    case Rounding::ceil:
      return std::ceil(x);
  }
  return 0;
}

// Keys's cubic, by the distance of each of the four elements around.
void cubic_weights(double fraction, double a, double weight[4]) {
  const auto near = [a](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
  const auto far = [a](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  weight[0] = far(1 + fraction), weight[1] = near(fraction);
  weight[2] = near(1 - fraction), weight[3] = far(2 - fraction);
}

// Positions are floats here, as in those who train and run such networks: 12 / 1.2f is 10 in them, and a bit
// less in doubles, whose floor is the pixel before.
Taps nearest(const Axis& a, Coordinates mode, Rounding round) {
  Taps taps{a.in, a.out, 1, {}, std::vector<double>(static_cast<std::size_t>(a.out), 1.0)};
  for (i64 i = 0; i < a.out; ++i) {
    const double at = round_by(round, static_cast<double>(position<float>(mode, a, i)));
    taps.index.push_back(static_cast<i64>(std::clamp(at, 0.0, static_cast<double>(a.in - 1))));
  }
  return taps;
}

Taps linear(const Axis& a, Coordinates mode) {
  Taps taps{a.in, a.out, 2, {}, {}};
  for (i64 i = 0; i < a.out; ++i) {
    const double at = std::clamp(position<double>(mode, a, i), 0.0, static_cast<double>(a.in - 1));
    const i64 low = static_cast<i64>(at);
    taps.index.insert(taps.index.end(), {low, std::min(low + 1, a.in - 1)});
    taps.weight.insert(taps.weight.end(),
                       {1 - (at - static_cast<double>(low)), at - static_cast<double>(low)});
  }
  return taps;
}

Taps cubic(const Axis& a, Coordinates mode, double coefficient, bool exclude_outside) {
  Taps taps{a.in, a.out, 4, {}, {}};
  for (i64 i = 0; i < a.out; ++i) {
    const double at = position<double>(mode, a, i), low = std::floor(at);
    double weight[4], total = 0;
    cubic_weights(at - low, coefficient, weight);
    for (int t = 0; t < 4; ++t) {
      const double index = low - 1 + t;
      if (exclude_outside && (index < 0 || index > static_cast<double>(a.in - 1))) weight[t] = 0;
      total += weight[t];
      taps.index.push_back(static_cast<i64>(std::clamp(index, 0.0, static_cast<double>(a.in - 1))));
    }
    for (const double w : weight) taps.weight.push_back(exclude_outside ? w / total : w);
  }
  return taps;
}

// Where the scales and the sizes are given: it changed from version to version.
std::vector<Axis> read_axes(const Site& s) {
  const Shape& shape = s.in(0).shape;
  std::vector<Axis> all;
  for (const i64 size : shape) all.push_back({size, size, 1});
  std::vector<std::size_t> axes(shape.size());
  std::iota(axes.begin(), axes.end(), std::size_t{0});
  if (const auto given = s.node().integers("axes")) axes = s.axes(*given, s.in(0).rank());
  const bool old = s.node().op == "Upsample" || s.opset() < 11;
  if (s.node().text("keep_aspect_ratio_policy", "stretch") != "stretch")
    s.decline("only the stretching keep_aspect_ratio_policy is known");
  if (!old && s.has(3) && elements(s.in(3).shape) > 0) {
    const std::vector<i64> sizes = s.integers(3);
    s.require(sizes.size() == axes.size(), "it has not one size an axis");
    for (std::size_t i = 0; i < axes.size(); ++i) {
      Axis& a = all[axes[i]];
      s.require(sizes[i] >= 0 && sizes[i] < (i64{1} << 32) && (a.in > 0 || sizes[i] == 0),
                "a size is negative or too large");
      a.out = sizes[i];
      a.scale = static_cast<double>(a.out) / static_cast<double>(a.in);
    }
    return all;
  }
  std::vector<double> scales;
  if (const auto found = s.node().attributes.find("scales"); found != s.node().attributes.end()) {
    if (const auto* given = std::get_if<std::vector<float>>(&found->second))
      scales.assign(given->begin(), given->end());
  } else {
    scales = s.numbers(old ? 1 : 2);
  }
  s.require(scales.size() == axes.size(), "it has not one scale an axis");
  for (std::size_t i = 0; i < axes.size(); ++i) {
    Axis& a = all[axes[i]];
    s.require(scales[i] > 0 && scales[i] < 0x1p20, "a scale is not positive or too large");
    // In floats, as those who wrote the scale have computed the size.
    a.out = static_cast<i64>(std::floor(static_cast<float>(a.in) * static_cast<float>(scales[i])));
    a.scale = scales[i];
  }
  return all;
}

std::vector<Result> resize(const Site& s) {
  Shape shape;
  for (const Axis& a : read_axes(s)) shape.push_back(a.out);
  return {{s.in(0).type, std::move(shape)}};
}

void evaluate(const Site& s, std::vector<Array>& out) {
  Shape shape = s.in(0).shape;
  const double* const x = s.in(0).data;
  std::vector<double> data(x, x + elements(shape));
  const std::vector<Taps> all = resize_taps(s);
  for (std::size_t d = 0; d < all.size(); ++d) {  // one axis after the other
    const Taps& a = all[d];
    if (a.identity()) continue;
    const i64 inner = contiguous_strides(shape)[d];
    const i64 outer = elements(Shape(shape.begin(), shape.begin() + static_cast<i64>(d)));
    shape[d] = a.out;
    std::vector<double> next(static_cast<std::size_t>(elements(shape)));
    auto to = next.begin();
    for (i64 o = 0; o < outer; ++o) {
      for (i64 i = 0; i < a.out; ++i, to += inner) {
        for (i64 t = i * a.taps; t < (i + 1) * a.taps; ++t) {
          const double* const from = data.data() + (o * a.in + a.index[static_cast<std::size_t>(t)]) * inner;
          for (i64 j = 0; j < inner; ++j) to[j] += a.weight[static_cast<std::size_t>(t)] * from[j];
        }
      }
    }
    data = std::move(next);
  }
  for (std::size_t i = 0; i < data.size(); ++i) out[0].data[i] = round_to(out[0].type, data[i]);
}

constexpr Operator kResizeOperators[] = {
    {"Resize", 1, 4, resize, evaluate},
    {"Upsample", 1, 2, resize, evaluate},
};

}  // namespace

bool Taps::identity() const {
  if (in != out) return false;
  for (i64 i = 0; i < out * taps; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (weight[at] != 0 && (index[at] != i / taps || weight[at] != 1)) return false;
  }
  return true;
}

std::vector<Taps> resize_taps(const Site& s) {
  const std::string mode = s.node().text("mode", "nearest");
  if (s.node().integer("antialias", 0) != 0) s.decline("antialiasing is not known");
  const Coordinates where = coordinates(s);
  std::vector<Taps> all;
  for (const Axis& a : read_axes(s)) {
    if (a.in == 0 || a.out == 0) {
      s.require(a.in == a.out, "an empty axis cannot be resized");
      all.push_back({a.in, a.out, 1, {}, {}});
    } else if (a.in == a.out && a.scale == 1) {  // all modes agree, but for half a pixel that one leaves out
      all.push_back(nearest(a, Coordinates::asymmetric, Rounding::floor));
    } else if (mode == "nearest") {
      all.push_back(nearest(a, where, rounding(s, a.scale)));
    } else if (mode == "linear" || mode == "bilinear") {
      all.push_back(linear(a, where));
    } else if (mode == "cubic") {
      all.push_back(cubic(a, where, s.node().number("cubic_coeff_a", -0.75f),
                          s.node().integer("exclude_outside", 0) != 0));
    } else {
      s.decline("its mode " + in_quotes(mode) + " is not known");
    }
  }
  return all;
}

std::span<const Operator> resize_operators() { return kResizeOperators; }

}  // namespace faltung::network
