// faltung worker: tries kernels for another process, so that what they break is broken here.
#include "src/finder/trust/worker.hpp"

#include "tools/command.hpp"

namespace faltung::tools {
namespace {

void declare_worker(const Command& command) { command.runs(serve_worker); }

const Subcommand kWorker(
    "worker", "Try kernels for another process: requests and answers are JSON lines on the standard streams",
    declare_worker);

}  // namespace
}  // namespace faltung::tools
