// Many threads on one engine and its plans, amid signals that interrupt what they wait for; and forks, whose
// children go on with what their parent made.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/hostile/hostile.hpp"
#include "tests/hostile/processes.hpp"
#include "tests/hostile/watch.hpp"

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
const char* few_problems(Dice& dice) {
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
  const faltung_tensors pointers{sizeof pointers,
                                 tensors[0].data(),
                                 tensors[1].data(),
                                 tensors[2].data(),
                                 tensors[3].data(),
                                 tensors[4].data(),
                                 nullptr,
                                 nullptr,
                                 nullptr,
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

void turn(Shared& shared, Dice& dice, Doing& doing) {
  const char* const drawn = few_problems(dice);
  const std::string text = drawn;
  const ProblemHandle problem = problem_of(text);
  faltung_request request = faltung_request_default();
  request.threads = dice.between(1, 3);
  request.budget_ms = 20;
  const int what = dice.between(1, 100);
  if (what <= 3 || what > 97) {
    doing.step(what <= 3 ? "finds" : "explains", drawn);
    const ChoiceHandle choice = made<ChoiceHandle>([&](auto** c) {
      return what <= 3 ? faltung_find(shared.engine.get(), problem.get(), &request, c)
                       : faltung_explain(shared.engine.get(), problem.get(), &request, c);
    });
    if (!choice) shared.fail(std::string("no choice for ") + text + ": " + faltung_last_error());
    return;
  }
  doing.step("plans", drawn);
  const PlanHandle plan = made<PlanHandle>(
      [&](auto** p) { return faltung_plan_create(shared.engine.get(), problem.get(), &request, p); });
  if (!plan) return shared.fail(std::string("no plan for ") + text + ": " + faltung_last_error());
  doing.step("runs", faltung_plan_kernel(plan.get()));
  const std::vector<std::byte> result = result_of(problem.get(), plan.get());
  doing.step("compares", drawn);
  shared.compare(text + " by " + faltung_plan_kernel(plan.get()) + " on " + std::to_string(request.threads),
                 result);
}

// Where the child of a fork stands, should its alarm strike.
std::atomic<const char*> childs_step{""};
void on_childs_alarm(int) {
  const char* const step = childs_step;
  constexpr char kSaid[] = "threads: the child of a fork does not come to an end; it ";
  if (::write(STDERR_FILENO, kSaid, sizeof kSaid - 1) > 0 &&
      ::write(STDERR_FILENO, step, std::strlen(step)) > 0)
    print_calls();
  ::_exit(3);
}

// Whether the child of a fork goes on with its parent's plan, and with an engine of its own.
bool child_goes_on(bool only_plan, const faltung_plan* plan, const faltung_problem* problem,
                   const std::vector<std::byte>& expected) {
  ::signal(SIGALRM, on_childs_alarm);
  ::alarm(200);
  childs_step = "runs its parent's plan\n";
  bool right = result_of(problem, plan) == expected;
  if (only_plan) return right;
  faltung_request request = faltung_request_default();
  request.threads = 2;
  childs_step = "makes its own engine\n";
  const EngineHandle own = engine_of("");
  childs_step = "plans\n";
  const PlanHandle other =
      made<PlanHandle>([&](auto** p) { return faltung_plan_create(own.get(), problem, &request, p); });
  childs_step = "runs its own plan\n";
  right = right && other && !result_of(problem, other.get()).empty();
  childs_step = "ends\n";
  return right;
}

// The child of a fork, in the middle of what its siblings do. False if the system has no process for it.
bool fork_and_run(Shared& shared, Dice& dice, Doing& doing, const faltung_plan* plan,
                  const faltung_problem* problem) {
  const bool only_plan = dice.chance(50);
  doing.step("runs what its child will");
  const std::vector<std::byte> expected = result_of(problem, plan);
  doing.step("forks");
  const pid_t child = forked([&] { return child_goes_on(only_plan, plan, problem, expected) ? 0 : 1; });
  if (child == kRefused) return false;
  doing.step("waits for its child");
  const int status = end_of(child);
  if (status != 0) shared.fail("the child of a fork ended with " + std::to_string(status));
  return true;
}

}  // namespace

bool threads(const Setting& setting) {
  struct sigaction action {};
  action.sa_handler = on_signal;  // without SA_RESTART: what waits is interrupted
  ::sigaction(SIGUSR1, &action, nullptr);
  Shared shared(setting);
  if (!shared.engine) return false;
  std::atomic<bool> stop{false};
  std::atomic<int> turns{0}, forks{0}, refused{0};
  Watched all;
  constexpr int kThreads = 6;
  int started = 0;
  for (int t = 0; t < kThreads; ++t) {
    started += all.start([&, t](Doing& doing) {
      Dice dice(setting.seed * 100 + static_cast<std::uint64_t>(t));
      while (!stop) turn(shared, dice, doing), ++turns;
    });
  }
  if (kForks) {
    all.start([&](Doing& doing) {
      Dice dice(setting.seed * 100 + 99);
      const ProblemHandle problem = problem_of("fwd:n1c16h12w13k24r3s3:pad1:relu");
      faltung_request request = faltung_request_default();
      request.threads = 3;
      const EngineHandle engine = engine_of(setting.directory);
      const PlanHandle plan = made<PlanHandle>(
          [&](auto** p) { return faltung_plan_create(engine.get(), problem.get(), &request, p); });
      while (plan && !stop)
        ++(fork_and_run(shared, dice, doing, plan.get(), problem.get()) ? forks : refused);
    });
  }
  for (Clock clock(setting); clock.goes_on();) {
    all.signal_each(SIGUSR1);
    all.look();
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  stop = true;
  all.join();
  std::printf("threads: %d turns of %d threads, %d forks (%d refused), %d signals, %d wrong\n", turns.load(),
              started, forks.load(), refused.load(), signals.load(), shared.wrong());
  return shared.wrong() == 0 && turns > 0;
}

}  // namespace faltung::hostile
