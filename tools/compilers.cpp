// faltung compilers: what compilers make of the same kernels, side by side.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>

#include "src/algorithms/algorithm.hpp"
#include "src/backend/offline_compiler.hpp"
#include "src/finder/settings.hpp"
#include "src/finder/trial.hpp"
#include "src/finder/trust/verify.hpp"
#include "src/plan/plan.hpp"
#include "src/problem/temporary_folder.hpp"
#include "src/problem/text.hpp"
#include "tools/arguments.hpp"
#include "tools/command.hpp"
#include "tools/live.hpp"
#include "tools/report.hpp"

namespace faltung::tools {
namespace {

namespace fs = std::filesystem;

struct CompilersOptions {
  Arguments arguments;
  Machine machine;
  std::vector<std::string> compilers;
  bool all_configs = false;
};

// One compiler's account.
struct Account {
  std::shared_ptr<Device> device;
  bool runs = false;
  double compile_ms = 0, longest_ms = 0, first_ms = 0, run_ms = 0;
  std::string longest;
  int compiled = 0, spilling = 0, failed = 0, ran = 0;
  std::map<std::string, int> limits;
};

// What a kernel took where it ran, or -1: once, and how much longer at first. Some drivers compile then.
struct Times {
  double run_ms = -1, first_ms = -1;
};

// Its kernels are compiled for this run, whatever the store holds, or the drivers' own caches; the folder
// goes when the run ends.
class FreshStore {
 public:
  FreshStore() {
    for (const char* variable :
         {"FALTUNG_STORE", "POCL_CACHE_DIR", "MESA_SHADER_CACHE_DIR", "CUDA_CACHE_PATH"}) {
      const fs::path folder = fs::path(folder_.path()) / variable;
      fs::create_directories(folder);
      setenv(variable, folder.c_str(), 1);
    }
  }

 private:
  TemporaryFolder folder_;
};

std::string counted(std::int64_t value) { return value < 0 ? "-" : std::to_string(value); }

class Compilers {
 public:
  explicit Compilers(CompilersOptions& options) : options_(options), filter_(options.arguments.request()) {}

  int run() {
    const std::vector<Row> rows = options_.arguments.rows();
    for (const std::string& id : options_.compilers) {
      Account account;
      account.runs = id.starts_with("opencl:") || id.starts_with("cuda:") || id.starts_with("hip:") ||
                     id.starts_with("vulkan:");
      account.device = account.runs ? find_device(id) : make_offline_compiler(id);
      accounts_.push_back(std::move(account));
    }
    options_.machine.open({"problem",
                           "kernel",
                           "entry",
                           "compiler",
                           "compile_ms",
                           "registers",
                           "scalar_registers",
                           "spilled_bytes",
                           "local_bytes",
                           "block_threads",
                           "wave_threads",
                           "blocks",
                           "waves",
                           "occupancy_pct",
                           "limited_by",
                           "first_ms",
                           "run_ms",
                           "matrix_instructions",
                           "loop_branches",
                           "matrix_share_pct",
                           "code_bytes"});
    line("kernel", "function", "compiler", "ms", "regs", "scalar", "private", "local B", "block", "wave",
         "blocks", "waves", "occ %", "code B", "matrix", "mat %", "branch", "first", "run ms", "limited by");
    for (const Row& row : rows) {
      if (talks()) fmt::print("{}\n", row.label());
      for (const auto& algorithm : registry()) {
        if (algorithm->device_kind() == "gpu") compile(row, *algorithm);
      }
      if (interrupted()) break;
    }
    summary();
    options_.machine.close();
    return interrupted() ? 130 : 0;
  }

 private:
  bool talks() const { return options_.machine.for_people(); }

  template <class... Cells>
  void line(const Cells&... cells) const {
    if (talks()) {
      fmt::print(
          "{:<38} {:<21} {:<16} {:>5} {:>4} {:>6} {:>7} {:>7} {:>5} {:>4} {:>6} {:>5} {:>5} {:>6} {:>6} "
          "{:>6} "
          "{:>6} {:>6} {:>8}  "
          "{}\n",
          cells...);
    }
  }

  // Those of the first compiler that serves the problem which the others have too: all compile the same.
  std::vector<std::string> configs(const Row& row, const Algorithm& algorithm) const {
    std::vector<std::string> common;
    bool first = true;
    for (const Account& account : accounts_) {
      const Target target{account.device->info(), 1};
      if (!algorithm.supports(row.problem, target).yes) continue;
      std::vector<std::string> own;
      for (const Candidate& candidate : algorithm.candidates(row.problem, target)) {
        if (filter_.allows(algorithm, candidate.kernel())) own.push_back(candidate.config);
      }
      if (first) common = own;
      std::erase_if(common, [&](const std::string& config) {
        return std::find(own.begin(), own.end(), config) == own.end();
      });
      first = false;
    }
    if (!options_.all_configs && common.size() > 1) common.resize(1);
    return common;
  }

  void compile(const Row& row, const Algorithm& algorithm) {
    for (const std::string& config : configs(row, algorithm)) {
      std::vector<double> run_ms;
      for (Account& account : accounts_) {
        if (interrupted()) return;
        run_ms.push_back(compile(row, algorithm, config, account));
      }
      // What one of them could not run would make their totals incomparable.
      bool all = true;
      for (std::size_t i = 0; i < accounts_.size(); ++i) all = all && (run_ms[i] >= 0 || !accounts_[i].runs);
      for (std::size_t i = 0; i < accounts_.size() && all; ++i) {
        accounts_[i].run_ms += std::max(0.0, run_ms[i]);
        ++accounts_[i].ran;
      }
    }
  }

  // Milliseconds that it runs; negative where it does not.
  double compile(const Row& row, const Algorithm& algorithm, const std::string& config, Account& account) {
    const Target target{account.device->info(), 1};
    const std::string kernel = std::string(algorithm.name()) + "/" + config, id = target.device.id;
    if (!algorithm.supports(row.problem, target).yes) return -1;
    Times times;
    std::vector<jit::Program> programs;
    try {
      const auto plan = make_plan(row.problem, algorithm.candidate(row.problem, config, target),
                                  account.device, jit::Session(*account.device, store_), nullptr);
      programs = plan->programs();
      if (account.runs) times = run(row, plan, account);
    } catch (const Error& error) {
      if (error.status() == Status::unsupported) return -1;  // by a compiler that is no device
      if (interrupted()) return -1;                          // as its compiler was
      ++account.failed;
      if (talks()) fmt::print("{} on {}: {}\n", kernel, id, one_line(error.what()));
      return -1;
    }
    account.first_ms += std::max(0.0, times.first_ms);
    // The times stand in its first line.
    Times shown_times = times;
    const auto ms = [](double value) { return value < 0 ? "-" : fmt::format("{:.3g}", value); };
    bool any = false;
    for (const jit::Program& c : programs) {
      if (c.compile_ms <= 0) continue;  // of an earlier row
      any = true;
      const KernelResources& r = c.resources;
      ++account.compiled;
      account.compile_ms += c.compile_ms;
      if (c.compile_ms > account.longest_ms) account.longest_ms = c.compile_ms, account.longest = kernel;
      account.spilling += r.spilled_bytes > 0;
      ++account.limits[r.limited_by.empty() ? "(not told)" : r.limited_by];
      const AssemblyCounts counts = code_counts(*c.kernel).value_or(AssemblyCounts{-1, -1, -1});
      const bool multiplies = counts.matrix_cycles > 0;
      using I = std::int64_t;
      options_.machine.row({to_string(row.problem),
                            kernel,
                            c.entry,
                            id,
                            c.compile_ms,
                            I(r.registers),
                            I(r.scalar_registers),
                            r.spilled_bytes,
                            r.local_bytes,
                            I(r.block_threads),
                            I(r.wave_threads),
                            I(r.blocks),
                            I(r.waves),
                            r.occupancy < 0 ? Cell() : Cell(100 * r.occupancy),
                            r.limited_by,
                            times.run_ms < 0 ? Cell() : Cell(times.first_ms),
                            times.run_ms < 0 ? Cell() : Cell(times.run_ms),
                            I(counts.matrix_instructions),
                            I(counts.loop_branches),
                            multiplies ? Cell(100 * counts.matrix_share()) : Cell(),
                            code_bytes(*c.kernel)});
      line(kernel, c.entry, id, fmt::format("{:.0f}", c.compile_ms), counted(r.registers),
           counted(r.scalar_registers), counted(r.spilled_bytes), counted(r.local_bytes),
           counted(r.block_threads), counted(r.wave_threads), counted(r.blocks), counted(r.waves),
           r.occupancy < 0 ? "-" : fmt::format("{:.0f}", 100 * r.occupancy), counted(code_bytes(*c.kernel)),
           counted(counts.matrix_instructions),
           multiplies ? fmt::format("{:.0f}", 100 * counts.matrix_share()) : "-",
           counted(counts.loop_branches), ms(shown_times.first_ms), ms(shown_times.run_ms), r.limited_by);
      shown_times = Times();
    }
    if (!any && times.run_ms >= 0) {
      line(kernel, "(as compiled above)", id, "", "", "", "", "", "", "", "", "", "", "", "", "", "",
           ms(times.first_ms), ms(times.run_ms), "");
    }
    return times.run_ms;
  }

  Times run(const Row& row, const std::shared_ptr<const PlanImpl>& plan, const Account& account) const {
    const Oracle oracle(row.problem, Data::random, options_.arguments.seed(), 1);
    Arena arena(*account.device, oracle, 2 * account.device->info().cache_bytes, 8);
    const auto begin = std::chrono::steady_clock::now();
    Runner runner(plan, arena);
    runner.time_once();
    const double first =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    constexpr double kBudgetMs = 50;
    const double once = time_runner(runner, kBudgetMs, 0).median;
    return {once, std::max(0.0, first - once)};
  }

  // Side by side: a column for each compiler.
  void summary() const {
    if (!talks()) return;
    fmt::print("\n");
    for (const Account& a : accounts_) fmt::print("{}: {}\n", a.device->info().id, a.device->info().driver);
    const auto row = [&](const std::string& title, const auto& cell) {
      fmt::print("{:<32}", title);
      for (const Account& a : accounts_) fmt::print("  {:<22}", cell(a));
      fmt::print("\n");
    };
    const auto count = [](int value) { return fmt::format("{:>6}", value); };
    row("", [](const Account& a) { return a.device->info().id; });
    row("kernels compiled", [&](const Account& a) { return count(a.compiled); });
    row("ms to compile, all", [](const Account& a) { return fmt::format("{:>6.0f}", a.compile_ms); });
    row("ms to compile, the longest", [](const Account& a) { return fmt::format("{:>6.0f}", a.longest_ms); });
    if (accounts_.front().ran > 0) {
      row("ms more at first launches", [](const Account& a) {
        return a.runs ? fmt::format("{:>6.0f}", a.first_ms) : std::string("     -");
      });
      row(fmt::format("ms to run, {} kernels and rows", accounts_.front().ran), [](const Account& a) {
        return a.runs ? fmt::format("{:>6.4g}", a.run_ms) : std::string("     -");
      });
    }
    row("with private memory in use", [&](const Account& a) { return count(a.spilling); });
    row("failed", [&](const Account& a) { return count(a.failed); });
    std::map<std::string, int> limits;
    for (const Account& a : accounts_) {
      for (const auto& [limit, times] : a.limits) limits[limit] = std::max(limits[limit], times);
    }
    int most = 1;
    for (const auto& [limit, times] : limits) most = std::max(most, times);
    for (const auto& [limit, times] : limits) {
      row("limited by " + limit, [&](const Account& a) {
        constexpr int kWidth = 14;
        const auto found = a.limits.find(limit);
        const int own = found == a.limits.end() ? 0 : found->second;
        return fmt::format("{:>6} {}", own,
                           std::string(static_cast<std::size_t>((own * kWidth + most - 1) / most), '#'));
      });
    }
  }

  CompilersOptions& options_;
  const Filter filter_;
  const FreshStore fresh_;
  Store store_;
  std::vector<Account> accounts_;
};

void declare_compilers(const Command& command) {
  const auto options = std::make_shared<CompilersOptions>();
  options->arguments.add_problems(command);
  options->arguments.add_patterns(command);
  options->arguments.add_seed(command);
  command
      .option("--with", options->compilers,
              "A compiler: a device (opencl:0, cuda:0, hip:0), which runs the kernels too, nvrtc:sm_80, "
              "clang:gfx1030 (OpenCL C), clang-hip:gfx1030 (HIP), radv:navi21 (ACO) or radv-llvm:navi21; "
              "repeatable")
      .type("COMPILER")
      .required();
  command.flag("--all-configs", options->all_configs, "Every config, not each algorithm's first alone");
  options->machine.add_options(command);
  command.runs([options] {
    catch_interrupts();  // before there is a folder, which goes when the run ends
    return Compilers(*options).run();
  });
}

const Subcommand kCompilers("compilers", "What compilers make of the same kernels, side by side",
                            declare_compilers);

}  // namespace
}  // namespace faltung::tools
