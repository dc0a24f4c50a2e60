// faltung prepare: compiles and tries what plans of these problems need, before they are asked for.
#include <fmt/format.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "src/algorithms/ceilings.hpp"
#include "src/finder/engine.hpp"
#include "src/finder/report.hpp"
#include "tools/arguments.hpp"
#include "tools/command.hpp"
#include "tools/live.hpp"
#include "tools/measure.hpp"
#include "tools/report.hpp"
#include "tools/units.hpp"

namespace faltung::tools {
namespace {

using Clock = std::chrono::steady_clock;

struct PrepareOptions {
  Arguments arguments;
  Machine machine;
  std::string within = "10000m";
  int kernels = 1, jobs = 0;
  bool problems = false, keeps = false;
};

// What a thread starts has the thread's processors: so each worker computes its references on a share of
// them, and not each on all. Before, 4 workers passed 18 trials a second on an H200 with 16 processors, 14
// passed 19.
void keep_to_share(int job, int jobs) {
  cpu_set_t all, own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  const int count = CPU_COUNT(&all);
  for (int cpu = 0, number = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all)) continue;
    if (number % jobs == job || (jobs > count && job % count == number)) CPU_SET(cpu, &own);
    ++number;
  }
  sched_setaffinity(0, sizeof own, &own);
}

class Preparation {
 public:
  explicit Preparation(PrepareOptions& options)
      : options_(options),
        rows_(options.arguments.rows()),
        end_(Clock::now() + std::chrono::microseconds(static_cast<std::int64_t>(
                                1e3 * parse_duration_ms("--within", options.within)))) {}

  // As a list that --suite takes.
  int list() const {
    fmt::print("name,problem\n");
    for (const Row& row : rows_) {
      fmt::print("{}_{},\"{}\"\n", row.suite.empty() ? "given" : row.suite,
                 row.name.empty() ? "problem" : row.name, to_string(row.problem));
    }
    return 0;
  }

  int run() {
    options_.machine.open({"problem", "kernel", "outcome", "why", "compile_ms"});
    measure_ceilings();
    const int jobs = options_.jobs > 0 ? options_.jobs : available_processors();
    std::vector<std::thread> threads;
    const std::shared_ptr<Device> device = options_.arguments.device();
    const bool shares = jobs > 1 && device->runs() && device->info().kind == "gpu";
    for (int i = 0; i < jobs; ++i) {
      threads.emplace_back([this, i, jobs, shares] {
        if (shares) keep_to_share(i, jobs);
        take();
      });
    }
    for (std::thread& thread : threads) thread.join();
    line_.clear();
    options_.machine.close();
    if (options_.machine.for_people()) {
      fmt::print(
          "{} of {} problems, {} kernels ready, {} compiled now in {:.1f} s of processors, {} failed{}\n",
          done_, rows_.size(), ready_, compiled_, compile_ms_ / 1e3, failed_,
          interrupted() ? ", interrupted" : "");
    }
    return interrupted() ? 130 : without_ > 0 ? 1 : 0;
  }

 private:
  // Those that the store does not have, while nothing else runs.
  void measure_ceilings() const {
    const std::shared_ptr<Device> device = options_.arguments.device();
    if (!device->runs()) return;
    Engine engine;
    Internals::impl(engine).ceilings(*device, options_.arguments.threads());
  }

  // An engine has one worker in which kernels are tried: so each thread has an engine.
  void take() {
    Engine engine;
    print_warnings(engine);
    const Request request = options_.arguments.request();
    for (std::size_t i; (i = next_++) < rows_.size() && Clock::now() < end_ && !interrupted();) {
      std::vector<Report> reports;
      try {
        reports =
            Internals::impl(engine).prepare(rows_[i].problem, request, options_.kernels, options_.keeps);
      } catch (const Error& error) {
        reports.push_back(report_of(Outcome::declined, error.what(), ""));
      }
      note(rows_[i], reports);
    }
  }

  void note(const Row& row, const std::vector<Report>& reports) {
    const std::lock_guard lock(mutex_);
    int ready = 0;
    for (const Report& report : reports) {
      options_.machine.row({to_string(row.problem), report.kernel, std::string(name(report.outcome)),
                            report.why, report.compile_ms});
      if (passed(report)) {
        ++ready;
        compiled_ += report.compile_ms > 0;
        compile_ms_ += report.compile_ms;
      } else {
        ++failed_;
        line_.clear();
        print_warning(fmt::format("{}: {} {}: {}", to_string(row.problem), report.kernel,
                                  name(report.outcome), one_line(report.why)));
      }
    }
    ready_ += ready;
    without_ += ready == 0;
    line_.show(fmt::format("problem {}/{}, {} compiled", ++done_, rows_.size(), compiled_));
  }

  PrepareOptions& options_;
  const std::vector<Row> rows_;
  const Clock::time_point end_;
  std::atomic<std::size_t> next_ = 0;
  std::mutex mutex_;  // of what follows
  LiveLine line_;
  int done_ = 0, ready_ = 0, compiled_ = 0, failed_ = 0, without_ = 0;
  double compile_ms_ = 0;
};

void declare_prepare(const Command& command) {
  const auto options = std::make_shared<PrepareOptions>();
  options->arguments.add_problems(command);
  options->arguments.add_choices(command);
  command
      .option("--kernels", options->kernels,
              "So many of those that find would time first; 1: what a plan takes")
      .type("N")
      .within(1, 1000)
      .shows_default();
  command.option("--jobs", options->jobs, "So many problems at once; as many as processors unless given")
      .type("N")
      .within(1, 1024);
  command.option("--within", options->within, "No problem is begun after so long").type("TIME");
  command.flag("--keep-shipped", options->keeps,
               "Code that came with the package is put into the store, too");
  command.flag("--problems", options->problems, "Only print the problems, as a list that --suite takes");
  options->machine.add_options(command);
  command.runs([options] {
    Preparation preparation(*options);
    return options->problems ? preparation.list() : preparation.run();
  });
}

const Subcommand kPrepare("prepare", "Compile and try what plans of these problems need", declare_prepare);

}  // namespace
}  // namespace faltung::tools
