// faltung doctor: every kernel on a short list of problems, on every device, in worker processes.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/finder/engine.hpp"
#include "src/finder/report.hpp"
#include "tools/arguments.hpp"
#include "tools/command.hpp"
#include "tools/doctor_problems.hpp"
#include "tools/doctor_report.hpp"
#include "tools/live.hpp"
#include "tools/report.hpp"
#include "tools/units.hpp"

namespace faltung::tools {
namespace {

using Clock = std::chrono::steady_clock;

struct DoctorOptions {
  std::vector<std::string> devices, only, skip;
  std::string budget = "10m", report = "faltung-doctor";
  int threads = 0;
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// One device's examination.
class Doctor {
 public:
  Doctor(EngineImpl& engine, std::shared_ptr<Device> device, const Request& request, LiveLine& line)
      : engine_(engine), device_(std::move(device)), request_(request), line_(line) {
    report_.device = device_->info();
    report_.threads = request.threads;
  }

  DeviceReport examine(const std::vector<Case>& cases, double budget_s) {
    const auto begin = Clock::now();
    report_.problems = static_cast<int>(cases.size());
    try {
      // First what each family would choose, then its other kernels: a run that ends early has seen most
      // problems.
      for (const bool others : {false, true}) {
        int& reached = others ? report_.reached_whole : report_.reached;
        for (const Case& one : cases) {
          examine(one, others, [&] { return interrupted() || seconds_since(begin) > budget_s; });
          if (interrupted() || seconds_since(begin) > budget_s) break;
          ++reached;
        }
      }
    } catch (const Error& error) {  // no worker, or a device that does not come back
      report_.lost = error.what();
    }
    line_.clear();
    report_.seconds = seconds_since(begin);
    conclude(report_);
    return report_;
  }

 private:
  // others: not the first choice of each family, but all the rest of it.
  template <class Late>
  void examine(const Case& one, bool others, const Late& late) {
    Selection selection;
    try {
      selection = select(Settled(one.problem, request_));
    } catch (const Error& error) {
      if (error.status() != Status::unsupported) throw;
      if (!others) add(one, "none", "none", report_of(Outcome::declined, error.what()));
      return;
    }
    std::vector<const Algorithm*> seen;
    std::erase_if(selection.candidates, [&](const Candidate& c) {
      if (c.algorithm->last_resort()) return true;  // the reference, which the others are compared with
      const bool first = std::find(seen.begin(), seen.end(), c.algorithm) == seen.end();
      seen.push_back(c.algorithm);
      return first == others;
    });
    std::size_t number = 0;
    for (const Candidate& candidate : selection.candidates) {
      if (late()) return;
      const std::string kernel = candidate.kernel();
      line_.show(fmt::format("{} problem {}/{} kernel {}/{}: {}", report_.device.id,
                             (others ? report_.reached_whole : report_.reached) + 1, report_.problems,
                             ++number, selection.candidates.size(), kernel));
      add(one, std::string(candidate.algorithm->name()), kernel, examine(one.problem, candidate));
    }
    for (const Report& refusal : selection.refusals) {
      if (others) break;
      add(one, refusal.kernel.substr(0, refusal.kernel.find('/')), refusal.kernel,
          report_of(Outcome::declined, refusal.why));
    }
  }

  Report examine(const Problem& problem, const Candidate& candidate) {
    constexpr int kPatience = 2;  // hangs of a kernel: each costs a deadline
    const std::string kernel = candidate.kernel();
    if (hangs_[kernel] >= kPatience) return report_of(Outcome::skipped, "it hung before");
    const Settled settled(problem, request_);
    // Once for its programs all of the trial that makes a kernel eligible; then the problem itself.
    Report report = report_of(Outcome::pass, "");
    Trust& trust = engine_.trust();
    Task task;
    if (!std::exchange(tried_[verdict_key(candidate, settled.problem, report_.device)], true)) {
      task = small_task(candidate, settled, kSeed);
      report = trust.examine(task, settled);
      trust.keep(candidate, task.problem, settled, report, kSeed);
    }
    if (passed(report)) {
      task = Task();
      task.kernel = kernel;
      task.problem = problem;
      task.device = report_.device.id;
      task.threads = report_.threads;
      task.seed = kSeed;
      task.predicted_ms = candidate.cost.ms;
      task.products = 1e7;
      task.time_ms = 1;
      report = trust.examine(task, settled);
      if (!passed(report) && report.outcome != Outcome::out_of_memory && report.outcome != Outcome::too_large)
        trust.keep(candidate, problem, settled, report, kSeed);
    }
    hangs_[kernel] += report.outcome == Outcome::hang;
    return report;
  }

  void add(const Case& one, const std::string& algorithm, const std::string& kernel, Report report) {
    Examined e;
    e.algorithm = algorithm;
    e.group = one.group;
    e.problem = to_string(one.problem);
    e.report = std::move(report);
    e.report.kernel = kernel;
    e.report.why = one_line(e.report.why);
    if (kernel.find('/') != std::string::npos) {
      e.reproduce = reproduce(one.problem, kernel, report_.device.id, report_.threads, kSeed);
    }
    report_.results.push_back(std::move(e));
  }

  static constexpr std::uint64_t kSeed = 1;
  EngineImpl& engine_;
  std::shared_ptr<Device> device_;
  Request request_;
  LiveLine& line_;
  DeviceReport report_;
  std::map<std::string, int> hangs_;
  std::map<std::string, bool> tried_;
};

// Whole or not at all: a file that cannot be written is an error before the work and not after it.
void write(const std::string& file, const std::string& text) {
  std::ofstream out(file, std::ios::trunc);
  out << text;
  out.close();
  if (!out) throw Error(Status::bad_file, file + ": cannot be written; give --report a name that can");
}

std::string system_line() {
  utsname name{};
  uname(&name);
  return fmt::format("faltung {} doctor, {:%Y-%m-%d %H:%M} UTC, {} {} {}", version(),
                     fmt::gmtime(std::time(nullptr)), name.sysname, name.release, name.machine);
}

int run(const DoctorOptions& options) {
  const double budget_s = parse_duration_ms("--budget", options.budget) / 1000;
  std::vector<std::shared_ptr<Device>> devices;
  for (const std::string& id : options.devices) devices.push_back(find_device(id));
  if (devices.empty()) devices = list_devices();
  Request request;
  request.only = options.only;
  request.skip = options.skip;
  request.deterministic = false;
  Filter{request};
  worker_command(worker_policy(request).command);
  const std::string text_file = options.report + ".txt", json_file = options.report + ".json";
  const std::string system = system_line();
  std::string text = system + "\n\n";
  write(text_file, text);
  nlohmann::ordered_json json = {
      {"faltung", version()}, {"system", system}, {"devices", nlohmann::ordered_json::array()}};
  catch_interrupts();
  Engine engine;
  print_warnings(engine);
  LiveLine line;
  int bad = 0;
  for (const std::shared_ptr<Device>& device : devices) {
    request.device = device->info().id;
    request.threads = device->info().kind != "cpu" ? 1
                      : options.threads > 0        ? options.threads
                                                   : available_processors();
    const DeviceReport report = Doctor(Internals::impl(engine), device, request, line)
                                    .examine(doctor_cases(), budget_s / static_cast<double>(devices.size()));
    bad += bad_results(report) + !report.lost.empty();
    fmt::print("{}\n", text_of(report, false));
    std::fflush(stdout);
    text += text_of(report, true) + "\n";
    json["devices"].push_back(json_of(report));
    write(text_file, text);
    write(json_file, json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
    if (interrupted()) break;
  }
  fmt::print("report: {} and {}\n", text_file, json_file);
  return interrupted() ? 130 : bad > 0 ? 1 : 0;
}

void declare_doctor(const Command& command) {
  const auto options = std::make_shared<DoctorOptions>();
  command.option("--device", options->devices, "Only this device; repeatable").type("ID");
  command.option("--kernel", options->only, "Only kernels that match; repeatable").type("PATTERN");
  command.option("--skip", options->skip, "No kernels that match; repeatable").type("PATTERN");
  command.option("--budget", options->budget, "For all devices together").type("TIME").shows_default();
  command.option("--threads", options->threads, "CPU threads; every processor unless given")
      .within(1, 4096)
      .type("N");
  command.option("--report", options->report, "Where the report goes: NAME.txt and NAME.json")
      .type("NAME")
      .shows_default();
  command.runs([options] { return run(*options); });
}

const Subcommand kDoctor("doctor", "Try every kernel on a list of problems, on every device", declare_doctor);

}  // namespace
}  // namespace faltung::tools
