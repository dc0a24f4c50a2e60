#include "tools/arguments.hpp"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <fstream>

#include "src/problem/problem.hpp"
#include "src/problem/text.hpp"
#include "tools/units.hpp"

namespace faltung::tools {
namespace {

// The value of an enumeration by its name; an unknown name is answered with the nearest.
template <class Enum>
Enum parse_name(const char* option, const std::string& text, Enum last) {
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    names.emplace_back(name(static_cast<Enum>(i)));
    if (text == names.back()) return static_cast<Enum>(i);
  }
  throw Error(Status::bad_problem, fmt::format("{}: there is no '{}'; the nearest is {}, there are {}",
                                               option, text, nearest(text, names), join_or(names)));
}

// The items of an epilogue are fields of the problem string; commas serve as well as colons.
Epilogue parse_epilogue(const Problem& problem, std::string text) {
  Problem plain = problem;
  plain.epilogue = {};
  if (text.empty() || text == "none") return {};
  for (char& c : text) {
    if (c == ',') c = ':';
  }
  return parse_problem(to_string(plain) + ":" + text).epilogue;
}

std::vector<Row> read_suite(const std::string& file) {
  std::ifstream in(file);
  if (!in.good()) throw Error(Status::bad_file, fmt::format("--suite {}: cannot be read", file));
  std::vector<Row> rows;
  std::string line;
  std::getline(in, line);
  const std::string stem = std::filesystem::path(file).stem().string();
  while (std::getline(in, line)) {
    const std::vector<std::string> f = split(line, ',');
    const auto number = [&](int i) { return std::stoll(f.at(static_cast<std::size_t>(i))); };
    Problem p;
    p.n = number(1), p.c = number(2), p.h = number(3), p.w = number(4), p.k = number(5), p.r = number(6);
    p.s = number(7), p.stride_h = number(8), p.stride_w = number(9), p.pad_top = number(10);
    p.pad_bottom = number(11), p.pad_left = number(12), p.pad_right = number(13), p.dilation_h = number(14);
    p.dilation_w = number(15), p.groups = number(16);
    rows.push_back({stem, f[0], p, number(17)});
  }
  return rows;
}

}  // namespace

std::int64_t parse_count(const std::string& option, const std::string& text, std::int64_t least) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least) {
    throw Error(Status::bad_problem,
                fmt::format("{}: '{}' is no whole number of at least {}", option, text, least));
  }
  return value;
}

void Arguments::add_problems(CLI::App& app) {
  app.add_option("problem", problems_,
                 "Problem strings: faltung's own, a MIOpenDriver line or a benchdnn string, each in quotes")
      ->type_name("PROBLEM");
  app.add_option("--suite", suites_, "A list of problems, as in workloads/; repeatable")
      ->allow_extra_args(false)
      ->type_name("FILE.csv");
  app.add_option("--batch", batch_, "Replaces every problem's batch size")->type_name("N");
  app.add_option("--dtype", dtype_, "f32, f16 or bf16")->type_name("TYPE");
  app.add_option("--layout", layout_, "nchw or nhwc")->type_name("LAYOUT");
  app.add_option("--math", math_, "f32, tf32, f16, bf16 or fast")->type_name("MATH");
  app.add_option("--dir", direction_, "fwd, bwd_d or bwd_w")->type_name("DIR");
  app.add_option("--epilogue", epilogue_, "e.g. bias,relu,maxpool2; none")->type_name("LIST");
}

void Arguments::add_choices(CLI::App& app) {
  app.add_option("--device", device_, "Where to run; see faltung devices")
      ->type_name("ID")
      ->capture_default_str();
  app.add_option("--threads", threads_, "CPU threads; every processor unless given")->type_name("N");
  app.add_option("--kernel", only_, "Only kernels that match, e.g. 'winograd*'; repeatable")
      ->allow_extra_args(false)
      ->type_name("PATTERN");
  app.add_option("--skip", skip_, "No kernels that match; repeatable")
      ->allow_extra_args(false)
      ->type_name("PATTERN");
  app.add_option("--workspace", workspace_, "The most workspace a kernel may use")
      ->type_name("BYTES")
      ->capture_default_str();
  auto* yes = app.add_flag("--deterministic", deterministic_, "The same bits from every run (the default)");
  app.add_flag("--nondeterministic", nondeterministic_, "Kernels whose bits vary from run to run may be used")
      ->excludes(yes);
  app.add_option("--seed", seed_, "Of the random data")->type_name("N")->capture_default_str();
}

void Arguments::apply_overrides(Problem& p) const {
  if (!batch_.empty()) p.n = parse_count("--batch", batch_, 1);
  if (!layout_.empty()) p.layout = parse_name("--layout", layout_, Layout::nhwc);
  if (!direction_.empty()) p.direction = parse_name("--dir", direction_, Direction::backward_weights);
  if (!dtype_.empty()) {
    p.dtype = parse_name("--dtype", dtype_, DType::bf16);
    if (p.math != Math::fast) p.math = default_math(p.dtype);
  }
  if (!math_.empty()) p.math = parse_name("--math", math_, Math::fast);
  validate(p);
  if (!epilogue_.empty()) p.epilogue = parse_epilogue(p, epilogue_);
  validate(p);
}

std::vector<Row> Arguments::rows() const {
  std::vector<Row> rows;
  for (const std::string& file : suites_) {
    for (Row& row : read_suite(file)) rows.push_back(std::move(row));
  }
  for (const std::string& text : problems_) rows.push_back({"", "", parse_problem(text), 1});
  if (rows.empty()) {
    throw Error(
        Status::bad_problem,
        "no problem is given; give a problem string such as 'n4c64h56w56k64r3s3:pad1' or --suite FILE.csv");
  }
  for (Row& row : rows) {
    try {
      apply_overrides(row.problem);
    } catch (const Error& error) {
      if (row.name.empty()) throw;
      throw Error(error.status(), fmt::format("row {} of {}: {}", row.name, row.suite, error.what()));
    }
  }
  return rows;
}

Request Arguments::request() const {
  Request request;
  request.device = device_;
  request.threads = threads();
  request.workspace_limit = parse_bytes("--workspace", workspace_);
  request.deterministic = !nondeterministic_;
  request.only = only_;
  request.skip = skip_;
  return request;
}

int Arguments::threads() const {
  if (device()->info().kind != "cpu") return 1;
  if (threads_.empty()) return available_processors();
  const std::int64_t threads = parse_count("--threads", threads_, 1);
  if (threads > 4096)
    throw Error(Status::bad_problem, fmt::format("--threads: {} is more than 4096", threads));
  return static_cast<int>(threads);
}

std::string reproduce(const Problem& problem, const std::string& kernel, const std::string& device,
                      int threads, std::uint64_t seed) {
  return fmt::format("faltung verify '{}' --kernel {} --device {} --threads {} --seed {}", to_string(problem),
                     kernel, device, threads, seed);
}

}  // namespace faltung::tools
