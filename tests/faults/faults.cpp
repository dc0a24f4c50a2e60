#include "tests/faults/faults.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "src/algorithms/algorithm.hpp"
#include "src/jit/jit.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {
namespace {

constexpr int kFirstWrong = 300;
constexpr auto kLongest = std::chrono::minutes(10);

// The damage. No compiler can shorten a loop over a linear congruence.
constexpr const char* kKernel = R"(
#ifdef __OPENCL_VERSION__
typedef ulong word;
#define KERNEL __kernel void
#define POINTER(name) __global float *name##_buffer, ulong name##_skip
#define OPEN(name) __global float* name = (__global float*)((__global char*)name##_buffer + name##_skip)
#define GLOBAL __global
#else
typedef unsigned long long word;
#define KERNEL extern "C" __global__ void
#define POINTER(name) float* name##_buffer
#define OPEN(name) float* name = name##_buffer
#define GLOBAL
#endif
KERNEL harm(POINTER(y), word last, word address, word rounds) {
  OPEN(y);
#ifdef BROKEN
  this is no line of C;
#endif
#ifdef HANG
  word state = rounds;
  for (word i = 0; i < rounds; ++i) {
    state = state * 6364136223846793005UL + 1442695040888963407UL;
#ifndef __OPENCL_VERSION__
    if ((i & 0xffff) == 0) {
      static __shared__ word begin;
      word now;
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
      if (i == 0) begin = now;
      if (now - begin > 600000000000UL) break;
    }
#endif
  }
  if (state == 1) y[0] = 1.0f;
#endif
#ifdef CRASH
  *(GLOBAL volatile float*)(address) = 1.0f;
#endif
#ifdef PAST_THE_END
  y[last + 1] = 1.0f;
#endif
#ifdef ONE_WRONG
  y[last / 2] += 1.0f;
#endif
}
)";

std::string fault() {
  const char* text = std::getenv("FALTUNG_FAULT");
  return text == nullptr ? "" : text;
}

void log_plan(const std::string& what) {
  if (const char* file = std::getenv("FALTUNG_FAULT_LOG"))
    std::ofstream(file, std::ios::app) << (std::to_string(::getpid()) + " " + what + "\n");
}

std::string macro_of(const std::string& fault) {
  if (fault.starts_with("hang")) return "HANG";
  if (fault == "crash") return "CRASH";
  if (fault == "out_of_bounds") return "PAST_THE_END";
  if (fault == "does_not_compile") return "BROKEN";
  return "ONE_WRONG";
}

// Some faults show on large images alone.
bool spares(const std::string& fault, const Problem& problem) {
  return fault == "hang_above_42" && problem.h <= 42;
}

// Launches of this process, for the fault that waits.
bool is_due(const std::string& fault) {
  static std::atomic<int> launches{0};
  return fault != "wrong_later" || ++launches >= kFirstWrong;
}

void harm_on_cpu(const std::string& fault, float* y, std::int64_t last) {
  if (fault.starts_with("hang")) {
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < kLongest) {
    }
  }
  volatile std::uintptr_t nowhere = 64;  // the compiler must not see that it is no memory
  if (fault == "crash") *reinterpret_cast<volatile float*>(nowhere) = 1;
  if (fault == "out_of_bounds") y[last + 1] = 1;
  if (fault == "one_wrong" || fault == "wrong_later") y[last / 2] += 1;
}

// A right kernel with the fault after it; forward, f32.
class Faulty : public Algorithm {
 public:
  Faulty(std::string name, std::string kind, std::string honest)
      : name_(std::move(name)), kind_(std::move(kind)), honest_(std::move(honest)) {}
  std::string_view name() const override { return name_; }
  std::string_view description() const override { return "broken on purpose"; }
  std::string_view device_kind() const override { return kind_; }
  bool starts_trusted() const override { return false; }

  Support supports(const Problem& problem, const Target& target) const override {
    if (fault().empty()) return Support::declined("no fault is asked for");
    if (problem.direction != Direction::forward || problem.dtype != DType::f32)
      return Support::declined("faults are forward and f32");
    return find_algorithm(honest_).supports(problem, target);
  }
  std::vector<Config> configs(const Problem&, const Target&) const override {
    return {{fault(), 1e-6, "latency", 0}};
  }
  bool fuses_pool(const Problem& problem, const std::string&) const override {
    return find_algorithm(honest_).fuses_pool(problem, honest_config_);
  }

  Recipe plan(const Problem& problem, const std::string& fault, const Target& target) const override {
    log_plan(fault);
    const Algorithm& honest = find_algorithm(honest_);
    Recipe recipe = honest.plan(problem, honest.configs(problem, target).front().name, target);
    if (fault == "too_much_memory") {
      recipe.workspace_bytes = std::size_t{1} << 60;
      return recipe;
    }
    if (fault == "unwritten") {
      recipe.steps = {{"nothing", [](const Invocation&) {}}};
      return recipe;
    }
    if (spares(fault, problem)) return recipe;
    const std::int64_t last = y_shape(problem).elements() - 1;
    if (kind_ == "cpu") {
      if (fault == "does_not_compile") throw Error(Status::device_error, "this is no kernel");
      recipe.steps.push_back({"harm", [fault, last](const Invocation& i) {
                                if (is_due(fault)) harm_on_cpu(fault, static_cast<float*>(i.tensors.y), last);
                              }});
      return recipe;
    }
    const KernelSource source{
        name_ + "/" + fault, "#define " + macro_of(fault) + " 1\n" + std::string(kKernel), "harm", {}};
    const jit::Built built = jit::build(target.device, source);
    recipe.compile_ms += built.compile_ms;
    Device& device = target.device;
    const bool opencl = device.info().has("opencl");
    const bool many = device.info().description.find("llvmpipe") != std::string::npos;
    recipe.steps.push_back(
        {"harm", [&device, kernel = built.kernel, fault, last, opencl, many](const Invocation& i) {
           if (!is_due(fault)) return;
           // Where there is no clock, so many rounds that they take some minutes. llvmpipe ends every thread
           // after 2^16 of them: there it has to be many threads.
           const std::uint64_t rounds = opencl ? std::uint64_t{1} << 36 : ~std::uint64_t{0};
           LaunchShape shape;
           if (many && fault.starts_with("hang")) shape.grid[0] = 1 << 17, shape.block[0] = 64;
           const auto end = static_cast<std::uint64_t>(last);
           const std::uint64_t address = 64;
           device.launch(*kernel, shape, {i.tensors.y, end, address, rounds}, i.stream);
         }});
    return recipe;
  }

 private:
  std::string name_, kind_, honest_, honest_config_;
};

}  // namespace

void register_faults() {
  add_to_registry(std::make_unique<Faulty>("faulty_cpu", "cpu", "direct_cpu"));
  add_to_registry(std::make_unique<Faulty>("faulty_gpu", "gpu", "direct_gpu"));
}

}  // namespace faltung
