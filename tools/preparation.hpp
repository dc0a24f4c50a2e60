// What `prepare` and `network prepare` share: problems, and programs beside them, made ready by a pool.
#ifndef FALTUNG_TOOLS_PREPARATION_HPP_
#define FALTUNG_TOOLS_PREPARATION_HPP_

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "src/finder/engine.hpp"
#include "src/jit/session.hpp"
#include "tools/arguments.hpp"
#include "tools/live.hpp"
#include "tools/report.hpp"

namespace faltung::tools {

struct PrepareOptions {
  // Declares them on a subcommand, at whose end they must live.
  void add_options(const Command& command);

  Machine machine;
  std::string within = "10000m";
  int jobs = 0, kernels = 1;
  bool problems = false, keeps = false;
};

class Preparation {
 public:
  // programs: of what are no problems.
  Preparation(PrepareOptions& options, Request request, std::vector<Row> rows,
              std::vector<jit::Source> programs = {});
  // What was asked for; the exit code.
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  int list() const;
  void take();
  std::vector<Prepared> prepared(EngineImpl& engine, std::size_t item) const;
  Prepared built(EngineImpl& engine, const jit::Source& program) const;
  void note(std::size_t item, const std::vector<Prepared>& all);
  void say() const;

  PrepareOptions& options_;
  const Request request_;
  const std::shared_ptr<Device> device_;
  const std::vector<Row> rows_;
  const std::vector<jit::Source> programs_;
  const Clock::time_point end_;
  std::atomic<std::size_t> next_ = 0;
  std::mutex mutex_;  // of what follows
  LiveLine line_;
  std::set<std::string> warned_;
  std::exception_ptr failure_;
  std::size_t problems_done_ = 0, programs_done_ = 0;
  int ready_ = 0, compiled_ = 0, tried_ = 0, known_ = 0, failed_ = 0, without_ = 0;
  double compile_ms_ = 0;
};

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_PREPARATION_HPP_
