#include "tools/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <span>

#include "src/finder/report.hpp"
#include "src/finder/trial.hpp"
#include "src/problem/temporary_folder.hpp"
#include "src/problem/tolerance.hpp"

namespace faltung::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostArena = std::size_t{1} << 30;
constexpr int kMostSets = 1024;
constexpr double kProducts = 2e7;  // of the reference, for a check: some 20 ms

using PlanPointer = std::shared_ptr<const PlanImpl>;

// A plan, and how exact it promises to be.
struct Made {
  PlanPointer plan;
  Accuracy accuracy;
};

Errors errors_of(const Finding& finding) {
  return {finding.error_over_bound, finding.l2_error, finding.rms_of_chain};
}

// One run as it will be timed, into a result full of NaN.
Finding check(const Made& made, const Arena& arena, const Oracle& oracle, const Parallel& parallel) {
  const PlanImpl& plan = *made.plan;
  Device& device = plan.device();
  const std::size_t bytes = static_cast<std::size_t>(oracle.result_bytes());
  const Buffer result{nullptr, result_pointer(plan.problem(), arena.first()), bytes};
  std::vector<std::byte> content(bytes, std::byte{0xff});
  device.copy_in(result, content.data(), bytes);
  const bool packs = packs_beforehand(plan.problem(), plan.recipe());
  const auto weights = packs ? plan.pack_weights(arena.first().w, {}) : nullptr;
  const Buffer workspace = device.allocate(plan.workspace_bytes(packs));
  RunOptions options;
  options.weights = weights.get();
  options.workspace = workspace.pointer;
  plan.run(arena.first(), options);
  device.synchronize({});
  device.copy_out(content.data(), result, bytes);
  return oracle.check(content.data(), made.accuracy, parallel);
}

// The fastest of an algorithm's first candidates that may be used, by a short measurement; null if none may.
Made best_of(EngineImpl& engine, const Settled& settled, const std::vector<const Candidate*>& candidates,
             Arena& arena) {
  constexpr std::size_t kMost = 4;
  engine.trust().compile_ahead(std::span(candidates).first(std::min(kMost, candidates.size())), settled);
  Made best;
  double best_ms = 0;
  std::size_t made = 0;
  for (const Candidate* candidate : candidates) {
    if (made == kMost) break;
    if (!engine.trust().admit(*candidate, settled)) continue;
    ++made;
    PlanPointer plan = engine.make_plan(settled, *candidate);
    if (candidates.size() == 1) return {plan, candidate->accuracy};
    Runner runner(plan, arena);
    const Timing timing = time_runner(runner, 30, best_ms);
    if (best.plan && timing.median >= best_ms) continue;
    best = {std::move(plan), candidate->accuracy};
    best_ms = timing.median;
  }
  return best;
}

// The inputs as raw elements, for the peer.
class SharedData {
 public:
  explicit SharedData(const Oracle& oracle) {
    const Problem& p = oracle.problem();
    const Tensors& t = oracle.tensors();
    write("x.bin", t.x, bytes_of(p, x_shape(p)));
    write("w.bin", t.w, bytes_of(p, w_shape(p)));
    write("y.bin", t.y, bytes_of(p, conv_shape(p)));
    if (p.epilogue.bias) write("bias.bin", t.bias, static_cast<std::int64_t>(bytes(p, Tensor::bias)));
    write("relu.bin", t.relu, bytes_of(p, x_shape(p)));
    write("scale.bin", t.scale, static_cast<std::int64_t>(bytes(p, Tensor::scale)));
    write("shift.bin", t.shift, static_cast<std::int64_t>(bytes(p, Tensor::shift)));
    write("slopes.bin", t.slopes, static_cast<std::int64_t>(bytes(p, Tensor::slopes)));
    write("residual.bin", t.residual, bytes_of(p, conv_shape(p)));
  }
  const std::string& directory() const { return folder_.path(); }

 private:
  void write(const char* file, const void* data, std::int64_t bytes) {
    if (data == nullptr) return;
    std::ofstream out(directory() + "/" + file, std::ios::binary);
    out.write(static_cast<const char*>(data), bytes);
  }
  TemporaryFolder folder_;
};

// The peer, ready to be timed on the same data, and whether it computes the same thing.
PeerEntry prepare_peer(Peer& peer, const Oracle& oracle, const MeasureOptions& options, int sets,
                       const Parallel& parallel) {
  PeerEntry entry;
  const Problem& p = oracle.problem();
  constexpr std::int64_t kMostShared = std::int64_t{1} << 29;
  const bool shares = bytes_of(p, x_shape(p)) + bytes_of(p, conv_shape(p)) <= kMostShared;
  std::optional<SharedData> data;
  if (shares) data.emplace(oracle);
  const Peer::Answer answer =
      peer.prepare(p, options.request.device, options.request.threads, sets, data ? data->directory() : "");
  if (!answer.yes) {
    entry.note = "declined: " + answer.text;
    return entry;
  }
  entry.implementation = answer.text;
  if (!options.check || !data) return entry;
  const std::string file = data->directory() + "/result.bin";
  const Peer::Answer done = peer.result(file);
  std::vector<char> result(static_cast<std::size_t>(oracle.result_bytes()));
  std::ifstream in(file, std::ios::binary);
  if (!done.yes || !in.read(result.data(), oracle.result_bytes())) {
    entry.note = "its result could not be checked: " + done.text;
    return entry;
  }
  const Finding finding = oracle.check(result.data(), dot_product_accuracy(p), parallel);
  entry.errors = errors_of(finding);
  if (!finding.right()) entry.note = "its result differs: " + finding.worst;
  return entry;
}

}  // namespace

Measurement measure(Engine& engine, const Problem& problem, const MeasureOptions& options, Peer* peer,
                    Pace* pace) {
  Measurement out;
  const Request& request = options.request;
  EngineImpl& impl = Internals::impl(engine);
  const PlanPointer unmeasured = options.beside_plan ? impl.plan(problem, request) : nullptr;
  if (options.find) engine.find(problem, request);
  const auto begin = Clock::now();
  const PlanPointer chosen = impl.plan(problem, request);
  const double plan_ms = ms_since(begin);

  const Settled settled(problem, request);
  Device& device = *settled.device;
  // Who computes the reference: our own workers, which then sleep, or on a GPU every processor.
  const auto parallel = settled.on_cpu() ? impl.workers(settled.threads)
                                         : std::make_shared<const Parallel>(available_processors());
  const Oracle oracle(problem, Data::random, options.seed, kProducts, parallel.get());
  Arena arena(device, oracle, std::min(2 * device.info().cache_bytes, kMostArena), kMostSets);
  out.sets = arena.sets();

  const auto with_accuracy = [&](const PlanPointer& plan) {
    return Made{plan, find_candidate(plan->kernel(), problem, settled.target()).accuracy};
  };
  std::vector<Made> plans{with_accuracy(chosen)};
  if (unmeasured != nullptr && unmeasured->kernel() != chosen->kernel())
    plans.push_back(with_accuracy(unmeasured));
  if (options.all_algorithms) {
    const Selection selection = impl.candidates(settled);
    out.refusals = selection.refusals;
    std::vector<const Algorithm*> seen;
    for (const Candidate& first : selection.candidates) {
      if (std::find(seen.begin(), seen.end(), first.algorithm) != seen.end()) continue;
      seen.push_back(first.algorithm);
      const std::string name(first.algorithm->name());
      constexpr double kMostReference = 4e9;  // operations; beyond, one run takes seconds
      if (first.algorithm->last_resort() && flops(problem) > kMostReference) {
        out.refusals.push_back(report_of(Outcome::skipped, "it would take seconds a run", name));
        continue;
      }
      std::vector<const Candidate*> candidates;
      for (const Candidate& c : selection.candidates) {
        if (c.algorithm == first.algorithm) candidates.push_back(&c);
      }
      Made made = best_of(impl, settled, candidates, arena);
      if (!made.plan) {
        out.refusals.push_back(report_of(
            Outcome::quarantined,
            "none of its kernels passed its trial; `faltung store list quarantine` says why", name));
      } else if (made.plan->kernel() != chosen->kernel()) {
        plans.push_back(std::move(made));
      }
    }
  }

  std::vector<Runner> runners;
  runners.reserve(plans.size());
  for (const Made& made : plans) {
    const PlanPointer& plan = made.plan;
    Entry entry;
    entry.kernel = plan->kernel();
    entry.chosen = plan == chosen;
    entry.compile_ms = plan->compile_ms();
    entry.programs = plan->programs();
    entry.plan_ms = entry.chosen ? plan_ms : 0;
    entry.workspace_bytes = plan->workspace_bytes(packs_beforehand(problem, plan->recipe()));
    if (options.check) {
      const Finding finding = check(made, arena, oracle, *parallel);
      entry.errors = errors_of(finding);
      entry.outcome = finding.right() ? Outcome::pass : Outcome::wrong;
      if (!finding.right()) entry.note = finding.worst;
    }
    out.entries.push_back(std::move(entry));
    runners.emplace_back(plan, arena);
  }

  std::vector<Contestant> contestants;
  for (Runner& runner : runners) {
    contestants.push_back([&runner](double ms) {
      return run_block([&] { return runner.time_once(); }, ms, [&] { return runner.runs_at_once(); });
    });
  }
  if (peer != nullptr) {
    out.peer = prepare_peer(*peer, oracle, options, out.sets, *parallel);
    if (!out.peer->implementation.empty()) {
      contestants.push_back([peer](double ms) { return peer->run(ms); });
    }
  }
  const std::vector<Standing> standings = race(contestants, options.policy, pace);
  for (std::size_t i = 0; i < out.entries.size(); ++i) out.entries[i].time = standings[i];
  if (standings.size() > out.entries.size()) out.peer->time = standings.back();
  return out;
}

}  // namespace faltung::tools
