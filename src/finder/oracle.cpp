#include "src/finder/oracle.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "src/problem/dtype.hpp"
#include "src/problem/reference.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// SplitMix64: a hash of a counter, fast enough to fill gigabytes.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t operator()() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

std::vector<std::byte> make_data(DType dtype, i64 elements, Data data, int unit, Random& random) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(elements * size_of(dtype)));
  constexpr float kIntegers[] = {-2, -1, 1, 2};
  for (i64 i = 0; i < elements; ++i) {
    const std::uint64_t bits = random();
    const float value = data == Data::small_integers
                            ? kIntegers[bits & 3] * static_cast<float>(unit)
                            : static_cast<float>(static_cast<double>(static_cast<i64>(bits)) * 0x1p-63);
    store_element(dtype, bytes.data(), i, value);
  }
  return bytes;
}

// Whether small integers give a result that every order of summation computes exactly.
bool is_exact(const Problem& p) {
  const Epilogue& e = p.epilogue;
  const i64 window = e.pool.size_h * e.pool.size_w;
  const bool divides = e.pool.kind == PoolKind::average && window > 1;
  return !divides && (e.activation == Activation::none || e.activation == Activation::relu ||
                      e.activation == Activation::relu6);
}

// What a tile algorithm's error is relative to: the same sum over |x|, with each element the largest within
// (spread_h, spread_w) pixels of it and with the padding part of the image.
struct Surroundings {
  Problem problem;              // its data tensor (x, or the output's gradient) includes the padding
  std::vector<std::byte> data;  // of that tensor
};

Surroundings surroundings(const Problem& p, const Tensors& t, const Accuracy& a) {
  const bool data_is_y = p.direction == Direction::backward_data;
  Problem padded = p;
  i64 top, left;
  if (data_is_y) {
    // A larger padding of x makes y larger: enough for every tap of every element of x to lie in y.
    top = p.dilation_h * (p.r - 1), left = p.dilation_w * (p.s - 1);
    padded.pad_top += top * p.stride_h, padded.pad_bottom += top * p.stride_h;
    padded.pad_left += left * p.stride_w, padded.pad_right += left * p.stride_w;
  } else {
    top = p.pad_top, left = p.pad_left;
    padded.h += p.pad_top + p.pad_bottom, padded.w += p.pad_left + p.pad_right;
    padded.pad_top = padded.pad_bottom = padded.pad_left = padded.pad_right = 0;
  }
  const TensorShape from = data_is_y ? conv_shape(p) : x_shape(p);
  const TensorShape to = data_is_y ? conv_shape(padded) : x_shape(padded);
  const void* data = data_is_y ? t.y : t.x;
  std::vector<std::byte> out(static_cast<std::size_t>(to.elements() * size_of(p.dtype)));
  // The largest of a box is the largest of its columns' largest.
  std::vector<float> columns(static_cast<std::size_t>(to.h * from.w));
  for (i64 n = 0; n < to.n; ++n) {
    for (i64 c = 0; c < to.c; ++c) {
      for (i64 h = 0; h < to.h; ++h) {
        for (i64 w = 0; w < from.w; ++w) {
          float& largest = columns[static_cast<std::size_t>(h * from.w + w)] = 0;
          const i64 end = std::min(from.h, h - top + a.spread_h + 1);
          for (i64 i = std::max<i64>(0, h - top - a.spread_h); i < end; ++i) {
            largest = std::max(largest, std::abs(load_element(p.dtype, data, from.offset(n, c, i, w))));
          }
        }
        for (i64 w = 0; w < to.w; ++w) {
          float largest = 0;
          const i64 end = std::min(from.w, w - left + a.spread_w + 1);
          for (i64 j = std::max<i64>(0, w - left - a.spread_w); j < end; ++j) {
            largest = std::max(largest, columns[static_cast<std::size_t>(h * from.w + j)]);
          }
          store_element(p.dtype, out.data(), to.offset(n, c, h, w), largest);
        }
      }
    }
  }
  return {padded, std::move(out)};
}

// Whether actual is what the dtype stores for a value that rounds to the integer.
bool rounds_to(DType dtype, float actual, double integer) {
  return actual >= round_to(dtype, static_cast<float>(integer - 0.49)) &&
         actual <= round_to(dtype, static_cast<float>(integer + 0.49));
}

}  // namespace

Oracle::Oracle(const Problem& problem, Data data, std::uint64_t seed, int weight_unit, double max_products)
    : problem_(problem), data_(data) {
  Random random(seed);
  const DType t = problem.dtype;
  x_ = make_data(t, x_shape(problem).elements(), data, 1, random);
  w_ = make_data(t, w_shape(problem).elements(), data, weight_unit, random);
  y_ = make_data(t, conv_shape(problem).elements(), data, 1, random);
  bias_ = make_data(t, problem.k, data, weight_unit, random);
  if (problem.epilogue.residual)
    residual_ = make_data(t, conv_shape(problem).elements(), data, weight_unit, random);
  tensors_ = {x_.data(), w_.data(), y_.data(), bias_.data(), residual_.empty() ? nullptr : residual_.data()};
  switch (problem.direction) {
    case Direction::forward:
      tensors_.y = nullptr;
      y_ = {};
      break;
    case Direction::backward_data:
      tensors_.x = nullptr;
      x_ = {};
      break;
    case Direction::backward_weights:
      tensors_.w = nullptr;
      w_ = {};
      break;
  }
  choose_elements(max_products, seed);
}

Oracle::Oracle(const Problem& problem, const Tensors& tensors, std::uint64_t seed, double max_products)
    : problem_(problem), data_(Data::random), tensors_(tensors) {
  choose_elements(max_products, seed);
}

i64 Oracle::result_bytes() const { return bytes_of(problem_, result_shape(problem_)); }

void Oracle::choose_elements(double max_products, std::uint64_t seed) {
  const TensorShape s = result_shape(problem_);
  const Pool& pool = problem_.epilogue.pool;
  const double products =
      static_cast<double>(reduction_length(problem_)) * static_cast<double>(pool.size_h * pool.size_w);
  const double affordable = max_products / products;
  if (static_cast<double>(s.elements()) <= affordable) {
    for (i64 i = 0; i < s.elements(); ++i) {
      elements_.push_back({{i / (s.c * s.h * s.w), i / (s.h * s.w) % s.c, i / s.w % s.h, i % s.w}});
    }
    return;
  }
  for (int corner = 0; corner < 16; ++corner) {
    elements_.push_back({{corner & 1 ? s.n - 1 : 0, corner & 2 ? s.c - 1 : 0, corner & 4 ? s.h - 1 : 0,
                          corner & 8 ? s.w - 1 : 0}});
  }
  Random random(seed + 1);
  const auto below = [&](i64 limit) {
    return static_cast<i64>(random() % static_cast<std::uint64_t>(limit));
  };
  for (i64 i = 0; i < static_cast<i64>(std::max(64.0, affordable)); ++i) {
    elements_.push_back({{below(s.n), below(s.c), below(s.h), below(s.w)}});
  }
}

const Oracle::Answers& Oracle::answers(const Accuracy& accuracy, const Parallel& parallel) const {
  const auto key = std::pair(accuracy.spread_h, accuracy.spread_w);
  if (const auto found = answers_.find(key); found != answers_.end()) return found->second;
  Answers& answers = answers_[key];
  answers.resize(elements_.size());
  std::optional<Surroundings> around;
  Tensors around_tensors = tensors_;
  if (key != std::pair(0, 0)) {
    around = surroundings(problem_, tensors_, accuracy);
    (problem_.direction == Direction::backward_data ? around_tensors.y : around_tensors.x) =
        around->data.data();
  }
  parallel.each(
      static_cast<i64>(elements_.size()),
      [&](i64 index, int) {
        const auto& i = elements_[static_cast<std::size_t>(index)].i;
        Expected e = reference(problem_, tensors_, i[0], i[1], i[2], i[3]);
        if (around) {
          e.magnitude = reference(around->problem, around_tensors, i[0], i[1], i[2], i[3]).magnitude;
        }
        answers[static_cast<std::size_t>(index)] = e;
      },
      64);
  return answers;
}

Finding Oracle::check(const void* result, const Accuracy& accuracy, const Parallel& parallel) const {
  const bool integers = data_ == Data::small_integers && is_exact(problem_);
  const bool exact = integers && accuracy.exact_on_integers;
  const Answers& expected = answers(exact ? Accuracy{} : accuracy, parallel);
  const TensorShape shape = result_shape(problem_);
  Finding finding;
  finding.checked = static_cast<i64>(elements_.size());
  const Index* worst = nullptr;
  Expected wanted{};
  float found = 0;
  for (std::size_t e = 0; e < elements_.size(); ++e) {
    const auto& i = elements_[e].i;
    const float actual = load_element(problem_.dtype, result, shape.offset(i[0], i[1], i[2], i[3]));
    double error;
    if (exact) {
      error = round_to(problem_.dtype, static_cast<float>(expected[e].value)) == actual ? 0 : INFINITY;
    } else {
      error = error_over_bound(problem_, accuracy, expected[e], actual);
      if (integers && !rounds_to(problem_.dtype, actual, expected[e].value)) error = INFINITY;
    }
    if (error > finding.error_over_bound || (worst == nullptr && error > 0)) {
      finding.error_over_bound = error;
      worst = &elements_[e];
      wanted = expected[e];
      found = actual;
    }
  }
  if (worst != nullptr) {
    finding.worst = "element (" + std::to_string(worst->i[0]) + ", " + std::to_string(worst->i[1]) + ", " +
                    std::to_string(worst->i[2]) + ", " + std::to_string(worst->i[3]) + ") is " +
                    std::to_string(found) + ", expected " + std::to_string(wanted.value) +
                    (exact      ? " exactly"
                     : integers ? " once rounded"
                                : "");
  }
  return finding;
}

}  // namespace faltung
