// faltung worker: tries kernels for another process, so that what they break is broken here.
#include "src/finder/worker.hpp"

#include "tools/command.hpp"

namespace faltung::tools {

Command add_worker(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "worker",
      "Try kernels for another process: requests and answers are JSON lines on the standard streams");
  return {command, [] { return serve_worker(); }};
}

}  // namespace faltung::tools
