#include "src/finder/trust/worker.hpp"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "src/finder/installed.hpp"
#include "src/finder/report.hpp"
#include "src/finder/trust/protocol.hpp"
#include "src/problem/environment.hpp"
#include "src/problem/text.hpp"

namespace faltung {
namespace {

namespace fs = std::filesystem;

std::string seconds(double ms) { return fmt::format("{:.3g} s", ms / 1000); }

const char* doing(Phase phase) {
  constexpr const char* kWords[] = {"opening the device", "compiling", "running", "checking its result"};
  return kWords[static_cast<int>(phase)];
}

double deadline_of(const Deadlines& d, Phase phase, double predicted_ms) {
  switch (phase) {
    case Phase::open:
      return d.open;
    case Phase::compile:
      return d.compile;
    case Phase::run:
      return d.run + d.factor * predicted_ms;
    case Phase::check:
      return d.check;
  }
  return d.check;
}

bool is_program(const std::string& file) {
  std::error_code error;
  return ::access(file.c_str(), X_OK) == 0 && fs::is_regular_file(file, error);
}

}  // namespace

std::string worker_command(const std::string& given) {
  if (!given.empty()) {
    if (is_program(given)) return fs::absolute(given).string();
    throw NoWorker(
        fmt::format("the worker (FALTUNG_WORKER) is '{}', which is no program; it must be the path of "
                    "the faltung command",
                    given));
  }
  const std::string found =
      installed_file({"faltung", "../bin/faltung", "../../bin/faltung", "../tools/faltung", "tools/faltung"});
  if (!found.empty() && is_program(found)) return found;
  for (const std::string& folder : split(environment("PATH"), ':')) {
    if (const std::string file = folder + "/faltung"; !folder.empty() && is_program(file)) return file;
  }
  throw NoWorker(
      "there is no worker to try kernels in, neither beside the library nor in PATH: install the faltung "
      "command, or "
      "set FALTUNG_WORKER to its path, or FALTUNG_TRUST=all to use kernels that were never tried here");
}

Worker::Worker(std::string device, std::string command)
    : device_(std::move(device)), command_(std::move(command)) {}
Worker::~Worker() {
  // In a fork of the process that made it, the worker is not ours to end.
  if (process_ && owner_ != ::getpid()) static_cast<void>(process_.release());
}

void Worker::start() {
  if (!lost_.empty()) throw NoWorker(lost_);
  if (process_ && owner_ != ::getpid()) static_cast<void>(process_.release());
  if (process_) return;
  const std::string command = worker_command(command_);
  try {
    process_ = std::make_unique<LineProcess>(std::vector<std::string>{command, "worker"});
  } catch (const Error& error) {  // one process, thread or descriptor too many
    throw NoWorker(fmt::format(
        "the worker does not start: {}; raise what limits this process (ulimit -a), or set FALTUNG_TRUST=all "
        "to use kernels that were never tried here",
        error.what()));
  }
  owner_ = ::getpid();
  std::string line;
  if (process_->receive(line, deadlines_.start) == LineProcess::Got::line) {
    try {
      protocol::check_hello(line);
      return;
    } catch (const Error& error) {
      process_.reset();
      throw NoWorker(error.what());
    }
  }
  const LineProcess::End end = process_->end(100);
  const std::string complaint = process_->complaint();
  process_.reset();
  throw NoWorker(fmt::format("the worker {} does not start: it {}{}", command,
                             end.by_us ? "says nothing" : end.words(),
                             complaint.empty() ? "" : "; it said: " + complaint));
}

void Worker::ask(const std::string& line) {
  start();
  if (process_->send(line)) return;
  // It ended while it had nothing to do, through no fault of the kernel's.
  process_.reset();
  start();
  if (process_->send(line)) return;
  process_.reset();
  throw Error(Status::device_error, "the worker ends before it can be asked anything");
}

Report Worker::examine(const Task& task, const Deadlines& deadlines) {
  {
    const std::lock_guard lock(waiting_mutex_);
    waiting_.push_back(task);
  }
  const std::lock_guard lock(mutex_);
  deadlines_ = deadlines;
  compile_waiting();
  ask(protocol::examine(task));
  return converse(task);
}

std::vector<Task> Worker::take_waiting() {
  const std::lock_guard lock(waiting_mutex_);
  return std::exchange(waiting_, {});
}

// What all who wait need is compiled for the first of them, so that nobody's compiler waits for another's
// trial. A process takes a while to start, in which others come.
void Worker::compile_waiting() {
  try {
    start();
  } catch (const Error&) {
    take_waiting();
    throw;
  }
  const std::vector<Task> tasks = take_waiting();
  if (tasks.size() < 2) return;  // its examination compiles it
  ask(protocol::compile(tasks));
  converse(Task());
}

void Worker::compile_ahead(const std::vector<Task>& tasks, const Deadlines& deadlines) {
  const std::lock_guard lock(mutex_);
  deadlines_ = deadlines;
  ask(protocol::compile(tasks));
  converse(Task());
}

Report Worker::converse(const Task& task) {
  Phase phase = Phase::open;
  std::string line;
  while (true) {
    const double deadline = deadline_of(deadlines_, phase, task.predicted_ms);
    switch (process_->receive(line, deadline)) {
      case LineProcess::Got::end:
        return ended(phase);
      case LineProcess::Got::nothing:
        return hung(phase, deadline);
      case LineProcess::Got::line:
        break;
    }
    protocol::Reply reply;
    try {
      reply = protocol::read_reply(line);
    } catch (const Error& error) {  // a kernel wrote over the worker's memory, say
      process_.reset();
      return report_of(Outcome::crash, std::string("the worker lost its mind: ") + error.what());
    }
    if (!reply.error.empty())
      throw NoWorker(reply.error.starts_with(device_) ? reply.error : device_ + ": " + reply.error);
    if (reply.phase) phase = *reply.phase;
    if (reply.report) {
      // After a fault or a write out of bounds nothing in that process can be relied on.
      const Outcome outcome = reply.report->outcome;
      if (outcome == Outcome::crash || outcome == Outcome::out_of_bounds || outcome == Outcome::out_of_memory)
        process_.reset();
      return *reply.report;
    }
  }
}

Report Worker::ended(Phase phase) {
  constexpr double kGrace = 5e3;
  const LineProcess::End end = process_->end(kGrace);
  const std::string complaint = process_->complaint();
  process_.reset();
  const std::string what = fmt::format("the worker {} while {}{}", end.words(), doing(phase),
                                       complaint.empty() ? "" : "; it said: " + complaint);
  if (phase == Phase::open) throw Error(Status::device_error, device_ + ": " + what);
  if (end.signal == SIGKILL)
    return report_of(Outcome::out_of_memory, what + ", as the system does when memory runs out");
  // A compiler that does so with every kernel does not know the device, which is opened beside it.
  if (std::string why; phase == Phase::compile && device_ != "cpu") {
    if (!passes(Probe::Part::compiler, why))
      lose(fmt::format("no kernel compiles for {}: {}, and for a kernel of one line {}", device_, what, why));
    if (!passes(Probe::Part::memory, why))
      lose(fmt::format("{} does not work: {}, and then {}", device_, what, why));
  }
  return report_of(Outcome::crash, what);
}

Report Worker::hung(Phase phase, double deadline_ms) {
  const LineProcess::End end = process_->end(0);
  process_.reset();
  const std::string what = fmt::format("no end of {} after {}", doing(phase), seconds(deadline_ms));
  if (phase == Phase::open) throw Error(Status::device_error, device_ + ": " + what);
  if (!end.gone) lose(device_ + " does not answer any more: " + what + ", and its process cannot be ended");
  std::string why;
  if (!passes(Probe::Part::memory, why))
    lose(fmt::format("{} does not work any more: {}, and then {}", device_, what, why));
  return report_of(Outcome::hang, what + "; it was ended, and the device works again in a new process");
}

// Whether this part of the device works in a new process, after a kernel's came to its end; or why not.
bool Worker::passes(Probe::Part part, std::string& why) {
  const double deadline =
      deadline_of(deadlines_, part == Probe::Part::memory ? Phase::open : Phase::compile, 0);
  std::string line;
  why = "the new process ended";
  start();
  if (process_->send(protocol::probe({device_, part}))) {
    const LineProcess::Got got = process_->receive(line, deadline);
    if (got == LineProcess::Got::nothing) why = "no answer after " + seconds(deadline);
    if (got == LineProcess::Got::line) {
      const protocol::Reply reply = protocol::read_reply(line);
      if (reply.report && passed(*reply.report)) return true;
      why = reply.error;
    }
  }
  process_.reset();
  return false;
}

void Worker::lose(const std::string& what) {
  lost_ = what;
  throw NoWorker(lost_);
}

}  // namespace faltung
