// Lists of problems: workloads/*.csv.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <set>

#include "src/problem/parse.hpp"
#include "src/problem/problem.hpp"
#include "src/problem/words.hpp"

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
  std::string name;
  std::function<void(Workload&, const std::string& cell)> read;  // throws Error without a place
};

i64 whole_number(const std::string& cell) {
  i64 value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size())
    throw Error(Status::bad_file, quote(cell) + " is no whole number in range");
  return value;
}

Column number(const char* name, i64 Problem::*member) {
  return {name, [member](Workload& w, const std::string& cell) { w.problem.*member = whole_number(cell); }};
}

ConvolutionKind parse_kind(const std::string& cell) {
  for (const ConvolutionKind kind : {ConvolutionKind::plain, ConvolutionKind::transposed}) {
    if (cell == name(kind)) return kind;
  }
  throw Error(Status::bad_problem, "unknown kind " + quote(cell) + "; it can be plain or transposed");
}

const std::vector<Column>& columns() {
  static const std::vector<Column> all = {
      {"name",
       [](Workload& w, const std::string& cell) {
         if (!cell.empty()) w.name = cell;
       }},
      {"problem", [](Workload& w, const std::string& cell) { w.problem = parse_problem(cell); }},
      number("n", &Problem::n),
      number("c", &Problem::c),
      number("d", &Problem::d),
      number("h", &Problem::h),
      number("w", &Problem::w),
      number("k", &Problem::k),
      number("t", &Problem::t),
      number("r", &Problem::r),
      number("s", &Problem::s),
      number("stride_d", &Problem::stride_d),
      number("stride_h", &Problem::stride_h),
      number("stride_w", &Problem::stride_w),
      number("pad_front", &Problem::pad_front),
      number("pad_back", &Problem::pad_back),
      number("pad_top", &Problem::pad_top),
      number("pad_bottom", &Problem::pad_bottom),
      number("pad_left", &Problem::pad_left),
      number("pad_right", &Problem::pad_right),
      number("output_pad_d", &Problem::output_pad_d),
      number("output_pad_h", &Problem::output_pad_h),
      number("output_pad_w", &Problem::output_pad_w),
      number("dilation_d", &Problem::dilation_d),
      number("dilation_h", &Problem::dilation_h),
      number("dilation_w", &Problem::dilation_w),
      number("groups", &Problem::groups),
      {"count",
       [](Workload& w, const std::string& cell) {
         w.count = whole_number(cell);
         if (w.count < 1) throw Error(Status::bad_file, cell + " must be at least 1");
       }},
      {"kind", [](Workload& w, const std::string& cell) { w.problem.kind = parse_kind(cell); }},
      {"direction",
       [](Workload& w, const std::string& cell) { w.problem.direction = parse_direction(cell); }},
      {"dtype", [](Workload& w, const std::string& cell) { w.problem.dtype = parse_dtype(cell); }},
      {"layout", [](Workload& w, const std::string& cell) { w.problem.layout = parse_layout(cell); }},
      {"math", [](Workload& w, const std::string& cell) { w.problem.math = parse_math(cell); }},
      {"training", [](Workload& w, const std::string& cell) { w.problem.training = parse_training(cell); }},
      {"affine", [](Workload& w, const std::string& cell) { w.problem.affine = parse_affine(cell); }},
      {"epilogue",
       [](Workload& w, const std::string& cell) {
         w.problem.epilogue = parse_epilogue(cell, w.problem.dimensions);
       }},
  };
  return all;
}

// A record's cells, without blanks around them; one in double quotes may hold commas, and quotes twice.
std::vector<std::string> cells(const Place& place, std::string_view line) {
  std::vector<std::string> out;
  while (true) {
    const std::string_view rest = trim(line);
    if (!rest.starts_with('"')) {
      const std::size_t comma = line.find(',');
      out.emplace_back(trim(line.substr(0, comma)));
      if (comma == std::string_view::npos) return out;
      line.remove_prefix(comma + 1);
      continue;
    }
    std::string cell;
    std::size_t i = 1;
    for (; i < rest.size(); ++i) {
      if (rest[i] != '"') {
        cell += rest[i];
      } else if (i + 1 < rest.size() && rest[i + 1] == '"') {
        cell += rest[i++];
      } else {
        break;
      }
    }
    if (i == rest.size()) place.fail("a quote is not closed; a cell ends in the line in which it begins");
    out.push_back(std::move(cell));
    line = trim(rest.substr(i + 1));
    if (line.empty()) return out;
    if (!line.starts_with(',')) place.fail("text follows the closing quote of a cell");
    line.remove_prefix(1);
  }
}

// The columns in the header's order; null where one is not read.
struct Header {
  std::vector<const Column*> columns;
  int dimensions = 2;
  bool gives_math = false, gives_problem = false;
};

// How many spatial dimensions there are columns for: those of w and s are in every list.
int count_dimensions(const Place& place, const std::set<std::string>& seen) {
  const bool deep = seen.contains("d") || seen.contains("t");
  const bool high = deep || seen.contains("h") || seen.contains("r");
  const bool none = !seen.contains("w") && !seen.contains("s");
  const int dimensions = deep ? 3 : high || none ? 2 : 1;
  const std::string needed[] = {"ncwks", "nchwkrs", "ncdhwktrs"};
  for (const char letter : needed[dimensions - 1]) {
    if (seen.contains(std::string(1, letter))) continue;
    std::string all;
    for (const char one : needed[dimensions - 1]) all += std::string(all.empty() ? "" : " ") + one;
    place.fail(std::string("column ") + letter + " is missing; " + all + " are required of " +
               dimensions_word(dimensions) + ", or a column problem");
  }
  return dimensions;
}

Header read_header(const Place& place, std::string_view line) {
  std::vector<std::string> names;
  for (const Column& column : columns()) names.push_back(column.name);
  const std::vector<std::string> given = cells(place, line);
  const bool has_problem = std::find(given.begin(), given.end(), "problem") != given.end();
  Header header;
  std::set<std::string> seen;
  for (const std::string& cell : given) {
    // What else a table tells of a problem that is told in full is its own.
    if (has_problem && cell != "problem" && cell != "name" && cell != "count") {
      header.columns.push_back(nullptr);
      continue;
    }
    const auto found = std::find(names.begin(), names.end(), cell);
    if (found == names.end()) {
      place.fail("unknown column " + quote(cell) + "; " + suggestion(cell, names));
    }
    if (!seen.insert(cell).second) place.fail("column " + cell + " is there twice");
    header.columns.push_back(&columns()[static_cast<std::size_t>(found - names.begin())]);
  }
  header.gives_problem = has_problem;
  header.gives_math = has_problem || seen.contains("math");
  if (!has_problem) header.dimensions = count_dimensions(place, seen);
  return header;
}

Workload read_row(const Place& place, std::string_view line, const Header& header) {
  const std::vector<std::string> values = cells(place, line);
  if (values.size() != header.columns.size()) {
    place.fail(std::to_string(values.size()) + " values for " + std::to_string(header.columns.size()) +
               " columns");
  }
  Workload w{"line" + std::to_string(place.line), {}, 1};
  w.problem.dimensions = header.dimensions;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Column* const column = header.columns[i];
    if (column == nullptr) continue;
    try {
      column->read(w, values[i]);
    } catch (const Error& error) {
      place.fail("column " + column->name + ": " + error.what());
    }
  }
  if (!header.gives_math) w.problem.math = default_math(w.problem.dtype);
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
  std::optional<Header> header;
  std::vector<Workload> rows;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++place.line;
    if (line.empty() || line.starts_with('#')) continue;
    if (!header) {
      header = read_header(place, line);
    } else {
      Workload row = read_row(place, line, *header);
      // A table of what kernels did has a row for each.
      const bool again = header->gives_problem && !rows.empty() && rows.back().problem == row.problem;
      if (!again) rows.push_back(std::move(row));
    }
  }
  if (rows.empty()) {
    throw Error(Status::bad_file,
                file + ": no rows; give a header such as name,n,c,h,w,k,r,s and a row each");
  }
  return rows;
}

namespace {

struct Descriptor {
  const int number;
  ~Descriptor() { ::close(number); }
};

// Something to read, or a writer's end; false where there is neither in time. ms: -1 for ever.
bool wait_for(int descriptor, int ms) {
  pollfd wait{descriptor, POLLIN, 0};
  int ready = 0;
  while ((ready = ::poll(&wait, 1, ms)) < 0 && errno == EINTR) {
  }
  return ready != 0;
}

// A pipe's writer may take its time, and one that never comes must not be waited for.
std::string read_list(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)};
  if (file.number < 0)
    throw Error(Status::bad_file, path + ": cannot be opened; give a CSV file of problems");
  struct stat status {};
  bool awaits_writer = ::fstat(file.number, &status) == 0 && S_ISFIFO(status.st_mode);
  constexpr int kPatienceMs = 3000;
  constexpr std::size_t kLargest = std::size_t{1} << 26;  // bytes; a device may have no end
  std::string text;
  std::vector<char> part(1 << 16);
  while (true) {
    const ssize_t got = ::read(file.number, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      awaits_writer = false;  // it is there
      wait_for(file.number, -1);
    } else if (got == 0 && awaits_writer) {
      awaits_writer = false;
      if (!wait_for(file.number, kPatienceMs))
        throw Error(Status::bad_file, path + ": nobody writes to this pipe; give a CSV file of problems");
    } else if (got <= 0) {
      if (got < 0 || text.empty()) throw Error(Status::bad_file, path + ": is empty or cannot be read");
      return text;
    } else {
      awaits_writer = false;
      text.append(part.data(), static_cast<std::size_t>(got));
      if (text.size() > kLargest)
        throw Error(Status::bad_file, path + ": is larger than 64 MiB; give a CSV file of problems");
    }
  }
}

}  // namespace

std::vector<Workload> read_workloads(const std::string& path) {
  return parse_workloads(read_list(path), path);
}

}  // namespace faltung
