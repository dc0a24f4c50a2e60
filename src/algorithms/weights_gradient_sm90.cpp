// The gradient of the weights on Hopper's matrix units; the kernels are kernels/sm90/weights_gradient.cu
// (16-bit NHWC, to which what comes otherwise is brought by a step before it) and weights_gradient_lines.cu
// (NCHW as it is; weights_gradient_runs.cu where the output's gradient alone has rows of no whole 16 bytes).
#include "src/algorithms/weights_gradient_sm90.hpp"

#include <algorithm>
#include <limits>

#include "src/algorithms/registry.hpp"
#include "src/algorithms/shortlist.hpp"
#include "src/algorithms/sm90/tiling.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {
namespace weights_gradient_sm90 {
namespace {

using std::int64_t;

class WeightsGradientSm90 : public Algorithm {
 public:
  WeightsGradientSm90()
      : Algorithm({"weights_gradient_sm90",
                   "the gradient of the weights on Hopper's matrix units, all taps from one halo patch",
                   "gpu"}) {}

  Support accepts(const Problem& p, const Target& target) const override {
    if (!target.device.has("sm_90a")) return Support::declined("needs a Hopper GPU (compute capability 9.0)");
    if (!target.device.has("nvrtc")) return Support::declined("needs NVRTC to compile its kernels");
    return serves(p, target.device.units);
  }

  // Three products of cut parts err on each term alike, a chain of fp32 multiply-adds the more the longer it
  // is: their root mean square error over a chain's is some 33 / sqrt(terms) (2.3 to 3.4 measured at 144 to
  // 96), and may be 2.
  static constexpr int64_t kShortest = 512;

  // What does not depend on the device but for how many multiprocessors it has.
  static Support serves(const Problem& p, int units) {
    if (p.direction != Direction::backward_weights) return Support::declined("backward_weights only");
    if (p.groups > 1 && p.c == p.groups && p.k == p.groups)
      return Support::declined("no groups of one channel; depthwise_gpu has them");
    if (p.dtype != DType::f32 && p.math == Math::f32)
      return Support::declined("16-bit tensors in f16 or bf16 math only");
    if (p.dtype == DType::f32 && p.math == Math::f32 && reduction_length(p) < kShortest)
      return Support::declined("in three tf32 products a sum of fewer than " + std::to_string(kShortest) +
                               " terms is not as good as fp32");
    constexpr int64_t kMost = std::numeric_limits<int>::max() / 2;
    for (const int64_t size :
         {p.n * p.p() * p.q(), p.n * p.h * p.w, p.k, p.c, p.k * p.r * p.s, p.r * p.s * p.c}) {
      if (size > kMost) return Support::declined("more than 2^30 pixels, channels or weights of one of them");
    }
    if (!tiles(p, units).empty()) return Support::supported();
    Tile tile;
    if (p.dtype == DType::f32) tile.kind = Kind::lines, tile.rows = 4, tile.width = 32;
    const std::string why = unfit(tile, p);
    return Support::declined(why.empty() ? "no tile fits" : why);
  }

 private:
  std::vector<Candidate> list(const Problem& p, const Target& target) const override {
    std::vector<Candidate> all;
    for (const Tile& tile : tiles(p, target.device.units)) all.push_back(candidate_of(p, tile, target));
    std::stable_sort(all.begin(), all.end(),
                     [](const Candidate& a, const Candidate& b) { return a.cost.ms < b.cost.ms; });
    return all;
  }

  Shortlist shortlist(const Problem& p, const Target& target) const override {
    const sm90::Chip chip = sm90::Chip::of(target, p);
    return nearest_of(
        tiles(p, target.device.units), [&](const Tile& tile) { return cost(tile, p, chip).ms; },
        [&](const Tile& tile) { return candidate_of(p, tile, target); });
  }

  Maker parse(const std::string& config, Direction) const override { return maker(parse_tile(config)); }

  static Maker maker(const Tile& tile) {
    return [tile](const Problem& p, const Target& target) {
      const std::string why = unfit(tile, p);
      if (why.empty()) return candidate_of(p, tile, target);
      throw Error(Status::bad_problem, "weights_gradient_sm90/" + weights_gradient_sm90::to_string(tile) +
                                           " cannot compute " + faltung::to_string(p) + ": " + why);
    };
  }

  static Candidate candidate_of(const Problem& p, const Tile& tile, const Target& target) {
    Candidate c;
    c.config = weights_gradient_sm90::to_string(tile);
    c.cost = cost(tile, p, sm90::Chip::of(target, p));
    c.workspace_bytes = workspace(tile, p).bytes;
    // Where less than tf32 is allowed its two rounded operands come on top.
    constexpr double kRounded = 0x1p14 + 4;  // 2 2^-11 + 2^-22 in units of 2^-24
    const bool rounds = p.dtype == DType::f32 && p.math == Math::fast;
    c.accuracy = {dot_product_growth(p) + (rounds ? kRounded : 0), 0, 0};
    c.accuracy.factors = sm90::factors(p);
    c.accuracy.zeros_meet = ZerosMeet::channel;  // tiles reach beyond the result's gradient
    c.recipe = [p, tile, &device = target.device] { return recipe(tile, p, device); };
    c.maker = maker(tile);
    return c;
  }
};

}  // namespace
}  // namespace weights_gradient_sm90

std::unique_ptr<Algorithm> make_weights_gradient_sm90() {
  return std::make_unique<weights_gradient_sm90::WeightsGradientSm90>();
}

}  // namespace faltung
