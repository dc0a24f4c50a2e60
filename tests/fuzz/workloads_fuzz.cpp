// Lists of problems in CSV.
#include "src/problem/parse.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace faltung;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  parses(Status::bad_file, [&] {
    const std::vector<Workload> rows = parse_workloads(text_of(data, size), "fuzz.csv");
    require(!rows.empty(), "no row and no error");
    for (const Workload& row : rows) {
      validate(row.problem);
      require(row.count >= 1, "a count below 1");
      require(parse_problem(to_string(row.problem)) == row.problem, "another problem after a round trip");
    }
  });
  return 0;
}
