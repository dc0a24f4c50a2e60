// A program with broken kernels in its registry.
//
//   trust_program worker                      faltung's worker
//   trust_program devices                     the GPUs that it sees
//   trust_program plan DEVICE PROBLEM...      what a user's program does: plans, each run once, its result
//   checked trust_program at_once DEVICE PROBLEM...   the same, after all of them were planned by threads at
//   once trust_program find DEVICE PROBLEM...      the same after find trust_program explain DEVICE PROBLEM
//   one JSON object: the kernel, and a report for each
//
// plan, at_once and find print one JSON object: the kernels, whether all results are right, of the last
// problem the kernel and milliseconds until there was a plan, what was compiled for all, and the warnings.
// FALTUNG_TEST_ENGINE is the engine's store; without it, it is the default one.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <thread>

#include "src/finder/engine.hpp"
#include "src/finder/oracle.hpp"
#include "tests/faults/faults.hpp"

namespace faltung {
namespace {

Finding run_once(const PlanImpl& plan, const Target& target) {
  const Oracle oracle(plan.problem(), Data::small_integers, 3);
  Arena arena(plan.device(), oracle, 0, 2);
  RunOptions options;
  const Buffer workspace = plan.device().allocate(plan.workspace_bytes(false) + 1);
  options.workspace = workspace.pointer;
  plan.run(arena.first(), options);
  plan.device().synchronize({});
  std::vector<std::byte> result(static_cast<std::size_t>(oracle.result_bytes()));
  plan.device().copy_out(result.data(), {nullptr, arena.first().y, result.size()}, result.size());
  return oracle.check(result.data(), find_candidate(plan.kernel(), plan.problem(), target).accuracy,
                      Parallel(1));
}

void plan_at_once(Engine& engine, std::span<const std::string> problems, const Request& request) {
  std::vector<std::thread> threads;
  for (const std::string& problem : problems)
    threads.emplace_back([&] { engine.plan(parse_problem(problem), request); });
  for (std::thread& thread : threads) thread.join();
}

nlohmann::json explained(const Choice& choice) {
  nlohmann::json reports = nlohmann::json::array();
  for (const Report& r : choice.reports)
    reports.push_back({{"kernel", r.kernel}, {"outcome", name(r.outcome)}, {"why", r.why}});
  return {{"kernel", choice.kernel}, {"reports", reports}};
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
  if (words.size() < 3 || !std::set<std::string>{"plan", "at_once", "find", "explain"}.contains(words[0]))
    return 2;
  nlohmann::json out;
  std::vector<std::string> warnings;
  const char* const store = std::getenv("FALTUNG_TEST_ENGINE");
  Engine engine(store == nullptr ? "" : store);
  std::mutex mutex;
  engine.on_warning([&](const std::string& line) {
    const std::lock_guard lock(mutex);
    warnings.push_back(line);
  });
  Request request;
  request.device = words[1];
  request.threads = 1;
  double compile_ms = 0;
  bool right = true;
  try {
    const Target target{find_device(words[1])->info(), 1};
    if (words[0] == "at_once") plan_at_once(engine, std::span(words).subspan(2), request);
    if (words[0] == "explain") out = explained(engine.explain(parse_problem(words[2]), request));
    for (std::size_t i = 2; i < words.size() && words[0] != "explain"; ++i) {
      const Problem problem = parse_problem(words[i]);
      const auto begin = std::chrono::steady_clock::now();
      if (words[0] == "find") engine.find(problem, request);
      const Plan plan = engine.plan(problem, request);
      out["ms"] = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
      out["kernel"] = plan.kernel();
      out["kernels"][words[i]] = plan.kernel();
      compile_ms += Internals::impl(plan).compile_ms();
      const Finding finding = run_once(Internals::impl(plan), target);
      right = right && finding.right();
      if (!finding.right()) out["worst"] = finding.worst;
    }
    out["right"] = right;
    out["compile_ms"] = compile_ms;
  } catch (const Error& error) {
    out["error"] = error.what();
    out["status"] = static_cast<int>(error.status());
  }
  out["warnings"] = warnings;
  std::printf("%s\n", out.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace faltung

int main(int argc, char** argv) { return faltung::main(std::vector<std::string>(argv + 1, argv + argc)); }
