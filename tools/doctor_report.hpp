// What doctor says of a device: a matrix, what failed, and the settings that make the device usable.
#ifndef FALTUNG_TOOLS_DOCTOR_REPORT_HPP_
#define FALTUNG_TOOLS_DOCTOR_REPORT_HPP_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"

namespace faltung::tools {

// One kernel on one problem.
struct Examined {
  std::string algorithm, group, problem;
  Report report;
  std::string reproduce;
};

// Whether the kernel was tried and must not be used.
bool is_bad(Outcome outcome);

struct DeviceReport {
  DeviceInfo device;
  int threads = 1;
  std::vector<Examined> results;
  std::vector<std::string> without;  // problems that no kernel passed on
  int problems = 0;                  // on the list
  int reached = 0;                   // of them, that each family's first choice was tried on
  int reached_whole = 0;             // that all of its kernels were tried on
  std::string lost;                  // why the device could not be used to the end; empty if it could
  double seconds = 0;
};

// A kernel that is right and takes more than this many times the fastest right one's time is slow.
inline constexpr double kSlow = 8;
// Marks what is slow, and finds the problems that are left without a kernel.
void conclude(DeviceReport& report);

// FALTUNG_SKIP's value that leaves out every kernel that is bad; empty if there is none.
std::string skip_setting(const DeviceReport& report);
// How many kernels are not right.
int bad_results(const DeviceReport& report);

// For the terminal; the report file has the matrix by group of problems and every failure beside.
std::string text_of(const DeviceReport& report, bool whole);
nlohmann::ordered_json json_of(const DeviceReport& report);

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_DOCTOR_REPORT_HPP_
