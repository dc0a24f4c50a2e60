// faltung network bench: a network's time, also beside another engine's, and its errors.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "src/problem/parse.hpp"
#include "tools/arguments.hpp"
#include "tools/network.hpp"
#include "tools/race.hpp"
#include "tools/units.hpp"

namespace faltung::tools {
namespace {

using Clock = std::chrono::steady_clock;

// A contestant's block: runs for so many milliseconds, their median. time_ms: the mean of so many together.
Block block_of(double least_ms, const std::function<double()>& time_ms, int together = 1) {
  std::vector<double> all;
  for (double total = 0; all.empty() || total < least_ms; total += together * all.back())
    all.push_back(time_ms());
  std::ranges::sort(all);
  return {all[all.size() / 2], all.front(), all.back(), static_cast<int>(all.size()) * together};
}

Block timed_block(double least_ms, const std::function<void()>& once) {
  return block_of(least_ms, [&] {
    const auto begin = Clock::now();
    once();
    return ms_since(begin);
  });
}

// By the device's clock, some runs at a time.
Block device_block(Device& device, double least_ms, const std::function<void()>& once) {
  constexpr int kTogether = 10;
  const auto runs = [&] {
    for (int i = 0; i < kTogether; ++i) once();
  };
  return block_of(
      least_ms, [&] { return device.time_ms({}, runs) / kTogether; }, kTogether);
}

// How a GPU may run it beside NetworkPlan::run: a launch a step, and as one graph where there are such.
struct OtherWays {
  explicit OtherWays(LoadedNetwork& l) : device(l.device()) {
    if (device.info().kind == "cpu") return;
    void* const arena = l.in->pool().allocate(std::max<std::size_t>(1, l.plan->arena_bytes()));
    const auto run = [&l, arena](const Stream& stream) {
      NetworkRunOptions options;
      options.stream = stream.native, options.arena = arena;
      l.plan->run(l.in->reads(), l.out->writes(), options);
    };
    run({});
    device.synchronize({});
    graph = device.record(run);
    contestants.push_back([this, run](double ms) { return device_block(device, ms, [&] { run({}); }); });
    if (graph == nullptr) return;
    contestants.push_back([this](double ms) { return block_of(ms, [this] { return graph->time_ms(); }); });
  }
  Device& device;
  std::unique_ptr<Recording> graph;
  std::vector<Contestant> contestants;
};

// Multiplications of the convolutions and products by constants.
double products(const NetworkReport& report) {
  double all = 0;
  for (const NetworkStepReport& step : report.steps)
    all += step.problem.empty() ? 0 : flops(parse_problem(step.problem)) / 2;
  return all;
}

const network::TensorError& worst(const std::vector<network::TensorError>& errors) {
  return *std::ranges::max_element(errors, {}, [](const network::TensorError& e) {
    return e.finite ? e.worst : std::numeric_limits<double>::infinity();
  });
}

void print_errors(LoadedNetwork& l, const NetworkOptions& options, Peer* peer) {
  constexpr double kMost = 2e10, kPerSecond = 1e9;  // products in double precision
  const double count = products(l.plan->report());
  if (count > kMost && !options.check) {
    fmt::print("errors are not told: a run in double precision would take some {:.0f} s; --check has it\n",
               count / kPerSecond);
    return;
  }
  const std::vector<network::Array> expected = expected_outputs(l);
  if (expected.empty()) return;
  std::string text = "error " + show_worst(worst(output_errors(l, expected)));
  std::string why;
  if (peer != nullptr) {
    try {
      text += fmt::format(", {} {}", peer->version(), show_worst(worst(output_errors(*peer, l, expected))));
    } catch (const Error& error) {
      why = error.what();
    }
  }
  fmt::print(
      "{}: of the worst element of an output, against a run in double precision and relative to the output's "
      "largest\n{}",
      text, why.empty() ? "" : why + "\n");
}

}  // namespace

int bench_network(const NetworkOptions& options) {
  LoadedNetwork l(options);
  const auto first = Clock::now();
  l.once();
  const double first_ms = ms_since(first);
  const bool on_gpu = l.on_gpu();
  const std::vector<const void*> reads = l.in->reads();
  const auto once = [&] { l.plan->run(reads, l.out->writes()); };
  OtherWays others(l);
  RacePolicy policy;
  policy.blocks = static_cast<int>(parse_count("--repeat", options.repeat, 1));
  policy.least_ms = parse_duration_ms("--min-time", options.least);
  std::vector<Contestant> contestants{
      [&](double ms) { return on_gpu ? device_block(l.device(), ms, once) : timed_block(ms, once); }};
  contestants.insert(contestants.end(), others.contestants.begin(), others.contestants.end());
  std::optional<NetworkPeer> other;
  if (!options.peer.empty()) {
    other.emplace(l, options);
    contestants.push_back([&](double ms) { return other->peer.run(ms); });
  }
  std::optional<Pace> pace;
  if (!on_gpu) {
    EngineImpl& engine = Internals::impl(l.engine);
    pace =
        pace_of(engine.workers(l.threads()), engine.ceilings(l.device(), l.threads()), 10 * policy.least_ms);
  }
  const std::vector<Standing> standings = race(contestants, policy, pace ? &*pace : nullptr);
  fmt::print("faltung {}: {} ms ({} to {}), loaded in {} ms, planned in {} ms, arena {}\n", version(),
             show_ms(standings[0].ms), show_ms(standings[0].ms_min), show_ms(standings[0].ms_max),
             show_ms(l.load_ms), show_ms(l.plan_ms), show_bytes(l.plan->report().arena_bytes));
  if (on_gpu) {
    fmt::print("launched step by step: {} ms ({} to {}); first run {} ms\n", show_ms(standings[1].ms),
               show_ms(standings[1].ms_min), show_ms(standings[1].ms_max), show_ms(first_ms));
  }
  if (others.graph != nullptr)
    fmt::print("in a graph of its own: {} ms ({} to {})\n", show_ms(standings[2].ms),
               show_ms(standings[2].ms_min), show_ms(standings[2].ms_max));
  if (other) {
    const Standing& theirs = standings.back();
    fmt::print("{}: {} ms ({} to {}); {}; ready in {} ms\n", other->peer.version(), show_ms(theirs.ms),
               show_ms(theirs.ms_min), show_ms(theirs.ms_max), other->about, show_ms(other->ready_ms));
    fmt::print("ratio {:.3f}\n", theirs.ms / standings[0].ms);
  }
  if (!options.no_check) print_errors(l, options, other ? &other->peer : nullptr);
  return 0;
}

}  // namespace faltung::tools
