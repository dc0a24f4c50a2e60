// What compilers say of a plan's GPU kernels, for people and for machines.
#ifndef FALTUNG_TOOLS_RESOURCES_HPP_
#define FALTUNG_TOOLS_RESOURCES_HPP_

#include <string>
#include <vector>

#include "src/jit/session.hpp"
#include "tools/report.hpp"

namespace faltung::tools {

// One line: the kernel's function, what it took to compile, and what its driver tells of registers, spills,
// local memory and the rest.
std::string show_resources(const jit::Program& kernel);

// The most that any of the kernels takes, the least waves; empty cells where no driver tells.
std::vector<std::string> resource_columns();
std::vector<Cell> resource_cells(const std::vector<jit::Program>& kernels);

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_RESOURCES_HPP_
