// What people ask for in a problem that faltung does not know, or calls otherwise.
#ifndef FALTUNG_SRC_PROBLEM_WISHES_HPP_
#define FALTUNG_SRC_PROBLEM_WISHES_HPP_

#include <string>
#include <string_view>
#include <vector>

namespace faltung {

// What helps somebody who wrote this word where one of the known ones belongs: the sentence on a known wish,
// else the nearest of the known ones, else all of them.
std::string advice(std::string_view word, const std::vector<std::string>& known);

}  // namespace faltung

#endif  // FALTUNG_SRC_PROBLEM_WISHES_HPP_
