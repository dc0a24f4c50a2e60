// The subcommands. The file named after one declares its options on the app and says what to do.
#ifndef FALTUNG_TOOLS_COMMAND_HPP_
#define FALTUNG_TOOLS_COMMAND_HPP_

#include <CLI/CLI.hpp>
#include <functional>

namespace faltung::tools {

struct Command {
  CLI::App* app;
  std::function<int()> run;  // its value is the exit code: 0, or 1 if something is wrong
};

Command add_bench(CLI::App& app);
Command add_compilers(CLI::App& app);
Command add_devices(CLI::App& app);
Command add_doctor(CLI::App& app);
Command add_explain(CLI::App& app);
Command add_find(CLI::App& app);
Command add_run(CLI::App& app);
Command add_store(CLI::App& app);
Command add_verify(CLI::App& app);
Command add_worker(CLI::App& app);

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_COMMAND_HPP_
