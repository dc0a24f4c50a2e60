#include "tools/report.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "faltung/faltung.hpp"
#include "src/problem/text.hpp"

namespace faltung::tools {
namespace {

std::shared_ptr<std::FILE> open_file(const std::string& path) {
  if (path == "-") return {stdout, [](std::FILE*) {}};
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    throw Error(Status::bad_file, fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  }
  return {file, std::fclose};
}

// Of which each would write over the other's: a device takes both.
bool is_one_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(a, error) && !fs::is_regular_file(a, error)) return false;
  if (fs::equivalent(a, b, error)) return true;
  const auto place = [&](const fs::path& file) {
    return fs::weakly_canonical(fs::absolute(file, error), error);
  };
  const fs::path one = place(a), other = place(b);
  return !one.empty() && one == other;  // what has no place is told when it is written
}

void check_written(const std::shared_ptr<std::FILE>& file, const std::string& path) {
  if (file && (std::fflush(file.get()) != 0 || std::ferror(file.get()) != 0)) {
    throw Error(Status::bad_file,
                fmt::format("{}: could not be written to the end: {}", path, std::strerror(errno)));
  }
}

nlohmann::ordered_json json_value(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* count = std::get_if<std::int64_t>(&cell)) return *count;
  if (const auto* number = std::get_if<double>(&cell)) {
    if (std::isfinite(*number)) return *number;
    return csv_field(cell);  // JSON has no infinity
  }
  return nullptr;
}

}  // namespace

std::string csv_field(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) {
    if (text->find_first_of(",\"\r\n") == std::string::npos) return *text;
    std::string quoted = "\"";
    for (const char c : *text) quoted += c == '"' ? "\"\"" : std::string(1, c);
    return quoted + "\"";
  }
  if (const auto* number = std::get_if<double>(&cell)) return fmt::format("{:.6g}", *number);
  if (const auto* count = std::get_if<std::int64_t>(&cell)) return std::to_string(*count);
  return "";
}

std::string shown(const std::string& text) {
  std::string out = text;
  unsigned char before = 0;
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    // C1 controls are 0xc2 0x80 to 0x9f in UTF-8.
    if (byte < 0x20 || byte == 0x7f || (before == 0xc2 && byte < 0xa0)) c = '?';
    before = byte;
  }
  return out;
}

std::string one_line(const std::string& message) {
  std::string out;
  for (const std::string& line : split(message, '\n')) {
    if (!trim(line).empty()) out.append(out.empty() ? "" : "; ").append(trim(line));
  }
  return shown(out);
}

void print_warning(const std::string& message) {
  fmt::print(stderr, "faltung: warning: {}\n", one_line(message));
}

void check_apart(const std::vector<OutputFile>& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (is_one_file(outputs[j].file, outputs[i].file))
        throw Error(Status::bad_problem, fmt::format("{} and {} are one file; give each its own",
                                                     outputs[j].asked, outputs[i].asked));
    }
  }
}

void print_warnings(Engine& engine) { engine.on_warning(print_warning); }

void Table::header() const {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  row(titles);
}

void Table::row(const std::vector<std::string>& cells) const {
  std::string line;
  for (std::size_t i = 0; i < columns_.size() && i < cells.size(); ++i) {
    const int width = columns_[i].width;
    line +=
        columns_[i].right ? fmt::format("{:>{}}", cells[i], width) : fmt::format("{:<{}}", cells[i], width);
    line += "  ";
  }
  line.erase(line.find_last_not_of(' ') + 1);
  std::printf("%s\n", shown(line).c_str());
  std::fflush(stdout);
}

void Machine::add_options(const Command& command) {
  command.option("--csv", csv_path_, "Also write comma-separated values; - for standard output alone")
      .type("FILE");
  command.option("--json", json_path_, "Also write JSON, a list of objects; - for standard output alone")
      .type("FILE");
}

void Machine::open(std::vector<std::string> columns) {
  columns_ = std::move(columns);
  if (csv_path_ == "-" && json_path_ == "-") {
    throw Error(Status::bad_problem, "--csv - and --json - both want standard output; send one to a file");
  }
  if (!csv_path_.empty() && !json_path_.empty()) {
    const auto file = [](const std::string& path) { return path == "-" ? "/dev/stdout" : path; };
    check_apart({{"--csv " + csv_path_, file(csv_path_)}, {"--json " + json_path_, file(json_path_)}});
  }
  if (!csv_path_.empty()) {
    csv_ = open_file(csv_path_);
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      std::fprintf(csv_.get(), "%s%s", i > 0 ? "," : "", columns_[i].c_str());
    }
    std::fprintf(csv_.get(), "\n");
    check_written(csv_, csv_path_);
  }
  if (!json_path_.empty()) {
    json_ = open_file(json_path_);
    rows_ = std::make_shared<nlohmann::ordered_json>(nlohmann::ordered_json::array());
  }
}

void Machine::row(const std::vector<Cell>& cells) {
  if (cells.size() != columns_.size())
    throw Error(Status::internal, "a row has another number of cells than columns");
  if (csv_) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) line += (i > 0 ? "," : "") + csv_field(cells[i]);
    std::fprintf(csv_.get(), "%s\n", line.c_str());
    check_written(csv_, csv_path_);
  }
  if (json_) {
    nlohmann::ordered_json object;
    for (std::size_t i = 0; i < cells.size(); ++i) object[columns_[i]] = json_value(cells[i]);
    rows_->push_back(std::move(object));
  }
}

void Machine::close() {
  check_written(csv_, csv_path_);
  if (json_) {
    // A name may be of any bytes.
    const std::string text = rows_->dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    std::fprintf(json_.get(), "%s\n", text.c_str());
    check_written(json_, json_path_);
  }
}

}  // namespace faltung::tools
