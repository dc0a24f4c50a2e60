// Processes that may have next to nothing. Each asks for all that the interface offers; whatever it is
// answered, it is answered: no signal ends it, nothing is waited for for ever, and what was computed is
// right.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "tests/hostile/hostile.hpp"
#include "tests/hostile/processes.hpp"

namespace faltung::hostile {
namespace {

struct Limit {
  const char* name;
  int resource;
  int least, most;  // powers of two
};
const Limit kLimits[] = {{"memory", RLIMIT_AS, 25, 33},        {"data", RLIMIT_DATA, 20, 30},
                         {"stack", RLIMIT_STACK, 15, 23},      {"file size", RLIMIT_FSIZE, 0, 14},
                         {"descriptors", RLIMIT_NOFILE, 0, 5}, {"processes", RLIMIT_NPROC, 0, 3}};

// A 1x1 convolution of ones: every result is the number of channels.
bool computes(faltung_engine* engine, int threads) {
  const ProblemHandle problem = problem_of("fwd:n1c64h16w16k32r1s1:f32:nhwc");
  if (!problem) return true;  // an answer
  faltung_request request = faltung_request_default();
  request.threads = threads;
  const PlanHandle plan =
      made<PlanHandle>([&](auto** p) { return faltung_plan_create(engine, problem.get(), &request, p); });
  if (!plan) return true;
  static float x[64 * 256], w[64 * 32], y[32 * 256];
  static std::byte workspace[1 << 22];
  std::fill(std::begin(x), std::end(x), 1.0f);
  std::fill(std::begin(w), std::end(w), 1.0f);
  std::memset(y, 0xff, sizeof y);
  if (faltung_plan_workspace_bytes(plan.get(), 0) > sizeof workspace) return true;
  const faltung_tensors tensors{sizeof tensors, x,       w,       y,       nullptr, nullptr,
                                nullptr,        nullptr, nullptr, nullptr, nullptr};
  faltung_run_options options{};
  options.size = sizeof options;
  options.workspace = workspace;
  if (faltung_run(plan.get(), &tensors, &options) != FALTUNG_OK) return true;
  for (const float value : y) {
    if (value != 64) return false;
  }
  return true;
}

int child(Dice& dice, const Setting& setting, const Limit& limit, unsigned long long value) {
  ::alarm(120);
  if (dice.chance(20)) ::close(dice.between(0, 2));
  const bool before = dice.chance(50);
  EngineHandle engine;
  if (before) engine = engine_of(setting.directory);
  const rlimit now{value, value};
  ::setrlimit(static_cast<__rlimit_resource_t>(limit.resource), &now);
  if (limit.resource == RLIMIT_NPROC && ::geteuid() == 0 && ::setuid(65534) != 0)
    return 0;  // root has no such limit
  for (int i = 0; i < 3; ++i) {
    if (!engine) engine = engine_of(setting.directory);
    if (!engine) continue;  // an answer
    // As many as may be asked for are a load on the whole machine: seldom.
    if (!computes(engine.get(), dice.chance(2) ? 4096 : dice.one_of({1, 2, 4, 64}))) return 1;
    const ProblemHandle problem = problem_of(roll_problem(dice));
    faltung_request request = faltung_request_default();
    request.threads = 2;
    request.budget_ms = 30;
    const ChoiceHandle choice =
        made<ChoiceHandle>([&](auto** c) { return faltung_find(engine.get(), problem.get(), &request, c); });
    const PoolHandle pool =
        made<PoolHandle>([&](auto** p) { return faltung_memory_pool_create("cpu", SIZE_MAX, p); });
    void* block = nullptr;
    if (pool && faltung_memory_allocate(pool.get(), 1 << 24, &block) == FALTUNG_OK)
      faltung_memory_free(pool.get(), block);
    if (dice.chance(50)) engine.reset();
  }
  return 0;
}

}  // namespace

bool limits(const Setting& setting) {
  Clock clock(setting);
  int wrong = 0, refused = 0;
  while (wrong < 5 && clock.goes_on()) {
    Dice dice(clock.turn());
    const Limit& limit = kLimits[dice.between(0, static_cast<int>(std::size(kLimits)) - 1)];
    const unsigned long long value =
        (1ull << dice.between(limit.least, limit.most)) - (dice.chance(30) ? 1 : 0);
    const pid_t pid = forked([&] { return child(dice, setting, limit, value); });
    if (pid == kRefused) {
      ++refused;
      continue;
    }
    const int status = end_of(pid);
    if (status == 0) continue;
    // The system itself ends who cannot grow the stack.
    if (limit.resource == RLIMIT_STACK && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) continue;
    ++wrong;
    std::fprintf(stderr, "limits: %s %llu: ended by %s %d: hostile limits --turn %llu\n", limit.name, value,
                 WIFSIGNALED(status) ? "signal" : "code",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
                 static_cast<unsigned long long>(clock.turn()));
  }
  std::printf("limits: %d processes (%d refused), %d wrong\n", clock.turns() - refused, refused, wrong);
  return wrong == 0;
}

}  // namespace faltung::hostile
