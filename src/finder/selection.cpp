#include "src/finder/selection.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/finder/report.hpp"

namespace faltung {
namespace {

std::string listed(const std::vector<Report>& refusals) {
  std::string text;
  for (const Report& refusal : refusals)
    text += "\n  " + refusal.kernel + " " + name(refusal.outcome) + ": " + refusal.why;
  return text;
}

// The reference is there to be compared with: it comes last, whatever it predicts.
bool is_last_resort(const Candidate& candidate) { return candidate.algorithm->last_resort(); }

// The algorithm's candidates, and those that are named in full. What throws while it is made or priced is
// refused in its words.
std::vector<Candidate> candidates_of(const Algorithm& algorithm, const Settled& s, const Target& target,
                                     Extent extent, Selection& out) {
  std::vector<Report>& refusals = out.refusals;
  const std::string name(algorithm.name());
  std::vector<Candidate> all;
  try {
    Algorithm::Offer offer = algorithm.offer(s.problem, target, extent);
    if (!offer.support.yes) {
      refusals.push_back(report_of(Outcome::declined, offer.support.why, name));
      return {};
    }
    all = std::move(offer.candidates);
    out.complete_to_ms = std::min(out.complete_to_ms, offer.complete_to_ms);
  } catch (const std::exception& error) {
    refusals.push_back(report_of(Outcome::declined, error.what(), name));
    return {};
  }
  for (const std::string& kernel : s.filter.forced()) {
    const KernelName forced = parse_kernel(kernel);
    if (forced.algorithm != &algorithm) continue;
    if (std::any_of(all.begin(), all.end(), [&](const Candidate& c) { return c.config == forced.config; }))
      continue;
    all.push_back(algorithm.candidate(s.problem, forced.config, target));
  }
  return all;
}

}  // namespace

const Candidate* Selection::find(const std::string& kernel) const {
  const auto found = std::find_if(candidates.begin(), candidates.end(),
                                  [&](const Candidate& c) { return c.kernel() == kernel; });
  return found == candidates.end() ? nullptr : &*found;
}

std::optional<Report> refused(const Candidate& candidate, const Settled& s) {
  if (s.deterministic && candidate.repeatable == Repeatable::may_differ) {
    return report_of(Outcome::skipped,
                     "it does not give the same bits every time, and deterministic was asked for",
                     candidate.kernel());
  }
  if (const std::size_t bytes = candidate.workspace(false); bytes > s.workspace_limit) {
    return report_of(Outcome::skipped,
                     fmt::format("needs a workspace of {} bytes, the limit is {}", bytes, s.workspace_limit),
                     candidate.kernel());
  }
  return std::nullopt;
}

Report refused_by_patterns(std::string kernel) {
  return report_of(Outcome::skipped, "by the kernel patterns given", std::move(kernel));
}

Selection select(const Settled& s, Extent extent, const Ceilings& measured) {
  Selection out;
  for (const auto& algorithm : registry()) {
    if (algorithm->device_kind() != s.device->info().kind) continue;
    bool any_allowed = false, any = false;
    for (Candidate& candidate : candidates_of(*algorithm, s, s.target(measured), extent, out)) {
      any = true;
      if (!s.filter.allows(*algorithm, candidate.kernel())) continue;
      any_allowed = true;
      if (std::optional<Report> refusal = refused(candidate, s)) {
        out.refusals.push_back(std::move(*refusal));
      } else {
        out.candidates.push_back(std::move(candidate));
      }
    }
    if (any && !any_allowed) {
      out.refusals.push_back(refused_by_patterns(std::string(algorithm->name())));
    }
  }
  std::stable_sort(out.candidates.begin(), out.candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (is_last_resort(a) != is_last_resort(b)) return is_last_resort(b);
    return a.cost.ms < b.cost.ms;
  });
  // What is left is how the whole begins.
  if (!out.is_whole()) {
    std::erase_if(out.candidates, [&](const Candidate& candidate) {
      return is_last_resort(candidate) || candidate.cost.ms > out.complete_to_ms;
    });
  }
  require_candidates(out, s);
  return out;
}

namespace {

// What the model takes first is by some 1 to 4 % not the fastest of what it has hope for.
constexpr double kAlike = 1.05;

}  // namespace

bool reaches(const Selection& selection) {
  if (selection.is_whole()) return true;
  return !selection.candidates.empty() &&
         kAlike * selection.candidates.front().cost.ms <= selection.complete_to_ms;
}

void prefer_ready(Selection& selection, const std::function<bool(const Candidate&)>& is_ready) {
  const auto begin = selection.candidates.begin(), end = selection.candidates.end();
  for (auto one = begin; one != end && one->cost.ms <= kAlike * begin->cost.ms; ++one) {
    if (!is_ready(*one)) continue;
    std::rotate(begin, one, one + 1);
    return;
  }
}

void require_candidates(const Selection& selection, const Settled& s) {
  if (!selection.candidates.empty() || !selection.is_whole()) return;
  throw Error(Status::unsupported, "no kernel may compute " + to_string(s.problem) + " on " +
                                       s.device->info().id + listed(selection.refusals));
}

void require_recipes(Selection& selection, const Settled& s) {
  std::erase_if(selection.candidates, [&](const Candidate& candidate) {
    try {
      candidate.recipe();
      return false;
    } catch (const std::exception& error) {
      selection.refusals.push_back(report_of(Outcome::declined, error.what(), candidate.kernel()));
      return true;
    }
  });
  require_candidates(selection, s);
}

}  // namespace faltung
