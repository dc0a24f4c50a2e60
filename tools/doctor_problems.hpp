// The short list that doctor tries every kernel on.
#ifndef FALTUNG_TOOLS_DOCTOR_PROBLEMS_HPP_
#define FALTUNG_TOOLS_DOCTOR_PROBLEMS_HPP_

#include <string>
#include <vector>

#include "faltung/faltung.hpp"

namespace faltung::tools {

struct Case {
  std::string group;  // sizes, channels, filters, ...
  Problem problem;
};

// In an order that has something of every group early, for a run that ends early.
std::vector<Case> doctor_cases();

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_DOCTOR_PROBLEMS_HPP_
