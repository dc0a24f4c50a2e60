// faltung explain: what would be chosen, and why not the others. Measures no kernel.
#include <fmt/format.h>

#include "src/algorithms/implicit_gemm_nki.hpp"
#include "src/finder/engine.hpp"
#include "src/finder/selection.hpp"
#include "tools/choice.hpp"
#include "tools/command.hpp"
#include "tools/resources.hpp"

namespace faltung::tools {
namespace {

struct ExplainOptions {
  Arguments arguments;
  Machine machine;
};

// What the compiler made of the chosen kernel, where it has been tried on this GPU: to compile another may
// end the process.
void print_compiled(Engine& engine, const Row& row, const Request& request, const Choice& choice) {
  const Settled settled(row.problem, request);
  if (settled.on_cpu()) return;
  if (settled.device->info().kind == "nki") {  // emitted, and compiled elsewhere
    const std::string config = parse_kernel(choice.kernel).config;
    for (const std::string& line : engines_of_nki(settled.problem, config, nki_core(request.device)))
      fmt::print("  {}\n", line);
    fmt::print(
        "  predicted; when: each character a twentieth of it, of a few images: # busy, = half, - less, . "
        "idle\n");
    return;
  }
  EngineImpl& impl = Internals::impl(engine);
  const Candidate candidate = find_candidate(choice.kernel, settled.problem, settled.target());
  if (impl.trust().standing(candidate, settled) == faltung::Standing::untried) {
    fmt::print(
        "  {} was not tried on {} yet: faltung bench or find does, and then it is known what the compiler "
        "makes of it\n",
        choice.kernel, request.device);
    return;
  }
  for (const jit::Program& program : impl.make_plan(settled, candidate)->programs()) {
    fmt::print("  {}\n", show_resources(program));
  }
}

int run(ExplainOptions& options) {
  const std::vector<Row> rows = options.arguments.rows();
  const Request request = options.arguments.request();
  Filter{request};
  options.machine.open(choice_columns());
  const bool talks = options.machine.for_people();
  Engine engine;
  print_warnings(engine);
  for (const Row& row : rows) {
    const Choice choice = engine.explain(row.problem, request);
    write_choice(options.machine, row, request, choice);
    if (!talks) continue;
    print_choice(row, choice);
    const std::string menu = workspace_menu(choice);
    if (!menu.empty()) fmt::print("  workspace: {}\n", menu);
    print_compiled(engine, row, request, choice);
    fmt::print("\n");
  }
  if (talks) {
    fmt::print(
        "ms: measured by find, with packed weights; model: predicted. %roof: of the time that the measured "
        "ceilings\n"
        "allow. error: the bound, in units of 2^-24 times the sum of the |products|.\n");
  }
  options.machine.close();
  return 0;
}

void declare_explain(const Command& command) {
  const auto options = std::make_shared<ExplainOptions>();
  options->arguments.add_problems(command);
  options->arguments.add_choices(command);
  options->machine.add_options(command);
  command.runs([options] { return run(*options); });
}

const Subcommand kExplain("explain", "One line for each algorithm: chosen, slower, or why not",
                          declare_explain);

}  // namespace
}  // namespace faltung::tools
