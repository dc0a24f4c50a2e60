// Direct convolution on the CPU: no workspace, no packing, every problem. The one that always works, and a
// reasonable choice where a matrix product has nothing to hold on to: few channels a group, tiny problems.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/direct.hpp"
#include "src/algorithms/cpu_rates.hpp"
#include "src/algorithms/registry.hpp"
#include "src/algorithms/sole_kernel.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace {

class DirectCpu : public SoleKernel {
 public:
  DirectCpu()
      : SoleKernel(
            {"direct_cpu", "the sums as they are defined, vectorised; no workspace, any problem", "cpu"},
            "rows") {}

  Support accepts(const Problem&, const Target&) const override { return Support::supported(); }

 private:
  Candidate kernel(const Problem& p, const Target& target) const override {
    const bool rows = p.layout == Layout::nchw && p.direction != Direction::backward_weights;
    const double arithmetic =
        rows ? nchw_ns(p, target.threads) * 1e-6 : flops(p) / (rate(p) * target.threads * 1e6);
    const double bytes = min_bytes(p) / (8e6 * target.threads);
    Candidate c;
    // Its few operations between loads hide no memory.
    c.cost = {arithmetic + bytes + 0.002, arithmetic > bytes ? Bound::arithmetic : Bound::bytes};
    c.accuracy = dot_product_accuracy(p);
    c.recipe = [p] { return recipe(p); };
    return c;
  }

  static Recipe recipe(const Problem& p) {
    Recipe recipe;
    if (p.direction == Direction::backward_weights) {
      recipe.steps.push_back(
          call("direct", {Place::x, Place::y}, {Place::w}, [p](const Memory& m, const Parallel& parallel) {
            parallel.each(direct_weights_items(p), [&](std::int64_t item, int) {
              direct_weights_item(p, m[Place::x], m[Place::y], m[Place::w], item);
            });
          }));
      return recipe;
    }
    const Place from = p.direction == Direction::forward ? Place::x : Place::y, to = result_place(p);
    recipe.steps.push_back(
        call("direct", {from, Place::w, Place::bias, Place::residual, Place::slopes}, {to},
             [pass = std::make_shared<const DirectPass>(make_direct_pass(p)), from, to](
                 const Memory& m, const Parallel& parallel) {
               const DirectTensors tensors{
                   m[from],        m[Place::w],        m[to],
                   m[Place::bias], m[Place::residual], reinterpret_cast<const float*>(m[Place::slopes])};
               parallel.each(direct_items(*pass),
                             [&](std::int64_t item, int) { direct_item(*pass, tensors, item); });
             }));
    return recipe;
  }

  // Of the rows that the busiest thread computes. In cycles, as measured with AVX-512: a row's start, and for
  // each tap a load of two vectors whose ends are checked, beside which a few channels' multiply-adds are
  // cheap; a stride gathers them.
  static double nchw_ns(const Problem& p, int threads) {
    constexpr double kRow = 400, kTap = 24, kGatheredVector = 26;
    constexpr double kNarrow = 3;  // of 16 bits, to f32
    const DirectPass pass = make_direct_pass(p);
    const std::int64_t lanes = brgemm_lanes();
    double rows = 0, row = 0;  // taps that rows see; cycles of a row for each of them
    for (const Slide& s : pass.rows) rows += taps_inside(s);
    for (const Slide& s : pass.columns) {
      const std::int64_t vectors = ceil_div(s.count, lanes);
      const double loads = s.stride == 1 ? 0 : kGatheredVector * static_cast<double>(vectors);
      row += static_cast<double>(s.taps) * (kTap * static_cast<double>(ceil_div(vectors, 2)) + loads);
    }
    const double items = static_cast<double>(std::max<std::int64_t>(1, direct_items(pass)));
    const double taps = static_cast<double>(pass.in_channels) * rows / static_cast<double>(pass.out_h);
    const double item = kRow + taps * row * (p.dtype == DType::f32 ? 1 : kNarrow);
    return std::ceil(items / threads) * item * cycle_ns();
  }

  // GFLOP/s of a thread, as measured with AVX-512 on rows of 64 pixels: lanes that are filled, times what a
  // full vector reaches.
  static double rate(const Problem& p) {
    constexpr double kLanes = 16;
    double run;  // elements in a row of what lanes are
    if (p.layout == Layout::nchw) {
      run = static_cast<double>(p.direction == Direction::backward_data ? p.w : p.q());
    } else {
      run = static_cast<double>(p.c / p.groups);
      if (p.direction == Direction::forward && p.groups == 1 && p.dilation_w == 1)
        run *= static_cast<double>(p.s);
    }
    const double vectors = std::max(1.0, (run + kLanes - 1) / kLanes);
    const double filled = run / (kLanes * static_cast<double>(static_cast<std::int64_t>(vectors)));
    return (p.dtype == DType::f32 ? 25.0 : 8.0) * std::min(1.0, filled);
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_direct_cpu() { return std::make_unique<DirectCpu>(); }

}  // namespace faltung
