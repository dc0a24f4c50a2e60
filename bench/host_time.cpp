// What the host spends on running a plan, beside the launches themselves: the same launches again with their
// arguments laid out, or the CPU's steps as plain calls.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "src/finder/engine.hpp"
#include "src/finder/trust/verify.hpp"
#include "src/problem/problem.hpp"
#include "tools/command.hpp"

namespace faltung {
namespace {

using Clock = std::chrono::steady_clock;

// Microseconds a call: the least of several bursts, each no longer than a queue takes without waiting.
double microseconds(Device& device, int burst, const std::function<void()>& call) {
  constexpr int kBursts = 50;
  double least = 1e9;
  for (int b = 0; b < kBursts; ++b) {
    device.synchronize({});
    const auto begin = Clock::now();
    for (int i = 0; i < burst; ++i) call();
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    least = std::min(least, us / burst);
  }
  device.synchronize({});
  return least;
}

std::byte* align(void* pointer) {
  return reinterpret_cast<std::byte*>(aligned(reinterpret_cast<std::uintptr_t>(pointer)));
}

void measure(Engine& engine, const Problem& problem, const Request& request) {
  const Settled settled(problem, request);
  Device& device = *settled.device;
  const auto plan = Internals::impl(engine).plan(problem, request);
  std::vector<Buffer> buffers;
  const auto memory_of = [&](std::size_t bytes) {
    buffers.push_back(device.allocate(bytes + kAlignment));
    return buffers.back().pointer;
  };
  Memory memory;
  for (const auto& [place, tensor] : {std::pair{Place::x, Tensor::x},
                                      {Place::w, Tensor::w},
                                      {Place::y, Tensor::y},
                                      {Place::bias, Tensor::bias},
                                      {Place::residual, Tensor::residual},
                                      {Place::relu, Tensor::relu},
                                      {Place::sums, Tensor::sums},
                                      {Place::scale, Tensor::scale},
                                      {Place::shift, Tensor::shift},
                                      {Place::slopes, Tensor::slopes}}) {
    memory[place] = static_cast<std::byte*>(memory_of(bytes(problem, tensor)));
  }
  const bool packs = plan->recipe().packed_bytes > 0;
  const auto weights = packs ? plan->pack_weights(memory[Place::w], {}) : nullptr;
  if (packs) memory[Place::packed] = align(weights->buffer().pointer);
  memory[Place::workspace] = align(memory_of(plan->workspace_bytes(packs)));
  const Tensors tensors{memory[Place::x],     memory[Place::w],        memory[Place::y],
                        memory[Place::bias],  memory[Place::residual], memory[Place::relu],
                        memory[Place::sums],  memory[Place::scale],    memory[Place::shift],
                        memory[Place::slopes]};
  RunOptions options;
  options.weights = weights.get();
  options.workspace = memory[Place::workspace];

  constexpr int kBurst = 100;
  const double run = microseconds(device, kBurst, [&] { plan->run(tensors, options); });
  // The launches, or calls, alone.
  Store store;
  const jit::Session session(device, store);
  const auto workers = settled.on_cpu() ? Internals::impl(engine).workers(settled.threads) : nullptr;
  std::vector<std::unique_ptr<BoundLaunch>> launches;
  std::vector<BoundLaunch::Arguments> arguments(plan->recipe().steps.size());
  for (const Step& step : plan->recipe().steps) {
    const auto* work = std::get_if<Launch>(&step.work);
    if (work == nullptr) continue;
    launches.push_back(std::make_unique<BoundLaunch>(*work, session));
    launches.back()->fill(device, memory, arguments[launches.size() - 1]);
  }
  const double alone = microseconds(device, kBurst, [&] {
    if (settled.on_cpu()) {
      for (const Step& step : plan->recipe().steps) std::get<Call>(step.work).run(memory, *workers);
    }
    for (std::size_t i = 0; i < launches.size(); ++i) launches[i]->launch(device, arguments[i], {});
  });
  fmt::print("{:<60} {:<50} {:>5} {:>9.2f} {:>9.2f} {:>9.2f}\n", to_string(problem), plan->kernel(),
             plan->recipe().steps.size(), run, alone, run - alone);
}

void host_time(const std::vector<std::string>& problems, const Request& request) {
  Engine engine;
  fmt::print("{:<60} {:<50} {:>5} {:>9} {:>9} {:>9}\n", "problem", "kernel", "steps", "run us", "alone us",
             "beside us");
  for (const std::string& problem : problems) measure(engine, parse_problem(problem), request);
}

}  // namespace
}  // namespace faltung

int main(int argc, char** argv) {
  std::vector<std::string> problems;
  faltung::Request request;
  const auto declare = [&](const faltung::tools::Command& command) {
    command.option("problem", problems, "Problems").required();
    command.option("--device", request.device, "The device");
    command.option("--threads", request.threads, "CPU threads");
    command.runs([&] { return faltung::host_time(problems, request), 0; });
  };
  return faltung::tools::run_program("faltung-host-time",
                                     "Microseconds that the host spends on a run, beside its launches",
                                     declare, argc, argv);
}
