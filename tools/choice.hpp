// How explain and find show a choice among kernels.
#ifndef FALTUNG_TOOLS_CHOICE_HPP_
#define FALTUNG_TOOLS_CHOICE_HPP_

#include <string>
#include <vector>

#include "tools/arguments.hpp"
#include "tools/report.hpp"

namespace faltung::tools {

std::vector<std::string> choice_columns();
void write_choice(Machine& machine, const Row& row, const Request& request, const Choice& choice);
void print_choice(const Row& row, const Choice& choice);

// The fastest measured kernel under each workspace limit that admits a faster one, relative to the fastest of
// all: "0 B 1.08x, 64 MiB 1.00x". Empty if nothing was measured.
std::string workspace_menu(const Choice& choice);

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_CHOICE_HPP_
