// faltung bench: times kernels, checks them, and compares with a peer.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "src/finder/cost.hpp"
#include "tools/bench_op.hpp"
#include "tools/command.hpp"
#include "tools/measure.hpp"
#include "tools/report.hpp"
#include "tools/resources.hpp"
#include "tools/units.hpp"

namespace faltung::tools {
namespace {

// The first eighteen are promised to whoever reads the file; more may follow.
const std::vector<std::string> kColumns{"suite",          "name",
                                        "problem",        "device",
                                        "kernel",         "ms",
                                        "ms_min",         "ms_max",
                                        "tflops",         "gbps",
                                        "ceiling_pct",    "error_over_bound",
                                        "compile_ms",     "workspace_bytes",
                                        "peer",           "peer_ms",
                                        "ratio",          "verdict",
                                        "peer_impl",      "peer_ms_min",
                                        "peer_ms_max",    "chosen",
                                        "plan_ms",        "threads",
                                        "sets",           "runs",
                                        "seed",           "ratio_of_mins",
                                        "note",           "reproduce",
                                        "l2_error",       "peer_error_over_bound",
                                        "peer_l2_error",  "disturbed",
                                        "peer_disturbed", "rms_of_chain"};

std::vector<std::string> columns() {
  std::vector<std::string> all = kColumns;
  for (std::string& column : resource_columns()) all.push_back(std::move(column));
  return all;
}

// Errors are 0 or more; less says that none was measured.
Cell error_cell(double error) { return error < 0 ? Cell() : Cell(error); }
std::string show_error(double error) { return error < 0 ? "-" : fmt::format("{:.2g}", error); }

struct BenchOptions {
  Arguments arguments;
  Machine machine;
  std::string peer, budget, patience, min_time = "200ms";
  bool find = false, beside_plan = false, all_algorithms = false, no_check = false;
  int repeat = 9;
  std::vector<std::string> ops, op_lists;

  RacePolicy policy() const {
    RacePolicy policy;
    policy.blocks = repeat;
    policy.least_ms = parse_duration_ms("--min-time", min_time);
    return policy;
  }
  // Of so many rows together.
  double patience_ms(std::size_t rows) const {
    return patience.empty() ? 10 * policy().least_ms * static_cast<double>(rows)
                            : parse_duration_ms("--patience", patience);
  }
};

// Ratios and times of one list.
struct Total {
  double log_ratios = 0, log_ratios_of_mins = 0, lowest = INFINITY, ms = 0, peer_ms = 0;
  int ratios = 0, rows = 0, disturbed = 0;
  std::string lowest_row;
  double log_behind = 0, most_behind = 0;  // of the chosen kernel over the best
  std::string most_behind_row;
  int compared = 0;
};

class Bench {
 public:
  explicit Bench(BenchOptions& options) : options_(options) {}

  int run() {
    print_warnings(engine_);
    const std::vector<Row> rows = options_.arguments.rows();
    measure_options_.request = options_.arguments.request();
    measure_options_.policy = options_.policy();
    measure_options_.seed = options_.arguments.seed();
    measure_options_.check = !options_.no_check;
    measure_options_.all_algorithms = options_.all_algorithms;
    measure_options_.beside_plan = options_.beside_plan;
    measure_options_.find = options_.find || !options_.budget.empty();
    if (!options_.budget.empty()) {
      measure_options_.request.budget_ms = parse_duration_ms("--budget", options_.budget);
    }
    Filter{measure_options_.request};  // a misspelt pattern is told before anything runs
    if (!options_.peer.empty()) peer_ = std::make_unique<Peer>(options_.peer);
    options_.machine.open(columns());
    device_ = options_.arguments.device();
    ceilings_ = Internals::impl(engine_).measure_ceilings(*device_, measure_options_.request.threads);
    if (device_->info().kind == "cpu") {
      pace_ = pace_of(Internals::impl(engine_).workers(measure_options_.request.threads), ceilings_,
                      options_.patience_ms(rows.size()));
    }
    print_header(rows);

    std::string suite = rows.front().suite;
    for (const Row& row : rows) {
      if (row.suite != suite) close_list(suite);
      suite = row.suite;
      bench(row);
    }
    close_list(suite);
    if (measured_ == 0) throw Error(Status::unsupported, last_decline_);
    options_.machine.close();
    return wrong_ > 0 ? 1 : 0;
  }

 private:
  bool talks() const { return options_.machine.for_people(); }

  void print_header(const std::vector<Row>& rows) {
    if (!talks()) return;
    const DeviceInfo& info = device_->info();
    std::size_t width = 4;
    for (const Row& row : rows) width = std::max(width, row.label().size());
    fmt::print("{} ({}), {} threads; measured ceilings: {:.0f} GFLOP/s f32, {:.0f} bf16, copy {:.1f} GB/s\n",
               info.id, info.description, measure_options_.request.threads, ceilings_.f32.gflops,
               ceilings_.bf16.gflops, ceilings_.copy_gbps);
    fmt::print(
        "Timed: runs with constant weights packed beforehand (those of bwd_d change: within the time), on "
        "buffer sets used in turn that together "
        "exceed "
        "twice the\nlast-level cache ({}; at most 1 GiB); {} blocks of runs{}; ms is the median of the "
        "blocks, ± their "
        "spread.\n\n",
        show_bytes(info.cache_bytes), options_.repeat,
        peer_ ? fmt::format(", in turn with {}", peer_->version()) : "");
    std::vector<Table::Column> columns{{"name", static_cast<int>(width)},
                                       {"kernel", 42},
                                       {"ms", 9, true},
                                       {"±%", 6, true},
                                       {"TFLOP/s", 7, true},
                                       {"GB/s", 6, true},
                                       {"%ceil", 6, true},
                                       {"err/bnd", 8, true},
                                       {"l2 err", 8, true}};
    if (peer_) {
      columns.push_back({peer_->name() + " ms", 9, true});
      columns.push_back({"l2 err", 8, true});
      columns.push_back({"ratio", 6, true});
      columns.push_back({"", 0});
    }
    table_ = std::make_unique<Table>(columns);
    table_->header();
  }

  void bench(const Row& row) {
    Measurement m;
    try {
      m = measure(engine_, row.problem, measure_options_, peer_.get(), pace_ ? &*pace_ : nullptr);
    } catch (const Error& error) {
      if (error.status() != Status::unsupported) throw;
      last_decline_ = error.what();
      emit_declined(row, error.what());
      return;
    }
    ++measured_;
    ++total_.rows;
    for (const Entry& entry : m.entries) emit(row, entry, m);
    tally(row, m);
    if (!talks() || !options_.all_algorithms) return;
    for (const Report& refusal : m.refusals) {
      fmt::print("  {} {}: {}\n", refusal.kernel, name(refusal.outcome), refusal.why);
    }
  }

  void emit(const Row& row, const Entry& entry, const Measurement& m) {
    const Problem& p = row.problem;
    const double ms = entry.time.ms;
    const double tflops = flops(p) / ms * 1e-9, gbps = touched_bytes(p) / ms * 1e-6;
    const double ceiling = roofline(p, ceilings_).share(ms);
    const bool has_peer = m.peer && m.peer->time.ms > 0;
    const double ratio = has_peer ? m.peer->time.ms / ms : 0;
    const double ratio_of_mins = has_peer ? m.peer->time.ms_min / entry.time.ms_min : 0;
    std::string note = entry.note;
    const Request& r = measure_options_.request;
    const std::string again = reproduce(p, entry.kernel, r.device, r.threads, measure_options_.seed);
    if (entry.outcome == Outcome::wrong) {
      ++wrong_;
      note += "; reproduce: " + again;
    }
    if (m.peer && !m.peer->note.empty())
      note += (note.empty() ? "" : "; ") + options_.peer + " " + m.peer->note;
    using I = std::int64_t;
    const auto some = [&](bool present, double value) { return present ? Cell(value) : Cell(); };
    std::vector<Cell> values{row.suite,
                             row.name,
                             to_string(p),
                             device_->info().id,
                             entry.kernel,
                             ms,
                             entry.time.ms_min,
                             entry.time.ms_max,
                             tflops,
                             gbps,
                             ceiling,
                             error_cell(entry.errors.over_bound),
                             entry.compile_ms,
                             I(entry.workspace_bytes),
                             options_.peer,
                             some(has_peer, has_peer ? m.peer->time.ms : 0),
                             some(has_peer, ratio),
                             entry.outcome == Outcome::not_measured ? "unchecked" : name(entry.outcome),
                             m.peer ? m.peer->implementation : "",
                             some(has_peer, has_peer ? m.peer->time.ms_min : 0),
                             some(has_peer, has_peer ? m.peer->time.ms_max : 0),
                             I(entry.chosen),
                             entry.plan_ms,
                             I(measure_options_.request.threads),
                             I(m.sets),
                             I(entry.time.runs),
                             I(measure_options_.seed),
                             some(has_peer, ratio_of_mins),
                             note,
                             again,
                             error_cell(entry.errors.l2),
                             error_cell(m.peer ? m.peer->errors.over_bound : -1),
                             error_cell(m.peer ? m.peer->errors.l2 : -1),
                             I(entry.time.disturbed),
                             some(has_peer, has_peer ? m.peer->time.disturbed : 0),
                             some(entry.errors.of_chain > 0, entry.errors.of_chain)};
    for (Cell& cell : resource_cells(entry.programs)) values.push_back(std::move(cell));
    options_.machine.row(values);
    if (!talks()) return;
    std::vector<std::string> cells{entry.chosen ? row.label() : "",
                                   entry.kernel,
                                   show_ms(ms),
                                   fmt::format("{:.1f}", 50 * (entry.time.ms_max - entry.time.ms_min) / ms),
                                   fmt::format("{:.3f}", tflops),
                                   fmt::format("{:.1f}", gbps),
                                   fmt::format("{:.0f}", ceiling),
                                   show_error(entry.errors.over_bound),
                                   show_error(entry.errors.l2)};
    if (peer_) {
      cells.push_back(has_peer ? show_ms(m.peer->time.ms) : "-");
      cells.push_back(show_error(m.peer->errors.l2));
      cells.push_back(has_peer ? fmt::format("{:.2f}", ratio) : "-");
      cells.push_back(m.peer->implementation);
    }
    table_->row(cells);
    if (entry.chosen) {
      for (const jit::Program& program : entry.programs) fmt::print("  {}\n", show_resources(program));
    }
    if (!note.empty()) fmt::print("  {}: {}\n", entry.outcome == Outcome::wrong ? "WRONG" : "note", note);
  }

  void emit_declined(const Row& row, const std::string& why) {
    std::vector<Cell> cells(columns().size());
    const auto set = [&](const char* column, std::string text) {
      cells[static_cast<std::size_t>(std::find(kColumns.begin(), kColumns.end(), column) -
                                     kColumns.begin())] = std::move(text);
    };
    set("suite", row.suite);
    set("name", row.name);
    set("problem", to_string(row.problem));
    set("device", device_->info().id);
    set("verdict", "declined");
    set("note", one_line(why));
    options_.machine.row(cells);
    if (talks()) fmt::print("{}  declined: {}\n", shown(row.label()), why);
  }

  void tally(const Row& row, const Measurement& m) {
    const Entry& chosen = m.entries.front();
    const double count = static_cast<double>(row.count);
    for (const Entry& entry : m.entries) total_.disturbed += entry.time.disturbed;
    if (m.peer) total_.disturbed += m.peer->time.disturbed;
    if (m.peer && m.peer->time.ms > 0) {
      const double ratio = m.peer->time.ms / chosen.time.ms;
      total_.log_ratios += std::log(ratio);
      total_.log_ratios_of_mins += std::log(m.peer->time.ms_min / chosen.time.ms_min);
      ++total_.ratios;
      total_.ms += count * chosen.time.ms;
      total_.peer_ms += count * m.peer->time.ms;
      if (ratio < total_.lowest) total_.lowest = ratio, total_.lowest_row = row.label();
    }
    if (options_.all_algorithms) {
      double best = chosen.time.ms;
      for (const Entry& entry : m.entries) {
        if (entry.outcome != Outcome::wrong) best = std::min(best, entry.time.ms);
      }
      const double behind = chosen.time.ms / best;
      total_.log_behind += std::log(behind);
      ++total_.compared;
      if (behind > total_.most_behind) total_.most_behind = behind, total_.most_behind_row = row.label();
      if (talks()) fmt::print("  chosen over best measured: {:.2f}\n", behind);
    }
  }

  // The short summary of a list, as its last lines.
  void close_list(const std::string& suite) {
    const Total t = std::exchange(total_, {});
    if (!talks()) return;
    const std::string name = suite.empty() ? "problems" : suite;
    fmt::print("\n{}: {} rows measured\n", name, t.rows);
    if (t.disturbed > 0)
      fmt::print("{}: others slowed the CPU after {} of the blocks; --patience waits longer\n", name,
                 t.disturbed);
    if (t.compared > 0) {
      fmt::print("{}: chosen over best measured: geometric mean {:.3f}, worst {:.3f} ({})\n", name,
                 std::exp(t.log_behind / t.compared), t.most_behind, t.most_behind_row);
    }
    if (t.ratios > 0) {
      fmt::print(
          "{}: ratio to {}: geometric mean {:.3f} (of the fastest blocks {:.3f}), lowest {:.3f} ({}); one "
          "pass {} ms, {} "
          "{} ms\n\n",
          name, options_.peer, std::exp(t.log_ratios / t.ratios), std::exp(t.log_ratios_of_mins / t.ratios),
          t.lowest, t.lowest_row, show_ms(t.ms), options_.peer, show_ms(t.peer_ms));
    }
  }

  BenchOptions& options_;
  MeasureOptions measure_options_;
  Engine engine_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<Peer> peer_;
  std::unique_ptr<Table> table_;
  Ceilings ceilings_;
  std::optional<Pace> pace_;
  Total total_;
  int wrong_ = 0, measured_ = 0;
  std::string last_decline_;
};

// Operators of networks, instead of problems.
int run_ops(BenchOptions& options) {
  if (!options.peer.empty() || options.find || !options.budget.empty() || options.beside_plan ||
      options.all_algorithms)
    throw Error(
        Status::bad_problem,
        "--op times what networks run; --vs, --find, --budget, --beside-plan and --all-algorithms are of "
        "problems");
  std::vector<Op> ops;
  for (const std::string& list : options.op_lists) {
    for (Op& op : read_ops(list_file("--ops", list, ".txt"))) ops.push_back(std::move(op));
  }
  for (const std::string& text : options.ops) ops.push_back(parse_op(text));
  if (const std::optional<DType> dtype = options.arguments.dtype_alone("--op")) {
    for (Op& op : ops) {
      if (op.name != "cast") op.from = op.to = *dtype;
    }
  }
  OpBenchOptions how;
  how.request = options.arguments.request();
  how.policy = options.policy();
  how.patience_ms = options.patience_ms(ops.size());
  how.seed = options.arguments.seed();
  how.check = !options.no_check;
  Engine engine;
  print_warnings(engine);
  return bench_ops(engine, ops, how, options.machine);
}

void declare_bench(const Command& command) {
  const auto options = std::make_shared<BenchOptions>();
  options->arguments.add_problems(command);
  options->arguments.add_choices(command);
  options->arguments.add_seed(command);
  command
      .option("--op", options->ops,
              "Time an operator of networks beside a copy, e.g. 'transpose:8x64x56x56:nchw>nhwc'; repeatable")
      .type("OP");
  command
      .option("--ops", options->op_lists,
              "A list of such: a file, or ops, which comes with faltung; repeatable")
      .type("FILE.txt|NAME");
  command.flag("--all-algorithms", options->all_algorithms,
               "One row for each algorithm, not the chosen one alone");
  command.option("--vs", options->peer, "Time this peer in turn with us, e.g. onednn").type("PEER");
  command.flag("--find", options->find, "Measure the candidates first, for 2 s unless --budget says");
  command.option("--budget", options->budget, "Measure the candidates first, for so long").type("TIME");
  command.flag("--beside-plan", options->beside_plan,
               "Also what a plan would take without these measurements, in turn with it");
  command.option("--repeat", options->repeat, "Blocks of runs").within(1, 1000).shows_default();
  command.option("--min-time", options->min_time, "Of runs, over all blocks").type("TIME").shows_default();
  command
      .option(
          "--patience", options->patience,
          "How long to wait in all while others slow the CPU, and to time again what they slowed; ten times "
          "--min-time a row unless given")
      .type("TIME");
  command.flag("--no-check", options->no_check, "Do not check the results");
  options->machine.add_options(command);
  command.runs([options] {
    return options->ops.empty() && options->op_lists.empty() ? Bench(*options).run() : run_ops(*options);
  });
}

const Subcommand kBench("bench", "Time kernels, check them, and compare with a peer library", declare_bench);

}  // namespace
}  // namespace faltung::tools
