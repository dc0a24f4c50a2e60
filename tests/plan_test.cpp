// What a plan promises, held by every algorithm of the registry: many threads may run it at once, the
// caller's parallel_for stands in for its own threads, it allocates nothing, tensors and workspace may lie
// anywhere, and NaN and Inf pass through.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <new>
#include <thread>

#include "src/finder/oracle.hpp"
#include "src/problem/dtype.hpp"
#include "tests/algorithms.hpp"
#include "tests/builder.hpp"

namespace {
std::atomic<long> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* pointer = nullptr;
  if (posix_memalign(&pointer, alignment, bytes == 0 ? 1 : bytes) != 0) throw std::bad_alloc();
  return pointer;
}
}  // namespace

// This program's allocations are counted. GCC sees free() where it inlines delete, but not that new is ours.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted(bytes, alignof(std::max_align_t));
}
void operator delete(void* pointer) noexcept { std::free(pointer); }
void operator delete(void* pointer, std::size_t) noexcept { std::free(pointer); }
void operator delete(void* pointer, std::align_val_t) noexcept { std::free(pointer); }
void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept { std::free(pointer); }

namespace faltung {
namespace {

using i64 = std::int64_t;

// Between them every algorithm has something to do.
const char* const kShapes[] = {
    "fwd:n2c16h13w14k24r3s3:pad1:bias:relu",
    "fwd:n1c24h12w11k24r3s3:pad1:g24:bias:relu6",
    "fwd:n2c19h9w8k33r1s1",
    "fwd:n1c3h20w22k16r5s5:st2:pad2",
    "fwd:n1c3h30w28k5r13s13:pad6",
    "fwd:n1c16h12w12k16r3s3:pad1:bias:relu:maxpool2",
    "bwd_d:n2c16h13w14k24r3s3:pad1",
    "bwd_d:n1c18h12w11k18r3s3:st2:pad1:g18",
    "bwd_w:n2c16h13w14k24r3s3:pad1",
    "bwd_w:n1c18h12w11k18r3s3:pad1:g18",
    "fwd:n2c16h13w14k24r3s3:pad1:affine_relu",
    "fwd:n1c24h12w11k24r3s3:pad1:g24:affine",
    "bwd_w:n2c16h13w14k24r3s3:pad1:affine_relu",
};

// A tensor in host memory, `shift` bytes beyond a cache line's start.
class HostMemory {
 public:
  explicit HostMemory(std::size_t bytes, std::size_t shift = 0)
      : bytes_(bytes), storage_(bytes + shift + 64, std::byte{0xff}) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    data_ = storage_.data() + (64 - address % 64) % 64 + shift;
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory(HostMemory&&) = delete;
  void copy(const void* from) {
    if (from != nullptr) std::memcpy(data_, from, bytes_);
  }
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::vector<std::byte> storage_;
  std::byte* data_;
};

// Memory for all of a problem's tensors.
struct Operands {
  explicit Operands(const Problem& p, std::size_t beyond = 0)
      : x(size(p, x_shape(p)), beyond),
        w(size(p, w_shape(p)), beyond),
        y(size(p, p.direction == Direction::forward ? y_shape(p) : conv_shape(p)), beyond),
        bias(bytes(p, Tensor::bias), beyond),
        residual(p.epilogue.residual ? size(p, conv_shape(p)) : 0, beyond),
        scale(bytes(p, Tensor::scale), beyond / sizeof(float) * sizeof(float)),
        shift(bytes(p, Tensor::shift), beyond / sizeof(float) * sizeof(float)),
        slopes(bytes(p, Tensor::slopes), beyond / sizeof(float) * sizeof(float)) {}
  static std::size_t size(const Problem& p, const TensorShape& s) {
    return static_cast<std::size_t>(bytes_of(p, s));
  }
  void copy(const Tensors& from) {
    x.copy(from.x), w.copy(from.w), y.copy(from.y), bias.copy(from.bias), residual.copy(from.residual);
    scale.copy(from.scale), shift.copy(from.shift), slopes.copy(from.slopes);
  }
  Tensors tensors() const {
    Tensors all{x.data(), w.data(), y.data(), bias.data(), residual.data()};
    all.scale = scale.data(), all.shift = shift.data(), all.slopes = slopes.data();
    return all;
  }
  const HostMemory& result(const Problem& p) const {
    return p.direction == Direction::forward ? y : p.direction == Direction::backward_data ? x : w;
  }
  HostMemory x, w, y, bias, residual, scale, shift, slopes;
};

class Plans : public testing::TestWithParam<const Algorithm*> {
 protected:
  using Body = std::function<void(const Problem&, const Candidate&, const std::shared_ptr<const PlanImpl>&)>;

  // Calls body for every config of the problem, in every dtype and layout that the algorithm supports.
  void each(const std::string& text, const Body& body) {
    for (const char* dtype : {"f32", "f16", "bf16"}) {
      for (const char* layout : {"nchw", "nhwc"}) {
        Problem p = parse_problem(text + ":" + dtype + ":" + layout);
        if (!GetParam()->supports(p, builder_.target()).yes) p.math = Math::fast;
        if (!GetParam()->supports(p, builder_.target()).yes) continue;
        for (const Candidate& candidate : GetParam()->candidates(p, builder_.target())) {
          SCOPED_TRACE(candidate.kernel() + " for " + to_string(p));
          body(p, candidate, builder_.plan(p, candidate));
          if (HasFatalFailure()) return;
          ++plans_;
        }
      }
    }
  }
  void each(const Body& body) {
    for (const char* shape : kShapes) each(shape, body);
    EXPECT_GT(plans_, 0) << "no shape of kShapes is for this algorithm";
  }

  // The plan's own way to run, as the standard of the others.
  void run_plainly(const PlanImpl& plan, const Tensors& inputs, Operands& operands) const {
    operands.copy(inputs);
    HostMemory workspace(plan.workspace_bytes(false));
    RunOptions options;
    options.workspace = workspace.data();
    plan.run(operands.tensors(), options);
  }

  Builder builder_{find_device("cpu"), std::make_shared<const Parallel>(2)};
  int plans_ = 0;
};

bool same(const HostMemory& a, const HostMemory& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

TEST_P(Plans, RunFromManyThreadsAtOnce) {
  each([&](const Problem& p, const Candidate&, const std::shared_ptr<const PlanImpl>& plan) {
    const Oracle oracle(p, Data::random, 1);
    Operands expected(p);
    run_plainly(*plan, oracle.tensors(), expected);
    const bool packs = p.direction != Direction::backward_weights && plan->recipe().packed_bytes > 0;
    const std::shared_ptr<const PackedWeights> packed =
        packs ? plan->pack_weights(expected.w.data(), {}) : nullptr;
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        Operands operands(p);
        operands.copy(oracle.tensors());
        RunOptions options;
        options.weights = t % 2 == 0 ? packed.get() : nullptr;
        HostMemory workspace(plan->workspace_bytes(options.weights != nullptr));
        options.workspace = workspace.data();
        for (int i = 0; i < 3; ++i) {
          plan->run(operands.tensors(), options);
          if (!same(operands.result(p), expected.result(p))) ++wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(wrong, 0) << "runs differ from the first";
  });
}

// Of a problem's kernels those that say that they pack alike: each computes the same by another's.
TEST_P(Plans, TakeWhatOthersHavePackedAlike) {
  std::map<std::string, std::shared_ptr<const PackedWeights>> packed;
  int taken = 0;
  each([&](const Problem& p, const Candidate&, const std::shared_ptr<const PlanImpl>& plan) {
    const Recipe& recipe = plan->recipe();
    if (recipe.packed_bytes == 0 || recipe.packing.empty()) return;
    const Oracle oracle(p, Data::random, 1);
    Operands expected(p), operands(p);
    run_plainly(*plan, oracle.tensors(), expected);
    operands.copy(oracle.tensors());
    std::shared_ptr<const PackedWeights>& others =
        packed[to_string(p) + " " + plan->packed_for() + " " + recipe.packing];
    if (others == nullptr) {
      others = plan->pack_weights(operands.w.data(), {});
      return;
    }
    ++taken;
    HostMemory workspace(plan->workspace_bytes(true));
    RunOptions options;
    options.weights = others.get(), options.workspace = workspace.data();
    plan->run(operands.tensors(), options);
    EXPECT_TRUE(same(operands.result(p), expected.result(p))) << others->plan().kernel();
  });
  const std::string name(GetParam()->name());
  if (name == "winograd_cpu" || name == "implicit_gemm_cpu") EXPECT_GT(taken, 0);
}

TEST_P(Plans, RunOnTheCallersThreads) {
  int shared = 0;
  each([&](const Problem& p, const Candidate& candidate, const std::shared_ptr<const PlanImpl>& plan) {
    const Oracle oracle(p, Data::random, 1);
    Operands expected(p);
    run_plainly(*plan, oracle.tensors(), expected);
    int calls = 0;
    const ParallelFor backwards = [&](int count, const std::function<void(int)>& body) {
      ++calls;
      for (int i = count - 1; i >= 0; --i) body(i);
    };
    const ParallelFor at_once = [&](int count, const std::function<void(int)>& body) {
      ++calls;
      std::vector<std::thread> threads;
      for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
      for (std::thread& thread : threads) thread.join();
    };
    for (const ParallelFor& parallel_for : {backwards, at_once}) {
      calls = 0;
      Operands operands(p);
      operands.copy(oracle.tensors());
      HostMemory workspace(plan->workspace_bytes(false));
      RunOptions options;
      options.workspace = workspace.data();
      options.parallel_for = parallel_for;
      plan->run(operands.tensors(), options);
      // What takes some microseconds is one worker's, and wakes nobody.
      constexpr double kAloneMs = 0.02;
      if (calls == 0) {
        ASSERT_LT(candidate.cost.ms, kAloneMs);
      }
      shared += calls;
      ASSERT_TRUE(same(operands.result(p), expected.result(p)));
    }
  });
  EXPECT_GT(shared, 0) << "no plan was run on the caller's threads";
}

TEST_P(Plans, RunOnMemoryOfAnyAlignment) {
  each([&](const Problem& p, const Candidate&, const std::shared_ptr<const PlanImpl>& plan) {
    const Oracle oracle(p, Data::random, 1);
    Operands expected(p);
    run_plainly(*plan, oracle.tensors(), expected);
    Operands operands(p, static_cast<std::size_t>(size_of(p.dtype)));  // as little as an element has
    operands.copy(oracle.tensors());
    HostMemory workspace(plan->workspace_bytes(false), 1);
    RunOptions options;
    options.workspace = workspace.data();
    plan->run(operands.tensors(), options);
    ASSERT_TRUE(same(operands.result(p), expected.result(p)));
  });
}

TEST_P(Plans, AllocateNothingInRun) {
  each([&](const Problem& p, const Candidate&, const std::shared_ptr<const PlanImpl>& plan) {
    const Oracle oracle(p, Data::random, 1);
    Operands operands(p);
    operands.copy(oracle.tensors());
    HostMemory workspace(plan->workspace_bytes(false));
    RunOptions options;
    options.workspace = workspace.data();
    const Tensors tensors = operands.tensors();
    plan->run(tensors, options);
    const long before = allocations;
    plan->run(tensors, options);
    ASSERT_EQ(allocations - before, 0);
  });
}

// ------------------------------------------------------------------------------------------ NaN and Inf

std::string kind(double value) {
  return std::isnan(value) ? "NaN" : std::isinf(value) ? (value > 0 ? "Inf" : "-Inf") : "finite";
}

struct Special {
  i64 n, c, h, w;
  float value;
};

// Far apart, in channels of their own.
std::vector<Special> specials(const TensorShape& s, bool negative) {
  std::vector<Special> all{{0, 0, 1, 1, NAN}, {s.n - 1, s.c - 1, s.h - 2, s.w - 2, INFINITY}};
  if (negative) all.push_back({0, s.c / 2, 0, s.w - 1, -INFINITY});
  return all;
}

// Sets each special value, and with a spread, NaN all around it.
void put(const Problem& p, void* data, const TensorShape& s, const std::vector<Special>& all, i64 spread_h,
         i64 spread_w) {
  for (const Special& special : all) {
    const bool alone = spread_h == 0 && spread_w == 0;
    for (i64 h = std::max<i64>(0, special.h - spread_h); h <= std::min(s.h - 1, special.h + spread_h); ++h) {
      for (i64 w = std::max<i64>(0, special.w - spread_w); w <= std::min(s.w - 1, special.w + spread_w);
           ++w) {
        store_element(p.dtype, data, s.offset(special.n, special.c, h, w), alone ? special.value : NAN);
      }
    }
  }
}

// Every element of the result must be NaN, Inf, -Inf or finite where the reference is. Algorithms on tiles
// (those whose Accuracy has a spread) may turn elements near a value that is not finite into NaN, but none
// that must not be finite into a finite one.
void check_passing(const Problem& p, const Accuracy& accuracy, const PlanImpl& plan, bool positive_weights) {
  const Oracle oracle(p, Data::small_integers, 1);
  Operands operands(p), around(p);
  for (Operands* o : {&operands, &around}) {
    o->copy(oracle.tensors());
    if (!positive_weights) continue;
    for (i64 i = 0; i < w_shape(p).elements(); ++i) {
      store_element(p.dtype, o->w.data(), i, std::abs(load_element(p.dtype, o->w.data(), i)));
    }
  }
  const bool in_y = p.direction == Direction::backward_data;
  const TensorShape shape = in_y ? conv_shape(p) : x_shape(p);
  const std::vector<Special> all = specials(shape, !positive_weights);
  put(p, in_y ? operands.y.data() : operands.x.data(), shape, all, 0, 0);
  put(p, in_y ? around.y.data() : around.x.data(), shape, all, accuracy.spread_h, accuracy.spread_w);

  HostMemory workspace(plan.workspace_bytes(false));
  RunOptions options;
  options.workspace = workspace.data();
  plan.run(operands.tensors(), options);

  const TensorShape out = result_shape(p);
  const bool on_tiles = accuracy.spread_h > 0 || accuracy.spread_w > 0;
  int not_finite = 0;
  for (i64 i = 0; i < out.elements(); ++i) {
    const i64 n = i / (out.c * out.h * out.w), c = i / (out.h * out.w) % out.c, h = i / out.w % out.h,
              w = i % out.w;
    const double expected = reference(p, operands.tensors(), n, c, h, w).value;
    const float actual = load_element(p.dtype, operands.result(p).data(), out.offset(n, c, h, w));
    if (!std::isfinite(expected)) ++not_finite;
    const bool may_be_nan =
        on_tiles && (!std::isfinite(expected) || p.direction == Direction::backward_weights ||
                     !std::isfinite(reference(p, around.tensors(), n, c, h, w).value));
    if (std::isnan(actual) && may_be_nan) continue;
    ASSERT_EQ(kind(actual), kind(expected)) << "element (" << n << ", " << c << ", " << h << ", " << w << ")";
  }
  ASSERT_GT(not_finite, 0);
}

TEST_P(Plans, NanAndInfPassThrough) {
  for (const char* shape :
       {"fwd:n2c16h13w14k24r3s3:pad1", "fwd:n1c24h12w11k24r3s3:pad1:g24", "fwd:n2c19h9w8k33r1s1",
        "fwd:n1c3h20w22k16r5s5:st2:pad2", "fwd:n1c3h30w28k5r13s13:pad6", "bwd_d:n2c16h13w14k24r3s3:pad1",
        "bwd_d:n1c18h12w11k18r3s3:st2:pad1:g18", "bwd_w:n2c16h13w14k24r3s3:pad1",
        "bwd_w:n1c18h12w11k18r3s3:pad1:g18"}) {
    each(shape,
         [&](const Problem& p, const Candidate& candidate, const std::shared_ptr<const PlanImpl>& plan) {
           check_passing(p, candidate.accuracy, *plan, false);
         });
  }
}

TEST_P(Plans, NanAndInfPassThroughEveryEpilogue) {
  for (const char* epilogue :
       {"bias:relu", "relu6", "leaky_relu(0.25)", "sigmoid", "bias:silu", "gelu", "gelu_tanh", "hardswish",
        "hardsigmoid(0.2)", "clip(-1,6)", "bias:prelu", "relu:maxpool2", "relu:avgpool2", "maxpool3s2p1"}) {
    for (const char* shape : {"fwd:n1c16h10w10k20r3s3:pad1:", "fwd:n1c20h10w10k20r3s3:pad1:g20:",
                              "fwd:n1c16h8w9k20r1s1:", "fwd:n1c3h30w28k5r13s13:pad6:"}) {
      each(std::string(shape) + epilogue,
           [&](const Problem& p, const Candidate& candidate, const std::shared_ptr<const PlanImpl>& plan) {
             // Positive weights keep -Inf away, which some activations take to 0 and some formulas to NaN.
             check_passing(p, candidate.accuracy, *plan, true);
           });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Plans, testing::ValuesIn(algorithms("cpu")), algorithm_name);

}  // namespace
}  // namespace faltung
