// What a worker is asked and what it answers: JSON, one object a line.
//
//   worker → {"faltung":"0.1.0","protocol":1}                      once, at its start
//   caller → {"do":"examine","kernel":"some_gpu/k4","problem":"fwd:...","device":"opencl:0",...}
//   worker → {"phase":"compile"}  {"phase":"run"} ...              as it comes to them
//   worker → {"outcome":"pass","why":"","ms":0.12,...}            at the end
//   caller → {"do":"compile","tasks":[{"kernel":"some_gpu/k4","problem":"fwd:...",...},...]}
//   worker → {"phase":"compile"} ... {"outcome":"pass",...}           what fails is left to its examination
//   caller → {"do":"probe","device":"opencl:0","part":"memory"}   or "compiler"
//   worker → {"outcome":"pass",...}
//
// {"error":"..."} answers what could not be done through no fault of a kernel's.
#ifndef FALTUNG_SRC_FINDER_TRUST_PROTOCOL_HPP_
#define FALTUNG_SRC_FINDER_TRUST_PROTOCOL_HPP_

#include <optional>
#include <string>
#include <vector>

#include "src/finder/trust/examine.hpp"

namespace faltung::protocol {

std::string hello();
// Throws Error(device_error) unless line is the hello of a worker of this version.
void check_hello(const std::string& line);

std::string probe(const Probe& probe);
std::string examine(const Task& task);
std::string compile(const std::vector<Task>& tasks);
std::string phase(Phase phase);
std::string answer(const Report& report);
std::string error(const std::string& what);

struct Request {
  std::optional<Task> task;
  std::vector<Task> compile;  // together, ahead of their examination
  std::optional<Probe> probe;
};
// Each throws Error(bad_problem) for a line that is none.
Request read_request(const std::string& line);

struct Reply {
  std::optional<Phase> phase;
  std::optional<Report> report;
  std::string error;
};
Reply read_reply(const std::string& line);

}  // namespace faltung::protocol

#endif  // FALTUNG_SRC_FINDER_TRUST_PROTOCOL_HPP_
