// The faltung command.
#include "faltung/faltung.hpp"
#include "tools/command.hpp"

namespace faltung::tools {
namespace {

void declare(const Command& faltung) {
  faltung.version("faltung " + version());
  faltung.footer("Run faltung COMMAND --help for a command's options. docs/command.md explains them.");
  for (const Subcommand* subcommand : subcommands()) {
    subcommand->declare(faltung.subcommand(subcommand->name, subcommand->help));
  }
}

}  // namespace
}  // namespace faltung::tools

int main(int argc, char** argv) {
  return faltung::tools::run_program("faltung",
                                     "faltung: convolutions, right and close to the device's limit",
                                     faltung::tools::declare, argc, argv);
}
