// The faltung command. Exit codes: 0 well, 1 something measured or checked is wrong, 2 bad input.
#include <cstdio>
#include <string>
#include <vector>

#include "faltung/faltung.hpp"
#include "src/problem/text.hpp"
#include "tools/command.hpp"
#include "tools/report.hpp"

namespace faltung::tools {
namespace {

int fail(const std::string& message) {
  std::fprintf(stderr, "faltung: %s\n", one_line(message).c_str());
  return 2;
}

std::vector<std::string> subcommands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

// "faltung" or "faltung store"
std::string full_name(const CLI::App& app) {
  return app.get_parent() != nullptr ? full_name(*app.get_parent()) + " " + app.get_name() : app.get_name();
}

// What an unknown option or subcommand may have been meant to be.
std::string unknown(const CLI::App& app, const std::string& word) {
  if (word.starts_with("-")) {
    const std::string flag = word.substr(0, word.find('='));
    std::vector<std::string> known;
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
    return "no option '" + flag + "'; the nearest is " + nearest(flag, known) + ", see " + full_name(app) +
           " --help";
  }
  const std::vector<std::string> known = subcommands(app);
  if (known.empty()) return "no argument '" + word + "' is expected here, see " + full_name(app) + " --help";
  return "no command '" + word + "'; the nearest is " + nearest(word, known) + ", there are " +
         join_or(known);
}

// One line for what CLI11 rejected: it may have happened in the command or in a subcommand of it.
std::string rejected(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* deepest = &app;
  while (true) {
    const std::vector<std::string> rest = deepest->remaining();
    if (!rest.empty()) return unknown(*deepest, rest.front());
    const std::vector<CLI::App*> parsed = deepest->get_subcommands();
    if (parsed.empty()) break;
    deepest = parsed.front();
  }
  const std::vector<std::string> known = subcommands(*deepest);
  if (!known.empty()) return "a command is missing; give " + full_name(*deepest) + " " + join_or(known);
  return error.what();
}

int main(int argc, char** argv) {
  CLI::App app("faltung: convolutions, right and close to the device's limit", "faltung");
  app.set_version_flag("--version", "faltung " + version());
  app.require_subcommand(1);
  app.footer("Run faltung COMMAND --help for a command's options. docs/command.md explains them.");
  const std::vector<Command> commands{add_bench(app),  add_find(app),     add_explain(app), add_verify(app),
                                      add_run(app),    add_devices(app),  add_store(app),   add_doctor(app),
                                      add_worker(app), add_compilers(app)};
  try {
    app.parse(argc, argv);
    for (const Command& command : commands) {
      if (command.app->parsed()) return command.run();
    }
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return fail(rejected(app, error));
  } catch (const Error& error) {
    return fail(error.what());
  } catch (const std::bad_alloc&) {
    return fail("out of memory; use a smaller problem or batch");
  } catch (const std::exception& error) {
    return fail(std::string("internal error: ") + error.what());
  }
}

}  // namespace
}  // namespace faltung::tools

int main(int argc, char** argv) { return faltung::tools::main(argc, argv); }
