#include "tools/op.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>

#include "src/problem/parse.hpp"
#include "src/problem/problem.hpp"
#include "src/problem/text.hpp"
#include "tools/units.hpp"

namespace faltung::tools {
namespace {

OpKind kind_of(const std::string& name) {
  std::vector<std::string> names;
  for (const OpKind& kind : op_kinds()) {
    if (kind.name == name) return kind;
    names.emplace_back(kind.name);
  }
  throw Error(Status::bad_problem,
              fmt::format("--op: there is no operator '{}'; {}", printable(name), suggestion(name, names)));
}

network::Shape parse_op_sizes(const std::string& op, const std::string& text) {
  network::Shape sizes;
  for (const std::string& size : split(text, 'x'))
    sizes.push_back(parse_count("--op " + op + ", a size", size, 1));
  constexpr std::int64_t kMost = std::int64_t{1} << 28;  // of which the reference holds some in doubles
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) {
    if (size > kMost / elements)
      throw Error(Status::bad_problem,
                  fmt::format("--op {}: {} are more than 2^28 elements", op, printable(text)));
    elements *= size;
  }
  return sizes;
}

}  // namespace

std::string elements_of(const Op& op) {
  return op.name == "cast" ? fmt::format("{}>{}", name(op.from), name(op.to)) : name(op.from);
}

std::string to_string(const Op& op) {
  std::string text = fmt::format("{}:{}", op.name, fmt::join(op.sizes, "x"));
  if (!op.how.empty()) text += ":" + op.how;
  if (op.name == "cast" || op.from != DType::f32) text += ":" + elements_of(op);
  return text;
}

Op parse_op(std::string_view text) {
  std::vector<std::string> fields = split(text, ':');
  const OpKind kind = kind_of(fields[0]);
  Op op;
  op.name = kind.name;
  const auto bad = [&](const std::string& why) {
    throw Error(Status::bad_problem, fmt::format("--op {}: {}", printable(text), why));
  };
  if (fields.size() < 2) bad(fmt::format("it has no sizes, as {}:8x64x56x56", kind.name));
  op.sizes = parse_op_sizes(op.name, fields[1]);
  if (op.sizes.size() < kind.least_rank || op.sizes.size() > kind.most_rank)
    bad(kind.least_rank == kind.most_rank
            ? fmt::format("it is of {} dimensions, not {}", kind.least_rank, op.sizes.size())
            : fmt::format("it is of {} to {} dimensions, not {}", kind.least_rank, kind.most_rank,
                          op.sizes.size()));
  std::size_t next = 2;
  if (kind.how != nullptr) {
    if (fields.size() < 3)
      bad(fmt::format("it does not say how, as {}:{}:{}", kind.name, fields[1], kind.how));
    op.how = printable(fields[next++]);
  }
  if (fields.size() > next + 1) bad(fmt::format("'{}' is too much", fields.back()));
  const bool casts = op.name == "cast";
  if (casts && fields.size() == next) bad("it does not say of which types, as f32>f16");
  if (fields.size() > next) {
    const std::vector<std::string> types = split(fields[next], '>');
    if (types.size() != (casts ? 2 : 1))
      bad(fmt::format("'{}' is not {}", fields[next], casts ? "as f32>f16" : "a type"));
    try {
      op.from = parse_dtype(types.front()), op.to = parse_dtype(types.back());
    } catch (const Error& error) {
      bad(error.what());
    }
  }
  op_network(op, 1, false, 1);  // which refuses what does not fit
  return op;
}

std::vector<Op> read_ops(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  if (!in || !std::getline(in, line) || trim(line) != "op")
    throw Error(Status::bad_file,
                fmt::format("{}: it is no list of operators, whose first line is 'op'", file));
  std::vector<Op> ops;
  for (int number = 2; std::getline(in, line); ++number) {
    const std::string_view text = trim(line);
    if (text.empty() || text.front() == '#') continue;
    try {
      ops.push_back(parse_op(text));
    } catch (const Error& error) {
      throw Error(Status::bad_file, fmt::format("{}, line {}: {}", file, number, error.what()));
    }
  }
  if (ops.empty()) throw Error(Status::bad_file, file + ": it lists no operator");
  return ops;
}

}  // namespace faltung::tools
