// Problem text: the canonical string, a MIOpenDriver line, a benchdnn problem; and the words of overrides.
#include "src/problem/parse.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace faltung;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = text_of(data, size);
  parses(Status::bad_problem, [&] {
    const std::vector<Problem> problems = parse_problems(text);
    require(!problems.empty(), "no problem and no error");
    for (const Problem& p : problems) {
      validate(p);
      const std::string canonical = to_string(p);
      require(parse_problem(canonical) == p, "another problem after a round trip: " + canonical);
    }
  });
  parses(Status::bad_problem, [&] { parse_epilogue(text); });
  parses(Status::bad_problem, [&] { parse_direction(text); });
  parses(Status::bad_problem, [&] { parse_dtype(text); });
  parses(Status::bad_problem, [&] { parse_math(text); });
  return 0;
}
