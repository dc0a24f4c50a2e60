#include "tools/preparation.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <system_error>
#include <thread>

#include "src/algorithms/ceilings.hpp"
#include "src/finder/report.hpp"
#include "tools/measure.hpp"
#include "tools/units.hpp"

namespace faltung::tools {
namespace {

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

}  // namespace

void PrepareOptions::add_options(const Command& command) {
  command.option("--jobs", jobs, "So much at once; as many as processors unless given")
      .type("N")
      .within(1, 1024);
  command.option("--within", within, "Nothing is begun after so long").type("TIME");
  command.flag("--keep-shipped", keeps, "Code that came with the package is put into the store, too");
  command.flag("--problems", problems, "Only print the problems, as a list that --suite takes");
  machine.add_options(command);
}

Preparation::Preparation(PrepareOptions& options, Request request, std::vector<Row> rows,
                         std::vector<jit::Source> programs)
    : options_(options),
      request_(std::move(request)),
      device_(find_device(request_.device)),
      rows_(std::move(rows)),
      programs_(std::move(programs)),
      end_(Clock::now() + std::chrono::microseconds(static_cast<std::int64_t>(
                              1e3 * parse_duration_ms("--within", options.within)))) {}

int Preparation::run() {
  if (options_.problems) return list();
  options_.machine.open({"problem", "kernel", "outcome", "why", "compile_ms", "tried"});
  if (device_->runs()) {  // the ceilings that the store does not have, while nothing else runs
    Engine engine;
    Internals::impl(engine).ceilings(*device_, Settled(Problem{}, request_).threads);
  }
  catch_interrupts();
  const int wanted = options_.jobs > 0 ? options_.jobs : available_processors();
  const int jobs = static_cast<int>(std::min<std::size_t>(wanted, rows_.size() + programs_.size()));
  const bool shares = jobs > 1 && device_->runs() && device_->info().kind == "gpu";
  std::vector<std::thread> threads;
  const auto work = [this, jobs, shares](int job) {
    if (shares) keep_to_share(job, jobs);
    take();
  };
  try {
    while (static_cast<int>(threads.size()) < jobs) threads.emplace_back(work, threads.size());
  } catch (const std::system_error&) {  // there may be no more: those that there are do it all
    if (threads.empty()) work(0);
  }
  for (std::thread& thread : threads) thread.join();
  line_.clear();
  if (failure_) std::rethrow_exception(failure_);
  options_.machine.close();
  if (options_.machine.for_people()) say();
  return interrupted() ? 130 : without_ > 0 ? 1 : 0;
}

int Preparation::list() const {
  fmt::print("name,problem\n");
  for (const Row& row : rows_) {
    const std::string name =
        (row.suite.empty() ? "given" : row.suite) + "_" + (row.name.empty() ? "problem" : row.name);
    fmt::print("{},\"{}\"\n", csv_field(name), to_string(row.problem));
  }
  return 0;
}

void Preparation::say() const {
  const std::string programs =
      programs_.empty() ? "" : fmt::format(", {} of {} other programs", programs_done_, programs_.size());
  fmt::print(
      "{} of {} problems{}, {} kernels ready, {} compiled now in {:.1f} s of processors, {} tried, {} known, "
      "{} failed{}\n",
      problems_done_, rows_.size(), programs, ready_, compiled_, compile_ms_ / 1e3, tried_, known_, failed_,
      interrupted() ? ", interrupted" : "");
}

// An engine has one worker in which kernels are tried: so each thread has an engine. What all of them are
// warned of is said once, and what ends one of them ends the others.
void Preparation::take() try {
  Engine engine;
  engine.on_warning([this](const std::string& line) {
    const std::lock_guard lock(mutex_);
    if (warned_.insert(line).second) print_warning(line);
  });
  const std::size_t all = rows_.size() + programs_.size();
  for (std::size_t i; (i = next_++) < all && Clock::now() < end_ && !interrupted();)
    note(i, prepared(Internals::impl(engine), i));
} catch (...) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::current_exception();
  next_ = rows_.size() + programs_.size();
}

std::vector<Prepared> Preparation::prepared(EngineImpl& engine, std::size_t item) const {
  try {
    if (item < rows_.size())
      return engine.prepare(rows_[item].problem, request_, options_.kernels, options_.keeps);
    return {built(engine, programs_[item - rows_.size()])};
  } catch (const Error& error) {
    return {{report_of(Outcome::declined, error.what(), "")}};
  }
}

Prepared Preparation::built(EngineImpl& engine, const jit::Source& program) const {
  const jit::Session session(*device_, engine.store());
  Prepared one{report_of(Outcome::pass, "", program.name)};
  one.report.compile_ms = session.build(program).compile_ms;
  if (options_.keeps) session.keep(program);
  return one;
}

void Preparation::note(std::size_t item, const std::vector<Prepared>& all) {
  const std::string what = item < rows_.size() ? to_string(rows_[item].problem) : "";
  const std::lock_guard lock(mutex_);
  int ready = 0;
  for (const auto& [report, tried] : all) {
    options_.machine.row({what, report.kernel, std::string(name(report.outcome)), report.why,
                          report.compile_ms, std::int64_t{tried}});
    const bool compiled = report.compile_ms > 0;
    compiled_ += compiled, tried_ += tried, compile_ms_ += report.compile_ms;
    if (passed(report)) {
      ++ready;
      known_ += !compiled && !tried;
    } else {
      ++failed_;
      line_.clear();
      print_warning(fmt::format("{}: {} {}: {}", what.empty() ? "of another step" : what, report.kernel,
                                name(report.outcome), one_line(report.why)));
    }
  }
  ready_ += ready;
  without_ += ready == 0;
  ++(item < rows_.size() ? problems_done_ : programs_done_);
  line_.show(fmt::format("{}/{}, {} compiled", problems_done_ + programs_done_,
                         rows_.size() + programs_.size(), compiled_));
}

}  // namespace faltung::tools
