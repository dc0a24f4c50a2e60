// What bench, verify, find and explain are asked about: the problems and the choices among kernels, from the
// command line.
#ifndef FALTUNG_TOOLS_ARGUMENTS_HPP_
#define FALTUNG_TOOLS_ARGUMENTS_HPP_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "faltung/faltung.hpp"
#include "src/backend/backend.hpp"
#include "tools/command.hpp"

namespace faltung::tools {

struct Row {
  std::string suite;  // the list's file name without .csv; empty for a problem string
  std::string name;   // empty for a problem string
  Problem problem;
  std::int64_t count = 1;  // how often it occurs in one pass of what the list describes
  // What a table calls it.
  std::string label() const { return name.empty() ? to_string(problem) : name; }
};

class Arguments {
 public:
  // Declares the options on a subcommand.
  void add_problems(const Command& command);
  void add_choices(const Command& command);
  void add_patterns(const Command& command);  // of them those that name kernels
  void add_seed(const Command& command);

  // Every problem, overrides applied, validated. Throws Error that names the row.
  std::vector<Row> rows() const;
  // --dtype, for what is no problem: other overrides, and problems beside it, are refused. what: the option
  // that it is.
  std::optional<DType> dtype_alone(const std::string& what) const;
  Request request() const;
  const std::string& device_id() const { return device_; }
  std::shared_ptr<Device> device() const { return find_device(device_); }
  // --threads, else every processor; 1 on a GPU.
  int threads() const;
  std::uint64_t seed() const { return seed_; }

 private:
  void apply_overrides(Problem& problem) const;

  std::vector<std::string> problems_, suites_;
  std::string batch_, dtype_, layout_, math_, direction_, epilogue_;
  std::string device_ = "cpu";
  std::string threads_;
  std::vector<std::string> only_, skip_;
  std::string workspace_ = "unlimited";
  bool deterministic_ = false, nondeterministic_ = false;
  std::uint64_t seed_ = 1;
};

// A file; or, by its name alone, one of the lists with this ending that come with faltung. Throws
// Error(bad_file) naming the option.
std::string list_file(const std::string& option, const std::string& given, const std::string& ending);

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_ARGUMENTS_HPP_
