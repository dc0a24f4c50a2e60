// What became of a long test's cases, so that a run that was cut off goes on where it was.
//
// FALTUNG_TEST_RECORD=<file> adds a line for each case that ended: an outcome, a space, the case. Cases that
// are in it are not run again.
#ifndef FALTUNG_TESTS_CASE_RECORD_HPP_
#define FALTUNG_TESTS_CASE_RECORD_HPP_

#include <cstdlib>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>

namespace faltung {

class CaseRecord {
 public:
  CaseRecord() {
    const char* const path = std::getenv("FALTUNG_TEST_RECORD");
    if (path == nullptr) return;
    std::ifstream before(path);
    for (std::string line; std::getline(before, line);) {
      const std::size_t space = line.find(' ');
      if (space != std::string::npos && !before.eof()) ended_.insert(line.substr(space + 1));
    }
    file_.open(path, std::ios::app);
    if (!file_) throw std::runtime_error(std::string("cannot write FALTUNG_TEST_RECORD, ") + path);
  }
  bool has(const std::string& what) const { return ended_.contains(what); }
  void add(const char* outcome, const std::string& what) {
    if (file_.is_open()) file_ << outcome << ' ' << what << std::endl;
  }

 private:
  std::set<std::string> ended_;
  std::ofstream file_;
};

}  // namespace faltung

#endif  // FALTUNG_TESTS_CASE_RECORD_HPP_
