// Memory that a kernel did not write must not matter to it: neither to results, nor to the processor's
// exception flags, nor to the time. A lane that multiplies what it finds there gives nothing, but where that
// reads as denormals each product may take an assist, and a signalling NaN raises a flag.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <chrono>
#include <cstring>
#include <functional>

#include "src/finder/oracle.hpp"
#include "src/problem/float_mode.hpp"
#include "tests/algorithms.hpp"
#include "tests/builder.hpp"
#include "tests/registry_problems.hpp"

namespace faltung {
namespace {

// In every dtype: 1.0f and its like are harmless, the others are what the name says.
enum class Stale : std::uint32_t { harmless = 0x3f803f80, denormal = 0x007f007f, signalling = 0x7fa07d01 };

// Of the floating point exceptions that this thread raised, those that no good kernel raises on small
// integers.
struct Flags {
  bool invalid = false, denormal_operand = false;
};

// x86 alone tells of denormal operands.
Flags flags_met() {
  const int met = FloatMode::exceptions_met();
#if defined(__x86_64__)
  constexpr int kDenormal = 2;
  return {(met & FE_INVALID) != 0, (met & kDenormal) != 0};
#else
  return {(met & FE_INVALID) != 0, false};
#endif
}

// Bytes between stale ones, at a cache line's start.
class Memory {
 public:
  Memory(std::size_t bytes, const void* content, Stale stale)
      : bytes_(bytes), storage_((bytes + 2 * kAround) / 4 + 1, static_cast<std::uint32_t>(stale)) {
    void* data = storage_.data() + kAround / 8;
    std::size_t room = bytes + kAround;
    data_ = std::align(64, bytes, data, room);
    if (content != nullptr) std::memcpy(data_, content, bytes);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }
  std::string content() const { return {static_cast<const char*>(data_), bytes_}; }

 private:
  static constexpr std::size_t kAround = 4096;
  std::size_t bytes_;
  std::vector<std::uint32_t> storage_;
  void* data_;
};

// A problem's tensors and a plan's workspace, stale where they are not inputs.
class Trial {
 public:
  Trial(const Problem& p, const Tensors& from, const PlanImpl& plan, Stale stale)
      : plan_(plan),
        direction_(p.direction),
        x_(size(p, x_shape(p)), from.x, stale),
        w_(size(p, w_shape(p)), from.w, stale),
        y_(size(p, p.direction == Direction::forward ? y_shape(p) : conv_shape(p)), from.y, stale),
        bias_(bytes(p, Tensor::bias), from.bias, stale),
        workspace_(plan.workspace_bytes(false), nullptr, stale) {
    options_.workspace = workspace_.data();
    // On this thread alone, whose flags are to be seen.
    options_.parallel_for = [](int count, const std::function<void(int)>& body) {
      for (int i = 0; i < count; ++i) body(i);
    };
  }
  // The flags that it raised.
  Flags once() const {
    FloatMode::exceptions_met();
    plan_.run({x_.data(), w_.data(), y_.data(), bias_.data(), nullptr}, options_);
    return flags_met();
  }
  std::string result() const {
    return (direction_ == Direction::forward         ? y_
            : direction_ == Direction::backward_data ? x_
                                                     : w_)
        .content();
  }

 private:
  static std::size_t size(const Problem& p, const TensorShape& s) {
    return static_cast<std::size_t>(bytes_of(p, s));
  }
  const PlanImpl& plan_;
  Direction direction_;
  Memory x_, w_, y_, bias_, workspace_;
  RunOptions options_;
};

class StaleMemory : public testing::TestWithParam<const Algorithm*> {
 protected:
  void check(Problem p) {
    const Target target = builder_.target();
    if (!GetParam()->supports(p, target).yes) p.math = Math::fast;
    if (!GetParam()->supports(p, target).yes) return;
    const Oracle oracle(p, Data::small_integers, 1);
    for (const Candidate& candidate : GetParam()->candidates(p, target)) {
      SCOPED_TRACE(candidate.kernel() + " for " + to_string(p));
      const std::shared_ptr<const PlanImpl> plan = builder_.plan(p, candidate);
      const Trial harmless(p, oracle.tensors(), *plan, Stale::harmless);
      const Flags own = harmless.once();
      EXPECT_FALSE(own.invalid);
      for (const Stale stale : {Stale::denormal, Stale::signalling}) {
        SCOPED_TRACE(stale == Stale::denormal ? "among denormals" : "among signalling NaNs");
        const Trial run(p, oracle.tensors(), *plan, stale);
        const Flags raised = run.once();
        EXPECT_FALSE(raised.invalid);
        EXPECT_EQ(raised.denormal_operand, own.denormal_operand);
        EXPECT_TRUE(run.result() == harmless.result()) << "the result is another";
      }
    }
  }

  Builder builder_{find_device("cpu"), std::make_shared<const Parallel>(1)};
};

TEST_P(StaleMemory, RaisesNoFlagAndChangesNoResult) {
  FALTUNG_TRACE_SAMPLE();
  std::vector<Problem> taken;
  for (const Problem& p : shape_problems()) {
    Problem fast = p;
    fast.math = Math::fast;
    if (GetParam()->supports(p, builder_.target()).yes || GetParam()->supports(fast, builder_.target()).yes) {
      taken.push_back(p);
    }
  }
  for (const Problem& p : sampling::draw(taken, 2, std::string(GetParam()->name()), kind_of)) check(p);
}

// Planes whose rows end within a vector, with steps between what a tap reads, and reductions that are cut.
TEST_P(StaleMemory, OfRowsThatEndWithinAVector) {
  for (const char* shape : {"n2c37h14w14k20r1s1", "n2c33h14w14k24r1s1:st2", "n2c20h15w15k30r3s3:st2:pad1",
                            "n3c18h7w7k17r3s3:pad1", "n1c19h29w27k16r3s3:pad1", "n1c600h9w21k40r3s3:st2",
                            "n1c12h16w70k8r3s3:pad2:dil2", "n1c24h14w13k24r5s5:st2:pad2:g24"}) {
    for (const char* direction : {"fwd:", "bwd_d:", "bwd_w:"}) {
      for (const char* layout : {":nchw", ":nhwc"}) {
        check(parse_problem(direction + std::string(shape) + ":f32" + layout));
      }
    }
  }
}

// What it costs depends on the processor, so that it is shown: the flags above are what is asserted.
TEST(StaleMemoryTime, IsShown) {
  Builder builder{find_device("cpu"), std::make_shared<const Parallel>(1)};
  for (const char* text : {"fwd:n4c64h56w56k128r1s1:st2:f32:nchw", "fwd:n4c256h14w14k256r3s3:pad1:f32:nchw",
                           "fwd:n4c512h7w7k512r3s3:pad1:f32:nchw"}) {
    const Problem p = parse_problem(text);
    const Oracle oracle(p, Data::small_integers, 1);
    for (const auto& algorithm : registry()) {
      if (algorithm->device_kind() != "cpu" || algorithm->name() != "implicit_gemm_cpu") continue;
      const Candidate candidate = algorithm->candidates(p, builder.target()).front();
      const std::shared_ptr<const PlanImpl> plan = builder.plan(p, candidate);
      const auto seconds = [&](Stale stale) {
        double best = 1e9;
        for (int i = 0; i < 9; ++i) {
          const Trial run(p, oracle.tensors(), *plan, stale);
          const auto start = std::chrono::steady_clock::now();
          run.once();
          best =
              std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        }
        return best;
      };
      std::printf("%s, %s: over denormals %.2f of the time over ones\n", text, candidate.kernel().c_str(),
                  seconds(Stale::denormal) / seconds(Stale::harmless));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, StaleMemory, testing::ValuesIn(algorithms("cpu")), algorithm_name);

}  // namespace
}  // namespace faltung
