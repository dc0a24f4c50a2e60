// The operators' references, held to ONNX's node tests (Debian: libonnx-testdata).
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>

#include "src/network/interpreter.hpp"
#include "src/network/onnx.hpp"
#include "tests/node_cases.hpp"

namespace faltung {
namespace {

using network::Array;
using network::Graph;

void compare(const std::string& name, const Array& expected, const Array& actual) {
  ASSERT_EQ(actual.shape, expected.shape) << name;
  ASSERT_EQ(actual.data.size(), expected.data.size()) << name;
  EXPECT_EQ(actual.type, expected.type) << name;
  for (std::size_t i = 0; i < expected.data.size(); ++i) {
    const double e = expected.data[i], a = network::round_to(expected.type, actual.data[i]);
    if (std::isnan(e) && std::isnan(a)) continue;
    if (std::isinf(e) && e == a) continue;
    // What is expected was computed in the tensors' own type.
    const double bound = node_cases::bound(name, expected.type) * std::max(1.0, std::abs(e));
    if (std::abs(a - e) <= bound) continue;
    ADD_FAILURE() << name << ": element " << i << " is " << a << ", expected " << e;
    return;
  }
}

TEST(NetworkReference, Onnx) {
  if (!std::filesystem::exists(node_cases::kFolder))
    GTEST_SKIP() << node_cases::kFolder << " is missing; Debian has it in libonnx-testdata";
  std::map<std::string, std::string> declined;
  std::set<std::string> operators;
  int run = 0;
  for (const node_cases::Case& c : node_cases::all()) {
    try {
      const Graph graph = network::read_onnx(c.model);
      const std::vector<Array> results = network::interpret(graph, node_cases::inputs(c, graph));
      const std::vector<Array> expected = node_cases::outputs(c, results);
      ASSERT_EQ(results.size(), expected.size()) << c.name;
      for (std::size_t i = 0; i < results.size(); ++i) compare(c.name, expected[i], results[i]);
      for (const network::Node& node : graph.nodes) operators.insert(node.op);
      ++run;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::unsupported) << c.name << ": " << error.what();
      declined[c.name] = error.what();
    }
  }
  std::cout << run << " cases of " << operators.size() << " operators; " << declined.size() << " declined\n";
  node_cases::print_declined(declined);
  EXPECT_GE(run, node_cases::folders().size() > 1 ? 1580 : 560);  // as of ONNX 1.23, and 1.12
}

}  // namespace
}  // namespace faltung
