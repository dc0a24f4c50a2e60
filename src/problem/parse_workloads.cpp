// Lists of problems: workloads/*.csv.
#include <algorithm>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "src/problem/cursor.hpp"
#include "src/problem/parse.hpp"
#include "src/problem/problem.hpp"
#include "src/problem/text.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

struct Place {
  std::string file;
  int line;
  [[noreturn]] void fail(const std::string& message) const {
    throw Error(Status::bad_file, file + ":" + std::to_string(line) + ": " + message);
  }
};

struct Column {
  const char* name;
  bool required;
  std::function<void(Workload&, const std::string& cell)> read;  // throws Error without a place
};

Column number(const char* name, bool required, i64 Problem::*member) {
  return {name, required, [member](Workload& w, const std::string& cell) {
            i64& value = w.problem.*member;
            const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
            if (error != std::errc() || end != cell.data() + cell.size()) {
              throw Error(Status::bad_file, quote(cell) + " is no whole number in range");
            }
          }};
}

const std::vector<Column>& columns() {
  static const std::vector<Column> all = {
      {"name", false, [](Workload& w, const std::string& cell) { w.name = cell; }},
      number("n", true, &Problem::n),
      number("c", true, &Problem::c),
      number("h", true, &Problem::h),
      number("w", true, &Problem::w),
      number("k", true, &Problem::k),
      number("r", true, &Problem::r),
      number("s", true, &Problem::s),
      number("stride_h", false, &Problem::stride_h),
      number("stride_w", false, &Problem::stride_w),
      number("pad_top", false, &Problem::pad_top),
      number("pad_bottom", false, &Problem::pad_bottom),
      number("pad_left", false, &Problem::pad_left),
      number("pad_right", false, &Problem::pad_right),
      number("dilation_h", false, &Problem::dilation_h),
      number("dilation_w", false, &Problem::dilation_w),
      number("groups", false, &Problem::groups),
      {"count", false,
       [](Workload& w, const std::string& cell) {
         Workload parsed;
         number("count", false, &Problem::n).read(parsed, cell);
         w.count = parsed.problem.n;
         if (w.count < 1) throw Error(Status::bad_file, cell + " must be at least 1");
       }},
      {"direction", false,
       [](Workload& w, const std::string& cell) { w.problem.direction = parse_direction(cell); }},
      {"dtype", false, [](Workload& w, const std::string& cell) { w.problem.dtype = parse_dtype(cell); }},
      {"layout", false, [](Workload& w, const std::string& cell) { w.problem.layout = parse_layout(cell); }},
      {"math", false, [](Workload& w, const std::string& cell) { w.problem.math = parse_math(cell); }},
      {"epilogue", false,
       [](Workload& w, const std::string& cell) { w.problem.epilogue = parse_epilogue(cell); }},
  };
  return all;
}

std::vector<std::string> cells(std::string_view line) {
  std::vector<std::string> out;
  for (const std::string& cell : split(line, ',')) out.emplace_back(trim(cell));
  return out;
}

// The columns in the header's order.
std::vector<const Column*> read_header(const Place& place, std::string_view line) {
  std::vector<std::string> names;
  for (const Column& column : columns()) names.push_back(column.name);
  std::vector<const Column*> out;
  std::set<std::string> seen;
  for (const std::string& cell : cells(line)) {
    const auto found = std::find(names.begin(), names.end(), cell);
    if (found == names.end()) {
      place.fail("unknown column " + quote(cell) + "; the nearest known is " + nearest(cell, names));
    }
    if (!seen.insert(cell).second) place.fail("column " + cell + " is there twice");
    out.push_back(&columns()[static_cast<std::size_t>(found - names.begin())]);
  }
  for (const Column& column : columns()) {
    if (column.required && !seen.contains(column.name)) {
      place.fail(std::string("column ") + column.name + " is missing; n c h w k r s are required");
    }
  }
  return out;
}

Workload read_row(const Place& place, std::string_view line, const std::vector<const Column*>& header) {
  const std::vector<std::string> values = cells(line);
  if (values.size() != header.size()) {
    place.fail(std::to_string(values.size()) + " values for " + std::to_string(header.size()) + " columns");
  }
  Workload w{"line" + std::to_string(place.line), {}, 1};
  bool math_given = false;
  for (std::size_t i = 0; i < header.size(); ++i) {
    try {
      header[i]->read(w, values[i]);
    } catch (const Error& error) {
      place.fail("column " + std::string(header[i]->name) + ": " + error.what());
    }
    math_given = math_given || header[i]->name == std::string_view("math");
  }
  if (!math_given) w.problem.math = default_math(w.problem.dtype);
  try {
    validate(w.problem);
  } catch (const Error& error) {
    place.fail(printable(w.name) + ": " + error.what());
  }
  return w;
}

}  // namespace

std::vector<Workload> parse_workloads(std::string_view text, const std::string& file) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark
  Place place{file, 0};
  std::vector<const Column*> header;
  std::vector<Workload> rows;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++place.line;
    if (line.empty() || line.starts_with('#')) continue;
    if (header.empty()) {
      header = read_header(place, line);
    } else {
      rows.push_back(read_row(place, line, header));
    }
  }
  if (rows.empty()) {
    throw Error(Status::bad_file,
                file + ": no rows; give a header such as name,n,c,h,w,k,r,s and a row each");
  }
  return rows;
}

std::vector<Workload> read_workloads(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(Status::bad_file, path + ": cannot be opened; give a CSV file of problems");
  std::ostringstream text;
  text << in.rdbuf();
  if (in.bad() || text.str().empty()) throw Error(Status::bad_file, path + ": is empty or cannot be read");
  return parse_workloads(text.str(), path);
}

}  // namespace faltung
