#include "src/finder/oracle.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "src/problem/dtype.hpp"
#include "src/problem/reference.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

std::vector<std::byte> make_data(DType dtype, i64 elements, Data data, int unit, std::mt19937_64& random) {
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

// Each element the largest magnitude within (spread_h, spread_w) pixels: in f32, in the layout of the
// original.
std::vector<std::byte> dilate(const Problem& p, const void* data, const TensorShape& s, const Accuracy& a) {
  std::vector<std::byte> out(static_cast<std::size_t>(s.elements() * size_of(p.dtype)));
  for (i64 n = 0; n < s.n; ++n) {
    for (i64 c = 0; c < s.c; ++c) {
      for (i64 h = 0; h < s.h; ++h) {
        for (i64 w = 0; w < s.w; ++w) {
          float largest = 0;
          for (i64 i = std::max<i64>(0, h - a.spread_h); i <= std::min(s.h - 1, h + a.spread_h); ++i) {
            for (i64 j = std::max<i64>(0, w - a.spread_w); j <= std::min(s.w - 1, w + a.spread_w); ++j) {
              largest = std::max(largest, std::abs(load_element(p.dtype, data, s.offset(n, c, i, j))));
            }
          }
          store_element(p.dtype, out.data(), s.offset(n, c, h, w), largest);
        }
      }
    }
  }
  return out;
}

}  // namespace

Oracle::Oracle(const Problem& problem, Data data, std::uint64_t seed, int weight_unit, double max_products)
    : problem_(problem), data_(data) {
  std::mt19937_64 random(seed);
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
  std::mt19937_64 random(seed + 1);
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
  // With a spread, the magnitude is that of the same sum over the dilated |x|; w's signs do not matter to it.
  std::vector<std::byte> dilated;
  Tensors around = tensors_;
  if (key != std::pair(0, 0)) {
    const bool data_is_y = problem_.direction == Direction::backward_data;
    dilated = dilate(problem_, data_is_y ? tensors_.y : tensors_.x,
                     data_is_y ? conv_shape(problem_) : x_shape(problem_), accuracy);
    (data_is_y ? around.y : around.x) = dilated.data();
  }
  parallel.each(
      static_cast<i64>(elements_.size()),
      [&](i64 index, int) {
        const auto& i = elements_[static_cast<std::size_t>(index)].i;
        Expected e = reference(problem_, tensors_, i[0], i[1], i[2], i[3]);
        if (!dilated.empty()) e.magnitude = reference(problem_, around, i[0], i[1], i[2], i[3]).magnitude;
        answers[static_cast<std::size_t>(index)] = e;
      },
      64);
  return answers;
}

Finding Oracle::check(const void* result, const Accuracy& accuracy, const Parallel& parallel) const {
  const bool exact = data_ == Data::small_integers && is_exact(problem_);
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
                    (exact ? " exactly" : "");
  }
  return finding;
}

}  // namespace faltung
