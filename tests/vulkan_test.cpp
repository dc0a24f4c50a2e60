// The Vulkan backend, on the first device that serves it with clspv: in `./dev test` Mesa's lavapipe. Skipped
// where there is none, unless FALTUNG_TEST_REQUIRE_GPU=1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "src/backend/spirv_arguments.hpp"
#include "src/backend/vulkan.hpp"
#include "src/backend/vulkan_queue.hpp"
#include "src/problem/text.hpp"
#include "tests/backend_checks.hpp"
#include "tests/builder.hpp"
#include "tests/own_allocations.hpp"
#include "tests/registry_problems.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

constexpr const char* kAdd = R"(
__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void add(__global const float* x, ulong skip_x, __global float* y, ulong skip_y, float a, int count) {
  __global const float* from = (__global const float*)((__global const char*)x + skip_x);
  __global float* to = (__global float*)((__global char*)y + skip_y);
  const int i = (int)get_global_id(0);
  if (i < count) to[i] = from[i] + a * FACTOR;
}
)";

class Vulkan : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& device : list_devices()) {
      if (device_ == nullptr && device->info().id.starts_with("vulkan:")) device_ = device;
    }
    if (device_ != nullptr) return;
    if (std::getenv("FALTUNG_TEST_REQUIRE_GPU") != nullptr) FAIL() << vulkan_missing();
    GTEST_SKIP() << vulkan_missing();
  }
  KernelSource add_source() const { return {"add", kAdd, "add", {"-DFACTOR=2"}}; }
  std::shared_ptr<Kernel> add_kernel() { return device_->load(device_->compile(add_source()), add_source()); }

  std::shared_ptr<Device> device_;
};

TEST_F(Vulkan, SaysWhatItIs) {
  const DeviceInfo& info = device_->info();
  EXPECT_EQ(info.kind, "gpu");
  EXPECT_FALSE(info.description.empty());
  EXPECT_THAT(info.driver, HasSubstr("clspv"));
  EXPECT_GT(info.memory_bytes, std::size_t{1} << 20);
  EXPECT_GE(info.local_bytes, 16u << 10);  // what Vulkan promises
  EXPECT_GE(info.block_threads, 128);
  EXPECT_EQ(info.key.find(' '), std::string::npos);
}

TEST_F(Vulkan, TakesAddressesInTheMiddleOfBuffers) {
  EXPECT_GT(expect_run_in_the_middle_of_buffers(*device_, *add_kernel()), 0);
}

TEST_F(Vulkan, LaunchesSeeWhatWasSubmittedBefore) {
  const Buffer y = device_->allocate(64);
  const float zero = 0;
  device_->copy_in(y, &zero, 4);
  const std::shared_ptr<Kernel> kernel = add_kernel();
  constexpr int kLaunches = 600;  // more than may be in flight
  for (int i = 0; i < kLaunches; ++i)
    device_->launch(*kernel, blocks_of_16(16), {y.pointer, y.pointer, 0.5f, 1}, {});
  EXPECT_EQ(read_floats(*device_, y, 1)[0], kLaunches);
}

TEST_F(Vulkan, CopiesWhatIsLargerThanItsStaging) {
  std::vector<float> there(3 << 20), back(there.size());
  for (std::size_t i = 0; i < there.size(); ++i) there[i] = static_cast<float>(i);
  const Buffer buffer = device_->allocate(there.size() * 4);
  device_->copy_in(buffer, there.data(), there.size() * 4);
  device_->copy_out(back.data(), buffer, there.size() * 4);
  EXPECT_TRUE(there == back);
}

TEST_F(Vulkan, WhatIsNoMemoryOfItsIsRefused) {
  const std::shared_ptr<Kernel> kernel = add_kernel();
  const Buffer y = device_->allocate(64);
  float host[16] = {};
  for (float* const pointer : {static_cast<float*>(host), static_cast<float*>(nullptr)}) {
    try {
      device_->launch(*kernel, blocks_of_16(16), {pointer, y.pointer, 1.0f, 1}, {});
      FAIL() << "it ran";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::bad_problem) << error.what();
    }
  }
  EXPECT_THROW(device_->copy_in(y, std::vector<char>(65).data(), 65), Error);
  void* const freed = device_->allocate(64).pointer;
  EXPECT_THROW(device_->launch(*kernel, blocks_of_16(16), {freed, y.pointer, 1.0f, 1}, {}), Error);
  int stream = 0;
  EXPECT_THROW(device_->synchronize({nullptr, &stream}), Error);
}

TEST_F(Vulkan, CompilesOnceAProcessAndAfterItNever) { expect_compiled_once(*device_, add_source()); }

TEST_F(Vulkan, ACompileErrorNamesTheKernelItsConstantsAndTheLog) {
  expect_compile_error_in_words(*device_, add_source(), {"clspv", "undeclared_name"});
}

TEST_F(Vulkan, DamagedCodeIsAnErrorNotACrash) {
  expect_damaged_code_is_an_error(*device_, add_source());
  const Binary whole = device_->compile(add_source());
  EXPECT_THROW(device_->load({whole.code.substr(0, whole.code.size() / 2 / 4 * 4 + 4), "", 0}, add_source()),
               Error);
}

TEST_F(Vulkan, MoreMemoryThanThereIsIsAnError) { expect_too_much_memory_is_an_error(*device_); }

TEST_F(Vulkan, ArgumentsAreWhereTheCompilerSays) {
  const auto arguments = spirv_arguments(device_->compile(add_source()).code, "add");
  ASSERT_EQ(arguments.size(), 6u);
  std::map<unsigned, SpirvArgument> of;
  for (const SpirvArgument& a : arguments) of.emplace(a.ordinal, a);
  for (const unsigned buffer : {0u, 2u}) EXPECT_EQ(of.at(buffer).kind, SpirvArgument::Kind::storage_buffer);
  for (const auto& [value, bytes] : {std::pair{1u, 8u}, {3u, 8u}, {4u, 4u}, {5u, 4u}}) {
    EXPECT_EQ(of.at(value).kind, SpirvArgument::Kind::push_constant);
    EXPECT_EQ(of.at(value).bytes, bytes);
    EXPECT_EQ(of.at(value).place % bytes, 0u);
  }
}

TEST_F(Vulkan, ALaunchAllocatesNothing) {
  const std::shared_ptr<Kernel> kernel = add_kernel();
  const Buffer y = device_->allocate(64);
  const float factor = 0.5f;
  const int count = 1;
  const Argument arguments[] = {y.pointer, y.pointer, factor, count};
  const auto launch = [&] { device_->launch(*kernel, blocks_of_16(16), arguments, {}); };
  launch();
  const long before = own_allocations;
  launch();
  EXPECT_EQ(own_allocations - before, 0);
}

// The functions of the driver's, some of them replaced until this goes.
class ReplacedApi {
 public:
  ReplacedApi() : api_(const_cast<vulkan::Api&>(*vulkan::api())), kept_(api_) {}
  ~ReplacedApi() { api_ = kept_; }
  vulkan::Api& operator*() { return api_; }
  const vulkan::Api& kept() const { return kept_; }

 private:
  vulkan::Api& api_;
  const vulkan::Api kept_;
};

int destroyed_devices = 0, destroyed_pools = 0;
PFN_vkDestroyDevice real_destroy_device = nullptr;
PFN_vkDestroyCommandPool real_destroy_pool = nullptr;

VkPhysicalDevice first_physical_device() {
  unsigned count = 1;
  VkPhysicalDevice physical = VK_NULL_HANDLE;
  vulkan::api()->EnumeratePhysicalDevices(vulkan::api()->instance, &count, &physical);
  EXPECT_EQ(count, 1u);
  return physical;
}

TEST_F(Vulkan, AQueueThatCannotBeOpenedLeavesNothing) {
  for (const bool fails_early : {true, false}) {
    ReplacedApi replaced;
    real_destroy_device = replaced.kept().DestroyDevice;
    real_destroy_pool = replaced.kept().DestroyCommandPool;
    destroyed_devices = destroyed_pools = 0;
    (*replaced).DestroyDevice = [](VkDevice device, const VkAllocationCallbacks* own) {
      ++destroyed_devices;
      real_destroy_device(device, own);
    };
    (*replaced).DestroyCommandPool = [](VkDevice device, VkCommandPool pool,
                                        const VkAllocationCallbacks* own) {
      destroyed_pools += pool != VK_NULL_HANDLE ? 1 : 0;
      real_destroy_pool(device, pool, own);
    };
    if (fails_early) {
      (*replaced).AllocateCommandBuffers = [](VkDevice, const VkCommandBufferAllocateInfo*,
                                              VkCommandBuffer*) { return VK_ERROR_OUT_OF_HOST_MEMORY; };
    } else {
      (*replaced).CreateQueryPool = [](VkDevice, const VkQueryPoolCreateInfo*, const VkAllocationCallbacks*,
                                       VkQueryPool*) { return VK_ERROR_OUT_OF_HOST_MEMORY; };
    }
    EXPECT_THROW(vulkan::Queue(first_physical_device(), 0, "a queue"), Error);
    EXPECT_EQ(destroyed_devices, 1);
    EXPECT_EQ(destroyed_pools, 1);
  }
}

TEST_F(Vulkan, StagingThatCouldNotBeMappedIsMadeOnceAndMappedLater) {
  vulkan::Queue queue(first_physical_device(), 0, "a queue");
  const vulkan::Memory memory = queue.allocate(64, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, "a buffer");
  const float there = 3;
  float back = 0;
  static int made;
  static PFN_vkCreateBuffer real_create_buffer;
  made = 0;
  {
    ReplacedApi replaced;
    real_create_buffer = replaced.kept().CreateBuffer;
    (*replaced).CreateBuffer = [](VkDevice device, const VkBufferCreateInfo* info,
                                  const VkAllocationCallbacks* own, VkBuffer* buffer) {
      ++made;
      return real_create_buffer(device, info, own, buffer);
    };
    (*replaced).MapMemory = [](VkDevice, VkDeviceMemory, VkDeviceSize, VkDeviceSize, VkMemoryMapFlags,
                               void**) { return VK_ERROR_MEMORY_MAP_FAILED; };
    for (int i = 0; i < 2; ++i) EXPECT_THROW(queue.copy_in(memory.buffer, 0, &there, 4), Error);
  }
  EXPECT_EQ(made, 1);
  queue.copy_in(memory.buffer, 0, &there, 4);
  queue.copy_out(&back, memory.buffer, 0, 4);
  EXPECT_EQ(back, there);
  queue.free(memory);
}

// Why lavapipe gets the loops that a GPU gets, and not those for CPUs: of an address in local memory that is
// a sum of two, clspv drops what a loop adds. Each of the four loads below is of one place, in every turn.
// Where this fails, clspv was mended: see docs/notes/vulkan.md.
TEST_F(Vulkan, ClspvDropsWhatALoopAddsToAnAddress) {
  const KernelSource source{"columns",
                            R"(
inline void add(__local const float* tile, int thread, float* sums) {
  __local const float* from = tile + (thread / 8 * 4 + thread % 8 / 2) * 4;
  _Pragma("nounroll")
  for (int row = 0; row < 16; ++row) {
    for (int i = 0; i < 4; ++i) sums[i] += from[row * 36 + i];
  }
}
__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void columns(__global const float* x, ulong skip_x, __global float* y, ulong skip_y, int turns) {
  __local float tiles[2 * 16 * 36];
  const int thread = (int)get_local_id(0);
  for (int i = thread; i < 2 * 16 * 36; i += 16) tiles[i] = x[skip_x / 4 + i];
  barrier(CLK_LOCAL_MEM_FENCE);
  float sums[4] = {0, 0, 0, 0};
  int turn = 0;
  do {
    add(tiles + (turn & 1) * 16 * 36, thread, sums);
    barrier(CLK_LOCAL_MEM_FENCE);
  } while (turn++ != turns);
  for (int i = 0; i < 4; ++i) y[skip_y / 4 + 4 * thread + i] = sums[i];
}
)",
                            "columns",
                            {}};
  const std::shared_ptr<Kernel> kernel = device_->load(device_->compile(source), source);
  constexpr int kPitch = 36, kRows = 16, kThreads = 16;
  std::vector<float> there(2 * kRows * kPitch);
  for (std::size_t i = 0; i < there.size(); ++i) there[i] = static_cast<float>(i);
  const Buffer x = device_->allocate(there.size() * 4), y = device_->allocate(4 * 4 * kThreads);
  device_->copy_in(x, there.data(), there.size() * 4);
  device_->launch(*kernel, blocks_of_16(16), {x.pointer, y.pointer, 0}, {});
  const std::vector<float> sums = read_floats(*device_, y, 4 * kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    const int first = (thread / 8 * 4 + thread % 8 / 2) * 4;
    for (int i = 0; i < 4; ++i) {
      float right = 0;
      for (int row = 0; row < kRows; ++row)
        right += there[static_cast<std::size_t>(row * kPitch + first + i)];
      EXPECT_NE(right, sums[static_cast<std::size_t>(4 * thread + i)]);
      EXPECT_EQ(kRows * there[static_cast<std::size_t>(first)],
                sums[static_cast<std::size_t>(4 * thread + i)]);
    }
  }
}

// What Vulkan has no room for: the one refusal that is right. clspv compiles these kernels.
bool has_no_room(const Report& report) {
  return report.outcome == Outcome::declined &&
         (report.why.find("push constants may have") != std::string::npos ||
          report.why.find("blocks along") != std::string::npos);
}

// No buffer of a product of f32 is an array of bytes: clspv reads a float by its bytes where its address was
// counted in them.
TEST_F(Vulkan, ProductsReadWholeFloats) {
  const Problem p = parse_problem("fwd:n1c64h8w8k64r3s3:pad1:f32:nhwc:bias:relu");
  const Recipe recipe =
      find_algorithm("implicit_gemm_gpu").candidates(p, Builder(device_).target()).front().recipe();
  int products = 0;
  for (const Step& step : recipe.steps) {
    const auto* const work = std::get_if<Launch>(&step.work);
    if (work == nullptr || work->source.entry != "implicit_gemm") continue;
    const Binary binary = device_->compile(work->source.whole());
    std::vector<std::uint32_t> words(binary.code.size() / sizeof(std::uint32_t));
    std::memcpy(words.data(), binary.code.data(), words.size() * sizeof(std::uint32_t));
    constexpr std::size_t kHeader = 5;
    constexpr std::uint32_t kTypeInt = 21, kTypeRuntimeArray = 29;
    std::set<std::uint32_t> bytes;  // types of 8 bits
    for (std::size_t at = kHeader; at + 2 < words.size() && words[at] >> 16 != 0; at += words[at] >> 16) {
      const std::uint32_t operation = words[at] & 0xffff;
      if (operation == kTypeInt && words[at + 2] == 8) bytes.insert(words[at + 1]);
      if (operation == kTypeRuntimeArray) {
        EXPECT_FALSE(bytes.contains(words[at + 2]));
      }
    }
    ++products;
  }
  EXPECT_EQ(products, 1);
}

// Kernels that are plain loops and those that share tiles: each exact on integers, then within the bound.
// What multiplies a gathered matrix (explicit_gemm_gpu, fft_gpu) has more values than push constants have
// room for, or ends the compiler.
class VulkanKernels : public Vulkan, public testing::WithParamInterface<const char*> {};

TEST_P(VulkanKernels, AreRight) {
  FALTUNG_TRACE_SAMPLE();
  Builder builder(device_);
  const Algorithm& algorithm = find_algorithm(GetParam());
  std::vector<Problem> supported;
  for (Problem p : shape_problems()) {
    validate(p);
    constexpr double kMostFlops = 4e6;
    if (flops(p) <= kMostFlops && algorithm.supports(p, builder.target()).yes) supported.push_back(p);
  }
  // llvmpipe takes up to half a minute of processor time to compile a kernel with barriers.
  const double kinds = std::string(GetParam()) == "direct_gpu" ? 0.25 : 0.05;
  int passed = 0, declined = 0;
  for (const Problem& p : sampling::draw(supported, kinds, GetParam(), [](const Problem& q) {
         return std::string(name(q.direction)) + name(q.layout) + name(q.dtype);
       })) {
    const std::vector<Candidate> all = algorithm.candidates(p, builder.target());
    const Candidate& one = all[sampling::shuffled(all.size(), to_string(p)).front()];
    Verifier verifier(p, device_, std::make_shared<const Parallel>(1), 1);
    const Report report = verifier.kernel(one, builder.store());
    const bool can = !has_no_room(report);
    (can ? passed : declined) += 1;
    EXPECT_TRUE(!can || report.outcome == Outcome::pass)
        << one.kernel() << " for " << to_string(p) << ": " << name(report.outcome) << ", " << report.why;
    if (!can) std::printf("%s for %s: %s\n", one.kernel().c_str(), to_string(p).c_str(), report.why.c_str());
  }
  std::printf("%d kernels verified on %s, %d declined\n", passed, device_->info().description.c_str(),
              declined);
  EXPECT_GT(passed, 0);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, VulkanKernels,
                         testing::Values("direct_gpu", "implicit_gemm_gpu", "depthwise_gpu", "winograd_gpu"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace faltung
