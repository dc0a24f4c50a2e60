// Environment variables, as everything here reads them: one that is set to nothing is not set.
#ifndef FALTUNG_SRC_PROBLEM_ENVIRONMENT_HPP_
#define FALTUNG_SRC_PROBLEM_ENVIRONMENT_HPP_

#include <cstdlib>
#include <string>

namespace faltung {

// Empty where it is not set.
inline std::string environment(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

}  // namespace faltung

#endif  // FALTUNG_SRC_PROBLEM_ENVIRONMENT_HPP_
