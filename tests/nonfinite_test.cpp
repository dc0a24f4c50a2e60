// NaN and Inf in the filter, and in the gradient that weights' gradients are made of, where they lie over the
// padding and where they do not: every algorithm is right by what docs/accuracy.md says, and the oracle,
// which is behind verify, trials and run --check, says the same.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

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
    tensors.bias = add(t.bias, bytes_of(p, make_shape(Layout::nchw, 1, p.k, 1, 1)));
    tensors.residual = add(t.residual, bytes_of(p, conv_shape(p)));
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

}  // namespace
}  // namespace faltung
