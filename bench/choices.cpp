// How long the host takes for a choice: what `plan` considers of a problem on a device, without its programs.
// Each problem in every direction, math and layout, one thread's own time; the fastest of a few passes over
// all of them, so that none finds what it left behind. `--device nvrtc:sm_90a` needs no GPU.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <vector>

#include "bench/every_way.hpp"
#include "src/finder/engine.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/temporary_folder.hpp"
#include "src/problem/text.hpp"
#include "tools/arguments.hpp"

namespace faltung::tools {
namespace {

struct Choosing {
  Problem problem;
  double ms = 1e9;
  std::size_t candidates = 0;
  std::string kernel = {};
};

double own_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

void choose(EngineImpl& engine, const Request& request, Choosing& one) {
  try {
    const Settled settled(one.problem, request);
    const double begin = own_ms();
    const Considered considered = engine.consider(settled);
    one.ms = std::min(one.ms, own_ms() - begin);
    one.candidates = considered.selection.candidates.size();
    one.kernel = considered.selection.candidates.front().kernel();
  } catch (const Error& error) {
    if (error.status() != Status::unsupported && error.status() != Status::bad_problem) throw;
  }
}

int choices(const Arguments& arguments, int passes) {
  const TemporaryFolder store;  // empty
  Engine engine(store.path());
  std::vector<Choosing> all;
  for (const Row& row : arguments.rows()) {
    for (const Problem& problem : in_every_way(row.problem)) all.push_back({problem});
  }
  for (int pass = 0; pass < passes; ++pass) {
    for (Choosing& one : all) choose(Internals::impl(engine), arguments.request(), one);
  }
  std::erase_if(all, [](const Choosing& one) { return one.candidates == 0; });
  if (all.empty()) return 1;
  fmt::print("problem,kernel,candidates,ms\n");
  for (const Choosing& one : all)
    fmt::print("{},{},{},{:.3f}\n", to_string(one.problem), one.kernel, one.candidates, one.ms);
  std::sort(all.begin(), all.end(), [](const Choosing& a, const Choosing& b) { return a.ms < b.ms; });
  const auto long_ones =
      std::count_if(all.begin(), all.end(), [](const Choosing& one) { return one.ms > 1; });
  fmt::print(
      "# {} choices: median {:.3f} ms, nine of ten below {:.3f} ms, the longest {:.3f} ms; {} above 1 ms\n",
      all.size(), all[all.size() / 2].ms, all[all.size() * 9 / 10].ms, all.back().ms, long_ones);
  return 0;
}

}  // namespace
}  // namespace faltung::tools

int main(int argc, char** argv) {
  using namespace faltung::tools;
  Arguments arguments;
  int passes = 1;
  const auto declare = [&](const Command& command) {
    arguments.add_problems(command);
    arguments.add_choices(command);
    command.option("--passes", passes, "The fastest of so many counts").type("N").shows_default();
    command.runs([&] { return choices(arguments, passes); });
  };
  return run_program("faltung-choices", "Milliseconds that the host takes for a choice", declare, argc, argv);
}
