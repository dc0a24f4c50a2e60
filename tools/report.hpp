// What the command prints: tables for people, CSV and JSON for machines.
#ifndef FALTUNG_TOOLS_REPORT_HPP_
#define FALTUNG_TOOLS_REPORT_HPP_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "faltung/faltung.hpp"
#include "tools/command.hpp"

namespace faltung::tools {

// Nothing, a text, a measurement or a count.
using Cell = std::variant<std::monostate, std::string, double, std::int64_t>;

// As a field of CSV (RFC 4180).
std::string csv_field(const Cell& cell);

// text for people: what a terminal would take for a command stands as ?.
std::string shown(const std::string& text);

// The lines of a message, with what each began with trimmed, joined by semicolons.
std::string one_line(const std::string& message);

// Warnings, of the engine or of a store, go to standard error, a line each.
void print_warning(const std::string& message);
void print_warnings(Engine& engine);

// An output that was asked for, as --sums y.npy.
struct OutputFile {
  std::string asked, file;
};
// Throws Error(bad_problem) where two are one file.
void check_apart(const std::vector<OutputFile>& outputs);

// A table whose rows appear as they come.
class Table {
 public:
  struct Column {
    std::string title;
    int width;           // at least; a longer cell pushes its row to the right
    bool right = false;  // numbers
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void header() const;
  void row(const std::vector<std::string>& cells) const;

 private:
  std::vector<Column> columns_;
};

// --csv FILE and --json FILE; - is standard output, which then carries nothing else.
class Machine {
 public:
  void add_options(const Command& command);
  // Opens what was asked for. Throws Error(bad_file) if it cannot be written.
  void open(std::vector<std::string> columns);
  // One cell a column. The CSV is complete up to here, whatever happens later.
  void row(const std::vector<Cell>& cells);
  // Throws Error(bad_file) if something could not be written, e.g. on a full disk.
  void close();
  // Whether people's tables may go to standard output.
  bool for_people() const { return csv_path_ != "-" && json_path_ != "-"; }

 private:
  std::string csv_path_, json_path_;
  std::vector<std::string> columns_;
  std::shared_ptr<std::FILE> csv_, json_;
  std::shared_ptr<nlohmann::ordered_json> rows_;
};

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_REPORT_HPP_
