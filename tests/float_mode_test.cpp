// Whatever floating-point mode a caller has, the bits of every result are the same, and it has the same mode
// afterwards: its own thread, the library's, and those of its parallel_for.
#include "src/problem/float_mode.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <thread>

#include "faltung/faltung.h"
#include "faltung/network.hpp"
#include "tests/filled_convolution.hpp"
#include "tests/onnx_writer.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace faltung {
namespace {

#if defined(__x86_64__)
struct Mode {
  const char* name;
  unsigned mxcsr;
  std::uint16_t x87;
  bool operator==(const Mode& other) const { return mxcsr == other.mxcsr && x87 == other.x87; }
};
const Mode kUsual{"usual", 0x1f80, 0x37f};
const Mode kModes[] = {{"up", 0x5f80, 0xb7f},
                       {"down", 0x3f80, 0x77f},
                       {"to zero", 0x7f80, 0xf7f},
                       {"denormals flushed", 0x9fc0, 0x37f},
                       {"everything traps", 0x0000, 0x340},
                       {"up, flushed, traps, in single precision", 0xc440, 0x840},
                       {"with exceptions that have been", 0x1fbf, 0x37f}};

Mode mode_now() {
  Mode mode{"now", _mm_getcsr(), 0};
  asm volatile("fnstcw %0" : "=m"(mode.x87));
  return mode;
}
void set_mode(const Mode& mode) {
  asm volatile("fldcw %0" : : "m"(mode.x87));
  _mm_setcsr(mode.mxcsr);
}
#elif defined(__aarch64__)
struct Mode {
  const char* name;
  std::uint64_t fpcr;
  bool operator==(const Mode& other) const { return fpcr == other.fpcr; }
};
const Mode kUsual{"usual", 0};
const Mode kModes[] = {{"up", 1u << 22}, {"down", 2u << 22}, {"to zero", 3u << 22}, {"flushed", 1u << 24}};
Mode mode_now() {
  Mode mode{"now", 0};
  asm volatile("mrs %0, fpcr" : "=r"(mode.fpcr));
  return mode;
}
void set_mode(const Mode& mode) { asm volatile("msr fpcr, %0" : : "r"(mode.fpcr)); }
#endif

// The body runs in the mode, which is the same at its end. Failures are told in the usual one.
template <class Body>
void in_mode(const Mode& mode, const Body& body) {
  set_mode(mode);
  body();
  const Mode after = mode_now();
  set_mode(kUsual);
  EXPECT_TRUE(after == mode) << mode.name;
}

const char* const kProblems[] = {"fwd:n2c16h13w14k24r3s3:pad1:f32:nchw:bias:gelu",
                                 "fwd:n2c64h13w14k24r3s3:pad1:f32:nhwc:bias:sigmoid",
                                 "fwd:n1c24h12w11k24r3s3:pad1:g24:f32:nhwc",
                                 "fwd:n2c19h9w8k33r1s1:bf16:nhwc",
                                 "fwd:n1c3h30w28k5r13s13:pad6:math=fast",
                                 "fwd:n1c16h12w12k16r3s3:pad1:f16:relu:avgpool2",
                                 "bwd_d:n2c16h13w14k24r3s3:pad1",
                                 "bwd_w:n2c16h13w14k24r3s3:pad1"};

class FloatModes : public FilledConvolutions {};

TEST_F(FloatModes, TheBitsAndTheCallersModeAreTheSame) {
  for (const char* text : kProblems) {
    FilledConvolution work(text);
    for (const std::string& algorithm : algorithms(work.problem)) {
      SCOPED_TRACE(algorithm + " for " + text);
      Engine usual(scratch_.path());
      const auto expected = work.run(usual.plan(work.problem, request(algorithm, 2)), nullptr, {});
      for (const Mode& mode : kModes) {
        in_mode(mode, [&] {
          // Planned, packed and run in this mode, by an engine whose threads it starts in it.
          Engine engine(scratch_.path());
          for (const int threads : {1, 2}) {
            const Plan plan = engine.plan(work.problem, request(algorithm, threads));
            const bool same = work.run(plan, nullptr, {}) == expected;
            const auto weights =
                plan.packed_weights_bytes() > 0 ? plan.pack_weights(work.tensors.w) : nullptr;
            const bool packed_same = work.run(plan, weights.get(), {}) == expected;
            if (threads == 1) continue;  // another division of the sum, in some
            EXPECT_TRUE(same) << mode.name;
            EXPECT_TRUE(packed_same) << mode.name;
          }
        });
      }
    }
  }
}

TEST_F(FloatModes, TheThreadsOfAParallelForKeepTheirs) {
  std::atomic<int> calls{0}, kept{0};
  const Mode* thread_mode = nullptr;
  const ParallelFor parallel_for = [&](int count, const std::function<void(int)>& body) {
    const Mode callers = mode_now();
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        set_mode(*thread_mode);
        body(i);
        ++calls;
        kept += mode_now() == *thread_mode ? 1 : 0;
      });
    }
    for (std::thread& thread : threads) thread.join();
    // On the caller's thread, too, and in the caller's mode.
    kept += callers == *thread_mode ? 1 : 0;
    ++calls;
  };
  for (const char* text : kProblems) {
    FilledConvolution work(text);
    for (const std::string& algorithm : algorithms(work.problem)) {
      Engine engine(scratch_.path());
      const Plan plan = engine.plan(work.problem, request(algorithm, 3));
      const auto expected = work.run(plan, nullptr, {});
      for (const Mode& mode : kModes) {
        thread_mode = &mode;
        bool same = false;
        in_mode(mode, [&] { same = work.run(plan, nullptr, parallel_for) == expected; });
        EXPECT_TRUE(same) << algorithm << " for " << text << ", " << mode.name;
      }
    }
  }
  EXPECT_GT(calls, 0);
  EXPECT_EQ(calls, kept);
}

TEST_F(FloatModes, EveryOtherEntryKeepsIt) {
  const Problem problem = parse_problem("n1c8h9w8k8r3s3:pad1:leaky_relu(0.1)");
  for (const Mode& mode : kModes) {
    bool same = false, callers = true;
    std::string kernel;
    in_mode(mode, [&] {
      const Problem parsed = parse_problem("n1c8h9w8k8r3s3:pad1:leaky_relu(0.1)");
      same = parsed == problem && to_string(parsed) == to_string(problem);
      devices();
      MemoryPool pool;
      pool.free(pool.allocate(1000));
      Engine engine(scratch_.path());
      Request request;
      request.threads = 2;
      request.budget_ms = 20;
      request.only = {"direct_cpu", "winograd_cpu"};
      kernel = engine
                   .find(parsed, request,
                         [&](int, int, const std::string&) {
                           callers = callers && mode_now() == mode;  // for what it calls back, too
                         })
                   .kernel;
      engine.explain(parsed, request);
    });
    EXPECT_TRUE(same) << mode.name;
    EXPECT_TRUE(callers) << mode.name;
    EXPECT_FALSE(kernel.empty());
  }
}

TEST_F(FloatModes, AnExceptionLeavesItAsItWas) {
  for (const Mode& mode : kModes) {
    in_mode(mode, [] { EXPECT_THROW(parse_problem("n1c8h9w8k8r3s3:leaky_relu(x)"), Error); });
    in_mode(mode, [] { EXPECT_THROW(Engine("/nonexistent.lock"), Error); });
  }
}

TEST_F(FloatModes, WarningsAreToldInTheCallers) {
  const Problem problem = parse_problem("n1c8h9w8k8r3s3:pad1");
  const std::string file = scratch_.path() + "/file";
  std::ofstream(file) << "no directory";
  for (const Mode& mode : kModes) {
    int told = 0, kept = 0;
    in_mode(mode, [&] {
      Engine engine(file + "/store");  // which can hold nothing
      engine.on_warning([&](const std::string&) { ++told, kept += mode_now() == mode ? 1 : 0; });
      Request request;
      request.threads = 1, request.budget_ms = 1, request.only = {"direct_cpu"};
      engine.find(problem, request);
    });
    EXPECT_GT(told, 0) << mode.name;
    EXPECT_EQ(told, kept) << mode.name;
  }
}

TEST_F(FloatModes, TheCInterfaceKeepsIt) {
  const std::string store = scratch_.path() + "/store";
  for (const Mode& mode : kModes) {
    bool well = false;
    std::vector<float> x(200, 0.1f), w(200, 0.3f), y(200);
    in_mode(mode, [&] {
      faltung_engine* engine = nullptr;
      faltung_problem* problem = nullptr;
      faltung_plan* plan = nullptr;
      faltung_request request = faltung_request_default();
      request.threads = 1;
      well = faltung_engine_create(store.c_str(), &engine) == FALTUNG_OK &&
             faltung_problem_create("fwd:n1c2h9w9k2r3s3:pad1:leaky_relu(0.1)", &problem) == FALTUNG_OK &&
             faltung_plan_create(engine, problem, &request, &plan) == FALTUNG_OK;
      if (well) {
        std::vector<char> workspace(faltung_plan_workspace_bytes(plan, 0) + 1);
        faltung_run_options options{};
        options.size = sizeof options;
        options.workspace = workspace.data();
        const faltung_tensors tensors{sizeof tensors, x.data(), w.data(), y.data(), nullptr, nullptr,
                                      nullptr,        nullptr,  nullptr,  nullptr,  nullptr};
        well = faltung_run(plan, &tensors, &options) == FALTUNG_OK;
      }
      faltung_plan_destroy(plan);
      faltung_problem_destroy(problem);
      faltung_engine_destroy(engine);
    });
    EXPECT_TRUE(well) << mode.name << ": " << faltung_last_error();
    EXPECT_NEAR(y[40], 18 * 0.03f, 1e-5) << mode.name;
  }
}

// Its constants are folded, and steps made of them, as it is opened and planned.
TEST_F(FloatModes, NetworksKeepIt) {
  onnx::ModelText model;
  model.add_input("x", {1, 8, -1, 7});
  model.add_constant(onnx::tensor("thirds", {1, 8, 1, 1}, std::vector<float>(8, 1.0f / 3)));
  model.add_constant(onnx::tensor("tenths", {1, 8, 1, 1}, std::vector<float>(8, 0.1f)));
  model.add_constant(onnx::tensor("w", {8, 8, 3, 3}, std::vector<float>(8 * 8 * 9, 0.7f)));
  model.add({"Mul", {"thirds", "tenths"}, {"folded"}, {}, ""});
  model.add({"Conv", {"x", "w"}, {"convolved"}, {{"pads", onnx::Sizes{1, 1, 1, 1}}}, ""});
  model.add({"Mul", {"convolved", "folded"}, {"scaled"}, {}, ""});
  model.add({"Softmax", {"scaled"}, {"y"}, {{"axis", std::int64_t{3}}}, ""});
  model.add_output("y");
  const std::string path = scratch_.path() + "/model.onnx";
  std::ofstream(path, std::ios::binary) << model.bytes();
  std::vector<float> x(8 * 5 * 7);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 13) * 0.01f - 0.05f;
  std::vector<float> expected;
  const auto run = [&] {
    Engine engine(scratch_.path() + "/store");
    NetworkRequest request;
    request.request.threads = 2;
    Network network(engine, path, request);
    const NetworkPlan plan = network.plan({{1, 8, 5, 7}});
    std::vector<float> y(x.size());
    const void* const inputs[] = {x.data()};
    void* const outputs[] = {y.data()};
    plan.run(inputs, outputs);
    plan.report(inputs, outputs, 1);
    return y;
  };
  expected = run();
  for (const Mode& mode : kModes) {
    bool same = false;
    in_mode(mode, [&] { same = run() == expected; });
    EXPECT_TRUE(same) << mode.name;
  }
}

}  // namespace
}  // namespace faltung
