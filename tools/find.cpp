// faltung find: measures the candidates within a budget and stores what it learns.
#include <fmt/format.h>

#include "src/finder/selection.hpp"
#include "tools/choice.hpp"
#include "tools/command.hpp"
#include "tools/live.hpp"
#include "tools/units.hpp"

namespace faltung::tools {
namespace {

struct FindOptions {
  Arguments arguments;
  Machine machine;
  std::string budget = "2s";
};

struct Interrupted {};

int run(FindOptions& options) {
  const std::vector<Row> rows = options.arguments.rows();
  Request request = options.arguments.request();
  request.budget_ms = parse_duration_ms("--budget", options.budget);
  Filter{request};
  options.machine.open(choice_columns());
  const bool talks = options.machine.for_people();
  catch_interrupts();
  Engine engine;
  print_warnings(engine);
  LiveLine line;
  std::size_t number = 0;
  for (const Row& row : rows) {
    ++number;
    int tried = 0, candidates = 0;
    Choice choice;
    try {
      choice = engine.find(row.problem, request, [&](int done, int total, const std::string& kernel) {
        if (interrupted()) throw Interrupted{};
        tried = done + 1;
        candidates = total;
        line.show(
            fmt::format("problem {}/{}, kernel {}/{}: {}", number, rows.size(), done + 1, total, kernel));
      });
    } catch (const Interrupted&) {
      choice = engine.explain(row.problem, request);  // every finished trial is in the store
    }
    line.clear();
    write_choice(options.machine, row, request, choice);
    if (talks) {
      print_choice(row, choice);
      fmt::print("  tried {} of {} kernels{}\n", tried, candidates,
                 interrupted() ? ", interrupted"
                 : tried < candidates
                     ? fmt::format(" within {}; a larger --budget tries more", options.budget)
                     : "");
      const std::string menu = workspace_menu(choice);
      if (!menu.empty()) fmt::print("  workspace: {}\n", menu);
      fmt::print("\n");
    }
    if (interrupted()) {
      options.machine.close();
      fmt::print(stderr, "faltung: interrupted; what was measured is stored\n");
      return 130;
    }
  }
  options.machine.close();
  return 0;
}

void declare_find(const Command& command) {
  const auto options = std::make_shared<FindOptions>();
  options->arguments.add_problems(command);
  options->arguments.add_choices(command);
  command.option("--budget", options->budget, "For each problem").type("TIME").shows_default();
  options->machine.add_options(command);
  command.runs([options] { return run(*options); });
}

const Subcommand kFind("find", "Measure the candidates and remember the fastest", declare_find);

}  // namespace
}  // namespace faltung::tools
