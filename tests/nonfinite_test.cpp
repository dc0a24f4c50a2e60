// NaN and Inf in the filter, and in the gradient that weights' gradients are made of, where they lie over the
// padding and where they do not: every algorithm is right by what docs/accuracy.md says, and the oracle,
// which is behind verify, trials and run --check, says the same.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/brgemm.hpp"
#include "src/finder/oracle.hpp"
#include "src/problem/dtype.hpp"
#include "tests/algorithms.hpp"
#include "tests/builder.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

const char* const kShapes[] = {
    "fwd:n1c16h7w6k16r3s3:pad1",
    "fwd:n2c8h9w8k24r3s3:pad1:bias:relu",
    "fwd:n1c16h8w8k16r3s3:pad1:relu:maxpool2",
    "fwd:n1c3h13w12k16r5s5:st2:pad2",
    "fwd:n1c8h11w10k16r3s3:pad0.2.1.2:dil2",
    "fwd:n1c16h9w8k16r3s3:pad1:g16",
    "fwd:n1c2h30w28k5r13s13:pad6",
    "bwd_d:n1c16h7w6k16r3s3:pad1",
    "bwd_d:n1c16h12w11k16r3s3:st2:pad1",
    "bwd_d:n1c16h9w8k16r3s3:pad1:g16",
    "bwd_w:n1c16h7w6k16r3s3:pad1",
    "bwd_w:n2c8h12w11k16r3s3:st2:pad1",
    "bwd_w:n1c16h9w8k16r3s3:pad1:g16",
    // Of a strided adjoint: elements that no tap reaches, in depth, in a plane, by a dilation, before an
    // epilogue.
    "bwd_d:n1c4d5h6w6k8t1r3s3:st2:pad1",
    "bwd_d:n1c4d3h9w8k4t2r5s5:st2:pad2:dil2",
    "bwd_d:n1c8h7w8k8r1s1:st2",
    "bwd_d:n1c8d3h6w6k8t1r3s3:st2:pad1:g8",
    "fwd:n1c4d3h5w5k8t1r3s3:transposed:st3:pad1",
    "fwd:n1c8h5w5k8r1s2:transposed:st2:bias:relu",
};

// Host memory of a problem's tensors, which may be written to.
struct Operands {
  explicit Operands(const Oracle& oracle) {
    const Problem& p = oracle.problem();
    const Tensors& t = oracle.tensors();
    const auto add = [&](const void* from, i64 bytes) -> void* {
      std::vector<std::byte>& memory =
          memories.emplace_back(static_cast<std::size_t>(bytes), std::byte{0xff});
      if (from != nullptr) std::memcpy(memory.data(), from, memory.size());
      return memory.data();
    };
    tensors.x = add(t.x, bytes_of(p, x_shape(p)));
    tensors.w = add(t.w, bytes_of(p, w_shape(p)));
    tensors.y = add(t.y, bytes_of(p, p.direction == Direction::forward ? y_shape(p) : conv_shape(p)));
    tensors.bias = add(t.bias, static_cast<std::int64_t>(bytes(p, Tensor::bias)));
    tensors.residual = add(t.residual, bytes_of(p, conv_shape(p)));
    tensors.slopes = add(t.slopes, static_cast<std::int64_t>(bytes(p, Tensor::slopes)));
  }
  std::vector<std::vector<std::byte>> memories;
  Tensors tensors;
};

// The oracle's inputs but for one value.
struct Case {
  Case(const Oracle& oracle, i64 element, float value)
      : operands(oracle),
        judge(oracle.problem(), with(oracle.problem(), element, value), 1),
        what(std::to_string(value) + " in element " + std::to_string(element)) {}

  const Tensors& with(const Problem& p, i64 element, float value) {
    const bool of_weights = p.direction == Direction::backward_weights;
    store_element(p.dtype, of_weights ? operands.tensors.y : operands.tensors.w, element, value);
    return operands.tensors;
  }
  Operands operands;
  Oracle judge;
  std::string what;
};

class Nonfinite : public testing::TestWithParam<const Algorithm*> {};

TEST_P(Nonfinite, InTheFilterOverThePadding) {
  const auto parallel = std::make_shared<const Parallel>(2);
  Builder builder(find_device("cpu"), parallel);
  int checked = 0;
  for (const char* shape : kShapes) {
    for (const char* form : {":f32:nchw", ":f32:nhwc", ":bf16:nchw", ":f16:nhwc"}) {
      Problem p = parse_problem(std::string(shape) + form);
      if (!GetParam()->supports(p, builder.target()).yes) p.math = Math::fast;
      if (!GetParam()->supports(p, builder.target()).yes) continue;
      const Oracle oracle(p, Data::random, 1);
      const TensorShape where = p.direction == Direction::backward_weights ? conv_shape(p) : w_shape(p);
      std::vector<std::unique_ptr<Case>> cases;
      for (const float value : {INFINITY, -INFINITY, NAN}) {
        for (const i64 element : {i64{0}, where.elements() / 2, where.elements() - 1}) {
          cases.push_back(std::make_unique<Case>(oracle, element, value));
        }
      }
      for (const Candidate& candidate : GetParam()->candidates(p, builder.target())) {
        const auto plan = builder.plan(p, candidate);
        std::vector<std::byte> workspace(plan->workspace_bytes(false) + 1);
        RunOptions options;
        options.workspace = workspace.data();
        for (const auto& one : cases) {
          plan->run(one->operands.tensors, options);
          const Finding finding =
              one->judge.check(result_pointer(p, one->operands.tensors), candidate.accuracy, *parallel);
          ASSERT_TRUE(finding.right())
              << candidate.kernel() << " for " << to_string(p) << ", " << one->what << ": " << finding.worst;
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 0);
}

INSTANTIATE_TEST_SUITE_P(All, Nonfinite, testing::ValuesIn(algorithms("cpu")), algorithm_name);

// Each activation as its formula has it, whatever computes it (docs/accuracy.md).
TEST_P(Nonfinite, AfterEveryActivation) {
  const auto parallel = std::make_shared<const Parallel>(1);
  Builder builder(find_device("cpu"), parallel);
  int checked = 0;
  for (const char* activation : {"relu", "relu6", "leaky_relu(0.5)", "leaky_relu(0)", "sigmoid", "silu",
                                 "gelu", "gelu_tanh", "hardswish", "clip(-1.5,6)", "prelu"}) {
    for (const char* shape :
         {"fwd:n1c1h4w4k1r1s1:", "fwd:n1c4h4w4k4r3s3:pad1:g4:", "fwd:n1c2h3w3k5r13s13:pad6:"}) {
      Problem p = parse_problem(std::string(shape) + "bias:" + activation);
      if (!GetParam()->supports(p, builder.target()).yes) p.math = Math::fast;
      if (!GetParam()->supports(p, builder.target()).yes) continue;
      const Oracle oracle(p, Data::random, 1);
      for (const float value : {INFINITY, -INFINITY, NAN, 1e30f, -1e30f, 0.0f, -0.0f}) {
        Operands operands(oracle);
        for (i64 k = 0; k < p.k; ++k) store_element(p.dtype, operands.memories[3].data(), k, value);
        const Oracle judge(p, operands.tensors, 1);
        const Candidate candidate = GetParam()->candidates(p, builder.target()).front();
        const auto plan = builder.plan(p, candidate);
        std::vector<std::byte> workspace(plan->workspace_bytes(false) + 1);
        RunOptions options;
        options.workspace = workspace.data();
        plan->run(operands.tensors, options);
        const Finding finding =
            judge.check(result_pointer(p, operands.tensors), candidate.accuracy, *parallel);
        EXPECT_TRUE(finding.right()) << to_string(p) << " of " << value << ": " << finding.worst;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 0);
}

// What is allowed is allowed there alone.
TEST(NonfiniteReference, NanIsRightOnlyWhereTheFilterHasOneOverThePadding) {
  const Problem p = parse_problem("fwd:n1c1h4w4k1r3s3:pad1");
  const Oracle oracle(p, Data::small_integers, 1);
  Operands operands(oracle);
  store_element(p.dtype, operands.tensors.w, 0, INFINITY);  // above and left of the pixel
  for (i64 h = 0; h < 4; ++h) {
    for (i64 w = 0; w < 4; ++w) {
      const Expected expected = reference(p, operands.tensors, {0, 0, 0, h, w});
      EXPECT_EQ(expected.may_be_nan, h == 0 || w == 0);
      EXPECT_EQ(std::isfinite(expected.value), h == 0 || w == 0);
      const double nan = error_over_bound(p, dot_product_accuracy(p), expected, NAN);
      EXPECT_EQ(nan <= 1, h == 0 || w == 0);
      // What must not be finite is not right when it is.
      EXPECT_EQ(error_over_bound(p, dot_product_accuracy(p), expected, 1e30f) <= 1, false);
    }
  }
}

TEST(NonfiniteReference, WhereNoTapReachesThereIsZeroWhateverTheFilter) {
  for (const char* text : {"bwd_d:n1c1d3h4w4k1t1r1s1:st2", "bwd_d:n1c1h4w4k1r1s1:st2"}) {
    const Problem p = parse_problem(text);
    const Oracle oracle(p, Data::small_integers, 1);
    Operands operands(oracle);
    store_element(p.dtype, operands.tensors.w, 0, INFINITY);
    const TensorShape shape = x_shape(p);
    for (i64 i = 0; i < shape.elements(); ++i) {
      const Position at = shape.position(i);
      const Expected expected = reference(p, operands.tensors, at);
      const bool reached = at.d % 2 == 0 && at.h % 2 == 0 && at.w % 2 == 0;
      EXPECT_FALSE(expected.may_be_nan);
      EXPECT_EQ(std::isfinite(expected.value), !reached) << text << " element " << i;
      if (!reached) {
        EXPECT_EQ(expected.value, 0);
      }
    }
  }
}

// Kernels whose zeros meet a channel, and those that multiply parts, say so; nothing else of theirs may be
// NaN.
TEST(NonfiniteReference, ZerosThatMeetAChannelMayMakeNanOfItAlone) {
  const Parallel parallel(1);
  for (const char* text : {"bwd_d:n1c4h5w5k2r3s3:st2:g2", "bwd_w:n1c4h5w5k2r3s3:g2",
                           "fwd:n1c2h5w5k4r3s3:transposed:st2:g2", "bwd_w:n1c2h3w3k4r3s3:transposed:g2"}) {
    const Problem p = parse_problem(text);
    const Oracle oracle(p, Data::small_integers, 1);
    Operands operands(oracle);
    // Of channel 3, a value that few elements take.
    const bool of_weights = p.direction == Direction::backward_weights;
    const Problem plain = is_transposed(p) ? convolution_of(p) : p;
    const TensorShape shape = of_weights ? x_shape(plain) : w_shape(plain);
    void* const data = !of_weights        ? operands.tensors.w
                       : is_transposed(p) ? operands.tensors.y
                                          : operands.tensors.x;
    store_element(p.dtype, data, of_weights ? shape.offset(0, 3, 0, 0) : shape.offset(1, 1, 0, 0), INFINITY);
    const Oracle judge(p, operands.tensors, 1);
    const Accuracy exact = dot_product_accuracy(p);
    Accuracy meeting = exact, parts = exact;
    meeting.zeros_meet = ZerosMeet::channel;
    parts.factors = Factors::tf32_parts;
    const TensorShape result_at = result_shape(p);
    std::vector<float> right(static_cast<std::size_t>(result_at.elements()));
    for (i64 i = 0; i < result_at.elements(); ++i)
      right[static_cast<std::size_t>(result_at.offset(result_at.position(i)))] =
          static_cast<float>(reference(p, operands.tensors, result_at.position(i)).value);
    for (i64 i = 0; i < result_at.elements(); ++i) {
      const Position at = result_at.position(i);
      std::vector<float> result = right;
      result[static_cast<std::size_t>(result_at.offset(at))] = NAN;
      const Expected own = reference(p, operands.tensors, at);
      const bool always = std::isnan(own.value) || own.may_be_nan;
      const bool in_channel = of_weights ? at.n >= 1 && at.c == 1 : at.c == 3;
      EXPECT_EQ(judge.check(result.data(), exact, parallel).right(), always) << text << " " << i;
      EXPECT_EQ(judge.check(result.data(), meeting, parallel).right(), always || in_channel)
          << text << " " << i;
      EXPECT_EQ(judge.check(result.data(), parts, parallel).right(), always || !std::isfinite(own.value))
          << text << " " << i;
    }
  }
}

// The right result but for NaN in one element.
std::vector<float> right_but_for_nan(const Problem& p, const Tensors& tensors, i64 element) {
  const TensorShape shape = result_shape(p);
  std::vector<float> result(static_cast<std::size_t>(shape.elements()));
  for (i64 i = 0; i < shape.elements(); ++i)
    result[static_cast<std::size_t>(i)] = static_cast<float>(reference(p, tensors, shape.position(i)).value);
  result[static_cast<std::size_t>(element)] = NAN;
  return result;
}

// What a kernel that adds zeros to the filter may do is said by its accuracy, and no other may.
TEST(NonfiniteReference, ZerosOfAWiderFilterMayMakeNanOfTheirOwnNeighboursAlone) {
  const Problem p = parse_problem("fwd:n1c2h8w8k2r3s3:st2:g2");
  const Oracle oracle(p, Data::small_integers, 1);
  Operands operands(oracle);
  store_element(p.dtype, operands.tensors.x, x_shape(p).offset(0, 0, 3, 3), NAN);
  const Oracle judge(p, operands.tensors, 1);
  const Parallel parallel(1);
  const Accuracy plain = dot_product_accuracy(p);
  Accuracy wider = plain, merged = plain;
  wider.filter_unit_h = wider.filter_unit_w = 2;
  merged.groups_as_one = 2;
  const TensorShape shape = y_shape(p);
  for (i64 i = 0; i < shape.elements(); ++i) {
    const std::vector<float> result = right_but_for_nan(p, operands.tensors, i);
    const Position at = shape.position(i);
    const auto within = [](i64 o, i64 taps) { return o * 2 <= 3 && 3 < o * 2 + taps; };
    const bool own = at.c == 0 && within(at.h, 3) && within(at.w, 3);
    const bool beyond = at.c == 0 && within(at.h, 4) && within(at.w, 4);
    const bool beside = within(at.h, 3) && within(at.w, 3);
    EXPECT_EQ(judge.check(result.data(), plain, parallel).right(), own) << i;
    EXPECT_EQ(judge.check(result.data(), wider, parallel).right(), beyond) << i;
    EXPECT_EQ(judge.check(result.data(), merged, parallel).right(), beside) << i;
  }
}

// Zeros on both sides of each of the filter's rows.
TEST(NonfiniteReference, ZerosBesideTheFilterMayMakeNanOfTheirOwnRowsAlone) {
  for (const char* text : {"fwd:n1c2h8w40k2r3s3:pad1:g2", "bwd_d:n1c2h8w40k2r3s3:pad1:g2"}) {
    const Problem p = parse_problem(text);
    const Oracle oracle(p, Data::small_integers, 1);
    Operands operands(oracle);
    const bool forward = p.direction == Direction::forward;
    store_element(p.dtype, forward ? operands.tensors.x : operands.tensors.y, x_shape(p).offset(0, 0, 3, 20),
                  NAN);
    const Oracle judge(p, operands.tensors, 1);
    const Parallel parallel(1);
    const Accuracy plain = dot_product_accuracy(p);
    Accuracy wider = plain;
    wider.zeros_beside_w = 8;
    const TensorShape shape = result_shape(p);
    for (i64 i = 0; i < shape.elements(); ++i) {
      const std::vector<float> result = right_but_for_nan(p, operands.tensors, i);
      const Position at = shape.position(i);
      const auto near = [&](i64 columns) {
        return at.c == 0 && std::abs(at.h - 3) <= 1 && std::abs(at.w - 20) <= columns;
      };
      EXPECT_EQ(judge.check(result.data(), plain, parallel).right(), near(1)) << text << " " << i;
      EXPECT_EQ(judge.check(result.data(), wider, parallel).right(), near(9)) << text << " " << i;
    }
  }
}

// Of few channels a stride's columns may be computed as one, with zeros in the filter: who does so says it.
TEST(NonfiniteReference, JoinedColumnsMakeNanOfTheirNeighboursAlone) {
  const auto parallel = std::make_shared<const Parallel>(1);
  Builder builder(find_device("cpu"), parallel);
  int joined = 0;
  for (const char* text : {"bwd_d:n1c3h32w39k16r7s7:st2:pad3", "bwd_d:n1c2h9w40k16r3s5:st1x3:pad2"}) {
    const Problem p = parse_problem(text);
    const Oracle oracle(p, Data::small_integers, 1);
    Operands operands(oracle);
    store_element(p.dtype, operands.tensors.y, conv_shape(p).offset(0, 1, 4, 6), NAN);
    const Oracle judge(p, operands.tensors, 1);
    for (const Candidate& candidate : find_algorithm("implicit_gemm_cpu").candidates(p, builder.target())) {
      const auto plan = builder.plan(p, candidate);
      std::vector<std::byte> workspace(plan->workspace_bytes(false) + 1);
      RunOptions options;
      options.workspace = workspace.data();
      plan->run(operands.tensors, options);
      EXPECT_TRUE(judge.check(result_pointer(p, operands.tensors), candidate.accuracy, *parallel).right())
          << candidate.kernel() << " for " << text;
      joined += candidate.accuracy.zeros_beside_w > 0 ? 1 : 0;
    }
  }
  // With shorter vectors it does not pay.
  if (brgemm_lanes() >= 8) {
    EXPECT_GT(joined, 0);
  }
}

}  // namespace
}  // namespace faltung
