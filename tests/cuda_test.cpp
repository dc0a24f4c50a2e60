// The CUDA backend on the first device there is; skipped where there is none, unless
// FALTUNG_TEST_REQUIRE_CUDA=1.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "src/backend/cuda.hpp"
#include "src/backend/cuda_driver.hpp"
#include "src/problem/text.hpp"
#include "tests/backend_checks.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

using cuda::driver;

constexpr const char* kAdd = R"(
extern "C" __global__ void add(const float* x, float* y, float a, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = x[i] + a * FACTOR;
}
)";

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& device : list_devices()) {
      if (device->info().id == "cuda:0") device_ = device;
    }
    if (device_ != nullptr) return;
    if (std::getenv("FALTUNG_TEST_REQUIRE_CUDA") != nullptr) FAIL() << "no CUDA device";
    GTEST_SKIP() << "no CUDA device";
  }

  KernelSource add_source() const { return {"add", kAdd, "add", {"-DFACTOR=2"}}; }
  std::shared_ptr<Kernel> add_kernel() { return device_->load(device_->compile(add_source()), add_source()); }

  Buffer filled(std::size_t count, float value) {
    Buffer buffer = device_->allocate(count * sizeof(float));
    const std::vector<float> values(count, value);
    device_->copy_in(buffer, values.data(), count * sizeof(float));
    return buffer;
  }

  std::vector<float> read(const Buffer& buffer, std::size_t count) {
    return read_floats(*device_, buffer, count);
  }

  std::shared_ptr<Device> device_;
};

TEST_F(Cuda, SaysWhatItIs) {
  const DeviceInfo& info = device_->info();
  EXPECT_EQ(info.kind, "gpu");
  EXPECT_FALSE(info.description.empty());
  EXPECT_GT(info.units, 0);
  EXPECT_GT(info.memory_bytes, std::size_t{1} << 20);
  EXPECT_GE(info.local_bytes, 48u << 10);
  EXPECT_NE(info.key.find("cuda-"), std::string::npos);
}

TEST_F(Cuda, TheDriverCopies) { expect_driver_copies(*device_); }

TEST_F(Cuda, RunsAKernelFromItsStoredCodeAndTellsItsResources) {
  const Binary binary = device_->compile(add_source());
  EXPECT_GT(binary.compile_ms, 0);
  const std::shared_ptr<Kernel> kernel = device_->load({binary.code, "", 0}, add_source());
  const KernelResources resources = device_->resources(*kernel, add_source());
  EXPECT_GT(resources.registers, 0);
  EXPECT_EQ(resources.spilled_bytes, 0);
  const Buffer x = filled(16, 3), y = filled(16, -1);
  device_->launch(*kernel, blocks_of_16(16), {x.pointer, y.pointer, 1.0f, 1}, {});
  EXPECT_EQ(read(y, 2), (std::vector<float>{5, -1}));
}

TEST_F(Cuda, CompilesOnceAProcessAndAfterItNever) { expect_compiled_once(*device_, add_source()); }

TEST_F(Cuda, ACompileErrorNamesTheKernelItsConstantsAndTheLog) {
  expect_compile_error_in_words(*device_, add_source(), {"sm_", "log: add.cu(4)"});
}

TEST_F(Cuda, DamagedCodeIsAnErrorNotACrash) { expect_damaged_code_is_an_error(*device_, add_source()); }

TEST_F(Cuda, MoreMemoryThanThereIsIsAnError) { expect_too_much_memory_is_an_error(*device_); }

TEST_F(Cuda, TimesWhatRuns) {
  const std::shared_ptr<Kernel> kernel = add_kernel();
  const Buffer x = filled(1 << 20, 1), y = filled(1 << 20, 1);
  const auto run = [&](const Stream& stream) {
    device_->launch(*kernel, blocks_of_16(1 << 20), {x.pointer, y.pointer, 1.0f, 1 << 20}, stream);
  };
  run({});
  const double ms = device_->time_ms({}, [&] { run({}); });
  EXPECT_GT(ms, 0);
  EXPECT_LT(ms, 10000);
  EXPECT_GT(device_->record(run)->time_ms(), 0);
}

// A plan with whose pointers a caller comes.
class CudaPlan : public Cuda {
 protected:
  void SetUp() override {
    Cuda::SetUp();
    if (device_ == nullptr || IsSkipped()) return;
    setenv("FALTUNG_TRUST", "all", 1);
    Engine engine(store_.path());
    Request request;
    request.device = "cuda:0";
    request.only = {"direct_gpu*"};
    plan_.emplace(engine.plan(parse_problem("fwd:n1c4h6w6k8r3s3:pad1"), request));
    unsetenv("FALTUNG_TRUST");
    x_ = filled(4 * 36, 1), w_ = filled(8 * 4 * 9, 1), y_ = filled(8 * 36, -1);
    tensors_.x = x_.pointer, tensors_.w = w_.pointer, tensors_.y = y_.pointer;
  }

  void expect_right() {
    const std::vector<float> result = read(y_, 8 * 36);
    EXPECT_EQ(result[0], 16);  // a corner has four of the nine taps
    EXPECT_EQ(result[1], 24);
    EXPECT_EQ(result[7], 36);
    EXPECT_EQ(result.back(), 16);
  }

  const Scratch store_;
  std::optional<Plan> plan_;
  Buffer x_, w_, y_;
  Tensors tensors_;
};

// In a capture that forbids it, a call that allocates or waits ends the capture with an error; and work on
// another stream than the caller's would not be in the graph.
TEST_F(CudaPlan, RunNeitherAllocatesNorWaitsAndStaysOnTheCallersStream) {
  void *stream = nullptr, *graph = nullptr, *replay = nullptr;
  constexpr unsigned kNonBlocking = 1;
  constexpr int kGlobal = 0;  // what no thread of the process may do meanwhile
  ASSERT_EQ(driver()->stream_create(&stream, kNonBlocking), 0);
  ASSERT_EQ(driver()->stream_begin_capture(stream, kGlobal), 0);
  RunOptions options;
  options.stream = stream;
  plan_->run(tensors_, options);
  ASSERT_EQ(driver()->stream_end_capture(stream, &graph), 0);
  EXPECT_EQ(read(y_, 1)[0], -1);  // recorded, not run
  ASSERT_EQ(driver()->graph_instantiate(&replay, graph, 0), 0);
  ASSERT_EQ(driver()->graph_launch(replay, stream), 0);
  ASSERT_EQ(driver()->stream_synchronize(stream), 0);
  expect_right();
  driver()->graph_exec_destroy(replay);
  driver()->graph_destroy(graph);
  driver()->stream_destroy(stream);
}

TEST_F(CudaPlan, HostMemoryIsRefusedAndTheDeviceWorksAfterIt) {
  if (device_->info().has("pageable_memory_access")) GTEST_SKIP() << "this device reaches all host memory";
  std::vector<float> host(8 * 36);
  for (void** pointer : {&tensors_.x, &tensors_.w, &tensors_.y}) {
    void* const right = *pointer;
    *pointer = host.data();
    try {
      plan_->run(tensors_, {});
      FAIL() << "it ran";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::bad_problem);
      EXPECT_NE(std::string(error.what()).find("cuda:0"), std::string::npos) << error.what();
    }
    *pointer = right;
  }
  plan_->run(tensors_, {});
  expect_right();
}

TEST_F(CudaPlan, AddressesInTheMiddleOfAnAllocationAreTaken) {
  const Buffer larger = filled(5 + 8 * 36, -1);
  tensors_.y = static_cast<float*>(larger.pointer) + 5;
  plan_->run(tensors_, {});
  const std::vector<float> result = read(larger, 5 + 8 * 36);
  EXPECT_EQ(result[4], -1);
  EXPECT_EQ(result[5], 16);
  EXPECT_EQ(result.back(), 16);
}

}  // namespace
}  // namespace faltung
