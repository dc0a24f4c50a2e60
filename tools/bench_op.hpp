// faltung bench --op: times the kernels of networks that move and map elements, beside a copy.
#ifndef FALTUNG_TOOLS_BENCH_OP_HPP_
#define FALTUNG_TOOLS_BENCH_OP_HPP_

#include <string>
#include <vector>

#include "tools/op.hpp"
#include "tools/race.hpp"
#include "tools/report.hpp"

namespace faltung::tools {

struct OpBenchOptions {
  Request request;
  RacePolicy policy;
  double patience_ms = 0;  // of all rows together
  std::uint64_t seed = 1;
  bool check = true;
};

// A row an operator, and a summary. The exit code: 1 where a result is wrong. Throws Error(unsupported) if
// none can be computed there.
int bench_ops(Engine& engine, const std::vector<Op>& ops, const OpBenchOptions& options, Machine& machine);

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_BENCH_OP_HPP_
