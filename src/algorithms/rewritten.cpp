#include "src/algorithms/rewritten.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>

#include "src/algorithms/packing.hpp"
#include "src/algorithms/pass_time.hpp"
#include "src/algorithms/rewrite_steps.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace {

constexpr Operand kOperands[] = {Operand::x, Operand::w, Operand::y};

Place place_of(Operand operand) {
  return operand == Operand::x ? Place::x : operand == Operand::w ? Place::w : Place::y;
}

// A part of the problem as a problem of its own, and what computes that.
struct Part {
  std::shared_ptr<const PlainRewrite> plain;
  Candidate candidate;

  const Rewrite& rewrite() const { return plain->rewrite; }
  const Problem& inner() const { return rewrite().inner; }
};

// A tensor of a part's: where its steps find it, and how it is copied there or from there.
struct Placed {
  Slot slot;
  std::optional<TensorCopy> copy;  // none: it lies in place
};

// What the filter's elements are of the outer one, for who asks whether packed weights are the same.
std::string text_of(const IndexMap& map) {
  std::string text = map.is_zero() ? " nothing" : "";
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    text += fmt::format(" {}+{}", map.size[axis], map.start[axis]);
    for (const Digit& digit : map.digits[axis])
      text += fmt::format(":{}>{}*{}", digit.count, static_cast<int>(digit.to), digit.step);
  }
  return text;
}

class Rewritten {
 public:
  Rewritten(const Problem& problem, std::vector<Part> parts, const Target& target)
      : problem_(problem),
        device_(target.device),
        threads_(target.threads),
        measured_(target.measured),
        parts_(std::move(parts)) {
    // Steps that read the weights as they are cannot where a plan has packed ones.
    bool packs = false;
    for (const Part& part : parts_)
      packs = packs || part.candidate.packed_bytes > 0 || copies(part, Operand::w);
    for (const Part& part : parts_) place(part, packs && part.candidate.packed_bytes == 0);
  }

  static Candidate candidate(std::shared_ptr<const Rewritten> all) {
    const std::vector<Part>& parts = all->parts_;
    Candidate c = parts.front().candidate;
    if (has_planes_of_one_tap(all->problem_)) c.accuracy = all->of_depths(c.accuracy);
    for (std::size_t i = 1; i < parts.size(); ++i) add(parts[i].candidate, c);
    c.cost.ms += all->copy_ms();
    c.workspace_bytes = all->workspace_bytes_, c.packed_bytes = all->packed_bytes_;
    c.recipe = [all = std::move(all)] { return all->recipe(); };
    return c;
  }

 private:
  struct Places {
    std::optional<Placed> x, w, y, residual;  // those that are copied
    std::size_t workspace = 0, packed = 0;    // where the part's own begin
  };

  // Of one that knows depths as rows, and a plane's pixels as one row: what it mixes along that are pixels of
  // other rows, too.
  Accuracy of_depths(Accuracy a) const {
    a.spread_d = a.spread_h;
    a.spread_h = a.spread_w == 0 ? 0 : static_cast<int>(ceil_div(a.spread_w, problem_.w));
    a.spread_w = a.spread_w == 0 ? 0 : static_cast<int>(problem_.w);
    std::swap(a.filter_unit_d, a.filter_unit_h);  // rows are depths, and pixels have no taps
    return a;
  }

  static void add(const Candidate& part, Candidate& all) {
    all.cost.ms += part.cost.ms;
    Accuracy& a = all.accuracy;
    a.growth = std::max(a.growth, part.accuracy.growth);
    a.spread_h = std::max(a.spread_h, part.accuracy.spread_h);
    a.spread_w = std::max(a.spread_w, part.accuracy.spread_w);
    a.exact_on_integers = a.exact_on_integers && part.accuracy.exact_on_integers;
    a.zeros_meet = std::max(a.zeros_meet, part.accuracy.zeros_meet);
    a.factors = std::max(a.factors, part.accuracy.factors);
    a.groups_as_one = std::lcm(a.groups_as_one, part.accuracy.groups_as_one);
    a.filter_unit_h = std::lcm(a.filter_unit_h, part.accuracy.filter_unit_h);
    a.filter_unit_w = std::lcm(a.filter_unit_w, part.accuracy.filter_unit_w);
    a.zeros_beside_w = std::max(a.zeros_beside_w, part.accuracy.zeros_beside_w);
    if (part.repeatable == Repeatable::may_differ) all.repeatable = part.repeatable;
    all.registers = std::max(all.registers, part.registers);
  }

  TensorCopy copy_of(const Part& part, CopyWay way, const IndexMap& map, const TensorShape& inner,
                     const TensorShape& outer) const {
    const View view = part.plain->view;
    return {way, map, viewed(inner, view), viewed(outer, view), problem_.dtype, problem_.layout};
  }
  TensorCopy copy_of(const Part& part, Operand operand) const {
    const IndexMap& map = part.rewrite().map(operand);
    const bool is_result = operand == result_operand(part.inner().direction);
    return copy_of(part, is_result ? CopyWay::scatter : CopyWay::gather, map,
                   operand_shape(part.inner(), operand), operand_shape(problem_, map.of));
  }
  static bool in_place(const TensorCopy& copy) { return copy.map.is_in_place(copy.inner, copy.outer); }
  // Asked of each candidate: no map is copied.
  bool copies(const Part& part, Operand operand) const {
    const IndexMap& map = part.rewrite().map(operand);
    const View view = part.plain->view;
    return !map.is_in_place(viewed(operand_shape(part.inner(), operand), view),
                            viewed(operand_shape(problem_, map.of), view));
  }

  // Parts run one after the other and share the workspace; packed weights are all there at once.
  void place(const Part& part, bool must_copy_w) {
    Places places;
    std::size_t workspace = 0;
    const auto take = [](std::size_t& end, Place place, TensorCopy copy) {
      const Slot slot{place, end};
      end += aligned(copy.inner_bytes());
      return Placed{slot, std::move(copy)};
    };
    const bool packs_w = part.inner().direction != Direction::backward_weights;
    for (const Operand operand : kOperands) {
      const bool must = operand == Operand::w && packs_w && must_copy_w;
      if (!must && !copies(part, operand)) continue;
      std::optional<Placed>& to = operand == Operand::x   ? places.x
                                  : operand == Operand::w ? places.w
                                                          : places.y;
      to = operand == Operand::w && packs_w ? take(packed_bytes_, Place::packed, copy_of(part, operand))
                                            : take(workspace, Place::workspace, copy_of(part, operand));
    }
    if (part.inner().epilogue.residual) {
      TensorCopy copy =
          copy_of(part, CopyWay::gather, part.rewrite().y, conv_shape(part.inner()), conv_shape(problem_));
      if (!in_place(copy)) places.residual = take(workspace, Place::workspace, std::move(copy));
    }
    places.workspace = workspace, places.packed = packed_bytes_;
    workspace_bytes_ = std::max(workspace_bytes_, workspace + aligned(part.candidate.workspace_bytes));
    packed_bytes_ += aligned(part.candidate.packed_bytes);
    places_.push_back(std::move(places));
  }

  double copy_ms() const {
    double ms = 0;
    for (const Places& p : places_) {
      for (const std::optional<Placed>* placed : {&p.x, &p.y, &p.residual}) {
        if (!*placed) continue;
        ms += pass_ms(2.0 * static_cast<double>((*placed)->copy->inner_bytes()),
                      {device_, threads_, measured_});
      }
    }
    return ms;
  }

  Step copy_step(const std::string& name, const Part& part, const Placed& placed, Place outer) const {
    const bool gathers = placed.copy->way == CopyWay::gather;
    const Slot from = gathers ? Slot(outer) : placed.slot, to = gathers ? placed.slot : Slot(outer);
    if (device_.kind == "cpu") return copy_call(name, *placed.copy, from, to);
    return copy_launch(name, part.candidate.kernel(), *placed.copy, from, to, device_);
  }

  // A step of the part's own recipe as one of this.
  static Step adapted(Step step, const Part& part, const Places& places) {
    const Rewrite& r = part.rewrite();
    if (r.x.of == Operand::y) step.exchange(Place::x, Place::y);
    step.rewire(Place::workspace, {Place::workspace, places.workspace});
    step.rewire(Place::packed, {Place::packed, places.packed});
    if (places.x) step.rewire(place_of(r.x.of), places.x->slot);
    if (places.w) step.rewire(Place::w, places.w->slot);
    if (places.y) step.rewire(place_of(r.y.of), places.y->slot);
    if (places.residual) step.rewire(Place::residual, places.residual->slot);
    return step;
  }

  void add_part(const Part& part, const Places& places, Recipe& recipe) const {
    const Rewrite& r = part.rewrite();
    const Operand result = result_operand(r.inner.direction);
    const auto copy = [&](const char* name, Operand operand, const std::optional<Placed>& placed) {
      if (placed) recipe.steps.push_back(copy_step(name, part, *placed, place_of(r.map(operand).of)));
    };
    Recipe inner = part.candidate.recipe();
    if (places.w && result != Operand::w)
      recipe.pack.push_back(copy_step("gather weights", part, *places.w, Place::w));
    for (Step& step : inner.pack) recipe.pack.push_back(adapted(std::move(step), part, places));
    if (result != Operand::x) copy("gather x", Operand::x, places.x);
    if (result != Operand::y) copy("gather y", Operand::y, places.y);
    if (places.residual)
      recipe.steps.push_back(copy_step("gather residual", part, *places.residual, Place::residual));
    for (Step& step : inner.steps) recipe.steps.push_back(adapted(std::move(step), part, places));
    copy("scatter", result, result == Operand::x ? places.x : result == Operand::w ? places.w : places.y);
    recipe.alignment = std::max(recipe.alignment, inner.alignment);
    // What is not said of one part is not known of all.
    const bool says = part.candidate.packed_bytes == 0 || !inner.packing.empty();
    packing_of_part(says, part, inner, recipe);
  }

  void packing_of_part(bool says, const Part& part, const Recipe& inner, Recipe& recipe) const {
    if (&part == &parts_.front()) recipe.packing = packing_of(problem_);
    if (!says) recipe.packing.clear();
    if (!recipe.packing.empty()) recipe.packing += "; " + inner.packing + " of" + text_of(part.rewrite().w);
  }

  Recipe recipe() const {
    Recipe recipe;
    for (std::size_t i = 0; i < parts_.size(); ++i) add_part(parts_[i], places_[i], recipe);
    recipe.workspace_bytes = workspace_bytes_, recipe.packed_bytes = packed_bytes_;
    if (packed_bytes_ == 0) recipe.packing.clear();
    return recipe;
  }

  Problem problem_;
  const DeviceInfo& device_;
  int threads_;
  Ceilings measured_;
  std::vector<Part> parts_;
  std::vector<Places> places_;
  std::size_t workspace_bytes_ = 0, packed_bytes_ = 0;
};

// What the problem is rewritten to, the largest first: of it the candidates are named.
PlainRewrites rewrites_of(const Problem& problem) {
  PlainRewrites all;
  for (PlainRewrite& plain : toward_plain(problem)) {
    validate(plain.rewrite.inner);
    all.push_back(std::make_shared<const PlainRewrite>(std::move(plain)));
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return flops(a->rewrite.inner) > flops(b->rewrite.inner);
  });
  return all;
}

// What may compute a part. Parts are often alike: they share one.
class Listed {
 public:
  Listed(const Algorithm& algorithm, const Problem& inner, const Target& target, Extent extent)
      : inner_(inner) {
    if (extent == Extent::all) {
      list_.candidates = algorithm.candidates(inner, target);
    } else {
      list_ = algorithm.offer(inner, target, extent);
    }
    for (const Candidate& c : all()) by_config_.emplace(c.config, &c);
  }
  Listed(const Listed&) = delete;  // by_config_ has places in list_
  const Problem& inner() const { return inner_; }
  const std::vector<Candidate>& all() const { return list_.candidates; }
  double complete_to_ms() const { return list_.complete_to_ms; }
  // As the first part's, or the best.
  const Candidate& like(const Candidate& first) const {
    const auto same = by_config_.find(first.config);
    return same == by_config_.end() ? all().front() : *same->second;
  }

 private:
  Problem inner_;
  Shortlist list_;
  std::unordered_map<std::string_view, const Candidate*> by_config_;
};
using Lists = std::vector<std::shared_ptr<const Listed>>;

// Of each part from the first-th on. The extent is the largest part's, and of those like it: of others any
// name may be asked for.
Lists lists_of(const Algorithm& algorithm, const PlainRewrites& rewrites, const Target& target,
               std::size_t first, Extent extent) {
  Lists lists;
  for (std::size_t i = first; i < rewrites.size(); ++i) {
    const Problem& inner = rewrites[i]->rewrite.inner;
    const auto same =
        std::find_if(lists.begin(), lists.end(), [&](const auto& list) { return list->inner() == inner; });
    if (same != lists.end()) {
      lists.push_back(*same);
    } else {
      lists.push_back(
          std::make_shared<const Listed>(algorithm, inner, target, lists.empty() ? extent : Extent::all));
    }
  }
  return lists;
}

// others: of all parts but the first.
Candidate with_others(const Problem& problem, const PlainRewrites& rewrites, const Candidate& first,
                      std::span<const std::shared_ptr<const Listed>> others, const Target& target) {
  std::vector<Part> parts = {{rewrites.front(), first}};
  for (std::size_t i = 0; i < others.size(); ++i) parts.push_back({rewrites[i + 1], others[i]->like(first)});
  return Rewritten::candidate(std::make_shared<const Rewritten>(problem, std::move(parts), target));
}

}  // namespace

Rewriting::Rewriting(const Algorithm& algorithm, const Problem& problem, const Target& target)
    : algorithm_(algorithm), target_(target), problem_(problem), support_(Support::supported()) {
  try {
    rewrites_ = rewrites_of(problem);
    for (std::size_t i = 0; i < rewrites_.size(); ++i) {
      const Problem& inner = rewrites_[i]->rewrite.inner;
      if (i > 0 && inner == rewrites_[i - 1]->rewrite.inner) continue;
      const Support support = algorithm.supports(inner, target);
      if (support.yes) continue;
      support_ = Support::declined(support.why + ", as " + to_string(inner));
      return;
    }
  } catch (const Error& error) {
    support_ = Support::declined(error.what());
  }
}

Shortlist Rewriting::candidates(Extent extent) const {
  if (!support_.yes) throw Error(Status::unsupported, support_.why);
  const Lists lists = lists_of(algorithm_, rewrites_, target_, 0, extent);
  Shortlist found;
  for (const Candidate& first : lists.front()->all())
    found.candidates.push_back(with_others(problem_, rewrites_, first, std::span(lists).subspan(1), target_));
  // What is left out of the largest part's list takes longer in all parts like it, and no other part takes
  // less than its best; copies are the same. Sums are rounded.
  constexpr double kRounded = 1 - 1e-12;
  const Candidate& first = lists.front()->all().front();
  double ms = found.candidates.front().cost.ms;
  for (const auto& list : lists) {
    ms += list == lists.front() ? list->complete_to_ms() - first.cost.ms
                                : list->all().front().cost.ms - list->like(first).cost.ms;
  }
  found.complete_to_ms = ms * kRounded;
  return found;
}

Candidate Rewriting::candidate(const Maker& maker) const {
  if (!support_.yes) throw Error(Status::unsupported, support_.why);
  const Candidate first = algorithm_.candidate(rewrites_.front()->rewrite.inner, maker, target_);
  return with_others(problem_, rewrites_, first, lists_of(algorithm_, rewrites_, target_, 1, Extent::all),
                     target_);
}

}  // namespace faltung
