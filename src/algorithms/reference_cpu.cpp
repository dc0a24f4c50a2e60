// The reference as an algorithm: slow, and right by inspection. Never chosen while another supports the
// problem.
#include "src/algorithms/registry.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/reference.hpp"

namespace faltung {
namespace {

class ReferenceCpu : public Algorithm {
 public:
  std::string_view name() const override { return "reference_cpu"; }
  std::string_view description() const override { return "one plain loop nest with double accumulation"; }
  std::string_view device_kind() const override { return "cpu"; }

  Support supports(const Problem&, const Target&) const override { return Support::supported(); }

  std::vector<Config> configs(const Problem& problem, const Target& target) const override {
    constexpr double kMsPerFlop = 1e-6;  // about 1 GFLOP/s a thread
    return {{"plain", flops(problem) * kMsPerFlop / target.threads, "arithmetic", 0}};
  }

  Recipe plan(const Problem& problem, const std::string& config, const Target&) const override {
    if (config != "plain")
      throw Error(Status::bad_problem, "reference_cpu has one config, plain; not '" + config + "'");
    Recipe recipe;
    recipe.steps.push_back(
        {"reference", [problem](const Invocation& invocation) {
           const TensorShape shape = result_shape(problem);
           void* result = result_pointer(problem, invocation.tensors);
           invocation.stream.parallel->each(shape.n * shape.c, [&](std::int64_t index, int) {
             const std::int64_t n = index / shape.c, c = index % shape.c;
             for (std::int64_t h = 0; h < shape.h; ++h) {
               for (std::int64_t w = 0; w < shape.w; ++w) {
                 const Expected e = reference(problem, invocation.tensors, n, c, h, w);
                 store_element(problem.dtype, result, shape.offset(n, c, h, w), static_cast<float>(e.value));
               }
             }
           });
         }});
    return recipe;
  }

  bool last_resort() const override { return true; }
  bool fuses_pool(const Problem&, const std::string&) const override { return true; }
};

}  // namespace

std::unique_ptr<Algorithm> make_reference_cpu() { return std::make_unique<ReferenceCpu>(); }

}  // namespace faltung
