// The C interface: used from C99, and what it says when it is used wrongly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "faltung/faltung.h"
#include "tests/no_threads.hpp"
#include "tests/scratch.hpp"

extern "C" int c_api_c99(const char* store);

namespace {

using testing::HasSubstr;

class CApi : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(faltung_engine_create(scratch_.path().c_str(), &engine_), FALTUNG_OK);
    ASSERT_EQ(faltung_problem_create("fwd:n1c2h4w4k2r3s3:pad1", &problem_), FALTUNG_OK);
  }
  void TearDown() override {
    faltung_problem_destroy(problem_);
    faltung_engine_destroy(engine_);
  }
  faltung::Scratch scratch_;
  faltung_engine* engine_ = nullptr;
  faltung_problem* problem_ = nullptr;
};

TEST_F(CApi, WorksFromC99) { EXPECT_EQ(c_api_c99(scratch_.path().c_str()), 0) << faltung_last_error(); }

TEST_F(CApi, AProblemThatMakesNoSenseIsAStatusAndAMessage) {
  faltung_problem* problem = problem_;
  EXPECT_EQ(faltung_problem_create("fwd:n1c3h8w8k4r3s3:g2", &problem), FALTUNG_BAD_PROBLEM);
  EXPECT_EQ(problem, nullptr);
  EXPECT_THAT(faltung_last_error(), HasSubstr("groups = 2 does not divide c = 3"));
}

TEST_F(CApi, NullArgumentsAreNamed) {
  faltung_problem* problem = nullptr;
  EXPECT_EQ(faltung_problem_create(nullptr, &problem), FALTUNG_BAD_PROBLEM);
  EXPECT_STREQ(faltung_last_error(), "faltung_problem_create: text is NULL");
  EXPECT_EQ(faltung_problem_create("fwd:n1", nullptr), FALTUNG_BAD_PROBLEM);
  EXPECT_EQ(faltung_engine_create(nullptr, nullptr), FALTUNG_BAD_PROBLEM);
  EXPECT_EQ(faltung_find(nullptr, problem_, nullptr, nullptr), FALTUNG_BAD_PROBLEM);
  EXPECT_EQ(faltung_explain(engine_, problem_, nullptr, nullptr), FALTUNG_BAD_PROBLEM);
  EXPECT_EQ(faltung_pack_weights(nullptr, nullptr, nullptr, nullptr), FALTUNG_BAD_PROBLEM);
  EXPECT_EQ(faltung_run(nullptr, nullptr, nullptr), FALTUNG_BAD_PROBLEM);
  faltung_plan* plan = nullptr;
  EXPECT_EQ(faltung_plan_create(engine_, nullptr, nullptr, &plan), FALTUNG_BAD_PROBLEM);
  EXPECT_STREQ(faltung_last_error(), "faltung_plan_create: problem is NULL");
  EXPECT_STREQ(faltung_problem_text(nullptr), "");
  EXPECT_STREQ(faltung_plan_kernel(nullptr), "");
  EXPECT_EQ(faltung_problem_bytes(nullptr, FALTUNG_X), 0u);
  EXPECT_EQ(faltung_plan_workspace_bytes(nullptr, 0), 0u);
  EXPECT_EQ(faltung_plan_packed_weights_bytes(nullptr), 0u);
  faltung_problem_destroy(nullptr);
  faltung_engine_destroy(nullptr);
  faltung_plan_destroy(nullptr);
  faltung_weights_destroy(nullptr);
  faltung_choice_destroy(nullptr);
  EXPECT_STREQ(faltung_choice_kernel(nullptr), "");
  EXPECT_STREQ(faltung_choice_source(nullptr), "");
  EXPECT_STREQ(faltung_choice_text(nullptr), "");
  EXPECT_EQ(faltung_choice_count(nullptr), 0u);
  EXPECT_EQ(faltung_choice_report(nullptr, 0, nullptr), FALTUNG_BAD_PROBLEM);
  EXPECT_EQ(faltung_device_get(0, nullptr), FALTUNG_BAD_PROBLEM);
}

TEST_F(CApi, DevicesAreDescribed) {
  const int count = faltung_device_count();
  ASSERT_GT(count, 0);
  for (int i = 0; i < count; ++i) {
    faltung_device device{};
    device.size = sizeof device;
    ASSERT_EQ(faltung_device_get(i, &device), FALTUNG_OK) << faltung_last_error();
    EXPECT_EQ(std::string(device.id) == "cpu", i == 0);
    EXPECT_STRNE(device.name, "");
    EXPECT_NE(device.driver, nullptr);
    EXPECT_GT(device.units, 0);
    EXPECT_GT(device.memory_bytes, 0u);
    EXPECT_EQ(device.size, sizeof device);
  }
  faltung_device device{};
  device.size = sizeof device;
  EXPECT_EQ(faltung_device_get(count, &device), FALTUNG_BAD_PROBLEM);
  EXPECT_EQ(faltung_device_get(-1, &device), FALTUNG_BAD_PROBLEM);
}

TEST_F(CApi, AFindIsWatchedAndEnded) {
  struct Seen {
    int calls = 0, total = 0, end_at = 0;
    std::string kernel;
  } seen;
  faltung_request request = faltung_request_default();
  request.threads = 1;
  request.budget_ms = 50;
  request.progress_context = &seen;
  request.progress = [](void* context, int done, int total, const char* kernel) {
    Seen& seen = *static_cast<Seen*>(context);
    EXPECT_EQ(done, seen.calls++);
    seen.total = total;
    seen.kernel = kernel;
    return seen.calls == seen.end_at ? 1 : 0;
  };
  faltung_choice* choice = nullptr;
  ASSERT_EQ(faltung_find(engine_, problem_, &request, &choice), FALTUNG_OK) << faltung_last_error();
  EXPECT_GE(seen.calls, 1);
  EXPECT_GE(seen.total, seen.calls);
  EXPECT_THAT(seen.kernel, HasSubstr("/"));
  faltung_choice_destroy(choice);

  seen = {};
  seen.end_at = 2;
  request.budget_ms = 5000;
  EXPECT_EQ(faltung_find(engine_, problem_, &request, &choice), FALTUNG_CANCELLED);
  EXPECT_EQ(choice, nullptr);
  EXPECT_EQ(seen.calls, 2);
  EXPECT_THAT(faltung_last_error(), HasSubstr("ended"));
}

// Of a program that was compiled with an earlier header only what it has is read and written.
TEST_F(CApi, StructsMayGrow) {
  faltung_device device{};
  device.size = offsetof(faltung_device, name);
  device.units = -7;
  ASSERT_EQ(faltung_device_get(0, &device), FALTUNG_OK) << faltung_last_error();
  EXPECT_STREQ(device.kind, "cpu");
  EXPECT_EQ(device.name, nullptr);
  EXPECT_EQ(device.units, -7);

  faltung_request request = faltung_request_default();
  EXPECT_EQ(request.size, sizeof request);
  request.threads = 1;
  request.only = "reference_cpu";
  request.size = offsetof(faltung_request, only);
  request.worker = reinterpret_cast<const char*>(std::uintptr_t{1});  // beyond what is said to be there
  faltung_plan* plan = nullptr;
  ASSERT_EQ(faltung_plan_create(engine_, problem_, &request, &plan), FALTUNG_OK) << faltung_last_error();
  EXPECT_STRNE(faltung_plan_kernel(plan), "reference_cpu/plain");
  faltung_plan_destroy(plan);

  for (const std::size_t size : {std::size_t{0}, std::size_t{3}, std::size_t{1} << 40}) {
    request.size = device.size = size;
    EXPECT_EQ(faltung_plan_create(engine_, problem_, &request, &plan), FALTUNG_BAD_PROBLEM) << size;
    EXPECT_THAT(faltung_last_error(), HasSubstr("set it to sizeof the struct")) << size;
    EXPECT_EQ(faltung_device_get(0, &device), FALTUNG_BAD_PROBLEM) << size;
  }
}

TEST_F(CApi, ReportsAreStructs) {
  faltung_request request = faltung_request_default();
  request.threads = 1;
  request.skip = "winograd*";
  faltung_choice* choice = nullptr;
  ASSERT_EQ(faltung_explain(engine_, problem_, &request, &choice), FALTUNG_OK) << faltung_last_error();
  int chosen = 0, declined = 0;
  for (std::size_t i = 0; i < faltung_choice_count(choice); ++i) {
    faltung_report report{};
    report.size = sizeof report;
    ASSERT_EQ(faltung_choice_report(choice, i, &report), FALTUNG_OK);
    chosen += report.outcome == FALTUNG_CHOSEN;
    if (report.outcome == FALTUNG_CHOSEN) {
      EXPECT_STREQ(report.kernel, faltung_choice_kernel(choice));
      EXPECT_GT(report.predicted_ms, 0);
      EXPECT_GT(report.error_growth, 0);
      EXPECT_GT(report.rms_of_chain, 0);
      EXPECT_LE(report.rms_of_chain, 2);
      EXPECT_STRNE(report.bound_by, "");
    }
    declined += report.outcome == FALTUNG_DECLINED;
    if (report.outcome == FALTUNG_DECLINED || report.outcome == FALTUNG_SKIPPED) {
      EXPECT_STRNE(report.why, "");
    }
    EXPECT_THAT(faltung_choice_text(choice), HasSubstr(report.kernel));
  }
  EXPECT_EQ(chosen, 1);
  EXPECT_GT(declined, 0);
  faltung_report report{};
  report.size = sizeof report;
  EXPECT_EQ(faltung_choice_report(choice, 1000, &report), FALTUNG_BAD_PROBLEM);
  report.size = 1;
  EXPECT_EQ(faltung_choice_report(choice, 0, &report), FALTUNG_BAD_PROBLEM);
  faltung_choice_destroy(choice);
  EXPECT_STREQ(faltung_outcome_name(FALTUNG_TOO_LARGE), "too_large");
  EXPECT_STREQ(faltung_outcome_name(static_cast<faltung_outcome>(15)), "");
}

TEST_F(CApi, ShapesOfThreeDimensions) {
  int64_t sizes[4];
  faltung_shape none{};
  EXPECT_EQ(faltung_problem_shape(problem_, FALTUNG_X, &none), FALTUNG_BAD_PROBLEM);
  EXPECT_THAT(faltung_last_error(), HasSubstr("its size is 0"));
  faltung_problem* volume = nullptr;
  ASSERT_EQ(faltung_problem_create("n2c4d5h6w7k8t3r2s1", &volume), FALTUNG_OK);
  EXPECT_EQ(faltung_problem_sizes(volume, FALTUNG_X, sizes), FALTUNG_BAD_PROBLEM);
  EXPECT_THAT(faltung_last_error(), HasSubstr("three spatial dimensions; ask faltung_problem_shape"));
  faltung_shape shape{sizeof(faltung_shape), 0, 0, 0, 0, 0, 0};
  ASSERT_EQ(faltung_problem_shape(volume, FALTUNG_W, &shape), FALTUNG_OK);
  EXPECT_EQ(shape.dimensions, 3);
  EXPECT_THAT((std::array{shape.n, shape.c, shape.d, shape.h, shape.w}), testing::ElementsAre(8, 4, 3, 2, 1));
  faltung_problem_destroy(volume);
}

TEST_F(CApi, AnUnknownTensorIsAStatus) {
  int64_t sizes[4];
  EXPECT_EQ(faltung_problem_sizes(problem_, static_cast<faltung_tensor>(10), sizes), FALTUNG_BAD_PROBLEM);
  EXPECT_THAT(faltung_last_error(), HasSubstr("no tensor 10"));
}

TEST_F(CApi, APatternForcesAKernelAndOneThatForbidsAllIsUnsupported) {
  faltung_request request = faltung_request_default();
  request.threads = 1;
  request.only = "reference*, fft_gpu*";
  faltung_plan* plan = nullptr;
  ASSERT_EQ(faltung_plan_create(engine_, problem_, &request, &plan), FALTUNG_OK) << faltung_last_error();
  EXPECT_STREQ(faltung_plan_kernel(plan), "reference_cpu/plain");
  faltung_plan_destroy(plan);
  request.skip = "*";
  EXPECT_NE(faltung_plan_create(engine_, problem_, &request, &plan), FALTUNG_OK);
  EXPECT_EQ(plan, nullptr);
  EXPECT_STRNE(faltung_last_error(), "");
}

TEST_F(CApi, AnUnknownDeviceIsAStatus) {
  faltung_request request = faltung_request_default();
  request.device = "abacus:0";
  faltung_plan* plan = nullptr;
  EXPECT_EQ(faltung_plan_create(engine_, problem_, &request, &plan), FALTUNG_BAD_PROBLEM);
  EXPECT_THAT(faltung_last_error(), HasSubstr("abacus:0"));
}

TEST_F(CApi, AMissingTensorIsAStatus) {
  faltung_plan* plan = nullptr;
  ASSERT_EQ(faltung_plan_create(engine_, problem_, nullptr, &plan), FALTUNG_OK) << faltung_last_error();
  faltung_tensors none{};
  none.size = sizeof none;
  std::vector<char> workspace(faltung_plan_workspace_bytes(plan, 0) + 1);
  faltung_run_options options{};
  options.size = sizeof options;
  options.workspace = workspace.data();
  EXPECT_EQ(faltung_run(plan, &none, &options), FALTUNG_BAD_PROBLEM);
  EXPECT_THAT(faltung_last_error(), HasSubstr("tensor x is null"));
  const faltung_tensors sizeless{};
  EXPECT_EQ(faltung_run(plan, &sizeless, &options), FALTUNG_BAD_PROBLEM);
  EXPECT_THAT(faltung_last_error(), HasSubstr("faltung_tensors: its size is 0; set it to sizeof the struct"));
  faltung_plan_destroy(plan);
}

TEST_F(CApi, MoreThreadsThanCanBeAreAStatus) {
  const faltung::NoThreads here;
  faltung_request request = faltung_request_default();
  request.threads = 100000;
  faltung_plan* plan = nullptr;
  EXPECT_EQ(faltung_plan_create(engine_, problem_, &request, &plan), FALTUNG_BAD_PROBLEM);
  EXPECT_THAT(faltung_last_error(), HasSubstr("threads is 100000; it must be 0 (all) to 4096"));
}

TEST_F(CApi, DenormalsAreFlushedWhereTheRequestSaysSo) {
  for (const int flush : {0, 1}) {
    faltung_request request = faltung_request_default();
    request.threads = 1;
    request.flush_denormals = flush;
    faltung_plan* plan = nullptr;
    ASSERT_EQ(faltung_plan_create(engine_, problem_, &request, &plan), FALTUNG_OK) << faltung_last_error();
    std::vector<float> x(32, 0x1p-140f), w(36, 1), y(32, -1);
    const faltung_tensors tensors{sizeof tensors, x.data(), w.data(), y.data(), nullptr, nullptr,
                                  nullptr,        nullptr,  nullptr,  nullptr,  nullptr};
    std::vector<char> workspace(faltung_plan_workspace_bytes(plan, 0) + 1);
    faltung_run_options options{};
    options.size = sizeof options;
    options.workspace = workspace.data();
    ASSERT_EQ(faltung_run(plan, &tensors, &options), FALTUNG_OK) << faltung_last_error();
    EXPECT_EQ(y[0], flush != 0 ? 0 : 8 * 0x1p-140f);  // 2 channels × 4 taps
    faltung_plan_destroy(plan);
  }
}

TEST_F(CApi, WhatIsWrittenOverlapsNothing) {
  faltung_problem* problem = nullptr;
  ASSERT_EQ(faltung_problem_create("fwd:n1c2h4w4k2r3s3:pad1:bias:residual", &problem), FALTUNG_OK);
  faltung_plan* plan = nullptr;
  ASSERT_EQ(faltung_plan_create(engine_, problem, nullptr, &plan), FALTUNG_OK) << faltung_last_error();
  std::vector<float> reads(36, 1), y(32 + 36, -1);
  const std::size_t bytes = faltung_plan_workspace_bytes(plan, 0);
  std::vector<char> workspace(bytes + 1);
  faltung_run_options options{};
  options.size = sizeof options;
  options.workspace = workspace.data();
  const faltung_tensors same{sizeof same, reads.data(), reads.data(), y.data(), reads.data(), reads.data(),
                             nullptr,     nullptr,      nullptr,      nullptr,  nullptr};
  ASSERT_EQ(faltung_run(plan, &same, &options), FALTUNG_OK) << faltung_last_error();
  EXPECT_EQ(y[0], 10);  // 2 channels × 4 taps, bias, residual
  const auto refused = [&](const faltung_tensors& tensors, const char* what) {
    EXPECT_EQ(faltung_run(plan, &tensors, &options), FALTUNG_BAD_PROBLEM) << what;
    EXPECT_THAT(faltung_last_error(), HasSubstr(what));
  };
  refused({sizeof(faltung_tensors), y.data() + 31, reads.data(), y.data(), reads.data(), reads.data(),
           nullptr, nullptr, nullptr, nullptr, nullptr},
          "y is written to and overlaps x");
  refused({sizeof(faltung_tensors), reads.data(), y.data() + 31, y.data(), reads.data(), reads.data(),
           nullptr, nullptr, nullptr, nullptr, nullptr},
          "y is written to and overlaps w");
  refused({sizeof(faltung_tensors), reads.data(), reads.data(), y.data(), y.data() + 5, reads.data(), nullptr,
           nullptr, nullptr, nullptr, nullptr},
          "y is written to and overlaps bias");
  refused({sizeof(faltung_tensors), reads.data(), reads.data(), y.data(), reads.data(), y.data(), nullptr,
           nullptr, nullptr, nullptr, nullptr},
          "y is written to and overlaps residual");
  options.addresses = FALTUNG_ADDRESSES_ON_DEVICE;  // which says nothing of where they lie beside each other
  refused({sizeof(faltung_tensors), y.data() + 31, reads.data(), y.data(), reads.data(), reads.data(),
           nullptr, nullptr, nullptr, nullptr, nullptr},
          "y is written to and overlaps x");
  const faltung_tensors beside{sizeof beside, y.data() + 32, y.data() + 32, y.data(),
                               y.data() + 32, y.data() + 32, nullptr,       nullptr,
                               nullptr,       nullptr,       nullptr};
  EXPECT_EQ(faltung_run(plan, &beside, &options), FALTUNG_OK) << faltung_last_error();
  if (bytes > 0) {
    options.workspace = y.data();
    refused(same, "overlaps workspace");
  }
  faltung_plan_destroy(plan);
  faltung_problem_destroy(problem);
}

TEST_F(CApi, APlanOutlivesItsEngine) {
  faltung_plan* plan = nullptr;
  ASSERT_EQ(faltung_plan_create(engine_, problem_, nullptr, &plan), FALTUNG_OK) << faltung_last_error();
  faltung_engine_destroy(engine_);
  engine_ = nullptr;
  std::vector<float> x(32, 1), w(36, 1), y(32, -1);
  const faltung_tensors tensors{sizeof tensors, x.data(), w.data(), y.data(), nullptr, nullptr,
                                nullptr,        nullptr,  nullptr,  nullptr,  nullptr};
  std::vector<char> workspace(faltung_plan_workspace_bytes(plan, 0) + 1);
  faltung_run_options options{};
  options.size = sizeof options;
  options.workspace = workspace.data();
  ASSERT_EQ(faltung_run(plan, &tensors, &options), FALTUNG_OK) << faltung_last_error();
  EXPECT_FLOAT_EQ(y[0], 8);  // 2 channels × 4 taps
  faltung_plan_destroy(plan);
}

TEST_F(CApi, MessagesBelongToTheirThread) {
  faltung_problem* problem = nullptr;
  ASSERT_NE(faltung_problem_create("fwd:n0", &problem), FALTUNG_OK);
  const std::string mine = faltung_last_error();
  std::string before, after;
  std::thread([&] {
    before = faltung_last_error();
    faltung_problem* other = nullptr;
    faltung_problem_create("fwd:n1c1h1w1k1r2s2", &other);
    after = faltung_last_error();
  }).join();
  EXPECT_EQ(before, "");
  EXPECT_THAT(after, HasSubstr("larger than the padded input"));
  EXPECT_EQ(faltung_last_error(), mine);
}

TEST_F(CApi, AMemoryPoolHandsOutCopiesAndCounts) {
  faltung_memory_pool* pool = nullptr;
  EXPECT_EQ(faltung_memory_pool_create("no such device", SIZE_MAX, &pool), FALTUNG_BAD_PROBLEM);
  EXPECT_EQ(pool, nullptr);
  ASSERT_EQ(faltung_memory_pool_create(nullptr, 1 << 20, &pool), FALTUNG_OK);
  void* block = nullptr;
  ASSERT_EQ(faltung_memory_allocate(pool, 1000, &block), FALTUNG_OK);
  const char sent[4] = "abc";
  char received[4] = "";
  EXPECT_EQ(faltung_memory_copy_in(pool, block, sent, 4), FALTUNG_OK);
  EXPECT_EQ(faltung_memory_copy_out(pool, received, block, 4), FALTUNG_OK);
  EXPECT_STREQ(received, "abc");
  void* other = block;
  EXPECT_EQ(faltung_memory_allocate(pool, 2 << 20, &other), FALTUNG_OUT_OF_MEMORY);
  EXPECT_EQ(other, nullptr);
  EXPECT_NE(std::string(faltung_last_error()).find("the limit is 1048576"), std::string::npos);
  faltung_memory_statistics statistics{};
  statistics.size = sizeof statistics;
  ASSERT_EQ(faltung_memory_stats(pool, &statistics), FALTUNG_OK);
  EXPECT_EQ(statistics.in_use, 1024u);
  EXPECT_EQ(statistics.blocks, 1u);
  EXPECT_EQ(faltung_memory_free(pool, block), FALTUNG_OK);
  EXPECT_EQ(faltung_memory_free(pool, block), FALTUNG_BAD_PROBLEM);
  size_t returned = 0;
  EXPECT_EQ(faltung_memory_trim(pool, &returned), FALTUNG_OK);
  EXPECT_EQ(returned, 1024u);
  faltung_memory_pool_destroy(pool);
}

}  // namespace
