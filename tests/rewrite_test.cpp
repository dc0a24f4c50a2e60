// The reference of a rewritten problem is the reference of the problem, to the bit on small integers, and NaN
// and Inf are where the problem's are.
#include "src/problem/rewrite.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "src/problem/parse.hpp"
#include "src/problem/reference.hpp"
#include "tests/not_finite.hpp"
#include "tests/registry_problems.hpp"
#include "tests/sampling.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;
using testing::HasSubstr;
using Values = std::vector<float>;

template <class Visit>
void each(const Index& size, const Visit& visit) {
  for (i64 n = 0; n < size[0]; ++n) {
    for (i64 c = 0; c < size[1]; ++c) {
      for (i64 h = 0; h < size[2]; ++h) {
        for (i64 w = 0; w < size[3]; ++w) visit(Index{n, c, h, w});
      }
    }
  }
}

i64 offset(const TensorShape& shape, const Index& i) { return shape.offset(i[0], i[1], i[2], i[3]); }
Index size_of(const TensorShape& shape) { return {shape.n, shape.c, shape.h, shape.w}; }

Values random_integers(i64 count, std::mt19937_64& random) {
  Values values(static_cast<std::size_t>(count));
  for (float& v : values) v = static_cast<float>(random() % 9) - 4;
  return values;
}

// A problem's tensors, in f32.
struct OwnTensors {
  Values x, w, y, bias, residual;
  Values& of(Operand operand) { return operand == Operand::x ? x : operand == Operand::w ? w : y; }
  Tensors tensors() { return {x.data(), w.data(), y.data(), bias.data(), residual.data()}; }
};

OwnTensors random_data(const Problem& p, std::mt19937_64& random) {
  return {random_integers(x_shape(p).elements(), random), random_integers(w_shape(p).elements(), random),
          random_integers(y_shape(p).elements(), random), random_integers(p.k, random),
          random_integers(conv_shape(p).elements(), random)};
}

Values gather(const IndexMap& map, const Values& outer, const TensorShape& from, const TensorShape& to) {
  EXPECT_EQ(map.size, size_of(to));
  Values inner(static_cast<std::size_t>(to.elements()));
  each(map.size, [&](const Index& i) {
    const std::optional<Index> there = map(i);
    inner[static_cast<std::size_t>(offset(to, i))] =
        there ? outer[static_cast<std::size_t>(offset(from, *there))] : 0;
  });
  return inner;
}

// The inner problem's tensors by the map. The residual is of the convolution's output, as y without its pool.
OwnTensors inner_data(const Problem& p, const Rewrite& r, const IndexMap& residual, OwnTensors& outer) {
  OwnTensors inner;
  for (const Operand operand : {Operand::x, Operand::w, Operand::y}) {
    const IndexMap& map = r.map(operand);
    inner.of(operand) =
        gather(map, outer.of(map.of), operand_shape(p, map.of), operand_shape(r.inner, operand));
  }
  inner.bias = outer.bias;
  if (p.direction == Direction::forward)
    inner.residual = gather(residual, outer.residual, conv_shape(p), conv_shape(r.inner));
  return inner;
}

Expected element(const Problem& p, OwnTensors& data, const Index& i) {
  return reference(p, data.tensors(), i[0], i[1], i[2], i[3]);
}

// Zeros between a filter's weights meet inputs, and 0 * Inf is NaN (Accuracy::adds_zeros): such a rewrite
// keeps what is not finite in its place in the filter alone.
enum class Zeros { none, in_the_filter };

// Together, the rewrites' results are the problem's.
void expect_same(const Problem& p, const std::vector<Rewrite>& rewrites, const IndexMap& residual,
                 std::uint64_t seed, Inputs inputs, Zeros zeros) {
  std::mt19937_64 random(seed);
  OwnTensors outer = random_data(p, random);
  if (inputs == Inputs::not_finite) {
    strew_not_finite(outer.w, random);
    if (zeros == Zeros::none) {
      for (Values* values : {&outer.x, &outer.y, &outer.bias, &outer.residual})
        strew_not_finite(*values, random);
    }
  }
  const TensorShape result = result_shape(p);
  std::vector<Expected> values(static_cast<std::size_t>(result.elements()), Expected{0, 0});
  std::vector<int> times(values.size(), 0);
  for (const Rewrite& r : rewrites) {
    ASSERT_NO_THROW(validate(r.inner)) << to_string(r.inner);
    ASSERT_EQ(r.result().of, result_operand(p.direction));
    OwnTensors inner = inner_data(p, r, residual, outer);
    each(size_of(result_shape(r.inner)), [&](const Index& i) {
      const std::optional<Index> there = r.result()(i);
      if (!there) return;
      const auto at = static_cast<std::size_t>(offset(result, *there));
      values[at] = element(r.inner, inner, i);
      ++times[at];
    });
  }
  i64 wrong = 0, twice = 0;
  each(size_of(result), [&](const Index& i) {
    const auto at = static_cast<std::size_t>(offset(result, i));
    wrong += !is_what_may_be(values[at], element(p, outer, i));
    twice += times[at] > 1;
  });
  EXPECT_EQ(wrong, 0) << "of " << result.elements() << " elements; inputs " << name(inputs)
                      << "; inner: " << to_string(rewrites.front().inner);
  EXPECT_EQ(twice, 0) << "elements are given twice";
}

void expect_same(const Problem& p, const std::vector<Rewrite>& rewrites, const IndexMap& residual,
                 std::uint64_t seed, Zeros zeros = Zeros::none) {
  for (const Inputs inputs : {Inputs::integers, Inputs::not_finite})
    expect_same(p, rewrites, residual, seed, inputs, zeros);
}

Problem without_pool(Problem p) {
  p.epilogue.pool = Pool{};
  return p;
}

// By every rule that applies; counts them. The others say why.
void check_rules(const Problem& p, std::uint64_t seed, std::map<std::string, int>& applied) {
  for (const RewriteRule* rule : rewrites::kAll) {
    SCOPED_TRACE(std::string(rule->name) + " of " + to_string(p) + ", seed " + std::to_string(seed));
    const std::string why = rule->why_not(p);
    EXPECT_EQ(rule->applies(p), why.empty());
    if (!why.empty()) {
      EXPECT_THROW((*rule)(p), Error);
      continue;
    }
    ++applied[rule->name];
    const IndexMap residual = (*rule)(without_pool(p)).y;
    const Zeros zeros = rule == &rewrites::space_to_depth ? Zeros::in_the_filter : Zeros::none;
    expect_same(p, {(*rule)(p)}, residual, seed, zeros);
    if (p.groups == 1) expect_same(p, {pad_channels((*rule)(p), 4)}, residual, seed, zeros);
    for (const i64 together : {i64{2}, p.groups}) {
      if (together == 1 || p.groups % together != 0) continue;
      expect_same(p, {merge_groups((*rule)(p), together)}, residual, seed, Zeros::in_the_filter);
      ++applied["merged"];
    }
  }
  if (p.direction == Direction::backward_data) {
    SCOPED_TRACE("data_phases of " + to_string(p) + ", seed " + std::to_string(seed));
    const std::vector<Rewrite> phases = data_phases(p);
    expect_same(p, phases, {}, seed);
    ++applied["data_phases"];
    std::vector<Rewrite> merged = phases;
    for (Rewrite& phase : merged) phase = merge_groups(phase, p.groups);
    if (p.groups > 1) expect_same(p, merged, {}, seed, Zeros::in_the_filter);
    for (const Rewrite& phase : phases) applied["zero phases"] += phase.x.is_zero();
    for (const Rewrite& phase : phases) applied["cropped"] += phase.first_row() > 0;
  }
}

Problem roll(std::mt19937_64& random) {
  const auto between = [&](i64 first, i64 last) {
    return first + static_cast<i64>(random() % static_cast<std::uint64_t>(last - first + 1));
  };
  for (;;) {
    Problem p;
    p.direction = static_cast<Direction>(between(0, 2));
    p.layout = static_cast<Layout>(between(0, 1));
    p.groups = between(0, 3) == 0 ? between(2, 4) : 1;
    p.n = between(1, 3), p.c = p.groups * between(1, 5), p.k = p.groups * between(1, 4);
    p.h = between(1, 11), p.w = between(1, 11);
    p.r = between(0, 2) == 0 ? 1 : between(1, 5), p.s = between(0, 2) == 0 ? p.r : between(1, 5);
    p.stride_h = between(1, 4), p.stride_w = between(0, 1) ? p.stride_h : between(1, 4);
    if (between(0, 2) == 0) p.stride_h = p.stride_w = 1;
    p.dilation_h = between(0, 1) ? 1 : between(1, 4), p.dilation_w = between(0, 1) ? 1 : between(1, 4);
    if (between(0, 2) != 0) {
      p.pad_top = between(0, 6), p.pad_bottom = between(0, 6);
      p.pad_left = between(0, 6), p.pad_right = between(0, 6);
    }
    if (p.direction == Direction::forward) {
      p.epilogue.bias = between(0, 1), p.epilogue.residual = between(0, 1);
      p.epilogue.activation = between(0, 1) ? Activation::relu : Activation::none;
      if (between(0, 2) == 0) p.epilogue.pool = {PoolKind::max, 2, 2, 2, 2, 0, 0, 0, 0};
    }
    try {
      validate(p);
      return p;
    } catch (const Error&) {
    }
  }
}

TEST(Rewrite, OfTheTestsShapesGivesTheirResults) {
  std::map<std::string, int> applied;
  for (const Problem& p : shape_problems()) {
    if (p.dtype == DType::f32 && flops(p) < 2e6) check_rules(p, 1, applied);
  }
  for (const RewriteRule* rule : rewrites::kAll) EXPECT_GT(applied[rule->name], 10) << rule->name;
  EXPECT_GT(applied["data_phases"], 10);
}

TEST(Rewrite, OfRandomProblemsGivesTheirResults) {
  std::map<std::string, int> applied;
  const std::uint64_t seed = sampling::seed();
  const int count = sampling::count(1500);
  for (int i = 0; i < count && !HasFailure(); ++i) {
    std::mt19937_64 random(seed * 1000003 + static_cast<std::uint64_t>(i));
    check_rules(roll(random), seed + static_cast<std::uint64_t>(i), applied);
  }
  if (count < 1000) return;
  for (const RewriteRule* rule : rewrites::kAll) EXPECT_GT(applied[rule->name], 10) << rule->name;
  EXPECT_GT(applied["merged"], 100);
  EXPECT_GT(applied["zero phases"], 100);
  EXPECT_GT(applied["cropped"], 100);
}

TEST(Rewrite, ThatDoesNotApplySaysWhy) {
  const std::pair<const RewriteRule*, std::pair<const char*, const char*>> declined[] = {
      {&rewrites::fold_rows, {"fwd:n1c3h8w8k4r3s1", "one column wide"}},
      {&rewrites::fold_rows, {"bwd_d:n1c3h8w8k4r3s3", "the sum of several"}},
      {&rewrites::space_to_depth, {"fwd:n1c3h8w8k4r3s3", "strides are 1"}},
      {&rewrites::space_to_depth, {"fwd:n1c3h9w9k4r3s3:st2:dil2", "dilated"}},
      {&rewrites::space_to_depth, {"fwd:n1c3h9w9k4r3s3:st4", "smaller than its strides"}},
      {&rewrites::thin, {"fwd:n1c3h8w8k4r3s3:st2", "larger than 1x1"}},
      {&rewrites::thin, {"fwd:n1c3h8w8k4r1s1", "every pixel"}},
      {&rewrites::flatten, {"fwd:n1c3h8w8k4r3s3", "larger than 1x1"}},
      {&rewrites::flatten, {"fwd:n1c3h8w8k4r1s1:st2", "not the input's pixels"}},
      {&rewrites::flatten, {"fwd:n1c3h8w8k4r1s1:maxpool2", "pool"}},
      {&rewrites::data_as_forward, {"fwd:n1c3h8w8k4r3s3", "not bwd_d"}},
      {&rewrites::data_as_forward, {"bwd_d:n1c3h8w8k4r3s3:st2", "data_phases"}},
  };
  for (const auto& [rule, with] : declined) {
    const Problem p = parse_problem(with.first);
    EXPECT_THAT(rule->why_not(p), HasSubstr(with.second)) << rule->name << " of " << with.first;
    try {
      (*rule)(p);
      ADD_FAILURE() << rule->name << " was applied to " << with.first;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::bad_problem);
      EXPECT_THAT(error.what(), HasSubstr(with.second));
    }
  }
  EXPECT_THROW(data_phases(parse_problem("fwd:n1c3h8w8k4r3s3")), Error);
  EXPECT_THROW(pad_channels(unchanged(parse_problem("fwd:n1c4h8w8k4r3s3:g2")), 8), Error);
  EXPECT_THROW(merge_groups(unchanged(parse_problem("fwd:n1c12h8w8k6r3s3:g6")), 4), Error);
  EXPECT_THROW(merge_groups(unchanged(parse_problem("fwd:n1c12h8w8k6r3s3:g6")), 0), Error);
}

// What no tensor could hold is declined, not wrapped around.
TEST(Rewrite, OfHugeProblemsDeclines) {
  Problem p = parse_problem("fwd:n1c1h1w1k1r1s1");
  p.n = i64{1} << 39, p.h = 4, p.layout = Layout::nhwc;
  validate(p);
  EXPECT_THAT(rewrites::flatten.why_not(p), HasSubstr("at most 2^40"));
}

// Sizes worked out by hand.
TEST(Rewrite, HasTheExpectedInnerProblems) {
  const auto inner = [](const RewriteRule& rule, const char* outer) {
    return to_string(rule(parse_problem(outer)).inner);
  };
  const auto text = [](const char* problem) { return to_string(parse_problem(problem)); };
  EXPECT_EQ(inner(rewrites::fold_rows, "fwd:n2c3h32w30k16r7s7:st2:pad3"),
            text("fwd:n2c21h32w15k16r7s1:st2x1:pad3x0"));
  EXPECT_EQ(inner(rewrites::space_to_depth, "fwd:n2c3h32w30k16r7s7:st2:pad3"),
            text("fwd:n2c12h19w18k16r4s4"));
  EXPECT_EQ(inner(rewrites::thin, "fwd:n2c17h9w8k33r1s1:st2"), text("fwd:n2c17h5w4k33r1s1"));
  EXPECT_EQ(inner(rewrites::flatten, "fwd:n2c5h4w6k7r1s1:nhwc"), text("fwd:n1c5h1w48k7r1s1:nhwc"));
  EXPECT_EQ(inner(rewrites::flatten, "fwd:n2c5h4w6k7r1s1:nchw"), text("fwd:n2c5h1w24k7r1s1:nchw"));
  EXPECT_EQ(inner(rewrites::data_as_forward, "bwd_d:n2c5h9w9k7r3s3:pad1"), text("fwd:n2c7h9w9k5r3s3:pad1"));
  EXPECT_EQ(inner(rewrites::data_as_forward, "bwd_d:n2c5h9w9k7r3s3"), text("fwd:n2c7h7w7k5r3s3:pad2"));
  // A 3x3 filter of stride 2 falls into filters of 1 and 2 taps a dimension.
  const std::vector<Rewrite> phases = data_phases(parse_problem("bwd_d:n2c5h8w8k7r3s3:st2:pad1"));
  ASSERT_EQ(phases.size(), 4u);
  EXPECT_EQ(to_string(phases[0].inner), text("fwd:n2c7h4w4k5r1s1"));
  EXPECT_EQ(phases[3].inner.r, 2);
  EXPECT_EQ(phases[3].inner.s, 2);
  // Six groups of two channels as two of six: a third of the filter is not zero.
  const Problem grouped = parse_problem("fwd:n1c12h8w8k6r3s3:g6");
  const Rewrite merged = merge_groups(unchanged(grouped), 3);
  EXPECT_EQ(to_string(merged.inner), text("fwd:n1c12h8w8k6r3s3:g2"));
  EXPECT_EQ(merged.w.size, (Index{6, 6, 3, 3}));
  EXPECT_EQ(merged.w({4, 3, 1, 2}), (Index{4, 1, 1, 2}));
  EXPECT_EQ(merged.w({4, 4, 1, 2}), std::nullopt);
  EXPECT_FALSE(merged.w.is_in_place(w_shape(merged.inner), w_shape(grouped)));
  // Padding beyond the filter: the gradient's outermost rows and columns are of no input pixel.
  const Rewrite cropped = rewrites::data_as_forward(parse_problem("bwd_d:n1c1h5w5k1r1s1:pad2"));
  EXPECT_EQ(to_string(cropped.inner), text("fwd:n1c1h5w5k1r1s1"));
  EXPECT_EQ(cropped.first_row(), 2);
  EXPECT_EQ(cropped.first_column(), 2);
}

TEST(Rewrite, KnowsWhatLiesInPlace) {
  const Problem nhwc = parse_problem("fwd:n2c5h4w6k7r1s1:nhwc"),
                nchw = parse_problem("fwd:n2c5h4w6k7r1s1:nchw");
  for (const Problem& p : {nhwc, nchw}) {
    const Rewrite flat = rewrites::flatten(p);
    EXPECT_TRUE(flat.x.is_in_place(x_shape(flat.inner), x_shape(p)));
    EXPECT_TRUE(flat.y.is_in_place(y_shape(flat.inner), y_shape(p)));
    const Rewrite turned = rewrites::change_layout(p);
    EXPECT_FALSE(turned.x.is_in_place(x_shape(turned.inner), x_shape(p)));
    EXPECT_TRUE(turned.w.is_in_place(w_shape(turned.inner), w_shape(p)));  // one pixel
    const Rewrite padded = pad_channels(unchanged(p), 8);
    EXPECT_FALSE(padded.x.is_in_place(x_shape(padded.inner), x_shape(p)));
  }
  const Problem strided = parse_problem("fwd:n2c5h4w6k7r1s1:st2");
  EXPECT_FALSE(
      rewrites::thin(strided).x.is_in_place(x_shape(rewrites::thin(strided).inner), x_shape(strided)));
}

}  // namespace
}  // namespace faltung
