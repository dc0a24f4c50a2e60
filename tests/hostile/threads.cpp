// Many threads on one engine and its plans, amid signals that interrupt what they wait for; and forks, whose
// children go on with what their parent made.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/hostile/hostile.hpp"

namespace faltung::hostile {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kForks = false;  // the sanitizer's own threads do not survive one
#else
constexpr bool kForks = true;
#endif

std::atomic<int> signals{0};
void on_signal(int) { signals.fetch_add(1, std::memory_order_relaxed); }

// One of a few problems, so that threads meet on the same plans.
std::string few_problems(Dice& dice) {
  return dice.one_of<const char*>({"fwd:n1c16h12w13k24r3s3:pad1:relu", "fwd:n1c32h9w9k16r1s1:f32:nhwc",
                                   "bwd_d:n1c16h10w9k16r3s3:st2:pad1", "bwd_w:n1c8h12w11k16r3s3:pad1",
                                   "fwd:n2c24h9w8k24r3s3:pad1:g24:bf16:nhwc",
                                   "fwd:n1c16h12w12k16r3s3:pad1:f16:maxpool2"});
}

// A result that depends on the problem alone: inputs are a function of their place.
std::vector<std::byte> result_of(const faltung_problem* problem, const faltung_plan* plan) {
  std::vector<std::vector<std::byte>> tensors;
  for (int t = FALTUNG_X; t <= FALTUNG_RESIDUAL; ++t) {
    tensors.emplace_back(faltung_problem_bytes(problem, static_cast<faltung_tensor>(t)));
    // Small numbers in every type.
    for (std::size_t i = 0; i < tensors.back().size(); ++i)
      tensors.back()[i] = static_cast<std::byte>(i % 2 == 1 ? 0x3c + i % 3 : i % 97);
  }
  std::vector<std::byte> workspace(faltung_plan_workspace_bytes(plan, 0) + 1);
  const faltung_tensors pointers{tensors[0].data(),
                                 tensors[1].data(),
                                 tensors[2].data(),
                                 tensors[3].data(),
                                 tensors[4].data(),
                                 nullptr,
                                 nullptr};
  faltung_run_options options{};
  options.size = sizeof options;
  options.workspace = workspace.data();
  if (faltung_run(plan, &pointers, &options) != FALTUNG_OK) return {};
  const std::string text = faltung_problem_text(problem);
  return tensors[text.starts_with("fwd") ? 2 : text.starts_with("bwd_d") ? 0 : 1];
}

// What the threads share.
class Shared {
 public:
  explicit Shared(const Setting& setting) : engine(engine_of(setting.directory)) {}

  void fail(const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (wrong_++ < 5) std::fprintf(stderr, "threads: %s\n", what.c_str());
  }
  // The same bits whoever computes them, by the same kernel with as many threads.
  void compare(const std::string& key, const std::vector<std::byte>& bits) {
    const std::lock_guard lock(mutex_);
    const auto [known, is_new] = bits_.emplace(key, bits);
    if (known->second == bits && !bits.empty()) return;
    if (wrong_++ < 5) std::fprintf(stderr, "threads: other bits of %s\n", key.c_str());
  }
  int wrong() const { return wrong_; }

  const EngineHandle engine;

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<std::byte>> bits_;
  int wrong_ = 0;
};

void turn(Shared& shared, Dice& dice) {
  const std::string text = few_problems(dice);
  const ProblemHandle problem = problem_of(text);
  faltung_request request = faltung_request_default();
  request.threads = dice.between(1, 3);
  request.budget_ms = 20;
  const int what = dice.between(1, 100);
  if (what <= 3 || what > 97) {
    const ChoiceHandle choice = made<ChoiceHandle>([&](auto** c) {
      return what <= 3 ? faltung_find(shared.engine.get(), problem.get(), &request, c)
                       : faltung_explain(shared.engine.get(), problem.get(), &request, c);
    });
    if (!choice) shared.fail(std::string("no choice for ") + text + ": " + faltung_last_error());
    return;
  }
  const PlanHandle plan = made<PlanHandle>(
      [&](auto** p) { return faltung_plan_create(shared.engine.get(), problem.get(), &request, p); });
  if (!plan) return shared.fail(std::string("no plan for ") + text + ": " + faltung_last_error());
  shared.compare(text + " by " + faltung_plan_kernel(plan.get()) + " on " + std::to_string(request.threads),
                 result_of(problem.get(), plan.get()));
}

// The child of a fork, in the middle of what its siblings do.
void fork_and_run(Shared& shared, Dice& dice, const faltung_plan* plan, const faltung_problem* problem) {
  const bool only_plan = dice.chance(50);
  const std::vector<std::byte> expected = result_of(problem, plan);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    bool right = result_of(problem, plan) == expected;
    if (!only_plan) {
      faltung_request request = faltung_request_default();
      request.threads = 2;
      const EngineHandle own = engine_of("");
      const PlanHandle other =
          made<PlanHandle>([&](auto** p) { return faltung_plan_create(own.get(), problem, &request, p); });
      right = right && other && !result_of(problem, other.get()).empty();
    }
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
  }
  if (status != 0) shared.fail("the child of a fork ended with " + std::to_string(status));
}

}  // namespace

bool threads(const Setting& setting) {
  struct sigaction action {};
  action.sa_handler = on_signal;  // without SA_RESTART: what waits is interrupted
  ::sigaction(SIGUSR1, &action, nullptr);
  ::alarm(static_cast<unsigned>(setting.seconds) + 300);
  Shared shared(setting);
  if (!shared.engine) return false;
  std::atomic<bool> stop{false};
  std::atomic<int> turns{0}, forks{0};
  std::vector<std::thread> all;
  constexpr int kThreads = 6;
  for (int t = 0; t < kThreads; ++t) {
    all.emplace_back([&, t] {
      Dice dice(setting.seed * 100 + static_cast<std::uint64_t>(t));
      while (!stop) turn(shared, dice), ++turns;
    });
  }
  if (kForks) {
    all.emplace_back([&] {
      Dice dice(setting.seed * 100 + 99);
      const ProblemHandle problem = problem_of("fwd:n1c16h12w13k24r3s3:pad1:relu");
      faltung_request request = faltung_request_default();
      request.threads = 3;
      const EngineHandle engine = engine_of(setting.directory);
      const PlanHandle plan = made<PlanHandle>(
          [&](auto** p) { return faltung_plan_create(engine.get(), problem.get(), &request, p); });
      while (plan && !stop) fork_and_run(shared, dice, plan.get(), problem.get()), ++forks;
    });
  }
  for (Clock clock(setting); clock.goes_on();) {
    for (std::thread& thread : all) ::pthread_kill(thread.native_handle(), SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  stop = true;
  for (std::thread& thread : all) thread.join();
  ::alarm(0);
  std::printf("threads: %d turns of %d threads, %d forks, %d signals, %d wrong\n", turns.load(), kThreads,
              forks.load(), signals.load(), shared.wrong());
  return shared.wrong() == 0 && turns > 0;
}

}  // namespace faltung::hostile
