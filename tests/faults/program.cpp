// A program with broken kernels in its registry.
//
//   trust_program worker                    faltung's worker
//   trust_program plan DEVICE PROBLEM       what a user's program does: a plan, run once, its result checked
//   trust_program devices                   the GPUs that it sees
//   trust_program find DEVICE PROBLEM       the same after find
//
// plan and find print one JSON object: the kernel, whether its result is right, milliseconds until there was
// a plan, what it compiled for, and the warnings.
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "src/finder/finder.hpp"
#include "src/finder/oracle.hpp"
#include "tests/faults/faults.hpp"

namespace faltung {
namespace {

Finding run_once(const PlanImpl& plan) {
  const Oracle oracle(plan.problem(), Data::small_integers, 3);
  Arena arena(plan.device(), oracle, 0, 2);
  RunOptions options;
  const Buffer workspace = plan.device().allocate(plan.workspace_bytes(false) + 1);
  options.workspace = workspace.pointer;
  plan.run(arena.first(), options);
  plan.device().synchronize({});
  std::vector<std::byte> result(static_cast<std::size_t>(oracle.result_bytes()));
  plan.device().copy_out(result.data(), {nullptr, arena.first().y, result.size()}, result.size());
  const KernelName kernel = parse_kernel(plan.kernel());
  return oracle.check(result.data(), kernel.algorithm->accuracy(plan.problem(), kernel.config), Parallel(1));
}

int main(const std::vector<std::string>& words) {
  register_faults();
  if (words.size() == 1 && words[0] == "worker") return serve_worker();
  if (words.size() == 1 && words[0] == "devices") {
    nlohmann::json gpus = nlohmann::json::array();
    for (const auto& device : list_devices()) {
      if (device->info().kind == "gpu") gpus.push_back(device->info().id);
    }
    std::printf("%s\n", nlohmann::json{{"gpus", gpus}}.dump().c_str());
    return 0;
  }
  if (words.size() != 3 || (words[0] != "plan" && words[0] != "find")) return 2;
  nlohmann::json out;
  std::vector<std::string> warnings;
  Engine engine;
  engine.on_warning([&](const std::string& line) { warnings.push_back(line); });
  Request request;
  request.device = words[1];
  request.threads = 1;
  const Problem problem = parse_problem(words[2]);
  const auto begin = std::chrono::steady_clock::now();
  try {
    if (words[0] == "find") engine.find(problem, request);
    const Plan plan = engine.plan(problem, request);
    out["ms"] = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    out["kernel"] = plan.kernel();
    out["compile_ms"] = plan.impl().recipe().compile_ms;
    const Finding finding = run_once(plan.impl());
    out["right"] = finding.right();
    out["worst"] = finding.worst;
  } catch (const Error& error) {
    out["error"] = error.what();
  }
  out["warnings"] = warnings;
  std::printf("%s\n", out.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace faltung

int main(int argc, char** argv) { return faltung::main(std::vector<std::string>(argv + 1, argv + argc)); }
