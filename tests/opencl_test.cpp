// The OpenCL backend on the first device there is; skipped where there is none, unless
// FALTUNG_TEST_REQUIRE_GPU=1.
#include <gtest/gtest.h>

#include <cstdlib>

#include "src/algorithms/algorithm.hpp"
#include "src/backend/buffer_addresses.hpp"
#include "src/backend/opencl.hpp"
#include "src/backend/opencl_api.hpp"
#include "src/finder/trust/verify.hpp"
#include "tests/backend_checks.hpp"
#include "tests/own_allocations.hpp"
#include "tests/scratch.hpp"
#include "tests/tested_devices.hpp"

namespace faltung {
namespace {

namespace cl = opencl;

constexpr const char* kAdd = R"(
__kernel void add(__global const float* x, ulong skip_x, __global float* y, ulong skip_y, float a, int count) {
  __global const float* from = (__global const float*)((__global const char*)x + skip_x);
  __global float* to = (__global float*)((__global char*)y + skip_y);
  const int i = (int)get_global_id(0);
  if (i < count) to[i] = from[i] + a * FACTOR;
}
)";

class OpenCl : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& device : list_devices()) {
      const std::string& id = device->info().id;
      if (device_ == nullptr && id.starts_with("opencl:") && is_tested(id))
        device_ = std::dynamic_pointer_cast<OpenClDevice>(device);
    }
    if (device_ != nullptr) return;
    if (std::getenv("FALTUNG_TEST_REQUIRE_GPU") != nullptr) FAIL() << "no OpenCL device";
    GTEST_SKIP() << "no OpenCL device";
  }

  KernelSource add_source() const { return {"add", kAdd, "add", {"-DFACTOR=2"}}; }

  std::shared_ptr<Kernel> add_kernel() { return device_->load(device_->compile(add_source()), add_source()); }

  std::vector<float> read(const Buffer& buffer, std::size_t count) {
    return read_floats(*device_, buffer, count);
  }

  std::shared_ptr<OpenClDevice> device_;
};

TEST_F(OpenCl, SaysWhatItIs) {
  const DeviceInfo& info = device_->info();
  EXPECT_EQ(info.kind, "gpu");
  EXPECT_FALSE(info.description.empty());
  EXPECT_FALSE(info.driver.empty());
  EXPECT_GT(info.units, 0);
  EXPECT_GT(info.memory_bytes, std::size_t{1} << 20);
  EXPECT_GE(info.local_bytes, 32u << 10);  // what OpenCL 1.2 promises
  EXPECT_GT(info.block_threads, 0);
  EXPECT_NE(info.key.find("opencl"), std::string::npos);
}

TEST_F(OpenCl, TakesAddressesInTheMiddleOfBuffers) {
  EXPECT_GT(expect_run_in_the_middle_of_buffers(*device_, *add_kernel()), 0);
}

TEST_F(OpenCl, TheDriverCopies) { expect_driver_copies(*device_); }

TEST_F(OpenCl, RunsAKernelFromItsStoredCode) {
  const Binary binary = device_->compile(add_source());
  EXPECT_GT(binary.compile_ms, 0);
  const std::shared_ptr<Kernel> kernel = device_->load({binary.code, "", 0}, add_source());
  const float three = 3;
  const Buffer x = device_->allocate(64), y = device_->allocate(64);
  device_->copy_in(x, &three, 4);
  device_->launch(*kernel, blocks_of_16(16), {x.pointer, y.pointer, 1.0f, 1}, {});
  EXPECT_EQ(read(y, 1)[0], 5);
}

// A handle keeps what a launch before gave it.
TEST_F(OpenCl, ALaunchHasItsOwnArguments) {
  const std::shared_ptr<Kernel> kernel = add_kernel();
  const float three = 3, ten = 10;
  const Buffer x = device_->allocate(64);
  device_->copy_in(x, &three, 4);
  for (int i = 0; i < 20; ++i) {
    const Buffer y = device_->allocate(64);
    device_->copy_in(y, &ten, 4);
    device_->launch(*kernel, blocks_of_16(16), {x.pointer, y.pointer, static_cast<float>(i / 2), 1}, {});
    EXPECT_EQ(read(y, 1)[0], 3 + i / 2 * 2) << i;
    device_->launch(*kernel, blocks_of_16(16), {y.pointer, y.pointer, 1.0f, i % 2}, {});
    EXPECT_EQ(read(y, 1)[0], 3 + i / 2 * 2 + i % 2 * 2) << i;
  }
}

TEST_F(OpenCl, ALaunchAllocatesNothing) {
  const std::shared_ptr<Kernel> kernel = add_kernel();
  const Buffer x = device_->allocate(64), y = device_->allocate(64);
  const float factor = 0.5f;
  const int count = 1;
  const Argument arguments[] = {x.pointer, y.pointer, factor, count},
                 changed[] = {y.pointer, x.pointer, factor, count};
  const auto launch = [&] {
    device_->launch(*kernel, blocks_of_16(16), arguments, {});
    device_->launch(*kernel, blocks_of_16(16), changed, {});
  };
  launch();
  const long before = own_allocations;
  launch();
  EXPECT_EQ(own_allocations - before, 0);
}

TEST_F(OpenCl, SaysWhatAKernelTakes) {
  const KernelResources r = device_->resources(*add_kernel(), add_source());
  EXPECT_GE(r.block_threads, 16);
  EXPECT_LE(r.block_threads, device_->info().block_threads);
  EXPECT_GT(r.wave_threads, 0);
  EXPECT_GE(r.local_bytes, 0);
  EXPECT_GE(r.spilled_bytes, 0);
}

TEST_F(OpenCl, CompilesOnceAProcessAndAfterItNever) { expect_compiled_once(*device_, add_source()); }

TEST_F(OpenCl, ACompileErrorNamesTheKernelItsConstantsAndTheLog) {
  expect_compile_error_in_words(*device_, add_source(), {device_->info().id, "log"});
}

TEST_F(OpenCl, DamagedCodeIsAnErrorNotACrash) { expect_damaged_code_is_an_error(*device_, add_source()); }

TEST_F(OpenCl, HostMemoryIsRefused) {
  const std::shared_ptr<Kernel> kernel = add_kernel();
  float host[16] = {};
  float* const pointer = host;
  const Buffer y = device_->allocate(64);
  try {
    device_->launch(*kernel, blocks_of_16(16), {pointer, y.pointer, 1.0f, 1}, {});
    FAIL() << "it ran";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::bad_problem);
  }
  EXPECT_THROW(device_->copy_in({nullptr, host, 64}, host, 64), Error);
}

TEST_F(OpenCl, AFreedBufferIsRefused) {
  const std::shared_ptr<Kernel> kernel = add_kernel();
  const Buffer y = device_->allocate(64);
  void* freed = device_->allocate(64).pointer;
  EXPECT_THROW(device_->launch(*kernel, blocks_of_16(16), {freed, y.pointer, 1.0f, 1}, {}), Error);
}

TEST_F(OpenCl, MoreMemoryThanThereIsIsAnError) { expect_too_much_memory_is_an_error(*device_); }

TEST_F(OpenCl, TimesWhatRuns) {
  const std::shared_ptr<Kernel> kernel = add_kernel();
  const Buffer x = device_->allocate(4 << 20), y = device_->allocate(4 << 20);
  const auto run = [&] {
    device_->launch(*kernel, blocks_of_16(1 << 20), {x.pointer, y.pointer, 1.0f, 1 << 20}, {});
  };
  run();
  const double ms = device_->time_ms({}, run);
  EXPECT_GT(ms, 0);
  EXPECT_LT(ms, 10000);
}

// A program that uses OpenCL itself: its own context, queue and buffers.
class OpenClCaller : public OpenCl {
 protected:
  void SetUp() override {
    OpenCl::SetUp();
    if (device_ == nullptr) return;
    cl::Uint count = 0;
    ASSERT_EQ(api_->get_platforms(0, nullptr, &count), 0);
    std::vector<cl::Platform> platforms(count);
    ASSERT_EQ(api_->get_platforms(count, platforms.data(), nullptr), 0);
    // All devices in the order in which faltung numbers them.
    std::vector<cl::DeviceId> ids;
    for (const cl::Platform platform : platforms) {
      if (api_->get_devices(platform, cl::kTypeAll, 0, nullptr, &count) != 0) continue;
      ids.resize(ids.size() + count);
      ASSERT_EQ(api_->get_devices(platform, cl::kTypeAll, count, ids.data() + ids.size() - count, nullptr),
                0);
    }
    const auto number = static_cast<std::size_t>(std::stoul(name().substr(name().find(':') + 1)));
    ASSERT_LT(number, ids.size());
    const cl::DeviceId id = ids[number];
    cl::Int error = 0;
    context_ = api_->create_context(nullptr, 1, &id, nullptr, nullptr, &error);
    ASSERT_EQ(error, 0);
    queue_ = api_->create_queue(context_, id, 0, &error);
    ASSERT_EQ(error, 0);
  }
  void TearDown() override {
    if (queue_ != nullptr) api_->release_queue(queue_);
    if (context_ != nullptr) api_->release_context(context_);
  }

  const std::string& name() const { return device_->info().id; }

  const cl::Api* api_ = cl::api();
  cl::Context context_ = nullptr;
  cl::Queue queue_ = nullptr;
};

TEST_F(OpenClCaller, ItsBuffersAndItsQueueAreUsed) {
  cl::Int error = 0;
  float values[16] = {1, 2, 3}, result[16] = {};
  const cl::Mem x = api_->create_buffer(context_, cl::kMemReadWrite, sizeof values, nullptr, &error);
  ASSERT_EQ(error, 0);
  const cl::Mem y = api_->create_buffer(context_, cl::kMemReadWrite, sizeof values, nullptr, &error);
  ASSERT_EQ(error, 0);
  ASSERT_EQ(api_->enqueue_write(queue_, x, cl::kTrue, 0, sizeof values, values, 0, nullptr, nullptr), 0);
  {
    const Buffer from = device_->adopt(x), to = device_->adopt(y);
    EXPECT_EQ(from.bytes, sizeof values);
    device_->launch(*add_kernel(), blocks_of_16(16), {from.pointer, to.pointer, 2.0f, 16}, {nullptr, queue_});
    device_->synchronize({nullptr, queue_});
  }
  ASSERT_EQ(api_->enqueue_read(queue_, y, cl::kTrue, 0, sizeof result, result, 0, nullptr, nullptr), 0);
  EXPECT_EQ(result[0], 5);
  EXPECT_EQ(result[2], 7);
  EXPECT_EQ(result[3], 4);
  EXPECT_EQ(api_->release_mem(x), 0);
  EXPECT_EQ(api_->release_mem(y), 0);
}

// A convolution from beginning to end in the caller's context: nothing of it is on a queue of ours.
TEST_F(OpenClCaller, APlanRunsOnItsBuffersAndItsQueue) {
  const Scratch store;
  setenv("FALTUNG_TRUST", "all", 1);
  Engine engine(store.path());
  Request request;
  request.device = name();
  request.only = {"direct_gpu*"};
  const Plan plan = engine.plan(parse_problem("fwd:n1c4h6w6k8r3s3:pad1"), request);
  unsetenv("FALTUNG_TRUST");
  const auto filled = [&](std::size_t count, float value) {
    std::vector<float> values(count, value);
    cl::Int error = 0;
    const cl::Mem mem = api_->create_buffer(context_, cl::kMemReadWrite, count * 4, nullptr, &error);
    EXPECT_EQ(error, 0);
    EXPECT_EQ(api_->enqueue_write(queue_, mem, cl::kTrue, 0, count * 4, values.data(), 0, nullptr, nullptr),
              0);
    return mem;
  };
  const cl::Mem x = filled(4 * 36, 1), w = filled(8 * 4 * 9, 1), y = filled(8 * 36, -1);
  std::vector<float> result(8 * 36);
  {
    const auto x_pointer = adopt(name(), x), w_pointer = adopt(name(), w), y_pointer = adopt(name(), y);
    RunOptions options;
    options.stream = queue_;
    ASSERT_EQ(plan.workspace_bytes(), 0u);
    Tensors tensors;
    tensors.x = x_pointer.get(), tensors.w = w_pointer.get(), tensors.y = y_pointer.get();
    plan.run(tensors, options);
  }
  ASSERT_EQ(
      api_->enqueue_read(queue_, y, cl::kTrue, 0, result.size() * 4, result.data(), 0, nullptr, nullptr), 0);
  EXPECT_EQ(result[0], 16);  // a corner has four of the nine taps
  EXPECT_EQ(result[1], 24);
  EXPECT_EQ(result[7], 36);
  EXPECT_EQ(result.back(), 16);
  for (const cl::Mem mem : {x, w, y}) EXPECT_EQ(api_->release_mem(mem), 0);
  EXPECT_THROW(adopt("cpu", x), Error);
  EXPECT_THROW(adopt(name(), nullptr), Error);
}

TEST(OpenClAddresses, LeadBackToTheirBuffer) {
  int a = 0, b = 0;
  const auto first = reinterpret_cast<cl::Mem>(&a), second = reinterpret_cast<cl::Mem>(&b);
  auto* one = static_cast<char*>(reserve_range(first, 10000, &a));
  auto* two = static_cast<char*>(reserve_range(second, 4096, &b));
  EXPECT_EQ(locate(one).buffer, first);
  EXPECT_EQ(locate(one + 9999).offset, 9999u);
  EXPECT_EQ(locate(one + 9990).bytes_left, 10u);
  EXPECT_EQ(locate(one + 10000).bytes_left, 0u);
  EXPECT_EQ(locate(one + 10001).buffer, nullptr);
  EXPECT_EQ(locate(two + 17).buffer, second);
  EXPECT_EQ(locate(two + 17).device, &b);
  EXPECT_EQ(locate(two - 1).buffer, nullptr);
  release_range(one);
  EXPECT_EQ(locate(one + 5).buffer, nullptr);
  EXPECT_EQ(locate(two).buffer, second);
  release_range(two);
}

}  // namespace
}  // namespace faltung
