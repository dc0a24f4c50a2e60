// The faltung command. Exit codes: 0 well, 1 something measured or checked is wrong, 2 bad input.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "faltung/faltung.hpp"
#include "src/problem/text.hpp"
#include "tools/command.hpp"

namespace faltung::tools {
namespace {

int fail(const std::string& message) {
  std::string line = message;  // one line, whatever it was put together from
  std::replace(line.begin(), line.end(), '\n', ';');
  std::fprintf(stderr, "faltung: %s\n", line.c_str());
  return 2;
}

// What an unknown option or subcommand may have been meant to be.
std::string unknown(const CLI::App& app, const std::string& word) {
  std::vector<std::string> known;
  if (word.starts_with("-")) {
    const std::string flag = word.substr(0, word.find('='));
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
    return "no option '" + flag + "'; the nearest is " + nearest(flag, known) + ", see faltung " +
           (app.get_parent() != nullptr ? app.get_name() + " " : "") + "--help";
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    known.push_back(command->get_name());
  }
  if (known.empty())
    return "no argument '" + word + "' is expected, see faltung " + app.get_name() + " --help";
  return "no command '" + word + "'; the nearest is " + nearest(word, known) + ", there are " +
         join_or(known);
}

int main(int argc, char** argv) {
  CLI::App app("faltung: convolutions, right and close to the device's limit", "faltung");
  app.set_version_flag("--version", "faltung " + version());
  app.require_subcommand(1);
  app.footer("Run faltung COMMAND --help for a command's options. docs/command.md explains them.");
  const std::vector<Command> commands{add_bench(app), add_find(app),    add_explain(app), add_verify(app),
                                      add_run(app),   add_devices(app), add_store(app)};
  try {
    if (argc > 1 && argv[1][0] != '-' &&
        std::none_of(commands.begin(), commands.end(),
                     [&](const Command& command) { return command.app->get_name() == argv[1]; })) {
      return fail(unknown(app, argv[1]));
    }
    app.parse(argc, argv);
    for (const Command& command : commands) {
      if (command.app->parsed()) return command.run();
    }
    return 0;
  } catch (const CLI::ExtrasError&) {
    for (const Command& command : commands) {
      if (command.app->parsed() && command.app->remaining_size() > 0) {
        return fail(unknown(*command.app, command.app->remaining().front()));
      }
    }
    return fail(unknown(app, app.remaining().empty() ? "" : app.remaining().front()));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return fail(error.what());
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
