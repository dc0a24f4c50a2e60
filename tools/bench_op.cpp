#include "tools/bench_op.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "kernels/cpu/ceilings.hpp"
#include "src/finder/engine.hpp"
#include "src/network/verify.hpp"
#include "src/problem/dtype.hpp"
#include "tools/op_runs.hpp"
#include "tools/units.hpp"

namespace faltung::tools {
namespace {

using network::Array;

// Of an element of f32, which everything computes in.
constexpr double kUnitRoundoff = 0x1p-24;

struct Measured {
  std::string kernel;
  Standing time;
  double copy_ms = 0;  // of as many bytes
  double bytes = 0;
  double error = -1, over_bound = -1;  // of the worst element; less than 0 where it was not checked
  int sets = 0;
  bool right() const { return over_bound <= 1; }
  double gbps() const { return bytes / time.ms * 1e-6; }
  double copy_gbps() const { return bytes / copy_ms * 1e-6; }
  double share() const { return copy_ms / time.ms; }
};

// Normally distributed numbers that the type holds.
std::vector<Array> draw(const network::Graph& graph, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<Array> all;
  for (const network::ValueId id : graph.inputs) {
    Array array{graph.at(id).type, *graph.at(id).shape, {}};
    array.data.resize(static_cast<std::size_t>(network::elements(array.shape)));
    for (double& value : array.data) value = network::round_to(array.type, normal(random));
    all.push_back(std::move(array));
  }
  return all;
}

double largest_of(const std::vector<Array>& arrays) {
  double largest = 0;
  for (const Array& array : arrays) {
    for (const double value : array.data) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

// What a copy takes that reads and writes so many bytes together, on a CPU.
class CopyTimer {
 public:
  CopyTimer(std::shared_ptr<const Parallel> workers, std::shared_ptr<Copies> copies)
      : workers_(std::move(workers)), copies_(std::move(copies)) {}
  double ms(double bytes) {
    const auto copied = static_cast<std::size_t>(std::clamp(bytes / 2, 1.0, double{Copies::kBytes}));
    return bytes / copies_->gbps(*workers_, copied) * 1e-6;
  }

 private:
  std::shared_ptr<const Parallel> workers_;
  std::shared_ptr<Copies> copies_;
};

class OpBench {
 public:
  OpBench(Engine& engine, const OpBenchOptions& options, Machine& machine)
      : engine_(Internals::impl(engine)),
        options_(options),
        machine_(machine),
        device_(find_device(options.request.device)),
        ceilings_(engine_.measure_ceilings(*device_, options.request.threads)) {
    if (device_->info().kind != "cpu") return;
    const auto workers = engine_.workers(options.request.threads);
    const auto copies = std::make_shared<Copies>();
    pace_ = pace_of(workers, ceilings_, options.patience_ms, copies);
    copies_.emplace(workers, copies);
  }

  int run(const std::vector<Op>& ops) {
    machine_.open(
        {"op",   "type",    "device",    "kernel",   "ms",    "ms_min",           "ms_max",         "bytes",
         "gbps", "copy_ms", "copy_gbps", "copy_pct", "error", "error_over_bound", "verdict",        "threads",
         "sets", "runs",    "disturbed", "seed",     "note",  "reproduce",        "large_copy_gbps"});
    print_header(ops);
    std::string declined;
    for (const Op& op : ops) {
      try {
        emit(op, measure(op));
      } catch (const Error& error) {
        if (error.status() != Status::unsupported) throw;
        declined = error.what();
        emit_declined(op, declined);
      }
    }
    if (rows_ == 0) throw Error(Status::unsupported, declined);
    if (talks())
      fmt::print("\n{} rows measured: of a copy's rate {:.0f} % (geometric mean), lowest {:.0f} % ({})\n",
                 rows_, 100 * std::exp(log_shares_ / rows_), 100 * lowest_, lowest_op_);
    machine_.close();
    return wrong_ > 0 ? 1 : 0;
  }

 private:
  bool talks() const { return machine_.for_people(); }

  Measured measure(const Op& op) {
    const OpNetwork net = op_network(op, options_.seed, false, 0);
    NetworkRequest request;
    request.request = options_.request;
    NetworkImpl network(engine_, net.graph, request);
    std::vector<network::Shape> shapes;
    for (const network::ValueId id : net.graph.inputs) shapes.push_back(*net.graph.at(id).shape);
    const auto plan = network.plan(shapes);
    const std::vector<Array> inputs = draw(net.graph, options_.seed);
    OpRuns runs(*plan, inputs);
    Measured row;
    std::vector<std::string> kernels;
    for (const NetworkStepReport& step : plan->report().steps) kernels.push_back(step.kernel);
    row.kernel = fmt::format("{}", fmt::join(kernels, "+"));
    row.bytes = net.least_bytes;
    row.sets = runs.sets();
    if (options_.check) check(op, inputs, runs.result(), row);
    OpTimer ours(*device_, [&](const Stream& stream) { runs.run_next(stream); });
    const auto block = [](OpTimer& timer, double ms) {
      return run_block([&] { return timer.time_once(); }, ms, [&] { return timer.runs_at_once(); });
    };
    std::vector<Contestant> contestants{[&](double ms) { return block(ours, ms); }};
    // A copy of as much is timed in turn: memory that others use, too, is as fast as it is, and on a GPU the
    // beginning and the end of a few microseconds are a good part of them.
    std::optional<DriverCopies> copies;
    std::optional<OpTimer> theirs;
    double copied = row.bytes;
    if (copies_) {
      contestants.push_back([&](double ms) { return run_block([&] { return copies_->ms(row.bytes); }, ms); });
    } else {
      const auto half = static_cast<std::size_t>(std::max(1.0, row.bytes / 2));
      copied = 2.0 * static_cast<double>(half);
      if (copies.emplace(*device_, half).run_next({})) {
        theirs.emplace(*device_, [&](const Stream& stream) { copies->run_next(stream); });
        contestants.push_back([&](double ms) { return block(*theirs, ms); });
      }
    }
    const std::vector<Standing> standings = race(contestants, options_.policy, pace_ ? &*pace_ : nullptr);
    row.time = standings[0];
    row.copy_ms =
        standings.size() > 1 ? standings[1].ms * row.bytes / copied : row.bytes / ceilings_.copy_gbps * 1e-6;
    return row;
  }

  // Against the same numbers in doubles, from beginning to end.
  void check(const Op& op, std::vector<Array> inputs, const Array& actual, Measured& row) const {
    const double read = largest_of(inputs);
    const OpNetwork exact = op_network(op, options_.seed, true, read);
    for (Array& input : inputs) input.type = network::Type::f32;
    const std::vector<Array> expected = network::interpret(exact.graph, inputs);
    const double written = largest_of(expected), scale = written > 0 ? written : 1;
    const network::TensorError error = network::compare(expected[0], actual);
    const double bound = exact.roundings * info(op.to).unit_roundoff +
                         exact.growth * kUnitRoundoff * std::max(read, written) / scale;
    row.error = error.finite ? error.worst : INFINITY;
    row.over_bound = row.error == 0 ? 0 : bound == 0 ? INFINITY : row.error / bound;
  }

  void print_header(const std::vector<Op>& ops) {
    if (!talks()) return;
    std::size_t width = 4;
    for (const Op& op : ops) width = std::max(width, to_string(op).size());
    fmt::print("{} ({}), {} threads; a large copy's measured rate {:.1f} GB/s\n", device_->info().id,
               device_->info().description, options_.request.threads, ceilings_.copy_gbps);
    fmt::print(
        "Timed: the operator as a network of its own, on buffer sets used in turn that together exceed twice "
        "the\n"
        "last-level cache ({}; at most 1 GiB); {} blocks of runs; ms is the median of the blocks, ± their "
        "spread.\nGB/s and share of a copy of as many bytes, timed in turn, are of what has to be read and "
        "written.\n\n",
        show_bytes(device_->info().cache_bytes), options_.policy.blocks);
    table_.emplace(std::vector<Table::Column>{{"operator", static_cast<int>(width)},
                                              {"kernel", 14},
                                              {"ms", 9, true},
                                              {"copy ms", 9, true},
                                              {"±%", 5, true},
                                              {"moved", 9, true},
                                              {"GB/s", 7, true},
                                              {"%copy", 5, true},
                                              {"err/bnd", 7, true}});
    table_->header();
  }

  void emit(const Op& op, const Measured& row) {
    const double share = row.share();
    ++rows_;
    log_shares_ += std::log(share);
    if (share < lowest_) lowest_ = share, lowest_op_ = to_string(op);
    const bool wrong = options_.check && !row.right();
    wrong_ += wrong ? 1 : 0;
    const Request& r = options_.request;
    const std::string again =
        fmt::format("faltung bench --op '{}' --device {}{} --seed {}", to_string(op), r.device,
                    pace_ ? fmt::format(" --threads {}", r.threads) : "", options_.seed);
    const auto measured = [](double error) { return error < 0 ? Cell() : Cell(error); };
    using I = std::int64_t;
    machine_.row({to_string(op),
                  elements_of(op),
                  device_->info().id,
                  row.kernel,
                  row.time.ms,
                  row.time.ms_min,
                  row.time.ms_max,
                  I(row.bytes),
                  row.gbps(),
                  row.copy_ms,
                  row.copy_gbps(),
                  100 * share,
                  measured(row.error),
                  measured(row.over_bound),
                  !options_.check ? "unchecked"
                  : wrong         ? "wrong"
                                  : "pass",
                  I(r.threads),
                  I(row.sets),
                  I(row.time.runs),
                  I(row.time.disturbed),
                  I(options_.seed),
                  Cell(),
                  again,
                  ceilings_.copy_gbps});
    if (!talks()) return;
    table_->row({to_string(op), row.kernel, show_ms(row.time.ms), show_ms(row.copy_ms),
                 fmt::format("{:.1f}", 50 * (row.time.ms_max - row.time.ms_min) / row.time.ms),
                 show_bytes(static_cast<std::size_t>(row.bytes)), fmt::format("{:.1f}", row.gbps()),
                 fmt::format("{:.0f}", 100 * share),
                 row.over_bound < 0 ? "-" : fmt::format("{:.2g}", row.over_bound)});
    if (wrong) fmt::print("  WRONG: off by {:.3g} of its largest element; reproduce: {}\n", row.error, again);
  }

  void emit_declined(const Op& op, const std::string& why) {
    std::vector<Cell> cells(23);
    cells[0] = to_string(op), cells[1] = elements_of(op), cells[2] = device_->info().id,
    cells[14] = "declined", cells[20] = one_line(why);
    machine_.row(cells);
    if (talks()) fmt::print("{}  declined: {}\n", to_string(op), one_line(why));
  }

  EngineImpl& engine_;
  const OpBenchOptions& options_;
  Machine& machine_;
  std::shared_ptr<Device> device_;
  Ceilings ceilings_;
  std::optional<Pace> pace_;
  std::optional<CopyTimer> copies_;  // the CPU's
  std::optional<Table> table_;
  int rows_ = 0, wrong_ = 0;
  double log_shares_ = 0, lowest_ = INFINITY;
  std::string lowest_op_;
};

}  // namespace

int bench_ops(Engine& engine, const std::vector<Op>& ops, const OpBenchOptions& options, Machine& machine) {
  return OpBench(engine, options, machine).run(ops);
}

}  // namespace faltung::tools
