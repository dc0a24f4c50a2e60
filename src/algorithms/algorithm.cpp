#include "src/algorithms/algorithm.hpp"

#include "src/algorithms/gpu.hpp"
#include "src/algorithms/pool_cpu.hpp"
#include "src/problem/text.hpp"

namespace faltung {

Accuracy Algorithm::accuracy(const Problem& problem, const std::string&) const {
  return {dot_product_growth(problem), 0, 0};
}

int Algorithm::integer_weight_unit(const Problem&, const std::string&) const { return 1; }

int Algorithm::registers(const std::string&, const DeviceInfo&) const { return -1; }

bool Algorithm::deterministic(const std::string&) const { return true; }

bool Algorithm::fuses_pool(const Problem&, const std::string&) const { return false; }

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

std::string kernel_name(const Algorithm& algorithm, const std::string& config) {
  return std::string(algorithm.name()) + "/" + config;
}

namespace {

Recipe make_steps(const Algorithm& algorithm, const Problem& problem, const std::string& config,
                  const Target& target) {
  if (problem.epilogue.pool.kind == PoolKind::none || algorithm.fuses_pool(problem, config)) {
    return algorithm.plan(problem, config, target);
  }
  Problem unpooled = problem;
  unpooled.epilogue.pool = Pool{};
  Recipe recipe = algorithm.plan(unpooled, config, target);
  if (target.device.info().kind == "cpu") return with_pool_step_cpu(problem, std::move(recipe));
  return gpu::with_pool_step(problem, std::move(recipe), target.device);
}

}  // namespace

Recipe make_recipe(const Algorithm& algorithm, const Problem& problem, const std::string& config,
                   const Target& target) {
  jit::Collector collector;
  Recipe recipe = make_steps(algorithm, problem, config, target);
  recipe.kernels = collector.kernels;
  return recipe;
}

}  // namespace faltung
