#include "tests/faults/faults.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>

#include "src/algorithms/algorithm.hpp"

namespace faltung {
namespace {

// The fault that waits counts launches in the workspace, after this mark.
constexpr std::uint64_t kMark = 0xfa17fa17fa17fa17, kFirstWrong = 300;
constexpr std::size_t kCounterBytes = 2 * sizeof(std::uint64_t);
constexpr auto kLongest = std::chrono::minutes(10);

// The damage. No compiler can shorten a loop over a linear congruence.
constexpr const char* kKernel = R"(
#ifdef __OPENCL_VERSION__
typedef ulong word;
#define KERNEL __kernel void
#define POINTER(type, name) __global type *name##_buffer, ulong name##_skip
#define OPEN(type, name) __global type* name = (__global type*)((__global char*)name##_buffer + name##_skip)
#define GLOBAL __global
#else
typedef unsigned long long word;
#ifdef __HIP__
#define KERNEL extern "C" __attribute__((global)) void
#else
#define KERNEL extern "C" __global__ void
#endif
#define POINTER(type, name) type* name##_buffer
#define OPEN(type, name) type* name = name##_buffer
#define GLOBAL
#endif
KERNEL harm(POINTER(float, y), POINTER(word, counter), word spares, word last, word address, word rounds) {
  OPEN(float, y);
  if (spares) return;
#ifdef FIRST_WRONG
  OPEN(word, counter);
  if (counter[0] != MARK) counter[0] = MARK, counter[1] = 0;
  if (++counter[1] < FIRST_WRONG) return;
#endif
#ifdef BROKEN
  this is no line of C;
#endif
#ifdef HANG
  word state = rounds;
  for (word i = 0; i < rounds; ++i) {
    state = state * 6364136223846793005UL + 1442695040888963407UL;
#if !defined(__OPENCL_VERSION__) && !defined(__HIP__)
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

// A worker is started as `<program> worker`.
bool is_worker() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  const std::string line{std::istreambuf_iterator<char>(in), {}};
  return line.find(std::string("\0worker", 7)) != std::string::npos;
}

void log_trial(const std::string& what) {
  const char* const file = std::getenv("FALTUNG_FAULT_LOG");
  if (file != nullptr && is_worker())
    std::ofstream(file, std::ios::app) << (std::to_string(::getpid()) + " " + what + "\n");
}

std::string constants_of(const std::string& fault) {
  const auto is = [&](const char* what) { return std::string("#define ") + what + " 1\n"; };
  if (fault.starts_with("hang")) return is("HANG");
  if (fault == "crash") return is("CRASH");
  if (fault == "out_of_bounds") return is("PAST_THE_END");
  if (fault == "does_not_compile") return is("BROKEN");
  if (fault != "wrong_later") return is("ONE_WRONG");
  return is("ONE_WRONG") + "#define FIRST_WRONG " + std::to_string(kFirstWrong) + "\n#define MARK " +
         std::to_string(kMark) + "UL\n";
}

// Some faults show on some problems alone.
bool spares(const std::string& fault, const Problem& problem) {
  return (fault == "hang_above_42" && problem.h <= 42) || (fault == "one_wrong_in_5x5" && problem.r != 5);
}

bool needs_too_much(const std::string& fault, const Problem& problem) {
  return fault == "too_much_memory" || (fault == "too_much_above_n2" && problem.n > 2);
}

void harm_on_cpu(const std::string& fault, float* y, std::uint64_t* counter, std::int64_t last) {
  if (fault == "wrong_later") {
    if (counter[0] != kMark) counter[0] = kMark, counter[1] = 0;
    if (++counter[1] < kFirstWrong) return;
  }
  if (fault.starts_with("hang")) {
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < kLongest) {
    }
  }
  volatile std::uintptr_t nowhere = 64;  // the compiler must not see that it is no memory
  if (fault == "crash") *reinterpret_cast<volatile float*>(nowhere) = 1;
  if (fault == "out_of_bounds") y[last + 1] = 1;
  if (fault.starts_with("one_wrong") || fault == "wrong_later") y[last / 2] += 1;
}

// A right kernel with the fault after it; forward, f32.
class Faulty : public Algorithm {
 public:
  Faulty(std::string name, std::string kind, std::string honest)
      : Algorithm({std::move(name), "broken on purpose", std::move(kind)}), honest_(std::move(honest)) {}
  bool starts_trusted() const override { return false; }

  Support accepts(const Problem& problem, const Target& target) const override {
    if (fault().empty()) return Support::declined("no fault is asked for");
    if (problem.direction != Direction::forward || problem.dtype != DType::f32)
      return Support::declined("faults are forward and f32");
    return find_algorithm(honest_).supports(problem, target);
  }

 private:
  std::vector<Candidate> list(const Problem& problem, const Target& target) const override {
    if (fault() == "throws_when_listed") throw std::runtime_error("it cannot be listed");
    return {candidate_of(fault(), problem, target)};
  }
  Maker parse(const std::string& config, Direction) const override {
    for (const char* known : kFaults) {
      if (config == known) return maker(config);
    }
    throw Error(Status::bad_problem, std::string(name()) + " has no fault '" + config + "'");
  }

  Maker maker(const std::string& fault) const {
    return [this, fault](const Problem& problem, const Target& target) {
      return candidate_of(fault, problem, target);
    };
  }

  Candidate candidate_of(const std::string& fault, const Problem& problem, const Target& target) const {
    Candidate c = find_algorithm(honest_).candidates(problem, target).front();
    c.config = fault;
    c.maker = maker(fault);
    c.cost = {1e-6, Bound::latency};
    const Slot counter{Place::workspace, aligned(c.workspace_bytes)};
    c.workspace_bytes = counter.offset + kCounterBytes;
    if (needs_too_much(fault, problem)) c.workspace_bytes = std::size_t{1} << 60;
    c.recipe = [honest = std::move(c.recipe), fault, problem, counter, bytes = c.workspace_bytes,
                kernel = std::string(name()) + "/" + fault, &device = target.device] {
      log_trial(fault);
      if (fault == "throws_when_made") throw std::runtime_error("it cannot be made");
      Recipe recipe = honest();
      recipe.workspace_bytes = bytes;
      if (fault == "unwritten") recipe.steps.clear();
      if (fault == "unwritten" || needs_too_much(fault, problem)) return recipe;
      recipe.steps.push_back(device.kind == "cpu" ? harm_step(fault, problem, counter)
                                                  : harm_launch(kernel, fault, problem, counter, device));
      return recipe;
    };
    return c;
  }

  static Step harm_step(const std::string& fault, const Problem& problem, Slot counter) {
    return call("harm", {}, {Place::y, Place::workspace},
                [fault, counter, last = y_shape(problem).elements() - 1, spared = spares(fault, problem)](
                    const Memory& m, const Parallel&) {
                  if (spared) return;
                  harm_on_cpu(fault, reinterpret_cast<float*>(m[Place::y]),
                              reinterpret_cast<std::uint64_t*>(m.at(counter)), last);
                });
  }

  static Step harm_launch(const std::string& kernel, const std::string& fault, const Problem& problem,
                          Slot counter, const DeviceInfo& device) {
    const jit::Source source{kernel, constants_of(fault) + kKernel, "harm", {}};
    // Where there is no clock, so many rounds that they take some minutes. llvmpipe ends every thread after
    // 2^16 of them: there it has to be many threads.
    const std::uint64_t rounds = device.dialect == "cuda" ? ~std::uint64_t{0} : std::uint64_t{1} << 36;
    const bool many = device.description.find("llvmpipe") != std::string::npos && fault.starts_with("hang");
    LaunchShape shape;
    if (many) shape.grid[0] = 1 << 17, shape.block[0] = 64;
    const std::uint64_t spared = spares(fault, problem) ? 1 : 0, nowhere = 64;
    const auto last = static_cast<std::uint64_t>(y_shape(problem).elements() - 1);
    return launch(
        "harm", source, shape,
        {in_out(Place::y), in_out(counter), value(spared), value(last), value(nowhere), value(rounds)});
  }

  std::string honest_;
};

}  // namespace

void register_faults() {
  add_to_registry(std::make_unique<Faulty>("faulty_cpu", "cpu", "direct_cpu"));
  add_to_registry(std::make_unique<Faulty>("faulty_gpu", "gpu", "direct_gpu"));
}

}  // namespace faltung
