#include "src/algorithms/algorithm.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "src/algorithms/activation_cost.hpp"
#include "src/algorithms/pool.hpp"
#include "src/algorithms/rewritten.hpp"
#include "src/algorithms/training.hpp"
#include "src/problem/text.hpp"

namespace faltung {

const char* name(Bound bound) {
  constexpr const char* kNames[] = {"", "bytes", "arithmetic", "latency"};
  return kNames[static_cast<int>(bound)];
}

std::string Candidate::kernel() const { return std::string(algorithm->name()) + "/" + config; }

namespace {

bool has_pool(const Problem& p) { return p.epilogue.pool.kind != PoolKind::none; }

Problem without_pool(Problem p) {
  p.epilogue.pool = Pool{};
  return p;
}

}  // namespace

struct Algorithm::Question {
  const Problem& asked;
  const Target& target;
  Problem untrained;  // what is asked without what training adds
  std::optional<Rewriting> rewriting;

  // Whether what training adds is a step after the algorithm's own. Of one that is supported.
  bool needs_step(const Algorithm& of) const {
    return asked.training != Training::none && (rewriting || !of.fuses_training(asked, target));
  }
};

Algorithm::Question Algorithm::question(const Problem& asked, const Target& target) const {
  Question q{asked, target, without_training(asked), std::nullopt};
  if (!is_plain(asked) && !is_native(asked)) q.rewriting.emplace(*this, without_pool(q.untrained), target);
  return q;
}

Support Algorithm::supports(const Problem& asked, const Target& target) const {
  return supports(question(asked, target));
}

std::vector<Candidate> Algorithm::candidates(const Problem& asked, const Target& target) const {
  return candidates(question(asked, target));
}

Algorithm::Offer Algorithm::offer(const Problem& asked, const Target& target) const {
  const Question q = question(asked, target);
  Support support = supports(q);
  if (!support.yes) return {std::move(support), {}};
  return {std::move(support), candidates(q)};
}

Support Algorithm::supports(const Question& q) const {
  // What is emitted for another machine is one kernel: it has no steps after it.
  if (q.asked.training != Training::none && q.target.device.kind == "nki")
    return Support::declined(std::string("no ") + faltung::name(q.asked.training) + " is emitted");
  if (has_pitch(q.untrained) && !takes_pitch(q.untrained, q.target))
    return Support::declined("slices of tensors (xpitch, ypitch) are not read or written; copy them");
  if (q.untrained.epilogue.bias_element == BiasElement::f32 && !takes_f32_bias())
    return Support::declined(
        "its bias is of the tensors' dtype; biasf32 is taken by a GPU's kernels, by implicit_gemm_cpu and "
        "reference_cpu");
  return q.rewriting ? q.rewriting->support() : accepts(q.untrained, q.target);
}

std::vector<Candidate> Algorithm::candidates(const Question& q) const {
  const bool needs_step = q.needs_step(*this);
  const Problem& problem = needs_step ? q.untrained : q.asked;
  std::vector<Candidate> all;
  if (q.rewriting) {
    for (Candidate& c : q.rewriting->candidates()) {
      all.push_back(has_pool(problem) ? with_pool_step(std::move(c), problem, q.target) : std::move(c));
    }
  } else if (!has_pool(problem)) {
    all = list(problem, q.target);
  } else {
    const bool may_fuse = fuses(problem, q.target);
    if (may_fuse) all = list_fused(problem, q.target);
    std::set<std::string> fused;
    for (const Candidate& c : all) fused.insert(c.config);
    // What is emitted for another machine is one kernel: it has no steps after it.
    const bool is_emitted = may_fuse && q.target.device.kind == "nki";
    for (Candidate& c : is_emitted ? std::vector<Candidate>() : list(without_pool(problem), q.target)) {
      if (fused.count(c.config) == 0) all.push_back(with_pool_step(std::move(c), problem, q.target));
    }
  }
  // Of a rewritten problem its candidates have it already.
  const double activation = q.rewriting ? 0 : activation_ms(problem, q.target);
  for (Candidate& c : all) {
    c.cost.ms += activation;
    if (needs_step) c = with_training_step(std::move(c), q.asked, q.target);
    c.algorithm = this;
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.cost.ms < b.cost.ms; });
  return all;
}

Candidate Algorithm::candidate(const Problem& asked, const std::string& config, const Target& target) const {
  const Question q = question(asked, target);
  if (const Support support = supports(q); !support.yes) {
    throw Error(Status::unsupported,
                std::string(name()) + " does not compute " + to_string(asked) + ": " + support.why);
  }
  const bool needs_step = q.needs_step(*this);
  const Problem& problem = needs_step ? q.untrained : asked;
  std::vector<Candidate> one;
  if (q.rewriting) {
    Candidate c = q.rewriting->candidate(config);
    one.push_back(has_pool(problem) ? with_pool_step(std::move(c), problem, target) : std::move(c));
  } else if (!has_pool(problem)) {
    one.push_back(parse(config, problem, target));
  } else {
    if (fuses(problem, target)) one = parse_fused(config, problem, target);
    if (one.empty())
      one.push_back(with_pool_step(parse(config, without_pool(problem), target), problem, target));
  }
  if (!q.rewriting) one.front().cost.ms += activation_ms(problem, target);
  if (needs_step) one.front() = with_training_step(std::move(one.front()), asked, target);
  one.front().algorithm = this;
  return std::move(one.front());
}

const Algorithm& find_algorithm(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& algorithm : registry()) {
    if (algorithm->name() == name) return *algorithm;
    names.emplace_back(algorithm->name());
  }
  throw Error(Status::bad_problem,
              "no algorithm '" + std::string(name) + "'; the nearest is " + nearest(name, names));
}

KernelName parse_kernel(std::string_view kernel) {
  const std::size_t slash = kernel.find('/');
  if (slash == std::string_view::npos) {
    throw Error(Status::bad_problem, "kernel '" + std::string(kernel) +
                                         "' has no config; a kernel is named " +
                                         "<algorithm>/<config>, e.g. reference_cpu/plain");
  }
  return {&find_algorithm(kernel.substr(0, slash)), std::string(kernel.substr(slash + 1))};
}

Candidate find_candidate(std::string_view kernel, const Problem& problem, const Target& target) {
  const KernelName name = parse_kernel(kernel);
  return name.algorithm->candidate(problem, name.config, target);
}

}  // namespace faltung
