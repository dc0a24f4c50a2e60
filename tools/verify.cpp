// faltung verify: every kernel that supports the problems, against the reference.
#include "src/finder/verify.hpp"

#include <fmt/format.h>

#include <chrono>

#include "src/finder/finder.hpp"
#include "tools/arguments.hpp"
#include "tools/command.hpp"
#include "tools/report.hpp"

namespace faltung::tools {
namespace {

struct Options {
  Arguments arguments;
  Machine machine;
};

// What a kernel that throws has to say is its verdict; it does not keep the others from theirs.
Verification verdict(Verifier& verifier, const Candidate& candidate) {
  try {
    return verifier.kernel(*candidate.algorithm, candidate.config.name);
  } catch (const Error& error) {
    return {"failed", error.what(), 0};
  }
}

int run(Options& options) {
  const std::vector<Row> rows = options.arguments.rows();
  const Request request = options.arguments.request();
  const std::shared_ptr<Device> device = options.arguments.device();
  const auto parallel = std::make_shared<const Parallel>(request.threads);
  Filter{request};  // a misspelt pattern is told before anything runs
  Machine& machine = options.machine;
  machine.open({"suite", "name", "problem", "device", "kernel", "verdict", "error_over_bound", "what",
                "seconds", "threads", "seed"});
  const Table table({{"verdict", 13}, {"err/bnd", 8, true}, {"kernel", 0}});
  const bool talks = machine.for_people();
  int kernels = 0, passed = 0;
  std::string nothing;
  for (const Row& row : rows) {
    const std::string problem = to_string(row.problem);
    if (talks) fmt::print("{}{}{}\n", row.name, row.name.empty() ? "" : "  ", problem);
    const auto cells = [&](const std::string& kernel, const std::string& verdict, Cell error,
                           const std::string& what, Cell seconds) -> std::vector<Cell> {
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
              std::int64_t(options.arguments.seed())};
    };
    Selection selection;
    try {
      selection = select(row.problem, request, {*device, request.threads});
    } catch (const Error& error) {
      if (error.status() != Status::unsupported) throw;
      nothing = error.what();
      machine.row(cells("", "declined", {}, one_line(nothing), {}));
      if (talks) fmt::print("  declined: {}\n", nothing);
      continue;
    }
    Verifier verifier(row.problem, device, parallel, options.arguments.seed());
    for (const Candidate& candidate : selection.candidates) {
      const auto begin = std::chrono::steady_clock::now();
      const Verification v = verdict(verifier, candidate);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      ++kernels;
      passed += v.passed();
      machine.row(cells(candidate.kernel(), v.verdict, v.error_over_bound, v.what, seconds));
      const std::string again = reproduce(row.problem, candidate.kernel(), request.device, request.threads,
                                          options.arguments.seed());
      if (talks) {
        table.row({"  " + v.verdict, fmt::format("{:.3g}", v.error_over_bound), candidate.kernel()});
        if (!v.passed()) fmt::print("    {}\n    reproduce: {}\n", v.what, again);
      } else if (!v.passed()) {
        fmt::print(stderr, "faltung: {}: {}; reproduce: {}\n", v.verdict, v.what, again);
      }
    }
    for (const Refusal& refusal : selection.refusals) {
      machine.row(cells(refusal.kernel, refusal.verdict, {}, refusal.why, {}));
      if (talks) table.row({"  " + refusal.verdict, "", refusal.kernel + ": " + refusal.why});
    }
  }
  machine.close();
  if (kernels == 0) throw Error(Status::unsupported, nothing);
  if (talks) {
    fmt::print("\n{} kernels on {} problems: {} pass, {} do not\n", kernels, rows.size(), passed,
               kernels - passed);
  }
  return passed == kernels ? 0 : 1;
}

}  // namespace

Command add_verify(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("verify", "Check every supporting kernel against the reference");
  options->arguments.add_problems(*command);
  options->arguments.add_choices(*command);
  options->machine.add_options(*command);
  return {command, [options] { return run(*options); }};
}

}  // namespace faltung::tools
