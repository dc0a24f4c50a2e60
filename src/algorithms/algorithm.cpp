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
  const Problem& given;  // as it is said
  const Target& target;
  Problem asked;      // without unused strides: what kernels are made of
  Problem untrained;  // what is asked without what training adds, x's scale and shift among it
  std::optional<Rewriting> rewriting;

  // Whether what training adds is a step after the algorithm's own. Of one that is supported.
  bool needs_step(const Algorithm& of) const {
    return asked.training != Training::none && (rewriting || !of.fuses_training(asked, target));
  }
  // Whether what comes of x is stored by a step before the algorithm's own. Likewise.
  bool stores_x(const Algorithm& of) const {
    return has_affine(asked) && (rewriting || !of.reads_affine(asked, target));
  }
  // What its kernels, and a pool's step, are for.
  Problem problem(const Algorithm& of) const {
    const Problem p = needs_step(of) ? without_training(asked) : asked;
    return stores_x(of) ? without_affine(p) : p;
  }
};

Algorithm::Question Algorithm::question(const Problem& given, const Target& target) const {
  const Problem asked = without_unused_strides(given);
  Question q{given, target, asked, without_affine(without_training(asked)), std::nullopt};
  if (!is_plain(asked) && !is_native(asked)) q.rewriting.emplace(*this, without_pool(q.untrained), target);
  return q;
}

Support Algorithm::supports(const Problem& asked, const Target& target) const {
  return supports(question(asked, target));
}

std::vector<Candidate> Algorithm::candidates(const Problem& asked, const Target& target) const {
  return candidates(question(asked, target), Extent::all).candidates;
}

Algorithm::Offer Algorithm::offer(const Problem& asked, const Target& target, Extent extent) const {
  const Question q = question(asked, target);
  Support support = supports(q);
  if (!support.yes) return {{}, std::move(support)};
  return {candidates(q, extent), std::move(support)};
}

Support Algorithm::supports(const Question& q) const {
  // What is emitted for another machine is one kernel: it has no steps before it and after it.
  if (has_affine(q.asked) && q.target.device.kind == "nki")
    return Support::declined(std::string("no ") + faltung::name(q.asked.affine) + " is emitted");
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

// Steps around a kernel take their time: what is left out of a list takes longer with them, too.
Shortlist Algorithm::candidates(const Question& q, Extent extent) const {
  const Problem problem = q.problem(*this);
  Shortlist found;
  std::vector<Candidate>& all = found.candidates;
  if (q.rewriting) {
    Shortlist inner = q.rewriting->candidates(extent);
    found.complete_to_ms = inner.complete_to_ms;
    for (Candidate& c : inner.candidates) {
      all.push_back(has_pool(problem) ? with_pool_step(std::move(c), problem, q.target) : std::move(c));
    }
  } else if (!has_pool(problem)) {
    if (extent == Extent::all) {
      all = list(problem, q.target);
    } else {
      found = shortlist(problem, q.target);
    }
  } else {
    const bool may_fuse = fuses(problem, q.target);
    if (may_fuse) all = list(problem, q.target);
    std::set<std::string> listed;
    for (const Candidate& c : all) listed.insert(c.config);
    // What is emitted for another machine is one kernel: it has no steps after it.
    const bool is_emitted = may_fuse && q.target.device.kind == "nki";
    for (Candidate& c : is_emitted ? std::vector<Candidate>() : list(without_pool(problem), q.target)) {
      if (listed.count(c.config) > 0) continue;
      std::optional<Candidate> fused;
      if (may_fuse) fused = c.maker(problem, q.target);
      all.push_back(fused ? std::move(*fused) : with_pool_step(std::move(c), problem, q.target));
    }
  }
  for (Candidate& c : all) c = finished(std::move(c), q);
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.cost.ms < b.cost.ms; });
  return found;
}

Candidate Algorithm::candidate(const Problem& asked, const std::string& config, const Target& target) const {
  const Question q = question(asked, target);
  require_support(q);
  return candidate(q, parse(config, asked.direction));
}

Candidate Algorithm::candidate(const Problem& asked, const Maker& maker, const Target& target) const {
  const Question q = question(asked, target);
  require_support(q);
  return candidate(q, maker);
}

void Algorithm::require_support(const Question& q) const {
  if (const Support support = supports(q); !support.yes) {
    throw Error(Status::unsupported,
                std::string(name()) + " does not compute " + to_string(q.given) + ": " + support.why);
  }
}

Candidate Algorithm::candidate(const Question& q, const Maker& maker) const {
  const Problem problem = q.problem(*this);
  std::optional<Candidate> one;
  if (!q.rewriting && (!has_pool(problem) || fuses(problem, q.target))) one = maker(problem, q.target);
  if (!one) {
    one = q.rewriting ? q.rewriting->candidate(maker) : maker(without_pool(problem), q.target);
    if (has_pool(problem)) one = with_pool_step(std::move(one.value()), problem, q.target);
  }
  return finished(std::move(one.value()), q);
}

// With what comes beside the kernel and a pool.
Candidate Algorithm::finished(Candidate c, const Question& q) const {
  // Of a rewritten problem its candidates have it already.
  if (!q.rewriting) c.cost.ms += activation_ms(q.problem(*this), q.target);
  if (q.stores_x(*this)) c = with_affine_step(std::move(c), q.asked, q.target);
  if (q.needs_step(*this)) c = with_training_step(std::move(c), q.asked, q.target);
  c.algorithm = this;
  return c;
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
