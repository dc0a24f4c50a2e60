// faltung compilers: what compilers make of the same kernels, side by side.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "src/algorithms/algorithm.hpp"
#include "src/backend/offline_compiler.hpp"
#include "src/finder/trial.hpp"
#include "src/jit/jit.hpp"
#include "src/plan/plan.hpp"
#include "src/problem/text.hpp"
#include "tools/arguments.hpp"
#include "tools/command.hpp"
#include "tools/report.hpp"

namespace faltung::tools {
namespace {

namespace fs = std::filesystem;

struct Options {
  Arguments arguments;
  Machine machine;
  std::vector<std::string> compilers;
  bool all_configs = false;
};

// One compiler's account.
struct Account {
  std::shared_ptr<Device> device;
  bool runs = false;
  double compile_ms = 0, run_ms = 0;
  int kernels = 0, spilling = 0, failed = 0;
  std::map<std::string, int> limits;
};

// Its kernels are compiled for this run, whatever the store holds; the folder goes when the run ends.
class FreshStore {
 public:
  FreshStore() {
    std::string folder = (fs::temp_directory_path() / "faltung-compilers-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) throw Error(Status::bad_file, "no temporary folder can be made");
    folder_ = folder;
    setenv("FALTUNG_STORE", folder.c_str(), 1);
  }
  ~FreshStore() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  FreshStore(const FreshStore&) = delete;
  FreshStore& operator=(const FreshStore&) = delete;

 private:
  fs::path folder_;
};

std::string shown(std::int64_t value) { return value < 0 ? "-" : std::to_string(value); }

class Compilers {
 public:
  explicit Compilers(Options& options) : options_(options) {}

  int run() {
    const std::vector<Row> rows = options_.arguments.rows();
    const FreshStore store;
    for (const std::string& id : options_.compilers) {
      Account account;
      account.runs =
          id.find(':') != std::string::npos && (id.starts_with("opencl:") || id.starts_with("cuda:"));
      account.device = account.runs ? find_device(id) : make_offline_compiler(id);
      accounts_.push_back(std::move(account));
    }
    options_.machine.open({"problem", "kernel", "entry", "compiler", "compile_ms", "registers",
                           "scalar_registers", "spilled_bytes", "local_bytes", "block_threads",
                           "wave_threads", "blocks", "waves", "occupancy_pct", "limited_by", "run_ms"});
    if (talks()) {
      fmt::print("{:<34} {:<20} {:<16} {:>7} {:>5} {:>6} {:>7} {:>8} {:>6} {:>4} {:>6} {:>6} {:>5}  {}\n",
                 "kernel", "entry", "compiler", "ms", "regs", "scalar", "private", "local B", "block", "wave",
                 "blocks", "waves", "occ %", "limited by");
    }
    for (const Row& row : rows) {
      if (talks()) fmt::print("{}\n", row.label());
      for (const auto& algorithm : registry()) {
        if (algorithm->device_kind() == "gpu") compile(row, *algorithm);
      }
    }
    summary();
    options_.machine.close();
    return 0;
  }

 private:
  bool talks() const { return options_.machine.for_people(); }

  bool wanted(const std::string& kernel) const {
    const Request request = options_.arguments.request();
    return request.only.empty() ||
           std::any_of(request.only.begin(), request.only.end(), [&](const auto& pattern) {
             return matches(pattern, kernel) || matches(pattern, kernel.substr(0, kernel.find('/')));
           });
  }

  void compile(const Row& row, const Algorithm& algorithm) {
    // The first compiler's choice of config, so that all compile the same.
    std::vector<std::string> configs;
    for (const Account& account : accounts_) {
      const Target target{*account.device, 1};
      if (!algorithm.supports(row.problem, target).yes) continue;
      for (const Config& config : algorithm.configs(row.problem, target)) configs.push_back(config.name);
      break;
    }
    if (!options_.all_configs && configs.size() > 1) configs.resize(1);
    for (const std::string& config : configs) {
      if (!wanted(kernel_name(algorithm, config))) continue;
      for (Account& account : accounts_) compile(row, algorithm, config, account);
    }
  }

  void compile(const Row& row, const Algorithm& algorithm, const std::string& config, Account& account) {
    const Target target{*account.device, 1};
    if (!algorithm.supports(row.problem, target).yes) return;
    const std::string kernel = kernel_name(algorithm, config);
    jit::Collector collector;
    Recipe recipe;
    try {
      recipe = make_recipe(algorithm, row.problem, config, target);
    } catch (const Error& error) {
      ++account.failed;
      if (talks()) fmt::print("{} on {}: {}\n", kernel, account.device->info().id, one_line(error.what()));
      return;
    }
    double run_ms = -1;
    if (account.runs) {
      const auto plan =
          std::make_shared<const PlanImpl>(row.problem, kernel, std::move(recipe), account.device, nullptr);
      const Oracle oracle(row.problem, Data::random, options_.arguments.seed(), 1, 1);
      Arena arena(*account.device, oracle, 2 * account.device->info().cache_bytes, 8);
      Runner runner(plan, arena);
      constexpr double kBudgetMs = 50;
      run_ms = time_runner(runner, kBudgetMs, 0).median;
      account.run_ms += run_ms;
    }
    for (const jit::Compiled& c : collector.kernels) {
      const KernelResources& r = c.resources;
      ++account.kernels;
      account.compile_ms += c.compile_ms;
      account.spilling += r.spilled_bytes > 0;
      if (!r.limited_by.empty()) ++account.limits[r.limited_by];
      using I = std::int64_t;
      options_.machine.row({to_string(row.problem), kernel, c.entry, account.device->info().id, c.compile_ms,
                            I(r.registers), I(r.scalar_registers), r.spilled_bytes, r.local_bytes,
                            I(r.block_threads), I(r.wave_threads), I(r.blocks), I(r.waves),
                            r.occupancy < 0 ? Cell() : Cell(100 * r.occupancy), r.limited_by,
                            run_ms < 0 ? Cell() : Cell(run_ms)});
      if (!talks()) continue;
      fmt::print("{:<34} {:<20} {:<16} {:>7.0f} {:>5} {:>6} {:>7} {:>8} {:>6} {:>4} {:>6} {:>6} {:>5}  {}\n",
                 kernel, c.entry, account.device->info().id, c.compile_ms, shown(r.registers),
                 shown(r.scalar_registers), shown(r.spilled_bytes), shown(r.local_bytes),
                 shown(r.block_threads), shown(r.wave_threads), shown(r.blocks), shown(r.waves),
                 r.occupancy < 0 ? "-" : fmt::format("{:.0f}", 100 * r.occupancy), r.limited_by);
    }
  }

  void summary() const {
    if (!talks()) return;
    fmt::print("\n");
    for (const Account& a : accounts_) {
      fmt::print("{} ({}): {} kernels in {:.0f} ms, {} with private memory outside registers, {} failed",
                 a.device->info().id, a.device->info().driver, a.kernels, a.compile_ms, a.spilling, a.failed);
      if (a.runs) fmt::print("; one pass {:.3f} ms", a.run_ms);
      fmt::print("\n");
      for (const auto& [limit, count] : a.limits) {
        fmt::print("  waves limited by {:<13} {:>4} {}\n", limit, count,
                   std::string(std::min(count, 60), '#'));
      }
    }
  }

  Options& options_;
  std::vector<Account> accounts_;
};

}  // namespace

Command add_compilers(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("compilers", "What compilers make of the same kernels, side by side");
  options->arguments.add_problems(*command);
  options->arguments.add_choices(*command);
  command
      ->add_option("--with", options->compilers,
                   "A compiler: a device (opencl:0, cuda:0), which runs the kernels too, nvrtc:sm_80 or "
                   "clang:gfx1030; repeatable")
      ->type_name("COMPILER")
      ->allow_extra_args(false)
      ->required();
  command->add_flag("--all-configs", options->all_configs, "Every config, not each algorithm's first alone");
  options->machine.add_options(*command);
  return {command, [options] { return Compilers(*options).run(); }};
}

}  // namespace faltung::tools
