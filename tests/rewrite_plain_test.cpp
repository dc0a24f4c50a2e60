// Problems of one and three dimensions and transposed ones: the references of what they are rewritten to give
// the problem's, to the bit on small integers, and NaN and Inf where the problem's are.
#include "src/problem/rewrite_plain.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "src/problem/reference.hpp"
#include "tests/not_finite.hpp"
#include "tests/registry_problems.hpp"
#include "tests/sampling.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;
using Values = std::vector<float>;

Values random_integers(i64 count, std::mt19937_64& random) {
  Values values(static_cast<std::size_t>(count));
  for (float& v : values) v = static_cast<float>(random() % 9) - 4;
  return values;
}

struct OwnTensors {
  Values x, w, y, bias, residual;
  Values& of(Operand operand) { return operand == Operand::x ? x : operand == Operand::w ? w : y; }
  Tensors tensors() { return {x.data(), w.data(), y.data(), bias.data(), residual.data()}; }
};

// The i-th element of a tensor seen in that way, and where it lies.
Index index_of(const TensorShape& s, i64 i) {
  const Position at = s.position(i);
  return {at.n, at.c, at.h, at.w};
}
std::size_t offset(const TensorShape& s, const Index& i) {
  return static_cast<std::size_t>(s.offset(i[0], i[1], i[2], i[3]));
}

Values gather(const IndexMap& map, const Values& outer, const TensorShape& from, const TensorShape& to) {
  EXPECT_EQ(map.size, (Index{to.n, to.c, to.h, to.w}));
  Values inner(static_cast<std::size_t>(to.elements()));
  for (i64 i = 0; i < to.elements(); ++i) {
    const Index at = index_of(to, i);
    const std::optional<Index> there = map(at);
    inner[offset(to, at)] = there ? outer[offset(from, *there)] : 0;
  }
  return inner;
}

// From a plain problem.
int steps_away(const Problem& p) { return (p.dimensions == 2 ? 0 : 1) + (is_transposed(p) ? 1 : 0); }

void expect_same(const Problem& p, std::uint64_t seed, Inputs inputs) {
  SCOPED_TRACE(to_string(p) + ", seed " + std::to_string(seed) + ", inputs " + name(inputs));
  std::mt19937_64 random(seed);
  OwnTensors outer{random_integers(x_shape(p).elements(), random),
                   random_integers(w_shape(p).elements(), random),
                   random_integers(conv_shape(p).elements(), random), random_integers(p.k, random),
                   random_integers(conv_shape(p).elements(), random)};
  if (inputs == Inputs::not_finite) {
    for (Values* values : {&outer.x, &outer.w, &outer.y, &outer.bias, &outer.residual})
      strew_not_finite(*values, random);
  }
  const TensorShape result = result_shape(p);
  std::vector<Expected> values(static_cast<std::size_t>(result.elements()), Expected{0, 0});
  std::vector<int> times(values.size(), 0);
  for (const auto& [r, view] : toward_plain(p)) {
    ASSERT_NO_THROW(validate(r.inner)) << to_string(r.inner);
    EXPECT_LT(steps_away(r.inner), steps_away(p)) << to_string(r.inner);
    const auto seen = [view = view](const TensorShape& s) { return viewed(s, view); };
    OwnTensors inner;
    for (const Operand operand : {Operand::x, Operand::w, Operand::y}) {
      const IndexMap& map = r.map(operand);
      inner.of(operand) = gather(map, outer.of(map.of), seen(operand_shape(p, map.of)),
                                 seen(operand_shape(r.inner, operand)));
    }
    inner.bias = outer.bias;
    if (r.inner.epilogue.residual)
      inner.residual = gather(r.y, outer.residual, seen(conv_shape(p)), seen(conv_shape(r.inner)));
    const TensorShape there = seen(result), here = result_shape(r.inner);
    for (i64 i = 0; i < here.elements(); ++i) {
      const Position at = here.position(i);
      const std::optional<Index> to = r.result()(index_of(seen(here), i));
      if (!to) continue;
      values[offset(there, *to)] = reference(r.inner, inner.tensors(), at);
      ++times[offset(there, *to)];
    }
  }
  i64 wrong = 0, twice = 0;
  for (i64 i = 0; i < result.elements(); ++i) {
    const auto at = static_cast<std::size_t>(result.offset(result.position(i)));
    wrong += !is_what_may_be(values[at], reference(p, outer.tensors(), result.position(i)));
    twice += times[at] > 1;
  }
  EXPECT_EQ(wrong, 0) << "of " << result.elements() << " elements";
  EXPECT_EQ(twice, 0) << "elements are given twice";
}

TEST(RewritePlain, OfTheTestsShapesGivesTheirResults) {
  int count = 0;
  for (const Problem& p : dimension_problems()) {
    if (p.dtype != DType::f32 || p.epilogue.pool.kind != PoolKind::none) continue;
    expect_same(p, 1, Inputs::integers);
    expect_same(p, 1, Inputs::not_finite);
    ++count;
  }
  EXPECT_EQ(count, 16 * 4 * 2);
}

Problem roll(std::mt19937_64& random) {
  const auto between = [&](i64 first, i64 last) {
    return first + static_cast<i64>(random() % static_cast<std::uint64_t>(last - first + 1));
  };
  for (;;) {
    Problem p;
    p.direction = static_cast<Direction>(between(0, 2));
    p.layout = static_cast<Layout>(between(0, 1));
    p.dimensions = static_cast<int>(between(1, 3));
    p.kind = p.dimensions == 2 || between(0, 1) ? ConvolutionKind::transposed : ConvolutionKind::plain;
    p.groups = between(0, 2) == 0 ? between(2, 3) : 1;
    p.n = between(1, 2), p.c = p.groups * between(1, 3), p.k = p.groups * between(1, 3);
    const auto roll_dimension = [&](i64& in, i64& filter, i64& stride, i64& dilation, i64& before, i64& after,
                                    i64& more) {
      in = between(1, 6), filter = between(0, 2) == 0 ? 1 : between(1, 4);
      stride = between(0, 1) ? 1 : between(1, 3), dilation = between(0, 2) ? 1 : between(1, 3);
      if (between(0, 2) != 0) before = between(0, 4), after = between(0, 4);
      if (is_transposed(p)) more = between(0, stride - 1);
    };
    roll_dimension(p.w, p.s, p.stride_w, p.dilation_w, p.pad_left, p.pad_right, p.output_pad_w);
    if (p.dimensions > 1)
      roll_dimension(p.h, p.r, p.stride_h, p.dilation_h, p.pad_top, p.pad_bottom, p.output_pad_h);
    if (p.dimensions > 2)
      roll_dimension(p.d, p.t, p.stride_d, p.dilation_d, p.pad_front, p.pad_back, p.output_pad_d);
    if (p.direction == Direction::forward) {
      p.epilogue.bias = between(0, 1), p.epilogue.residual = between(0, 1);
      p.epilogue.activation = between(0, 1) ? Activation::relu : Activation::none;
    }
    try {
      validate(p);
      return p;
    } catch (const Error&) {
    }
  }
}

TEST(RewritePlain, OfRandomProblemsGivesTheirResults) {
  std::map<std::string, int> met;
  const int count = sampling::count(800);
  for (int i = 0; i < count && !HasFailure(); ++i) {
    std::mt19937_64 random(sampling::seed() * 1000003 + static_cast<std::uint64_t>(i));
    const Problem p = roll(random);
    for (const Inputs inputs : {Inputs::integers, Inputs::not_finite})
      expect_same(p, sampling::seed() + static_cast<std::uint64_t>(i), inputs);
    ++met[dimension_kind_of(p)];
    met["nothing is read"] += [&] {
      for (const PlainRewrite& r : toward_plain(p)) {
        if (r.rewrite.x.is_zero() || r.rewrite.y.is_zero()) return 1;
      }
      return 0;
    }();
  }
  if (count < 800) return;
  EXPECT_EQ(met.size(), 5u * 4 + 1) << testing::PrintToString(met);
  EXPECT_GT(met["nothing is read"], 10);
}

std::vector<std::string> inner(const char* problem) {
  std::vector<std::string> all;
  for (const PlainRewrite& r : toward_plain(parse_problem(problem)))
    all.push_back(to_string(r.rewrite.inner));
  return all;
}
std::string text(const char* problem) { return to_string(parse_problem(problem)); }

// Sizes worked out by hand.
TEST(RewritePlain, HasTheExpectedInnerProblems) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(inner("fwd:n8c64w160k128s9:pad4"), Texts{text("fwd:n8c64h1w160k128r1s9:pad0x4")});
  EXPECT_EQ(inner("fwd:n2c4d8h5w6k7t3r1s1:pad1x0x0"), Texts{text("fwd:n2c4h8w30k7r3s1:pad1x0")});
  EXPECT_EQ(inner("fwd:n2c4d8h5w6k7t1r3s3:pad0x1x1"), Texts{text("fwd:n16c4h5w6k7r3s3:pad1")});
  // Taps of depth that meet padding alone are left out, but where their gradient is asked for.
  EXPECT_EQ(inner("fwd:n2c4d1h5w6k7t3r3s3:pad1"), Texts{text("fwd:n2c4h5w6k7r3s3:pad1")});
  EXPECT_EQ(inner("fwd:n2c4d2h5w6k7t9r3s3:pad4x1x1"), Texts{text("fwd:n4c12h5w6k7r3s3:pad1")});
  EXPECT_EQ(inner("bwd_d:n2c4d1h5w6k7t2r3s3:pad0.1.1.1.1.1"), Texts{text("bwd_d:n2c4h5w6k7r3s3:pad1")});
  EXPECT_EQ(inner("bwd_w:n2c4d1h5w6k7t3r3s3:pad1"), Texts{text("bwd_w:n2c12h5w6k7r3s3:pad1")});
  EXPECT_EQ(inner("bwd_w:n2c4d8h5w6k7t3r3s3:pad1"), Texts{text("bwd_w:n16c12h5w6k7r3s3:pad1")});
  EXPECT_EQ(inner("bwd_d:n2c4d8h5w6k7t3r3s3:st2:pad1"),
            (Texts{text("bwd_d:n8c4h5w6k7r3s3:st2:pad1"), text("bwd_d:n8c4h5w6k14r3s3:st2:pad1")}));
  EXPECT_EQ(inner("fwd:n2c4d8h5w6k7t3r3s3:transposed:pad1:bias"),
            Texts{text("fwd:n16c12h5w6k7r3s3:transposed:pad1:bias")});
  EXPECT_EQ(inner("fwd:n2c4h5w6k7r3s3:transposed:st2:pad1:outpad1"),
            Texts{text("bwd_d:n2c7h10w12k4r3s3:st2:pad1")});
  EXPECT_EQ(inner("bwd_d:n2c4h5w6k7r3s3:transposed:st2:pad1:outpad1"),
            Texts{text("fwd:n2c7h10w12k4r3s3:st2:pad1")});
  EXPECT_EQ(inner("fwd:n2c4h5w6k7r2s2:transposed:st2:relu"), (Texts(4, text("fwd:n2c4h5w6k7r1s1:relu"))));
}

// What needs no copies: one dimension; filters of depth alone; images in a row in nhwc; a transposed one.
TEST(RewritePlain, LiesInPlaceWhereItCan) {
  const auto in_place = [](const char* problem) {
    const Problem p = parse_problem(problem);
    std::string copied;
    for (const auto& [r, view] : toward_plain(p)) {
      const auto one = [&, &r = r, view = view](const char* name, Operand operand) {
        const IndexMap& map = r.map(operand);
        const bool there = map.is_in_place(viewed(operand_shape(r.inner, operand), view),
                                           viewed(operand_shape(p, map.of), view));
        if (!there) copied += name;
      };
      one("x", Operand::x), one("w", Operand::w), one("y", Operand::y);
    }
    return copied;
  };
  for (const char* layout : {":nchw", ":nhwc"}) {
    const std::string l = layout;
    EXPECT_EQ(in_place(("fwd:n8c4w16k5s9:pad4" + l).c_str()), "") << l;
    EXPECT_EQ(in_place(("fwd:n2c4d8h5w6k7t3r1s1:pad1x0x0" + l).c_str()), "") << l;
    EXPECT_EQ(in_place(("fwd:n2c4h5w6k7r3s3:transposed:st2" + l).c_str()), "") << l;
  }
  EXPECT_EQ(in_place("fwd:n2c4d8h5w6k7t1r3s3:nhwc"), "");
  EXPECT_EQ(in_place("fwd:n2c4d8h5w6k7t1r3s3:nchw"), "xy");
  EXPECT_EQ(in_place("fwd:n2c4d8h5w6k7t3r3s3:nhwc"), "xw");
  EXPECT_EQ(in_place("fwd:n2c4d8h5w6k7t3r3s3:nchw"), "xy");
}

}  // namespace
}  // namespace faltung
