// The reference as an algorithm: slow, and right by inspection. Never chosen while another supports the
// problem.
#include "src/algorithms/registry.hpp"
#include "src/algorithms/sole_kernel.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/reference.hpp"

namespace faltung {
namespace {

class ReferenceCpu : public SoleKernel {
 public:
  ReferenceCpu()
      : SoleKernel({"reference_cpu", "one plain loop nest with double accumulation", "cpu"}, "plain") {}

  Support accepts(const Problem&, const Target&) const override { return Support::supported(); }

  bool last_resort() const override { return true; }
  bool is_native(const Problem&) const override { return true; }

 private:
  bool takes_pitch(const Problem&, const Target&) const override { return true; }
  bool takes_f32_bias() const override { return true; }
  bool fuses(const Problem&, const Target&) const override { return true; }

  Candidate kernel(const Problem& problem, const Target& target) const override {
    constexpr double kMsPerFlop = 1e-6;  // about 1 GFLOP/s a thread
    Candidate c;
    c.cost = {flops(problem) * kMsPerFlop / target.threads, Bound::arithmetic};
    c.accuracy = dot_product_accuracy(problem);
    c.recipe = [problem] { return recipe(problem); };
    return c;
  }

  static Recipe recipe(const Problem& problem) {
    Recipe recipe;
    std::vector<Place> read;
    for (const Place place : {Place::x, Place::w, Place::y, Place::bias, Place::residual, Place::slopes}) {
      if (place != result_place(problem)) read.push_back(place);
    }
    recipe.steps.push_back(
        call("reference", std::move(read), {result_place(problem)},
             [problem](const Memory& m, const Parallel& parallel) {
               const TensorShape shape = result_shape(problem);
               Tensors tensors{m[Place::x], m[Place::w], m[Place::y], m[Place::bias], m[Place::residual]};
               tensors.slopes = m[Place::slopes];
               void* const result = m[result_place(problem)];
               parallel.each(shape.n * shape.c, [&](std::int64_t index, int) {
                 const std::int64_t plane = shape.d * shape.h * shape.w;
                 for (std::int64_t i = 0; i < plane; ++i) {
                   const Position at = shape.position(index * plane + i);
                   store_element(problem.dtype, result, shape.offset(at),
                                 static_cast<float>(reference(problem, tensors, at).value));
                 }
               });
             }));
    return recipe;
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_reference_cpu() { return std::make_unique<ReferenceCpu>(); }

}  // namespace faltung
