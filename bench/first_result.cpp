// How long a caller waits for the first result of a problem: from the engine, with a store of its own that is
// empty, to the end of the first run. The process has the device's context and its buffers beforehand. What
// the package knows of the device is used as a caller's would be; FALTUNG_KNOWN_DEVICES=none shows it
// without. What was compiled and tried on the way is what the store has afterwards: problems of which
// everything was known are one class, the others another. `--suite resnet50` asks for problems that are
// listed (workloads/README.md), with `--batch 24` for some that are not.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "faltung/faltung.hpp"
#include "src/problem/temporary_folder.hpp"
#include "src/problem/text.hpp"
#include "tools/arguments.hpp"

namespace faltung::tools {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

std::ptrdiff_t records(const TemporaryFolder& store, const char* kind) {
  std::error_code none;
  return std::distance(fs::directory_iterator(fs::path(store.path()) / kind, none), {});
}

struct Result {
  double ms;
  bool known;  // nothing was compiled or tried
};

// Prints the row.
Result first_result(const Row& row, const Request& request, Device& device) {
  const Problem& p = row.problem;
  std::vector<Buffer> buffers;
  const auto of = [&](Tensor tensor) {
    buffers.push_back(device.allocate(std::max<std::size_t>(bytes(p, tensor), 1)));
    return buffers.back().pointer;
  };
  const Tensors tensors{of(Tensor::x),        of(Tensor::w),     of(Tensor::y),    of(Tensor::bias),
                        of(Tensor::residual), of(Tensor::relu),  of(Tensor::sums), of(Tensor::scale),
                        of(Tensor::shift),    of(Tensor::slopes)};
  // A caller has a pool to take workspaces from; here one that is surely large enough.
  constexpr std::size_t kWorkspace = std::size_t{2} << 30;
  static const Buffer workspace = device.allocate(kWorkspace);
  device.synchronize({});

  const TemporaryFolder store;  // empty
  const auto begin = Clock::now();
  Engine engine(store.path());
  const double engine_ms = ms_since(begin);
  Request limited = request;
  limited.workspace_limit = std::min(limited.workspace_limit, kWorkspace);
  const Plan plan = engine.plan(p, limited);
  const double plan_ms = ms_since(begin) - engine_ms;
  RunOptions options;
  options.workspace = workspace.pointer;
  plan.run(tensors, options);
  device.synchronize({});
  const double all = ms_since(begin);
  const std::ptrdiff_t compiled = records(store, "kernel"), tried = records(store, "verified");
  fmt::print("{},{},{},{:.2f},{:.2f},{:.2f},{:.2f},{},{}\n", row.label(), to_string(p), plan.kernel(),
             engine_ms, plan_ms, all - plan_ms - engine_ms, all, compiled, tried);
  std::fflush(stdout);
  return {all, compiled + tried == 0};
}

void summarize(const char* what, std::vector<double> ms) {
  if (ms.empty()) return;
  std::sort(ms.begin(), ms.end());
  fmt::print("# {} problems {}: median {:.1f} ms, nine of ten below {:.1f} ms, the last {:.1f} ms\n",
             ms.size(), what, ms[ms.size() / 2], ms[ms.size() * 9 / 10], ms.back());
}

int first_results(const Arguments& arguments) {
  const std::shared_ptr<Device> device = arguments.device();
  std::vector<double> known, others;
  fmt::print("row,problem,kernel,engine_ms,plan_ms,run_ms,first_result_ms,compiled,tried\n");
  for (const Row& row : arguments.rows()) {
    try {
      const Result result = first_result(row, arguments.request(), *device);
      (result.known ? known : others).push_back(result.ms);
    } catch (const Error& error) {
      fmt::print(stderr, "{}: {}\n", row.label(), error.what());
    }
  }
  summarize("of which all was known", known);
  summarize("of which something was compiled or tried", others);
  if (known.empty() && others.empty()) return 1;
  return 0;
}

}  // namespace
}  // namespace faltung::tools

int main(int argc, char** argv) {
  using namespace faltung::tools;
  Arguments arguments;
  const auto declare = [&](const Command& command) {
    arguments.add_problems(command);
    arguments.add_choices(command);
    command.runs([&] { return first_results(arguments); });
  };
  return run_program("faltung-first-result",
                     "Milliseconds from an engine with an empty store to a first result", declare, argc,
                     argv);
}
