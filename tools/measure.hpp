// Everything bench finds out about one problem: the kernels' times and errors, and the peer's.
#ifndef FALTUNG_TOOLS_MEASURE_HPP_
#define FALTUNG_TOOLS_MEASURE_HPP_

#include <optional>
#include <string>
#include <vector>

#include "src/finder/engine.hpp"
#include "tools/arguments.hpp"
#include "tools/peer.hpp"
#include "tools/race.hpp"

namespace faltung::tools {

struct MeasureOptions {
  Request request;
  RacePolicy policy;
  std::uint64_t seed = 1;
  bool check = true;
  bool find = false;            // measure the candidates first and let the fastest answer
  bool beside_plan = false;     // an entry for what would answer without that, too
  bool all_algorithms = false;  // one entry for each algorithm
};

// Of a result that was compared with the reference; less than 0 where it was not.
struct Errors {
  double over_bound = -1;  // of the worst element
  double l2 = -1;          // of all, relative
  double of_chain = 0;     // fp32's root mean square over that of a chain of multiply-adds; 0: not compared
};

struct Entry {
  std::string kernel;
  bool chosen = false;  // the engine would use it
  Standing time;
  Errors errors;
  double compile_ms = 0;
  double plan_ms = 0;  // from the question to the plan
  std::size_t workspace_bytes = 0;
  Outcome outcome = Outcome::not_measured;  // pass or wrong; not_measured if it was not checked
  std::string note;
  std::vector<jit::Program> programs;  // a GPU's
};

struct PeerEntry {
  std::string implementation;  // empty if it declined
  std::string note;            // why it declined, or what is wrong with its result
  Errors errors;
  Standing time;
};

struct Measurement {
  std::vector<Entry> entries;  // the chosen one first
  std::vector<Report> refusals;
  std::optional<PeerEntry> peer;
  int sets = 0;  // of buffers, used in turn
};

// Throws Error(unsupported) if no kernel may compute the problem. pace: of a CPU that is timed, or null.
Measurement measure(Engine& engine, const Problem& problem, const MeasureOptions& options, Peer* peer,
                    Pace* pace);

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_MEASURE_HPP_
