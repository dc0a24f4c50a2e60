// The convolution as a matrix product through local memory, its operands gathered on the way.
#include <cmath>
#include <numeric>
#include <utility>

#include "src/algorithms/gathered_product.hpp"
#include "src/algorithms/implicit_gemm_gpu_tile.hpp"
#include "src/algorithms/registry.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace implicit_gemm_gpu {
namespace {

using i64 = std::int64_t;
using implicit_gemm::Choice, implicit_gemm::Kind, implicit_gemm::Shape, implicit_gemm::Tile;
using implicit_gemm::shape_of, implicit_gemm::splits_of, implicit_gemm::vectors_are_pixels;

// For implicit_gemm.cl: which taps of one dimension the pixels of a phase of backward_data have.
gpu::Constants tap_constants(const std::string& dimension, i64 stride, i64 dilation) {
  const i64 gcd = std::gcd(stride, dilation), step = stride / gcd;
  // Euclid's algorithm, extended: of dilation / gcd modulo step.
  i64 inverse = 0, next = 1 % step;
  for (i64 a = step, b = dilation / gcd % step; b != 0;) {
    const i64 quotient = a / b;
    inverse = std::exchange(next, inverse - quotient * next);
    a = std::exchange(b, a - quotient * b);
  }
  inverse = (inverse % step + step) % step;
  return {{"TAP_GCD_" + dimension, std::to_string(gcd)},
          {"TAP_STEP_" + dimension, std::to_string(step)},
          {"TAP_INVERSE_" + dimension, std::to_string(inverse)}};
}

// FLAT where a tap's channels would leave most of a tile of the sum empty.
gpu::Constants constants(const Problem& p, const Choice& choice, const DeviceInfo& device) {
  const auto n = [](i64 v) { return std::to_string(v); };
  const Tile& t = *choice.tile;
  const bool pixels = vectors_are_pixels(p) && p.direction != Direction::backward_weights;
  const i64 in = (p.direction == Direction::forward ? p.c : p.k) / p.groups;
  const bool flat = in % t.steps != 0 && in < 2 * t.steps;
  const bool exact = !flat && in % t.steps == 0, split = choice.splits > 1;
  // 64 results a thread fit in 128 registers where no tile of the sum needs guards.
  const bool dense = exact && t.ts * t.tv == 64 && t.threads() >= 128;
  gpu::Constants own = {gpu::direction_constant(p),
                        {"BP", n(pixels ? t.vectors : t.scalars)},
                        {"BC", n(pixels ? t.scalars : t.vectors)},
                        {"VECTOR_PIXELS", pixels ? "1" : "0"},
                        {"FLAT", flat ? "1" : "0"},
                        {"EXACT", exact ? "1" : "0"},
                        {"SPLIT", split ? "1" : "0"},
                        {"MIN_BLOCKS", n(dense ? 512 / t.threads() : 1)},
                        {"COMPACT", device.has("runs_on_cpu") ? "1" : "0"},
                        {"BK", n(t.steps)},
                        {"TS", n(t.ts)},
                        {"VN", n(t.tv / t.vw)},
                        {"VW", n(t.vw)},
                        {"THREADS", n(t.threads())},
                        {"STEPS", n(t.steps)}};
  if (p.direction == Direction::backward_data) {
    for (const auto& constants :
         {tap_constants("H", p.stride_h, p.dilation_h), tap_constants("W", p.stride_w, p.dilation_w)}) {
      own.insert(own.end(), constants.begin(), constants.end());
    }
  }
  // The epilogue of a split sum is the last step's.
  return gpu::constants(split ? gpu::without_epilogue(p) : p, own);
}

class ImplicitGemmGpu : public Algorithm {
 public:
  ImplicitGemmGpu()
      : Algorithm({"implicit_gemm_gpu",
                   "a matrix product through local memory; the taps are gathered on the way", "gpu"}) {}

  Support accepts(const Problem& problem, const Target& target) const override {
    const Support product = gpu::fits_a_product(problem);
    if (!product.yes) return product;
    if (implicit_gemm::tiles(problem, target.device).empty()) return gpu::no_tile_fits(target.device);
    const std::string limit = implicit_gemm::launch_limit(problem);
    return limit.empty() ? Support::supported() : Support::declined(limit);
  }

 private:
  bool takes_pitch(const Problem&, const Target&) const override { return true; }
  std::vector<Candidate> list(const Problem& p, const Target& target) const override {
    std::vector<Candidate> all;
    for (const Choice& choice : implicit_gemm::choices(p, target.device))
      all.push_back(candidate_of(p, choice, target.device));
    return all;
  }

  Maker parse(const std::string& config, Direction) const override {
    return gpu::maker(candidate_of, implicit_gemm::parse(config));
  }

  static Candidate candidate_of(const Problem& p, const Choice& choice, const DeviceInfo& device) {
    const bool weights = p.direction == Direction::backward_weights;
    if (weights && choice.splits > 1) {
      throw Error(
          Status::bad_problem,
          "backward_weights has configs without _sk, and splits by itself; not '" + choice.name() + "'");
    }
    if (p.y_pitch != 0 && choice.splits > 1)
      throw Error(Status::bad_problem, choice.name() + " adds up parts of whole tensors, and y is a slice");
    Candidate c;
    c.config = choice.name();
    c.cost = {implicit_gemm::predicted_ms(p, choice, device), Bound::arithmetic};
    c.workspace_bytes =
        weights ? gpu::parts_bytes(p, splits_of(p, choice, device)) : gpu::shared_sum_bytes(p, choice.splits);
    c.packed_bytes = weights ? 0 : gpu::packed_bytes(p, out_pad(p, *choice.tile), device);
    c.accuracy = gathering_accuracy(p);
    c.registers = device.unit.is_amd ? choice.tile->amd.on(device.unit) : -1;
    c.recipe = [p, choice, weights, &device] {
      return weights ? weights_recipe(p, choice, device) : pixels_recipe(p, choice, device);
    };
    c.maker = gpu::maker(candidate_of, choice);
    return c;
  }

  static i64 out_pad(const Problem& p, const Tile& tile) {
    return round_up(gpu::gathered_product(p).out, vectors_are_pixels(p) ? tile.scalars : tile.vectors);
  }

  static jit::Source source(const Problem& p, const Choice& choice, const std::string& entry,
                            const DeviceInfo& device) {
    return gpu::source(device, "implicit_gemm_gpu/" + choice.name(), entry + ".cl", entry,
                       constants(p, choice, device));
  }

  static Recipe pixels_recipe(const Problem& p, const Choice& choice, const DeviceInfo& device) {
    const Tile& tile = *choice.tile;
    const Shape s = shape_of(p);
    const i64 rows = ceil_div(s.scalars, tile.scalars), vectors = ceil_div(s.vectors, tile.vectors);
    const bool v = vectors_are_pixels(p);
    const gpu::GatheredLaunch launched = {
        out_pad(p, tile), choice.splits,
        gpu::grid(v ? vectors : rows, v ? rows : vectors, s.products * choice.splits, tile.threads())};
    const char* const entry = tile.kind == Kind::wide ? "implicit_gemm_wide" : "implicit_gemm";
    const std::string kernel = "implicit_gemm_gpu/" + choice.name();
    return gpu::gathered_recipe(p, kernel, source(p, choice, entry, device), launched,
                                gpu::packed_weights(p, kernel, launched.out_pad, device), device);
  }

  static Recipe weights_recipe(const Problem& p, const Choice& choice, const DeviceInfo& device) {
    const Tile& tile = *choice.tile;
    const Shape s = shape_of(p);
    const i64 splits = splits_of(p, choice, device);
    Recipe recipe;
    recipe.workspace_bytes = gpu::parts_bytes(p, splits);
    recipe.steps.push_back(launch(
        "product", source(p, choice, "implicit_gemm_weights", device),
        gpu::grid(ceil_div(s.vectors, tile.vectors), ceil_div(s.scalars, tile.scalars), s.products * splits,
                  tile.threads()),
        {in(Place::x), in(Place::y), out(Place::workspace), gpu::number(splits), value(gpu::sizes(p))}));
    recipe.steps.push_back(
        gpu::sum_parts_step(p, "implicit_gemm_gpu/" + choice.name(), Place::workspace, splits, device));
    return recipe;
  }
};

}  // namespace
}  // namespace implicit_gemm_gpu

std::unique_ptr<Algorithm> make_implicit_gemm_gpu() {
  return std::make_unique<implicit_gemm_gpu::ImplicitGemmGpu>();
}

}  // namespace faltung
