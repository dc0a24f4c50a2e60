// faltung worker: tries kernels for another process, so that what they break is broken here.
#include "src/finder/trust/worker.hpp"

#include <memory>

#include "tools/command.hpp"
#include "tools/units.hpp"

namespace faltung::tools {
namespace {

void declare_worker(const Command& command) {
  const auto idle = std::make_shared<std::string>("30s");
  command.option("--idle", *idle, "It ends once it was asked nothing for so long")
      .type("TIME")
      .shows_default();
  command.runs([idle] { return serve_worker(static_cast<int>(parse_duration_ms("--idle", *idle))); });
}

const Subcommand kWorker(
    "worker", "Try kernels for another process: requests and answers are JSON lines on the standard streams",
    declare_worker);

}  // namespace
}  // namespace faltung::tools
