// faltung verify: every kernel that supports the problems, against the reference.
#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "src/finder/engine.hpp"
#include "src/finder/report.hpp"
#include "tools/arguments.hpp"
#include "tools/command.hpp"
#include "tools/report.hpp"
#include "tools/units.hpp"

namespace faltung::tools {
namespace {

struct VerifyOptions {
  Arguments arguments;
  Machine machine;
  bool in_process = false;
};

// Tries kernels in a worker, which a broken one may end; with --in-process here, for a debugger.
class Trier {
 public:
  explicit Trier(const VerifyOptions& options)
      : in_process_(options.in_process),
        policy_(worker_policy(options.arguments.request())),
        worker_(options.arguments.device_id(), policy_.command) {}
  Report operator()(const Task& task) {
    return in_process_ ? examiner_.examine(task, {}) : worker_.examine(task, policy_.deadlines);
  }

 private:
  bool in_process_;
  Examiner examiner_;
  WorkerPolicy policy_;
  Worker worker_;
};

int run(VerifyOptions& options) {
  const std::vector<Row> rows = options.arguments.rows();
  const Request request = options.arguments.request();
  const Filter filter{request};  // a misspelt pattern is told before anything runs
  Trier trier(options);
  Machine& machine = options.machine;
  machine.open({"suite", "name", "problem", "device", "kernel", "verdict", "error_over_bound", "what",
                "seconds", "threads", "seed", "reproduce"});
  const Table table({{"verdict", 13}, {"err/bnd", 8, true}, {"kernel", 0}});
  const bool talks = machine.for_people();
  int kernels = 0, right = 0;
  std::string nothing;
  for (const Row& row : rows) {
    const std::string problem = to_string(row.problem);
    if (talks) fmt::print("{}{}{}\n", shown(row.name), row.name.empty() ? "" : "  ", problem);
    const auto cells = [&](const std::string& kernel, const std::string& verdict, Cell error,
                           const std::string& what, Cell seconds, Cell again) -> std::vector<Cell> {
      return {row.suite,
              row.name,
              problem,
              request.device,
              kernel,
              verdict,
              error,
              what,
              seconds,
              std::int64_t(request.threads),
              std::int64_t(options.arguments.seed()),
              std::move(again)};
    };
    Selection selection;
    try {
      selection = select(Settled(row.problem, request));
    } catch (const Error& error) {
      if (error.status() != Status::unsupported) throw;
      nothing = error.what();
      machine.row(cells("", "declined", {}, one_line(nothing), {}, {}));
      if (talks) fmt::print("  declined: {}\n", nothing);
      continue;
    }
    // No kernel's fault, and the same for all.
    const DeviceInfo& device = options.arguments.device()->info();
    if (min_bytes(row.problem) > static_cast<double>(device.memory_bytes)) {
      nothing =
          fmt::format("the tensors of {} take {}, and {} has {} of memory in all; use a smaller --batch",
                      problem, show_bytes(static_cast<std::size_t>(min_bytes(row.problem))), device.id,
                      show_bytes(device.memory_bytes));
      machine.row(cells("", name(Outcome::too_large), {}, nothing, {}, {}));
      if (talks) fmt::print("  {}: {}\n", name(Outcome::too_large), nothing);
      continue;
    }
    Task task;
    task.problem = row.problem;
    task.device = request.device;
    task.threads = request.threads;
    task.seed = options.arguments.seed();
    // A kernel that is asked for by its full name gets all that a trial does: that reproduces one.
    if (!filter.forced().empty()) task.launches = kTrialLaunches;
    for (const Candidate& candidate : selection.candidates) {
      const auto begin = std::chrono::steady_clock::now();
      task.kernel = candidate.kernel();
      task.predicted_ms = candidate.cost.ms;
      const Report r = trier(task);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      ++kernels;
      right += passed(r);
      const std::string again = reproduce(row.problem, task.kernel, task.device, task.threads, task.seed);
      Cell error;
      if (r.error_over_bound >= 0) error = r.error_over_bound;
      machine.row(cells(task.kernel, name(r.outcome), error, r.why, seconds, again));
      if (talks) {
        table.row({std::string("  ") + name(r.outcome),
                   r.error_over_bound >= 0 ? fmt::format("{:.3g}", r.error_over_bound) : "-",
                   candidate.kernel()});
        if (!passed(r)) fmt::print("    {}\n    reproduce: {}\n", r.why, again);
      } else if (!passed(r)) {
        fmt::print(stderr, "faltung: {}: {}; reproduce: {}\n", name(r.outcome), r.why, again);
      }
    }
    for (const Report& refusal : selection.refusals) {
      const std::string outcome = name(refusal.outcome);
      machine.row(cells(refusal.kernel, outcome, {}, refusal.why, {}, {}));
      if (talks) table.row({"  " + outcome, "", refusal.kernel + ": " + refusal.why});
    }
  }
  machine.close();
  if (kernels == 0) throw Error(Status::unsupported, nothing);
  if (talks) {
    fmt::print("\n{} kernels on {} problems: {} pass, {} do not\n", kernels, rows.size(), right,
               kernels - right);
  }
  return right == kernels ? 0 : 1;
}

void declare_verify(const Command& command) {
  const auto options = std::make_shared<VerifyOptions>();
  options->arguments.add_problems(command);
  options->arguments.add_choices(command);
  options->arguments.add_seed(command);
  command.flag("--in-process", options->in_process,
               "Run the kernels in this process, where a debugger sees them, not in a worker");
  options->machine.add_options(command);
  command.runs([options] { return run(*options); });
}

const Subcommand kVerify("verify", "Check every supporting kernel against the reference", declare_verify);

}  // namespace
}  // namespace faltung::tools
