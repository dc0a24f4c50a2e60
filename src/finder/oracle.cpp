#include "src/finder/oracle.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "src/finder/surroundings.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/reference.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// SplitMix64: a hash of a counter, fast enough to fill gigabytes.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  void skip(i64 numbers) { state_ += static_cast<std::uint64_t>(numbers) * kStep; }
  std::uint64_t operator()() {
    std::uint64_t z = state_ += kStep;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15u;
  std::uint64_t state_;
};

// The same with any number of threads: each element is a hash of its place.
// Nothing is written before: the threads that fill the memory are the first to touch its pages.
std::unique_ptr<std::byte[]> make_data(DType dtype, i64 elements, Data data, Random& random,
                                       const Parallel* parallel) {
  auto bytes =
      std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(elements * size_of(dtype)));
  constexpr float kIntegers[] = {-2, -1, 1, 2};
  constexpr i64 kBlock = 1 << 16;
  const auto fill = [&](i64 block, int) {
    Random own = random;
    own.skip(block * kBlock);
    for (i64 i = block * kBlock; i < std::min(elements, (block + 1) * kBlock); ++i) {
      const std::uint64_t bits = own();
      const float value = data == Data::small_integers
                              ? kIntegers[bits & 3]
                              : static_cast<float>(static_cast<double>(static_cast<i64>(bits)) * 0x1p-63);
      store_element(dtype, bytes.get(), i, value);
    }
  };
  const i64 blocks = (elements + kBlock - 1) / kBlock;
  if (parallel != nullptr) {
    parallel->each(blocks, fill);
  } else {
    for (i64 block = 0; block < blocks; ++block) fill(block, 0);
  }
  random.skip(elements);
  return bytes;
}

// Each number as its sign.
void to_signs(i64 count, std::byte* numbers) {
  for (i64 i = 0; i < count; ++i)
    store_element(DType::f32, numbers, i, std::copysign(1.0f, load_element(DType::f32, numbers, i)));
}

// Whether small integers give a result that every order of summation computes exactly.
bool is_exact(const Problem& p) {
  const Epilogue& e = p.epilogue;
  const i64 window = e.pool.size_h * e.pool.size_w;
  const bool divides = e.pool.kind == PoolKind::average && window > 1;
  return !divides && (e.activation == Activation::none || e.activation == Activation::relu ||
                      e.activation == Activation::relu6 || e.activation == Activation::clip ||
                      e.activation == Activation::prelu);
}

std::string text_of(const Position& at, int dimensions) {
  std::string text = "(" + std::to_string(at.n) + ", " + std::to_string(at.c);
  if (dimensions > 2) text += ", " + std::to_string(at.d);
  if (dimensions > 1) text += ", " + std::to_string(at.h);
  return text + ", " + std::to_string(at.w) + ")";
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

// Elements that a thread takes at a time: a gradient's may be a sum of millions.
i64 grain_of(const Problem& p) {
  constexpr i64 kProducts = 1 << 16, kMost = 64;
  return std::clamp<i64>(kProducts / std::max<i64>(1, reduction_length(p)), 1, kMost);
}

// Whether actual is what the dtype stores for a value that rounds to the integer.
bool rounds_to(DType dtype, float actual, double integer) {
  return actual >= round_to(dtype, static_cast<float>(integer - 0.49)) &&
         actual <= round_to(dtype, static_cast<float>(integer + 0.49));
}

}  // namespace

Oracle::Oracle(const Problem& problem, Data data, std::uint64_t seed, double max_products,
               const Parallel* parallel)
    : problem_(problem), data_(data) {
  Random random(seed);
  const DType t = problem.dtype;
  // What the direction writes needs no data; the others' is the same in every direction.
  const auto make = [&](Direction writes, const TensorShape& shape) {
    if (problem.direction != writes) return make_data(t, shape.extent(), data, random, parallel);
    random.skip(shape.extent());
    return std::unique_ptr<std::byte[]>();
  };
  x_ = make(Direction::backward_data, x_shape(problem));
  w_ = make(Direction::backward_weights, w_shape(problem));
  y_ = make(Direction::forward, conv_shape(problem));
  bias_ = make_data(bias_dtype(problem), problem.k, data, random, parallel);
  if (problem.epilogue.residual)
    residual_ = make_data(t, conv_shape(problem).extent(), data, random, parallel);
  if (problem.training == Training::drelu)
    relu_ = make_data(t, x_shape(problem).extent(), data, random, parallel);
  if (has_affine(problem)) {
    // Of integers no larger than those of x, so that nearly as large sums are exact.
    const auto vector = [&] { return make_data(DType::f32, problem.c, data, random, nullptr); };
    scale_ = vector(), shift_ = vector();
    if (data == Data::small_integers) to_signs(problem.c, scale_.get()), to_signs(problem.c, shift_.get());
  }
  if (has_slopes(problem)) {
    slopes_ = make_data(DType::f32, problem.k, data, random, nullptr);
    if (data == Data::small_integers) to_signs(problem.k, slopes_.get());
  }
  tensors_ = {x_.get(),    w_.get(), y_.get(),     bias_.get(),  residual_.get(),
              relu_.get(), nullptr,  scale_.get(), shift_.get(), slopes_.get()};
  read_x();
  choose_elements(max_products, seed);
}

Oracle::Oracle(const Problem& problem, const Tensors& tensors, std::uint64_t seed, double max_products,
               Data data)
    : problem_(problem), data_(data), tensors_(tensors) {
  read_x();
  choose_elements(max_products, seed);
}

void Oracle::read_x() {
  plain_ = without_affine(problem_);
  seen_ = tensors_;
  if (!has_affine(problem_)) return;
  x_as_read_ = x_as_read(problem_, tensors_);
  seen_.x = x_as_read_.get();
}

i64 Oracle::result_bytes() const { return bytes_of(problem_, result_shape(problem_)); }

void Oracle::choose_elements(double max_products, std::uint64_t seed) {
  const TensorShape s = result_shape(problem_);
  const Pool& pool = problem_.epilogue.pool;
  const double products =
      static_cast<double>(reduction_length(problem_)) * static_cast<double>(pool.size_h * pool.size_w);
  const double affordable = max_products / products;
  if (static_cast<double>(s.elements()) <= affordable) {
    for (i64 i = 0; i < s.elements(); ++i) elements_.push_back(s.position(i));
    return;
  }
  const int corners = s.d > 1 ? 32 : 16;
  for (int corner = 0; corner < corners; ++corner) {
    elements_.push_back({corner & 1 ? s.n - 1 : 0, corner & 2 ? s.c - 1 : 0, corner & 16 ? s.d - 1 : 0,
                         corner & 4 ? s.h - 1 : 0, corner & 8 ? s.w - 1 : 0});
  }
  Random random(seed + 1);
  const auto below = [&](i64 limit) {
    return static_cast<i64>(random() % static_cast<std::uint64_t>(limit));
  };
  for (i64 i = 0; i < static_cast<i64>(std::max(64.0, affordable)); ++i) {
    const i64 n = below(s.n), c = below(s.c), h = below(s.h), w = below(s.w);
    elements_.push_back({n, c, s.d > 1 ? below(s.d) : 0, h, w});
  }
}

const Oracle::Answers& Oracle::answers(const Accuracy& accuracy, const Parallel& parallel) const {
  const std::array key{accuracy.spread_d,
                       accuracy.spread_h,
                       accuracy.spread_w,
                       accuracy.groups_as_one,
                       accuracy.filter_unit_d,
                       accuracy.filter_unit_h,
                       accuracy.filter_unit_w,
                       accuracy.zeros_beside_w,
                       static_cast<int>(accuracy.zeros_meet),
                       static_cast<int>(accuracy.factors)};
  if (const auto found = answers_.find(key); found != answers_.end()) return found->second;
  Answers& answers = answers_[key];
  answers.resize(elements_.size());
  const std::optional<Surroundings> around = tile_of(plain_, seen_, accuracy, NotFinite::zero),
                                    mixed = tile_of(plain_, seen_, accuracy, NotFinite::infinite);
  const std::optional<Surroundings> beyond = met_by_zeros(plain_, seen_, accuracy);
  std::optional<MetChannels> channels;
  if (accuracy.zeros_meet == ZerosMeet::channel) channels.emplace(plain_, seen_);
  parallel.each(
      static_cast<i64>(elements_.size()),
      [&](i64 index, int) {
        const Position& at = elements_[static_cast<std::size_t>(index)];
        Expected e = reference(plain_, seen_, at);
        if (around) {
          e.magnitude = around->magnitude(seen_, at);
          // Tiles mix their pixels.
          e.may_be_nan = e.may_be_nan || (mixed && !std::isfinite(mixed->magnitude(seen_, at)));
        }
        if (accuracy.factors == Factors::tf32_parts)
          e.may_be_nan = e.may_be_nan || !std::isfinite(e.factors);  // Inf has no parts
        if (channels) e.may_be_nan = e.may_be_nan || !channels->is_finite(at);
        if (beyond) e.may_be_nan = e.may_be_nan || !std::isfinite(beyond->magnitude(seen_, at));
        answers[static_cast<std::size_t>(index)] = e;
      },
      grain_of(problem_));
  return answers;
}

namespace {

// Elements whose errors are squared and averaged: so many that chance moves the average by a few percent.
constexpr std::size_t kFewestCompared = 512, kMostCompared = 2048;

// How far one random problem's error lies from that of all, as a share of it, in standard deviations: a
// tile's errors depend on its filter, one from another by a fifth, and so many elements are a sample of the
// results.
double chance(const Problem& p, std::size_t elements) {
  constexpr double kOfOneFilter = 0.2;
  const double filters = static_cast<double>(p.direction == Direction::backward_data ? p.c : p.k);
  return std::sqrt(kOfOneFilter * kOfOneFilter / filters + 1 / static_cast<double>(elements));
}

bool is_compared_with_chain(const Problem& p) {
  const Epilogue& e = p.epilogue;
  const bool epilogue =
      e.bias || e.residual || e.activation != Activation::none || e.pool.kind != PoolKind::none;
  return p.dtype == DType::f32 && p.math == Math::f32 && !epilogue && p.training != Training::drelu;
}

}  // namespace

void Oracle::compare_with_chain(const void* result, const Accuracy& accuracy, const Parallel& parallel,
                                Finding& finding) const {
  if (data_ != Data::random || !is_compared_with_chain(problem_) || elements_.size() < kFewestCompared)
    return;
  const Answers& expected = answers(Accuracy{}, parallel);
  const std::size_t compared = std::min(kMostCompared, elements_.size());
  // Anywhere: equal steps could walk down an image's edge, where a chain is shorter.
  const auto element = [&](std::size_t i) {
    Random random(i);
    return static_cast<std::size_t>(random() % elements_.size());
  };
  if (chain_errors_.empty()) {
    chain_errors_.resize(compared);
    parallel.each(
        static_cast<i64>(compared),
        [&](i64 index, int) {
          const auto e = element(static_cast<std::size_t>(index));
          chain_errors_[static_cast<std::size_t>(index)] =
              chain_of_fp32(plain_, seen_, elements_[e]) - expected[e].value;
        },
        grain_of(problem_));
  }
  const TensorShape shape = result_shape(problem_);
  double squares = 0, of_chain = 0;
  for (std::size_t n = 0; n < compared; ++n) {
    const std::size_t e = element(n);
    const double error = load_element(problem_.dtype, result, shape.offset(elements_[e])) - expected[e].value;
    squares += error * error, of_chain += chain_errors_[n] * chain_errors_[n];
  }
  if (of_chain == 0 || !std::isfinite(squares)) return;
  finding.rms_of_chain = std::sqrt(squares / of_chain);
  finding.too_coarse = finding.rms_of_chain > accuracy.rms_of_chain * (1 + 3 * chance(problem_, compared));
  if (!finding.too_coarse || finding.error_over_bound > 1) return;
  finding.worst = "the root mean square error is " + std::to_string(finding.rms_of_chain) +
                  " times that of a chain of fp32 multiply-adds, on average at most " +
                  std::to_string(accuracy.rms_of_chain) + " was said";
}

Finding Oracle::check(const void* result, const Accuracy& accuracy, const Parallel& parallel) const {
  const bool integers = data_ == Data::small_integers && is_exact(problem_);
  const bool exact = integers && accuracy.exact_on_integers;
  const Answers& expected = answers(exact ? Accuracy{} : accuracy, parallel);
  const TensorShape shape = result_shape(problem_);
  Finding finding;
  finding.checked = static_cast<i64>(elements_.size());
  const Position* worst = nullptr;
  Expected wanted{};
  float found = 0;
  double squares = 0, of_values = 0;
  for (std::size_t e = 0; e < elements_.size(); ++e) {
    const float actual = load_element(problem_.dtype, result, shape.offset(elements_[e]));
    const double value = expected[e].value;
    squares += (actual - value) * (actual - value), of_values += value * value;
    double error;
    if (exact) {
      error = round_to(problem_.dtype, static_cast<float>(value)) == actual ? 0 : INFINITY;
    } else {
      error = error_over_bound(problem_, accuracy, expected[e], actual);
      if (integers && !rounds_to(problem_.dtype, actual, value)) error = INFINITY;
    }
    if (error > finding.error_over_bound || (worst == nullptr && error > 0)) {
      finding.error_over_bound = error;
      worst = &elements_[e];
      wanted = expected[e];
      found = actual;
    }
  }
  if (worst != nullptr) {
    finding.worst = "element " + text_of(*worst, problem_.dimensions) + " is " + number(found) +
                    ", expected " + number(wanted.value) +
                    (exact      ? " exactly"
                     : integers ? " once rounded"
                                : "");
  }
  if (of_values > 0) finding.l2_error = std::sqrt(squares / of_values);
  compare_with_chain(result, accuracy, parallel, finding);
  return finding;
}

}  // namespace faltung
