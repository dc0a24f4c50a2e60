// What the cost model's choice costs on the CPU: times every candidate of each problem in turn, beside what
// the model predicts, and a peer if asked. Writes CSV, a line each candidate in the model's order, the peer
// last; the last lines say how far each list's choices are from the best measured. Times are the fastest
// run's: what else the machine does only adds to them.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>

#include "src/finder/engine.hpp"
#include "src/finder/selection.hpp"
#include "src/finder/trial.hpp"
#include "tools/arguments.hpp"
#include "tools/peer.hpp"

namespace faltung::tools {
namespace {

constexpr std::size_t kMostArena = std::size_t{1} << 29;
constexpr double kHopeless = 2;  // times the best: it is timed no more

struct RegretOptions {
  Arguments arguments;
  int rounds = 5, first = 0, turn_ms = 4;
  std::string peer;
};

struct Contender {
  const Candidate* candidate;
  std::unique_ptr<Runner> runner;
  std::vector<double> medians;
  double fastest = INFINITY;
  bool out = false;
};

// Geometric means of one list, and its worst row.
struct Ratios {
  double logs = 0, lowest = INFINITY;
  int count = 0;
  std::string row;
  void add(double ratio, const std::string& label) {
    logs += std::log(ratio), ++count;
    if (ratio < lowest) lowest = ratio, row = label;
  }
  std::string words() const {
    return count == 0 ? "-" : fmt::format("{:.3f} (lowest {:.2f}, {})", std::exp(logs / count), lowest, row);
  }
};

class Regret {
 public:
  explicit Regret(const RegretOptions& options)
      : options_(options), device_(options.arguments.device()), session_(*device_, store_) {
    if (device_->info().kind != "cpu")
      throw Error(Status::unsupported, "regret times the CPU's kernels; faltung-sweep those of CUDA devices");
    if (!options.peer.empty()) peer_.emplace(options.peer);
  }

  int run() {
    fmt::print("suite,name,problem,threads,kernel,predicted_ms,ms,median_ms,blocks\n");
    std::string suite;
    for (const Row& row : options_.arguments.rows()) {
      if (row.suite != suite) close(suite);
      suite = row.suite;
      time(row);
      std::fflush(stdout);
    }
    close(suite);
    return 0;
  }

 private:
  void time(const Row& row) {
    const Problem& p = row.problem;
    Settled settled(p, options_.arguments.request());
    Selection selection = select(settled);
    require_recipes(selection, settled);
    const Oracle oracle(p, Data::random, 1, 1);
    Arena arena(*device_, oracle, std::min(2 * device_->info().cache_bytes, kMostArena));
    std::vector<Contender> all;
    for (const Candidate& c : selection.candidates) {
      if (c.algorithm->last_resort() && selection.candidates.size() > 1) continue;
      if (options_.first > 0 && static_cast<int>(all.size()) == options_.first) break;
      auto plan = make_plan(p, c, device_, session_, workers(settled.threads));
      all.push_back({&c, std::make_unique<Runner>(std::move(plan), arena), {}, INFINITY, false});
    }
    const bool has_peer =
        peer_ && peer_->prepare(p, options_.arguments.device_id(), settled.threads, arena.sets(), "").yes;
    std::vector<double> peer_medians;
    double peer_fastest = INFINITY;
    for (int round = 0; round < options_.rounds; ++round) {
      for (Contender& c : all) {
        if (c.out) continue;
        // Workers spin a while before they sleep; the next contender must not pay for it.
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        const Block block = run_block([&] { return c.runner->time_once(); }, options_.turn_ms);
        c.fastest = std::min(c.fastest, block.min);
        c.medians.push_back(block.median);
      }
      if (has_peer) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        const Block block = peer_->run(options_.turn_ms);
        peer_fastest = std::min(peer_fastest, block.min);
        peer_medians.push_back(block.median);
      }
      const double best = fastest(all);
      // Once may be what else the machine does.
      for (std::size_t i = 1; round > 0 && i < all.size(); ++i)
        all[i].out = all[i].fastest > kHopeless * best;
    }
    const auto line = [&](const std::string& kernel, double predicted, double ms,
                          std::vector<double> medians) {
      const int blocks = static_cast<int>(medians.size());
      fmt::print("{},{},{},{},{},{:.4f},{:.4f},{:.4f},{}\n", row.suite, row.name, to_string(p),
                 settled.threads, kernel, predicted, ms, summarize(std::move(medians)).median, blocks);
    };
    for (Contender& c : all) line(c.candidate->kernel(), c.candidate->cost.ms, c.fastest, c.medians);
    plan_.add(fastest(all) / all.front().fastest, row.label());
    if (!has_peer) return;
    line(peer_->name(), 0, peer_fastest, peer_medians);
    plan_to_peer_.add(peer_fastest / all.front().fastest, row.label());
    best_to_peer_.add(peer_fastest / fastest(all), row.label());
  }

  static double fastest(const std::vector<Contender>& all) {
    double best = INFINITY;
    for (const Contender& c : all) best = std::min(best, c.fastest);
    return best;
  }

  std::shared_ptr<const Parallel> workers(int threads) {
    if (!workers_) workers_ = std::make_shared<const Parallel>(threads);
    return workers_;
  }

  void close(const std::string& suite) {
    if (plan_.count > 0) {
      fmt::print("# {}: {} rows: choice over best {}; peer's time over the choice's {}, over the best's {}\n",
                 suite.empty() ? "problems" : suite, plan_.count, plan_.words(), plan_to_peer_.words(),
                 best_to_peer_.words());
    }
    plan_ = plan_to_peer_ = best_to_peer_ = {};
  }

  const RegretOptions& options_;
  std::shared_ptr<Device> device_;
  Store store_;
  jit::Session session_;
  std::shared_ptr<const Parallel> workers_;
  std::optional<Peer> peer_;
  Ratios plan_, plan_to_peer_, best_to_peer_;
};

void declare_regret(const Command& command) {
  const auto options = std::make_shared<RegretOptions>();
  options->arguments.add_problems(command);
  options->arguments.add_choices(command);
  command.option("--rounds", options->rounds, "Of all candidates and the peer in turn");
  command.option("--turn", options->turn_ms, "Milliseconds of runs a round");
  command.option("--first", options->first, "So many candidates of each problem; 0 is all");
  command.option("--vs", options->peer, "A peer, e.g. onednn");
  command.runs([options] { return Regret(*options).run(); });
}

}  // namespace
}  // namespace faltung::tools

int main(int argc, char** argv) {
  return faltung::tools::run_program("faltung-regret",
                                     "Time every candidate beside the cost model's prediction",
                                     faltung::tools::declare_regret, argc, argv);
}
