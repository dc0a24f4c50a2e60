// faltung prepare: compiles and tries what plans of these problems need, before they are asked for.
#include "tools/preparation.hpp"

namespace faltung::tools {
namespace {

struct Asked {
  Arguments arguments;
  PrepareOptions options;
};

void declare_prepare(const Command& command) {
  const auto asked = std::make_shared<Asked>();
  asked->arguments.add_problems(command);
  asked->arguments.add_choices(command);
  command
      .option("--kernels", asked->options.kernels,
              "So many of those that find would time first; 1: what a plan takes")
      .type("N")
      .within(1, 1000)
      .shows_default();
  asked->options.add_options(command);
  command.runs([asked] {
    return Preparation(asked->options, asked->arguments.request(), asked->arguments.rows()).run();
  });
}

const Subcommand kPrepare("prepare", "Compile and try what plans of these problems need", declare_prepare);

}  // namespace
}  // namespace faltung::tools
