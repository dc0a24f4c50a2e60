// ONNX files: reading, shape rules, folding and every pass. Nothing is read beyond the bytes, and memory is
// bounded by their number.
#include "src/network/onnx.hpp"
#include "src/network/operator.hpp"
#include "src/network/passes.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace faltung;
  using namespace faltung::network;
  Graph graph;
  const auto read = [&] {
    graph = read_onnx({reinterpret_cast<const std::byte*>(data), size}, nullptr, "", "fuzzed");
  };
  if (!parses(Status::bad_file, read)) return 0;
  // What is wrong with a node may be told in any of these ways.
  try {
    check_operators(graph);
    graph = run_passes(unsized_passes(), std::move(graph));
    std::vector<Shape> shapes;
    for (const ValueId id : graph.inputs) {
      Shape shape = graph.at(id).shape.value_or(Shape());
      for (std::int64_t& s : shape) s = s < 0 ? 5 : s;
      shapes.push_back(shape);
    }
    graph = run_passes(sized_passes(), with_sizes(std::move(graph), shapes));
  } catch (const Error& error) {
    require(error.status() == Status::bad_file || error.status() == Status::unsupported ||
                error.status() == Status::bad_problem,
            std::string("an Error of another status: ") + error.what());
    require(std::strpbrk(error.what(), "\r\n") == nullptr,
            std::string("a message of several lines: ") + error.what());
  }
  return 0;
}
