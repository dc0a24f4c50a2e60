// How long a caller waits for the first result of a problem: from the engine, with a store of its own that is
// empty, to the end of the first run. The process has the device's context and its buffers beforehand. What
// the package knows of the device is used as a caller's would be; FALTUNG_KNOWN_DEVICES=none shows it
// without.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "faltung/faltung.hpp"
#include "src/problem/text.hpp"
#include "tools/arguments.hpp"

namespace faltung::tools {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

class EmptyStore {
 public:
  EmptyStore() : path_((fs::temp_directory_path() / "faltung-first-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) throw Error(Status::bad_file, "cannot make a folder as " + path_);
  }
  ~EmptyStore() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  EmptyStore(const EmptyStore&) = delete;
  EmptyStore& operator=(const EmptyStore&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Milliseconds to the end of the run; prints the row.
double first_result(const Row& row, const Request& request, Device& device) {
  const Problem& p = row.problem;
  std::vector<Buffer> buffers;
  const auto of = [&](Tensor tensor) {
    buffers.push_back(device.allocate(std::max<std::size_t>(bytes(p, tensor), 1)));
    return buffers.back().pointer;
  };
  const Tensors tensors{of(Tensor::x),        of(Tensor::w),    of(Tensor::y),   of(Tensor::bias),
                        of(Tensor::residual), of(Tensor::relu), of(Tensor::sums)};
  // A caller has a pool to take workspaces from; here one that is surely large enough.
  constexpr std::size_t kWorkspace = std::size_t{2} << 30;
  static const Buffer workspace = device.allocate(kWorkspace);
  device.synchronize({});

  const EmptyStore store;
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
  fmt::print("{},{},{},{:.2f},{:.2f},{:.2f},{:.2f}\n", row.label(), to_string(p), plan.kernel(), engine_ms,
             plan_ms, all - plan_ms - engine_ms, all);
  std::fflush(stdout);
  return all;
}

int first_results(const Arguments& arguments) {
  const std::shared_ptr<Device> device = arguments.device();
  std::vector<double> all;
  fmt::print("row,problem,kernel,engine_ms,plan_ms,run_ms,first_result_ms\n");
  for (const Row& row : arguments.rows()) {
    try {
      all.push_back(first_result(row, arguments.request(), *device));
    } catch (const Error& error) {
      fmt::print(stderr, "{}: {}\n", row.label(), error.what());
    }
  }
  if (all.empty()) return 1;
  std::sort(all.begin(), all.end());
  fmt::print("# {} problems: median {:.1f} ms, nine of ten below {:.1f} ms, the last {:.1f} ms\n", all.size(),
             all[all.size() / 2], all[all.size() * 9 / 10], all.back());
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
