// Reductions, softmax and the position of the largest element.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "src/network/reduction.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_global(const Site& s) { return s.node().op.starts_with("Global"); }
bool keeps_dimensions(const Site& s) { return is_global(s) || s.node().integer("keepdims", 1) != 0; }

Shape reduced_shape(const Site& s, const std::vector<std::size_t>& axes, bool keep) {
  Shape shape;
  for (std::size_t d = 0; d < s.in(0).shape.size(); ++d) {
    const bool gone = std::find(axes.begin(), axes.end(), d) != axes.end();
    if (!gone) shape.push_back(s.in(0).shape[d]);
    if (gone && keep) shape.push_back(1);
  }
  return shape;
}

std::vector<Result> reduce(const Site& s) {
  return {{s.in(0).type, reduced_shape(s, reduced_axes(s), keeps_dimensions(s))}};
}

// Adds an element to what is there; then finishes with how many there were.
using Add = double (*)(double sum, double x);
using Finish = double (*)(double sum, double count);
double as_it_is(double sum, double) { return sum; }

template <Add kAdd, Finish kFinish>
void evaluate(const Site& s, std::vector<Array>& out, double start) {
  const std::vector<std::size_t> axes = reduced_axes(s);
  // Strides of the result in the input's dimensions: none along those that are run over.
  const Shape kept = reduced_shape(s, axes, true);
  Odometer at(s.in(0).shape, {broadcast_strides(kept, s.in(0).shape)});
  std::ranges::fill(out[0].data, start);
  const i64 count = elements(s.in(0).shape);
  for (i64 i = 0; i < count; ++i, at.next()) {
    double& sum = out[0].data[static_cast<std::size_t>(at.offset())];
    sum = kAdd(sum, s.in(0).data[i]);
  }
  const double each =
      out[0].data.empty() ? 0 : static_cast<double>(count) / static_cast<double>(out[0].data.size());
  for (double& sum : out[0].data) sum = round_to(out[0].type, kFinish(sum, each));
}

double add(double sum, double x) { return sum + x; }
double add_size(double sum, double x) { return sum + std::abs(x); }
double add_square(double sum, double x) { return sum + x * x; }
double multiply(double product, double x) { return product * x; }

template <Add kAdd, Finish kFinish = as_it_is>
void from_zero(const Site& s, std::vector<Array>& out) {
  evaluate<kAdd, kFinish>(s, out, 0);
}
template <Add kAdd, int kSign>
void from_infinity(const Site& s, std::vector<Array>& out) {
  const double start = kSign * kInfinity;  // of booleans true is the largest
  evaluate<kAdd, as_it_is>(s, out, out[0].type == Type::boolean ? start > 0 : start);
}
void product(const Site& s, std::vector<Array>& out) { evaluate<multiply, as_it_is>(s, out, 1); }
double divide(double sum, double count) { return sum / count; }
double root(double sum, double) { return std::sqrt(sum); }
double logarithm(double sum, double) { return std::log(sum); }

// The largest is taken out first: e^x of it would overflow. Of infinite ones the largest number is.
void log_sum_exp(const Site& s, std::vector<Array>& out) {
  constexpr double kMost = std::numeric_limits<double>::max();
  std::vector<Array> most = out;
  from_infinity<larger, -1>(s, most);
  for (double& m : most[0].data) m = m > kMost ? kMost : m < -kMost ? -kMost : m;
  const Shape kept = reduced_shape(s, reduced_axes(s), true);
  Odometer at(s.in(0).shape, {broadcast_strides(kept, s.in(0).shape)});
  std::ranges::fill(out[0].data, 0.0);
  for (i64 i = 0; i < elements(s.in(0).shape); ++i, at.next()) {
    const auto j = static_cast<std::size_t>(at.offset());
    out[0].data[j] += std::exp(s.in(0).data[i] - most[0].data[j]);
  }
  for (std::size_t j = 0; j < out[0].data.size(); ++j)
    out[0].data[j] = most[0].data[j] + std::log(out[0].data[j]);
}

// ---- softmax

template <bool kLog>
void evaluate_softmax(const Site& s, std::vector<Array>& out) {
  const Extent e = softmax_extent(s);
  for (i64 o = 0; o < e.outer; ++o) {
    for (i64 i = 0; i < e.inner; ++i) {
      const i64 begin = o * e.length * e.inner + i;
      double most = -kInfinity, sum = 0;
      for (i64 j = 0; j < e.length; ++j) most = larger(most, s.in(0).data[begin + j * e.inner]);
      for (i64 j = 0; j < e.length; ++j) sum += std::exp(s.in(0).data[begin + j * e.inner] - most);
      for (i64 j = 0; j < e.length; ++j) {
        const double x = s.in(0).data[begin + j * e.inner] - most;
        out[0].data[static_cast<std::size_t>(begin + j * e.inner)] =
            kLog ? x - std::log(sum) : std::exp(x) / sum;
      }
    }
  }
}

// ---- which is the largest

std::size_t arg_axis(const Site& s) { return s.axis(s.node().integer("axis", 0), s.in(0).rank()); }
std::vector<Result> arg(const Site& s) {
  return {{Type::i64, reduced_shape(s, {arg_axis(s)}, keeps_dimensions(s))}};
}

template <int kSign>
void evaluate_arg(const Site& s, std::vector<Array>& out) {
  const Extent e = extent(s.in(0).shape, arg_axis(s), arg_axis(s) + 1);
  const bool last = s.node().integer("select_last_index", 0) != 0;
  for (i64 o = 0; o < e.outer; ++o) {
    for (i64 i = 0; i < e.inner; ++i) {
      const double* const x = s.in(0).data + o * e.length * e.inner + i;
      i64 best = 0;
      for (i64 j = 1; j < e.length; ++j) {
        const double a = kSign * x[j * e.inner], b = kSign * x[best * e.inner];
        if (a > b || (last && a == b)) best = j;
      }
      out[0].data[static_cast<std::size_t>(o * e.inner + i)] = static_cast<double>(best);
    }
  }
}

constexpr Operator kReduceOperators[] = {
    {"ReduceSum", 1, 2, reduce, from_zero<add>},
    {"ReduceMean", 1, 2, reduce, from_zero<add, divide>},
    {"ReduceMax", 1, 2, reduce, from_infinity<larger, -1>},
    {"ReduceMin", 1, 2, reduce, from_infinity<smaller, 1>},
    {"ReduceProd", 1, 2, reduce, product},
    {"ReduceL1", 1, 2, reduce, from_zero<add_size>},
    {"ReduceL2", 1, 2, reduce, from_zero<add_square, root>},
    {"ReduceSumSquare", 1, 2, reduce, from_zero<add_square>},
    {"ReduceLogSum", 1, 2, reduce, from_zero<add, logarithm>},
    {"ReduceLogSumExp", 1, 2, reduce, log_sum_exp},
    {"GlobalAveragePool", 1, 1, reduce, from_zero<add, divide>},
    {"GlobalMaxPool", 1, 1, reduce, from_infinity<larger, -1>},
    {"Softmax", 1, 1, like_input, evaluate_softmax<false>},
    {"LogSoftmax", 1, 1, like_input, evaluate_softmax<true>},
    {"ArgMax", 1, 1, arg, evaluate_arg<1>},
    {"ArgMin", 1, 1, arg, evaluate_arg<-1>},
};

}  // namespace

Extent extent(const Shape& shape, std::size_t begin, std::size_t end) {
  const auto part = [&](std::size_t from, std::size_t to) {
    return elements(Shape(shape.begin() + static_cast<i64>(from), shape.begin() + static_cast<i64>(to)));
  };
  return {part(0, begin), part(begin, end), part(end, shape.size())};
}

std::vector<std::size_t> reduced_axes(const Site& s) {
  const std::size_t rank = s.in(0).shape.size();
  std::vector<std::size_t> axes;
  if (is_global(s)) {
    s.require(rank >= 3, "it needs an image");
    for (std::size_t d = 2; d < rank; ++d) axes.push_back(d);
    return axes;
  }
  const auto given = s.integers("axes", 1);
  if (given && !given->empty()) {
    axes = s.axes(*given, s.in(0).rank());
    std::ranges::sort(axes);
  } else if (s.node().integer("noop_with_empty_axes", 0) == 0) {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), std::size_t{0});
  }
  return axes;
}

Extent softmax_extent(const Site& s) {
  const std::size_t rank = s.in(0).shape.size();
  if (rank == 0) return {};
  const std::size_t axis = s.axis(s.node().integer("axis", s.opset() < 13 ? 1 : -1), s.in(0).rank());
  return extent(s.in(0).shape, axis, s.opset() < 13 ? rank : axis + 1);
}

std::span<const Operator> reduce_operators() { return kReduceOperators; }

}  // namespace faltung::network
