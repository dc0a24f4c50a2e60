// Random problems by random kernels, through the C interface: on the CPU every tensor and the workspace lie
// against pages that may not be touched and inputs may not be written to; elsewhere they lie in the device's
// memory between zones that are looked at afterwards. The result is judged by the reference, and by a second
// run.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <system_error>
#include <thread>
#include <vector>

#include "src/algorithms/algorithm.hpp"
#include "src/finder/oracle.hpp"
#include "src/problem/dtype.hpp"
#include "tests/hostile/guarded.hpp"
#include "tests/hostile/hostile.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace faltung::hostile {
namespace {

// What is being run, for a fault's last words.
char current[2048];

void on_fault(int signal) {
  const char* const words = signal == SIGALRM ? "no end of: " : "a fault in: ";
  static_cast<void>(::write(2, words, std::strlen(words)));
  static_cast<void>(::write(2, current, std::strlen(current)));
  static_cast<void>(::write(2, "\n", 1));
  ::_exit(1);
}

enum class Values { random, integers, denormals, not_finite, zeros };

// Of a name that is none, and of none: one by chance.
Values values_of(Dice& dice, const std::string& name) {
  static const std::map<std::string, Values> kNames = {{"random", Values::random},
                                                       {"integers", Values::integers},
                                                       {"denormals", Values::denormals},
                                                       {"not_finite", Values::not_finite},
                                                       {"zeros", Values::zeros}};
  const Values one = dice.one_of({Values::random, Values::random, Values::integers, Values::denormals,
                                  Values::not_finite, Values::zeros});
  const auto found = kNames.find(name);
  return found == kNames.end() ? one : found->second;
}

void fill(Dice& dice, Values values, DType dtype, std::byte* data, std::size_t bytes) {
  const auto count = static_cast<std::int64_t>(bytes) / size_of(dtype);
  for (std::int64_t i = 0; i < count; ++i) {
    float value = static_cast<float>(static_cast<double>(static_cast<std::int64_t>(dice.bits())) * 0x1p-63);
    if (values == Values::integers) value = std::round(value * 2);
    if (values == Values::denormals && i % 2 == 0) value *= 0x1p-130f;
    if (values == Values::zeros) value = i % 3 == 0 ? -0.0f : 0.0f;
    if (values == Values::not_finite && dice.chance(1)) {
      value = dice.one_of({INFINITY, -INFINITY, std::nanf("")});
    }
    store_element(dtype, data, i, value);
  }
}

// In another order than counting, on as many threads as it likes; on this one what a machine that is full has
// no thread for.
void reversed(void* context, int count, void (*body)(int, void*), void* argument) {
  const int parts = std::max(1, *static_cast<int*>(context));
  const auto part = [=](int first) {
    for (int i = count - 1 - first; i >= 0; i -= parts) body(i, argument);
  };
  std::vector<std::thread> all;
  int started = 0;
  try {
    while (started < *static_cast<int*>(context)) all.emplace_back(part, started), ++started;
  } catch (const std::system_error&) {
  }
  for (int rest = started; rest < parts; ++rest) part(rest);
  for (std::thread& thread : all) thread.join();
}

// A caller's floating-point mode.
class CallersMode {
 public:
  explicit CallersMode(Dice& dice) {
#if defined(__x86_64__)
    before_ = _mm_getcsr();
    mode_ = dice.one_of({0x1f80u, 0x1f80u, 0x9fc0u, 0x5f80u, 0x7f80u, 0x0000u});
    _mm_setcsr(mode_);
#else
    static_cast<void>(dice);
#endif
  }
  // Whether it is the same still; back to what it was.
  bool ends() {
#if defined(__x86_64__)
    const bool same = _mm_getcsr() == mode_;
    _mm_setcsr(before_);
    return same;
#else
    return true;
#endif
  }

 private:
  unsigned before_ = 0, mode_ = 0;
};

// A tensor where the device sees it.
class Operand {
 public:
  Operand(std::size_t bytes, Side side, faltung_memory_pool* pool) : pool_(pool), host_(bytes, side) {
    if (pool_ == nullptr) return;
    const std::vector<std::byte> zones(bytes + 2 * kZone, std::byte{0xfb});
    if (faltung_memory_allocate(pool_, zones.size(), &device_) == FALTUNG_OK)
      faltung_memory_copy_in(pool_, device_, zones.data(), zones.size());
  }
  ~Operand() {
    if (pool_ != nullptr) faltung_memory_free(pool_, device_);
  }
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;

  Guarded& host() { return host_; }
  void* pointer() const {
    return pool_ == nullptr ? static_cast<void*>(host_.data()) : static_cast<std::byte*>(device_) + kZone;
  }
  void to_device() {
    if (pool_ != nullptr && host_.bytes() > 0)
      faltung_memory_copy_in(pool_, pointer(), host_.data(), host_.bytes());
  }
  // The content comes back; false if what lies around it changed.
  bool from_device() {
    if (pool_ == nullptr) return host_.whole();
    std::vector<std::byte> all(host_.bytes() + 2 * kZone);
    faltung_memory_copy_out(pool_, all.data(), device_, all.size());
    for (std::size_t i = 0; i < kZone; ++i) {
      if (all[i] != std::byte{0xfb} || all[all.size() - 1 - i] != std::byte{0xfb}) return false;
    }
    if (host_.bytes() > 0) std::memcpy(host_.data(), all.data() + kZone, host_.bytes());
    return true;
  }

 private:
  static constexpr std::size_t kZone = 1024;
  faltung_memory_pool* pool_;
  Guarded host_;
  void* device_ = nullptr;
};

class Differential {
 public:
  explicit Differential(const Setting& setting)
      : setting_(setting), engine_(engine_of(setting.directory)), parallel_(2) {
    if (setting.device == "cpu") return;
    pool_ = made<PoolHandle>(
        [&](auto** p) { return faltung_memory_pool_create(setting.device.c_str(), SIZE_MAX, p); });
  }
  bool ready() const { return engine_ && (setting_.device == "cpu" || pool_); }
  int runs() const { return runs_; }

  // Empty, or what was wrong.
  std::string turn(std::uint64_t seed) {
    Dice dice(seed);
    const ProblemHandle problem = roll_valid_problem(dice);
    const std::string text = faltung_problem_text(problem.get());
    if (flops(parse_problem(text)) > 2e7) return "";
    faltung_request request = faltung_request_default();
    request.device = setting_.device.c_str();
    request.threads = dice.between(1, 4);
    request.trust = FALTUNG_TRUST_ALL;
    request.flush_denormals = dice.chance(20);
    if (dice.chance(20)) request.workspace_limit = static_cast<std::size_t>(1) << dice.between(0, 24);
    const std::string kernel = any_kernel(dice, text, request.threads);
    request.only = kernel.c_str();
    const std::string values = setting_.values.empty() ? "" : " --values " + setting_.values;
    std::snprintf(current, sizeof current, "%s by %s: hostile differential --device %s%s --turn %llu",
                  text.c_str(), kernel.c_str(), setting_.device.c_str(), values.c_str(),
                  static_cast<unsigned long long>(seed));
    CallersMode planning(dice);
    const PlanHandle plan = made<PlanHandle>(
        [&](auto** p) { return faltung_plan_create(engine_.get(), problem.get(), &request, p); });
    if (!planning.ends()) return "planning changed the caller's floating-point mode";
    if (!plan) {
      const bool limited = request.workspace_limit != SIZE_MAX;
      return limited ? "" : std::string("it cannot be planned: ") + faltung_last_error();
    }
    return run(dice, problem.get(), plan.get(), request);
  }

 private:
  // One that computes the problem: of the candidates that are listed, or the engine's own choice.
  std::string any_kernel(Dice& dice, const std::string& text, int threads) {
    const Problem p = parse_problem(text);
    const Target target{find_device(setting_.device)->info(), setting_.device == "cpu" ? threads : 1};
    std::vector<Candidate> all;
    for (const auto& algorithm : registry()) {
      if (algorithm->device_kind() != target.device.kind || !algorithm->supports(p, target).yes) continue;
      for (Candidate& c : algorithm->candidates(p, target)) all.push_back(std::move(c));
    }
    if (dice.chance(10)) return "";
    for (; !all.empty(); all.pop_back()) {
      std::swap(all[dice.bits() % all.size()], all.back());
      try {
        all.back().recipe();
        return all.back().kernel();
      } catch (const std::exception&) {  // a refusal
      }
    }
    return "";
  }

  std::string run(Dice& dice, const faltung_problem* problem, const faltung_plan* plan,
                  const faltung_request& request) {
    const Problem p = parse_problem(faltung_problem_text(problem));
    const Side side = dice.chance(70) ? Side::ends_at_guard : Side::begins_at_guard;
    const Values values = values_of(dice, setting_.values);
    const faltung_tensor result = p.direction == Direction::forward         ? FALTUNG_Y
                                  : p.direction == Direction::backward_data ? FALTUNG_X
                                                                            : FALTUNG_W;
    std::vector<std::unique_ptr<Operand>> operands;
    for (const faltung_tensor which :
         {FALTUNG_X, FALTUNG_W, FALTUNG_Y, FALTUNG_BIAS, FALTUNG_RESIDUAL, FALTUNG_SLOPES}) {
      const bool there = which < FALTUNG_BIAS    ? true
                         : which == FALTUNG_BIAS ? p.epilogue.bias
                                                 : which == FALTUNG_SLOPES || p.epilogue.residual;
      const std::size_t bytes = there ? faltung_problem_bytes(problem, which) : 0;
      operands.push_back(std::make_unique<Operand>(bytes, side, pool_.get()));
      Guarded& host = operands.back()->host();
      if (which == result) {
        std::memset(host.data(), 0xff, bytes);
      } else if (which == FALTUNG_SLOPES) {
        fill(dice, Values::random, DType::f32, host.data(), bytes);
      } else {
        fill(dice, values, p.dtype, host.data(), bytes);
      }
      operands.back()->to_device();
      if (which != result) host.only_read();
    }
    const bool packs = dice.chance(50) && faltung_plan_packed_weights_bytes(plan) > 0;
    Operand workspace(faltung_plan_workspace_bytes(plan, packs), side, pool_.get());
    const faltung_tensors tensors{sizeof tensors,
                                  operands[0]->pointer(),
                                  operands[1]->pointer(),
                                  operands[2]->pointer(),
                                  operands[3]->pointer(),
                                  operands[4]->pointer(),
                                  nullptr,
                                  nullptr,
                                  nullptr,
                                  nullptr,
                                  operands[5]->pointer()};
    int threads = dice.between(0, 3);
    faltung_run_options options{};
    options.size = sizeof options;
    options.workspace = workspace.pointer();
    if (pool_ == nullptr && dice.chance(40)) {
      options.parallel_for = reversed;
      options.parallel_for_context = &threads;
    }
    WeightsHandle weights;
    if (packs) {
      weights =
          made<WeightsHandle>([&](auto** w) { return faltung_pack_weights(plan, tensors.w, &options, w); });
      if (!weights) return std::string("packing failed: ") + faltung_last_error();
      options.weights = weights.get();
    }
    Operand& out = *operands[static_cast<std::size_t>(result)];
    std::vector<std::byte> first;
    for (const bool again : {false, true}) {
      if (again && !request.deterministic) break;
      std::memset(out.host().data(), 0xff, out.host().bytes());
      out.to_device();
      CallersMode mode(dice);
      const faltung_status status = faltung_run(plan, &tensors, &options);
      if (!mode.ends()) return "running changed the caller's floating-point mode";
      if (status != FALTUNG_OK) return std::string("it did not run: ") + faltung_last_error();
      for (const auto& operand : operands) {
        if (operand.get() == &out && !operand->from_device()) return "it wrote beyond the result";
      }
      if (!workspace.from_device()) return "it wrote beyond the workspace";
      const std::vector<std::byte> bits(out.host().data(), out.host().data() + out.host().bytes());
      if (again && bits != first) return "the same inputs gave other bits";
      first = bits;
    }
    ++runs_;
    // Flushed inputs are other inputs.
    if (request.flush_denormals && values == Values::denormals) return "";
    Tensors host{operands[0]->host().data(), operands[1]->host().data(), operands[2]->host().data(),
                 operands[3]->host().data(), operands[4]->host().data()};
    host.slopes = operands[5]->host().data();
    const Target target{find_device(setting_.device)->info(), setting_.device == "cpu" ? request.threads : 1};
    const Data data = values == Values::random     ? Data::random
                      : values == Values::integers ? Data::small_integers
                                                   : Data::any;
    const Oracle oracle(p, host, 1, 3e8, data);
    const Finding finding = oracle.check(
        out.host().data(), find_candidate(faltung_plan_kernel(plan), p, target).accuracy, parallel_);
    return finding.right() ? "" : "it is wrong: " + finding.worst;
  }

  const Setting& setting_;
  EngineHandle engine_;
  PoolHandle pool_;
  const Parallel parallel_;
  int runs_ = 0;
};

}  // namespace

bool differential(const Setting& setting) {
  constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};
  for (const int signal : kFaults) ::signal(signal, on_fault);
  Differential part(setting);
  if (!part.ready()) {
    std::fprintf(stderr, "%s: %s\n", setting.device.c_str(), faltung_last_error());
    return false;
  }
  int wrong = 0;
  Clock clock(setting);
  while (wrong < 5 && clock.goes_on()) {
    ::alarm(300);
    const std::string what = part.turn(clock.turn());
    if (what.empty()) continue;
    ++wrong;
    std::fprintf(stderr, "%s: %s\n", current, what.c_str());
  }
  ::alarm(0);
  for (const int signal : kFaults) ::signal(signal, SIG_DFL);
  std::printf("differential on %s: %d problems, %d runs between guards, %d wrong\n", setting.device.c_str(),
              clock.turns(), part.runs(), wrong);
  return wrong == 0 && part.runs() > 0;
}

}  // namespace faltung::hostile
