// A subcommand to try out what a new one touches: tests/changes_test.py.
#include <fmt/core.h>

#include <memory>

#include "tools/command.hpp"

namespace faltung::tools {
namespace {

void declare(const Command& command) {
  const auto words = std::make_shared<std::string>("nothing");
  command.option("--say", *words, "What it says").type("WORDS").shows_default();
  command.runs([words] {
    fmt::print("a toy says {}\n", *words);
    return 0;
  });
}

const Subcommand kToy("toy", "Says what it is told", declare);

}  // namespace
}  // namespace faltung::tools
