#include "tools/arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "src/finder/installed.hpp"
#include "src/problem/parse.hpp"
#include "src/problem/problem.hpp"
#include "src/problem/text.hpp"
#include "tools/units.hpp"

namespace faltung::tools {
namespace {

// What parse makes of an option's value; its error tells the option.
template <class Parse>
auto parse_option(const char* option, const std::string& text, const Parse& parse) {
  try {
    return parse(text);
  } catch (const Error& error) {
    throw Error(error.status(), fmt::format("{}: {}", option, error.what()));
  }
}

}  // namespace

std::string list_file(const std::string& option, const std::string& given, const std::string& ending) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(given, error) || given.find('/') != std::string::npos || given.ends_with(ending))
    return given;
  const auto installed = [](const std::string& name) {
    const std::string share = "../share/faltung/workloads/" + name, built = "../../workloads/" + name,
                      beside = "../workloads/" + name;
    return installed_file({share.c_str(), built.c_str(), beside.c_str()});
  };
  if (const std::string file = installed(given + ending); !file.empty()) return file;
  std::vector<std::string> names;
  const fs::path known = installed("resnet50.csv");
  for (const auto& entry : fs::directory_iterator(known.parent_path(), error)) {
    if (entry.path().extension() == ending) names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  throw Error(Status::bad_file,
              names.empty() ? fmt::format("{}: no file {}; give a {} file", option, given, ending)
                            : fmt::format("{}: no file and no list '{}'; the nearest is {}, there are {}",
                                          option, given, nearest(given, names), join_or(names)));
}

std::optional<DType> Arguments::dtype_alone(const std::string& what) const {
  for (const auto& [option, is_given] :
       {std::pair{"--batch", !batch_.empty()}, std::pair{"--layout", !layout_.empty()},
        std::pair{"--math", !math_.empty()}, std::pair{"--dir", !direction_.empty()},
        std::pair{"--epilogue", !epilogue_.empty()}, std::pair{"--kernel", !only_.empty()},
        std::pair{"--skip", !skip_.empty()}, std::pair{"--workspace", workspace_ != "unlimited"},
        std::pair{"--deterministic", deterministic_}, std::pair{"--nondeterministic", nondeterministic_}}) {
    if (is_given)
      throw Error(Status::bad_problem, fmt::format("{} with {}: it is of problems", option, what));
  }
  if (!problems_.empty() || !suites_.empty())
    throw Error(Status::bad_problem, what + " beside problems: give either");
  return dtype_.empty() ? std::nullopt : std::optional(parse_option("--dtype", dtype_, parse_dtype));
}

void Arguments::add_problems(const Command& command) {
  command
      .option("problem", problems_,
              "Problem strings: faltung's own, a MIOpenDriver line, a benchdnn string or a line of "
              "ONEDNN_VERBOSE, each in quotes")
      .type("PROBLEM");
  command
      .option("--suite", suites_, "A list of problems: a file, or the name of one of faltung's; repeatable")
      .type("FILE.csv|NAME");
  command.option("--batch", batch_, "Replaces every problem's batch size").type("N");
  command.option("--dtype", dtype_, "f32, f16 or bf16").type("TYPE");
  command.option("--layout", layout_, "nchw or nhwc").type("LAYOUT");
  command.option("--math", math_, "f32, tf32, f16, bf16 or fast").type("MATH");
  command.option("--dir", direction_, "fwd, bwd_d or bwd_w").type("DIR");
  command.option("--epilogue", epilogue_, "e.g. bias,relu,maxpool2; none").type("LIST");
}

void Arguments::add_choices(const Command& command) {
  command.option("--device", device_, "Where to run; see faltung devices").type("ID").shows_default();
  command.option("--threads", threads_, "CPU threads; every processor unless given").type("N");
  add_patterns(command);
  command.option("--workspace", workspace_, "The most workspace a kernel may use")
      .type("BYTES")
      .shows_default();
  const Option yes =
      command.flag("--deterministic", deterministic_, "The same bits from every run (the default)");
  command.flag("--nondeterministic", nondeterministic_, "Kernels whose bits vary from run to run may be used")
      .excludes(yes);
}

void Arguments::add_patterns(const Command& command) {
  command.option("--kernel", only_, "Only kernels that match, e.g. 'winograd*'; repeatable").type("PATTERN");
  command.option("--skip", skip_, "No kernels that match; repeatable").type("PATTERN");
}

void Arguments::add_seed(const Command& command) {
  command.option("--seed", seed_, "Of the random data").type("N").shows_default();
}

void Arguments::apply_overrides(Problem& p) const {
  if (!batch_.empty()) p.n = parse_count("--batch", batch_, 1);
  if (!layout_.empty()) p.layout = parse_option("--layout", layout_, parse_layout);
  if (!direction_.empty()) p.direction = parse_option("--dir", direction_, parse_direction);
  if (!dtype_.empty()) {
    p.dtype = parse_option("--dtype", dtype_, parse_dtype);
    if (p.math != Math::fast) p.math = default_math(p.dtype);
  }
  if (!math_.empty()) p.math = parse_option("--math", math_, parse_math);
  if (!epilogue_.empty()) {
    std::string text = epilogue_;  // commas serve as well as the problem string's colons, but in brackets
    int brackets = 0;
    for (char& c : text) {
      brackets += c == '(' ? 1 : c == ')' ? -1 : 0;
      if (c == ',' && brackets == 0) c = ':';
    }
    p.epilogue = parse_option("--epilogue", text,
                              [&](const std::string& e) { return parse_epilogue(e, p.dimensions); });
  }
  validate(p);
}

std::vector<Row> Arguments::rows() const {
  std::vector<Row> rows;
  for (const std::string& given : suites_) {
    const std::string file = list_file("--suite", given, ".csv"),
                      suite = std::filesystem::path(file).stem().string();
    for (Workload& w : read_workloads(file)) rows.push_back({suite, w.name, w.problem, w.count});
  }
  for (const std::string& text : problems_) {
    std::vector<Problem> problems = parse_problems(text);
    if (!direction_.empty()) problems.resize(1);  // a MIOpenDriver line means several directions
    for (const Problem& problem : problems) rows.push_back({"", "", problem, 1});
  }
  if (rows.empty()) {
    throw Error(
        Status::bad_problem,
        "no problem is given; give a problem string such as 'n4c64h56w56k64r3s3:pad1' or --suite resnet50");
  }
  for (Row& row : rows) {
    try {
      apply_overrides(row.problem);
    } catch (const Error& error) {
      if (row.name.empty() || std::string_view(error.what()).starts_with("--")) throw;
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
  const int threads = threads_.empty() ? available_processors() : parse_threads(threads_);
  return device()->info().kind == "cpu" ? threads : 1;
}

}  // namespace faltung::tools
