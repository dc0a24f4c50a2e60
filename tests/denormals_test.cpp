// Values below the smallest normal number: what they cost, and that they are zero where the request says so.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "tests/filled_convolution.hpp"

namespace faltung {
namespace {

class DenormalValues : public FilledConvolutions {};

// Depends on the processor, so that it is shown.
TEST_F(DenormalValues, WhatTheyCostIsShown) {
  const auto best_ms = [](const FilledConvolution& work, const Plan& plan) {
    std::vector<std::byte> workspace(plan.workspace_bytes() + 1);
    RunOptions options;
    options.workspace = workspace.data();
    double best = 1e9;
    for (int i = 0; i < 7; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      plan.run(work.tensors, options);
      const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
      best = std::min(best, ms.count());
    }
    return best;
  };
  for (const char* text :
       {"fwd:n1c64h28w28k64r3s3:pad1:f32:nchw", "fwd:n1c64h28w28k64r3s3:pad1:f32:nhwc",
        "fwd:n1c64h28w28k64r3s3:pad1:g64:f32:nhwc", "bwd_w:n1c64h28w28k64r3s3:pad1:f32:nhwc"}) {
    FilledConvolution normal(text), denormal(text);
    for (std::size_t t = 0; t < 4; ++t) {
      each_value(normal.memory[t], [](float v) { return std::fpclassify(v) == FP_SUBNORMAL ? 0.5f : v; });
      if (t != 1) each_value(denormal.memory[t], [](float v) { return v * 1e-39f; });  // all but the weights
    }
    for (const std::string& algorithm : algorithms(normal.problem)) {
      if (algorithm == "reference_cpu") continue;
      Engine engine(scratch_.path());
      Request keep = request(algorithm, 1), flush = keep;
      flush.flush_denormals = true;
      const Plan keeps = engine.plan(normal.problem, keep), flushes = engine.plan(normal.problem, flush);
      const double usual = best_ms(normal, keeps);
      std::printf("%s, %s: over denormals %.1f of the time over others, flushed %.1f\n", text,
                  keeps.kernel().c_str(), best_ms(denormal, keeps) / usual,
                  best_ms(denormal, flushes) / usual);
    }
  }
}

// Off unless it is asked for; then values below the smallest normal number are zero, and no others change.
TEST_F(DenormalValues, AreFlushedWhereTheRequestSaysSo) {
  for (const char* text : {"fwd:n1c16h9w8k16r3s3:pad1", "fwd:n1c16h9w8k16r1s1:f32:nhwc",
                           "fwd:n1c16h9w8k16r3s3:pad1:g16:f32:nhwc", "bwd_d:n1c16h9w8k16r3s3:pad1",
                           "bwd_w:n1c16h9w8k16r3s3:pad1"}) {
    FilledConvolution work(text), flushed(text);
    for (std::vector<std::byte>& tensor : flushed.memory) {
      each_value(tensor,
                 [](float v) { return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(0.0f, v) : v; });
    }
    // Nothing but denormals, beside ones.
    FilledConvolution tiny(text);
    const std::size_t pixels = tiny.problem.direction == Direction::backward_data ? 2 : 0;
    for (std::size_t t = 0; t < 4; ++t)
      each_value(tiny.memory[t], [&](float) { return t == pixels ? 0x1p-140f : 1.0f; });
    for (const std::string& algorithm : algorithms(work.problem)) {
      Engine engine(scratch_.path());
      Request keep = request(algorithm, 2), flush = keep;
      flush.flush_denormals = true;
      const Plan keeps = engine.plan(work.problem, keep), flushes = engine.plan(work.problem, flush);
      EXPECT_EQ(keeps.kernel(), flushes.kernel());
      const auto of_all = work.run(flushes, nullptr, {}), of_zeros = flushed.run(keeps, nullptr, {});
      for (std::size_t i = 0; i < of_all.size() / 4; ++i) {
        float a, b;
        std::memcpy(&a, of_all.data() + 4 * i, 4);
        std::memcpy(&b, of_zeros.data() + 4 * i, 4);
        // Flushed on the way, a sum loses less than the smallest normal number a term.
        ASSERT_LE(std::abs(a - b), 1000 * 0x1p-126f) << algorithm << " for " << text << " at " << i;
      }
      const auto nonzero = [](std::vector<std::byte> result) {
        int count = 0;
        each_value(result, [&](float v) { return count += v != 0 ? 1 : 0, v; });
        return count;
      };
      EXPECT_EQ(nonzero(tiny.run(flushes, nullptr, {})), 0) << algorithm << " for " << text;
      EXPECT_GT(nonzero(tiny.run(keeps, nullptr, {})), 0) << algorithm << " for " << text;
    }
  }
}

}  // namespace
}  // namespace faltung
