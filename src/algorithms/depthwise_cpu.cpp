// Depthwise convolution on the CPU: no reduction over channels, so no matrix product; bound by memory.
#include <algorithm>

#include <fmt/core.h>

#include "kernels/cpu/depthwise.hpp"
#include "src/algorithms/config_name.hpp"
#include "src/algorithms/cpu_rates_depthwise.hpp"
#include "src/algorithms/packing.hpp"
#include "src/algorithms/registry.hpp"
#include "src/algorithms/tap_lists.hpp"
#include "src/algorithms/training.hpp"

namespace faltung {
namespace {

struct WayChoice {
  DepthwiseWay way;
  template <class Name>
  void spell(Name& name) {
    constexpr NameWord<DepthwiseWay> kWords[] = {{DepthwiseWay::rows, "rows"},
                                                 {DepthwiseWay::turned, "turned"}};
    name.word(way, kWords);
  }
};
constexpr WayChoice kWays[] = {{DepthwiseWay::rows}, {DepthwiseWay::turned}};

// Planes of as many channels each, which a run passes over as they are.
bool may_be_turned(const Problem& p) {
  return p.layout == Layout::nchw && p.k == p.c && p.direction != Direction::backward_weights;
}

class DepthwiseCpu : public Algorithm {
 public:
  DepthwiseCpu()
      : Algorithm({"depthwise_cpu",
                   "one sliding sum a channel, vectors of channels (nhwc; nchw's small planes, turned) or of "
                   "pixels (nchw)",
                   "cpu"}) {}

  Support accepts(const Problem& p, const Target&) const override {
    if (p.groups != p.c) {
      return Support::declined("it is not depthwise: groups is " + std::to_string(p.groups) +
                               ", not c = " + std::to_string(p.c));
    }
    const std::string why = beyond_tap_lists(p);
    return why.empty() ? Support::supported() : Support::declined(why);
  }

 private:
  using Pass = std::shared_ptr<const DepthwisePass>;

  // Where planes are staged; the other layout's kernels read x for each tap.
  bool reads_affine(const Problem& p, const Target&) const override {
    return p.layout == Layout::nchw && p.x_pitch == 0;
  }

  std::vector<Candidate> list(const Problem& p, const Target& target) const override {
    std::vector<Candidate> all{candidate_of(p, {DepthwiseWay::rows}, target)};
    if (!may_be_turned(p)) return all;
    // Where what a worker turns stays in its second-level cache beside what streams through.
    const double plane = std::max(static_cast<double>(p.h * p.w), static_cast<double>(p.p() * p.q()));
    if (2 * 4 * kDepthwiseGroup * plane <= 0.5 * static_cast<double>(cpu_caches().level2))
      all.push_back(candidate_of(p, {DepthwiseWay::turned}, target));
    return all;
  }

  Maker parse(const std::string& config, Direction) const override {
    return maker(*TileTable<WayChoice>(name(), kWays).parse(config).tile);
  }

  static Maker maker(const WayChoice& choice) {
    return [choice](const Problem& p, const Target& target) { return candidate_of(p, choice, target); };
  }

  static Candidate candidate_of(const Problem& p, const WayChoice& choice, const Target& target) {
    if (choice.way == DepthwiseWay::turned && !may_be_turned(p)) {
      throw Error(Status::bad_problem,
                  "depthwise_cpu/turned is for results in nchw with as many channels as x has: it turns "
                  "planes to pixels; take depthwise_cpu/rows");
    }
    const Pass pass = make_pass(p, choice.way);
    const double arithmetic = depthwise_ns(*pass) * 1e-6 / target.threads;
    const double bytes = min_bytes(p) * memory_byte_ns() * 1e-6 / target.threads;
    Candidate c;
    c.config = config_name(choice), c.maker = maker(choice);
    // It has few operations for each byte, behind which little of the wait for memory hides.
    c.cost = {arithmetic + bytes + 0.002, arithmetic > bytes ? Bound::arithmetic : Bound::bytes};
    c.workspace_bytes = scratch_bytes(*pass) * static_cast<std::size_t>(target.threads);
    c.packed_bytes = p.direction == Direction::backward_weights ? 0 : depthwise_packed_bytes(*pass);
    c.accuracy = dot_product_accuracy(p);
    c.recipe = [pass, workspace = c.workspace_bytes, packed = c.packed_bytes] {
      Recipe recipe;
      recipe.workspace_bytes = workspace, recipe.packed_bytes = packed;
      if (pass->problem.direction == Direction::backward_weights) {
        add_weights_steps(pass, recipe);
      } else {
        add_data_steps(pass, recipe);
      }
      return recipe;
    };
    return c;
  }

  static Pass make_pass(Problem p, DepthwiseWay way) {
    // The filter's gradient walks over x as the forward pass does.
    const Direction direction = p.direction;
    if (direction == Direction::backward_weights) p.direction = Direction::forward;
    DepthwisePass pass = make_depthwise_pass(p, way);
    pass.problem.direction = direction;
    return std::make_shared<const DepthwisePass>(std::move(pass));
  }

  static std::size_t scratch_bytes(const DepthwisePass& pass) {
    return aligned(pass.problem.direction == Direction::backward_weights
                       ? depthwise_weights_scratch_bytes(pass)
                       : depthwise_scratch_bytes(pass));
  }

  // Taps are packed in the order of the slides that they belong to.
  static std::string packing(const DepthwisePass& pass) {
    std::string text = packing_of(pass.problem);
    for (const std::vector<Slide>* slides : {&pass.rows, &pass.columns}) {
      text += slides == &pass.rows ? " rows" : " columns";
      for (const Slide& s : *slides) text += fmt::format(" {}*{}from{}", s.taps, s.tap_step, s.tap);
    }
    return text;
  }

  static void add_data_steps(const Pass& pass, Recipe& recipe) {
    recipe.packing = packing(*pass);
    recipe.pack.push_back(
        call("pack filter", {Place::w}, {Place::packed}, [pass](const Memory& m, const Parallel& parallel) {
          parallel.run([&](int worker) {
            depthwise_pack(*pass, m[Place::w], reinterpret_cast<float*>(m[Place::packed]), worker,
                           parallel.workers());
          });
        }));
    const Place from = pass->problem.direction == Direction::forward ? Place::x : Place::y;
    const Place to = result_place(pass->problem);
    recipe.steps.push_back(call(
        "depthwise",
        {from, Place::packed, Place::bias, Place::residual, Place::slopes, Place::scale, Place::shift},
        {to, Place::workspace},
        [pass, from, to, scratch = scratch_bytes(*pass)](const Memory& m, const Parallel& parallel) {
          const DepthwiseTensors tensors{m[from],
                                         m[to],
                                         reinterpret_cast<const float*>(m[Place::packed]),
                                         m[Place::bias],
                                         m[Place::residual],
                                         reinterpret_cast<const float*>(m[Place::slopes]),
                                         input_affine(pass->problem, m)};
          parallel.run([&](int worker) {
            depthwise_run(*pass, tensors, m[Place::workspace] + scratch * static_cast<std::size_t>(worker),
                          worker, parallel.workers());
          });
        }));
  }

  static void add_weights_steps(const Pass& pass, Recipe& recipe) {
    const std::size_t scratch = scratch_bytes(*pass);
    recipe.steps.push_back(call(
        "depthwise", {Place::x, Place::y, Place::scale, Place::shift}, {Place::w, Place::workspace},
        [pass, scratch](const Memory& m, const Parallel& parallel) {
          parallel.run([&](int worker) {
            depthwise_weights(*pass, m[Place::x], m[Place::y], input_affine(pass->problem, m), m[Place::w],
                              m[Place::workspace] + scratch * static_cast<std::size_t>(worker), worker,
                              parallel.workers());
          });
        }));
    if (pass->problem.layout != Layout::nhwc) return;
    recipe.steps.push_back(call("add up", {Place::workspace}, {Place::w},
                                [pass, scratch](const Memory& m, const Parallel& parallel) {
                                  parallel.run([&](int worker) {
                                    depthwise_weights_reduce(*pass, m[Place::workspace], scratch, m[Place::w],
                                                             worker, parallel.workers());
                                  });
                                }));
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_depthwise_cpu() { return std::make_unique<DepthwiseCpu>(); }

}  // namespace faltung
