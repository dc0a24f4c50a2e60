#include "tools/faltung.hpp"

#include "tools/command.hpp"

namespace faltung::tools {
namespace {

void declare_faltung(const Command& faltung) {
  faltung.version("faltung " + version());
  faltung.footer("Run faltung COMMAND --help for a command's options. docs/command.md explains them.");
  for (const Subcommand* subcommand : subcommands()) {
    subcommand->declare(faltung.subcommand(subcommand->name, subcommand->help));
  }
}

}  // namespace

int run_faltung(int argc, char** argv) {
  return run_program("faltung", "faltung: convolutions, right and close to the device's limit",
                     declare_faltung, argc, argv);
}

}  // namespace faltung::tools
