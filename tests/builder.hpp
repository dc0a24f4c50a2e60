// Making the plans of candidates, whose kernels are compiled through a store of the test's own.
#ifndef FALTUNG_TESTS_BUILDER_HPP_
#define FALTUNG_TESTS_BUILDER_HPP_

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "src/algorithms/algorithm.hpp"
#include "src/finder/trust/verify.hpp"
#include "tests/scratch.hpp"

namespace faltung {

class Builder {
 public:
  // parallel: the CPU's workers; null on a GPU.
  explicit Builder(std::shared_ptr<Device> device, std::shared_ptr<const Parallel> parallel = nullptr)
      : device_(std::move(device)), parallel_(std::move(parallel)) {}

  Target target() const { return {device_->info(), parallel_ ? parallel_->workers() : 1}; }
  jit::Session session() { return {*device_, store_}; }
  Store& store() { return store_; }
  const std::shared_ptr<Device>& device() const { return device_; }

  std::shared_ptr<const PlanImpl> plan(const Problem& problem, const Candidate& candidate) {
    return make_plan(problem, candidate, device_, session(), parallel_);
  }
  // Compiles what the recipe launches, in the order of its steps.
  std::vector<jit::Program> programs(const Recipe& recipe) {
    std::vector<jit::Program> built;
    for (const std::vector<Step>* steps : {&recipe.pack, &recipe.steps}) {
      for (const Step& step : *steps) {
        if (const auto* work = std::get_if<Launch>(&step.work))
          built.push_back(session().build(work->source));
      }
    }
    return built;
  }

 private:
  std::shared_ptr<Device> device_;
  std::shared_ptr<const Parallel> parallel_;
  // FALTUNG_TEST_STORE: a folder that keeps what was compiled, for runs that one compiler serves.
  static std::string folder(const Scratch& scratch) {
    const char* const given = std::getenv("FALTUNG_TEST_STORE");
    return given == nullptr ? scratch.path() : given;
  }
  const Scratch scratch_;
  Store store_{folder(scratch_)};
};

}  // namespace faltung

#endif  // FALTUNG_TESTS_BUILDER_HPP_
