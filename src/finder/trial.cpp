#include "src/finder/trial.hpp"

#include <algorithm>
#include <chrono>

namespace faltung {

Buffer Arena::copy(Device& device, const void* from, std::int64_t bytes) {
  Buffer buffer = device.allocate(static_cast<std::size_t>(bytes));
  device.copy_in(buffer, from, static_cast<std::size_t>(bytes));
  return buffer;
}

Arena::Arena(Device& device, const Oracle& oracle, std::size_t at_least_bytes, int max_sets, double most_ms) {
  const auto begin = std::chrono::steady_clock::now();
  const auto late = [&] {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() >
           most_ms;
  };
  const Problem& p = oracle.problem();
  const Tensors& host = oracle.tensors();
  const auto constant = [&](const void* from, std::int64_t bytes) -> void* {
    if (from == nullptr) return nullptr;
    constant_.push_back(copy(device, from, bytes));
    return constant_.back().pointer;
  };
  Tensors shared;
  shared.w = constant(host.w, bytes_of(p, w_shape(p)));
  const std::vector<float> zero_sums(static_cast<std::size_t>(sums_of_channel(p) * p.k));
  if (!zero_sums.empty())
    shared.sums = constant(zero_sums.data(), static_cast<std::int64_t>(zero_sums.size() * sizeof(float)));
  shared.bias = constant(host.bias, static_cast<std::int64_t>(faltung::bytes(p, Tensor::bias)));
  shared.scale = constant(host.scale, static_cast<std::int64_t>(faltung::bytes(p, Tensor::scale)));
  shared.shift = constant(host.shift, static_cast<std::int64_t>(faltung::bytes(p, Tensor::shift)));
  shared.slopes = constant(host.slopes, static_cast<std::int64_t>(faltung::bytes(p, Tensor::slopes)));
  const std::int64_t x_bytes = bytes_of(p, x_shape(p)), conv_bytes = bytes_of(p, conv_shape(p));
  const std::int64_t y_bytes = p.direction == Direction::forward ? bytes_of(p, y_shape(p)) : conv_bytes;
  const std::size_t set_bytes = static_cast<std::size_t>(
      x_bytes + y_bytes + (host.residual != nullptr ? conv_bytes : 0) + (host.relu != nullptr ? x_bytes : 0));
  const std::size_t wanted = (at_least_bytes + set_bytes - 1) / set_bytes;
  const std::size_t sets =
      std::clamp<std::size_t>(wanted, 2, static_cast<std::size_t>(std::max(2, max_sets)));
  const std::size_t fewest = at_least_bytes > 0 && set_bytes >= at_least_bytes ? 1 : 2;
  for (std::size_t i = 0; i < sets && (i < fewest || !late()); ++i) {
    Set set;
    set.tensors = shared;
    // A buffer that the direction writes has no host copy: it is filled with zeros, so that its pages exist.
    const auto own = [&](const void* from, std::int64_t bytes) {
      const std::vector<std::byte> zeros(from == nullptr ? static_cast<std::size_t>(bytes) : 0);
      set.buffers.push_back(copy(device, from != nullptr ? from : zeros.data(), bytes));
      return set.buffers.back().pointer;
    };
    set.tensors.x = own(host.x, x_bytes);
    set.tensors.y = own(host.y, y_bytes);
    if (host.w == nullptr) set.tensors.w = own(nullptr, bytes_of(p, w_shape(p)));
    if (host.residual != nullptr) set.tensors.residual = own(host.residual, conv_bytes);
    if (host.relu != nullptr) set.tensors.relu = own(host.relu, x_bytes);
    sets_.push_back(std::move(set));
  }
}

const Tensors& Arena::next() { return sets_[turn_++ % sets_.size()].tensors; }

Runner::Runner(std::shared_ptr<const PlanImpl> plan, Arena& arena) : plan_(std::move(plan)), arena_(arena) {
  const bool packs = packs_beforehand(plan_->problem(), plan_->recipe());
  if (packs) weights_ = plan_->pack_weights(arena.first().w, {});
  options_.weights = weights_.get();
  const std::size_t bytes = plan_->workspace_bytes(packs);
  if (bytes > 0) workspace_ = plan_->device().allocate(bytes);
  options_.workspace = workspace_.pointer;
}

double Runner::time_once() {
  if (before_each_) before_each_();
  if (recording_) return recording_->time_ms() / runs_at_once_;
  const Tensors& tensors = arena_.next();
  const double ms = plan_->device().time_ms({}, [&] { plan_->run(tensors, options_); });
  shortest_ms_ = singles_ == 0 ? ms : std::min(shortest_ms_, ms);
  // The first runs load the kernel and touch the pages.
  constexpr int kSingles = 2, kMost = 256;
  constexpr double kShort = 0.5, kTogether = 1;  // ms
  if (++singles_ == kSingles && shortest_ms_ < kShort && plan_->device().info().kind == "gpu") {
    const int runs = std::min(kMost, static_cast<int>(kTogether / std::max(shortest_ms_, 1e-3)) + 1);
    recording_ = plan_->device().record([&](const Stream& stream) {
      RunOptions options = options_;
      options.stream = stream.native;
      for (int i = 0; i < runs; ++i) plan_->run(arena_.next(), options);
    });
    if (recording_) runs_at_once_ = runs;
  }
  return ms;
}

Timing summarize(std::vector<double> ms) {
  Timing timing;
  if (ms.empty()) return timing;
  std::sort(ms.begin(), ms.end());
  timing.runs = static_cast<int>(ms.size());
  timing.min = ms.front();
  timing.max = ms.back();
  const std::size_t half = ms.size() / 2;
  timing.median = ms.size() % 2 == 1 ? ms[half] : (ms[half - 1] + ms[half]) / 2;
  return timing;
}

Timing time_runner(Runner& runner, double budget_ms, double best_ms) {
  constexpr int kFewest = 3, kMost = 1000;
  constexpr double kHopeless = 3;    // the first run takes this many times the best
  constexpr double kTooSlow = 1.15;  // the fastest of a few runs takes this many times the best
  const bool has_rival = best_ms > 0;
  double first = runner.time_once();
  // Pages touched for the first time weigh on a short run: a second one tells whether it is hopeless.
  constexpr double kShort = 5;  // ms
  if (first < kShort) first = std::min(first, runner.time_once());
  if (has_rival && first > kHopeless * best_ms) {
    Timing timing = summarize({first});
    timing.stopped_early = true;
    return timing;
  }
  constexpr double kPatience = 4;  // times the budget, for the fewest runs
  if (first > kPatience * budget_ms) return summarize({first});
  std::vector<double> ms;
  double spent = first, fastest = first;
  while (static_cast<int>(ms.size()) < kMost &&
         (ms.empty() || spent < budget_ms ||
          (static_cast<int>(ms.size()) < kFewest && spent + fastest <= kPatience * budget_ms))) {
    const int runs = runner.runs_at_once();
    ms.push_back(runner.time_once());
    spent += ms.back() * runs;
    fastest = std::min(fastest, ms.back());
    if (has_rival && static_cast<int>(ms.size()) >= kFewest && fastest > kTooSlow * best_ms) {
      Timing timing = summarize(std::move(ms));
      timing.stopped_early = true;
      return timing;
    }
  }
  return summarize(std::move(ms));
}

std::vector<Timing> race(const std::vector<Runner*>& runners, double budget_ms) {
  constexpr int kMost = 100;   // rounds
  constexpr double kTurn = 4;  // ms
  std::vector<std::vector<double>> ms(runners.size());
  double spent = 0, last_round = 0;
  for (int round = 0; round < kMost && (round == 0 || spent + last_round <= budget_ms); ++round) {
    const double before = spent;
    for (std::size_t i = 0; i < runners.size(); ++i) {
      double turn = 0;
      spent += runners[i]->time_once();  // what the one before left in the caches
      do {
        const int runs = runners[i]->runs_at_once();
        ms[i].push_back(runners[i]->time_once());
        turn += ms[i].back() * runs;
      } while (turn < kTurn);
      spent += turn;
    }
    last_round = spent - before;
  }
  std::vector<Timing> timings;
  for (std::vector<double>& one : ms) timings.push_back(summarize(std::move(one)));
  return timings;
}

}  // namespace faltung
