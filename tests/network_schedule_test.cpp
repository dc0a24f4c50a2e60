// Scheduled networks, held to ONNX's node tests (Debian: libonnx-testdata).
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <optional>

#include "tests/network_fixture.hpp"
#include "tests/node_cases.hpp"

namespace faltung {
namespace {

using network::Array;
using network::Graph;
using network::Shape;

// The graph with some of its inputs as constants of these elements; `inputs` keeps the others.
Graph with_constants(Graph graph, std::vector<Array>& inputs, bool all_but_first) {
  std::vector<Array> rest;
  std::vector<network::ValueId> ids;
  for (std::size_t i = 0; i < inputs.size() && i < graph.inputs.size(); ++i) {
    const network::ValueId id = graph.inputs[i];
    const bool whole = inputs[i].type != network::Type::f32 && inputs[i].type != network::Type::boolean;
    if (whole || (all_but_first && i > 0)) {
      network::Value& value = graph.at(id);
      value.constant = std::make_shared<const network::Constant>(encode(inputs[i]));
      value.shape = inputs[i].shape;
    } else {
      ids.push_back(id);
      rest.push_back(inputs[i]);
    }
  }
  graph.inputs = ids;
  inputs = rest;
  return graph;
}

class NetworkSchedule : public testing::Test {
 protected:
  static void compare(const std::string& name, const Array& expected, const Array& actual) {
    ASSERT_EQ(actual.shape, expected.shape) << name;
    ASSERT_EQ(actual.data.size(), expected.data.size()) << name;
    for (std::size_t i = 0; i < expected.data.size(); ++i) {
      const double e = expected.data[i], a = actual.data[i];
      if ((std::isnan(e) && std::isnan(a)) || e == a) continue;
      if (std::abs(a - e) <= node_cases::bound(name, expected.type) * std::max(1.0, std::abs(e))) continue;
      ADD_FAILURE() << name << ": element " << i << " is " << a << ", expected " << e;
      return;
    }
  }

  std::vector<Array> run(const node_cases::Case& c, bool all_but_first) {
    Graph graph = network::read_onnx(c.model);
    std::vector<Array> inputs = node_cases::inputs(c, graph);
    graph = with_constants(std::move(graph), inputs, all_but_first);
    std::vector<Shape> shapes;
    for (const Array& input : inputs) shapes.push_back(input.shape);
    const network::Schedule schedule = runner_.schedule(std::move(graph), shapes, {});
    return NetworkRunner::run(schedule, inputs);
  }

  NetworkRunner runner_;
};

TEST_F(NetworkSchedule, Onnx) {
  if (!std::filesystem::exists(node_cases::kFolder))
    GTEST_SKIP() << node_cases::kFolder << " is missing; Debian has it in libonnx-testdata";
  std::map<std::string, std::string> declined;
  int run_count = 0;
  for (const node_cases::Case& c : node_cases::all()) {
    SCOPED_TRACE(c.name);
    std::optional<std::vector<Array>> results;
    for (const bool all_but_first : {false, true}) {
      try {
        if (!results) results = run(c, all_but_first);
      } catch (const Error& error) {
        EXPECT_TRUE(error.status() == Status::unsupported || error.status() == Status::bad_problem)
            << c.name << ": " << error.what();
        declined[c.name] = error.what();
      }
    }
    if (!results) continue;
    declined.erase(c.name);
    const std::vector<Array> expected = node_cases::outputs(c, *results);
    ASSERT_EQ(results->size(), expected.size()) << c.name;
    for (std::size_t i = 0; i < expected.size(); ++i) compare(c.name, expected[i], (*results)[i]);
    ++run_count;
  }
  std::cout << run_count << " cases; " << declined.size() << " declined\n";
  for (const auto& [name, why] : declined) {
    if (why.find("operators that are not known") == std::string::npos &&
        why.find("the oldest that is known") == std::string::npos)
      std::cout << "  " << name << ": " << why << "\n";
  }
  EXPECT_GE(run_count, 420);  // as of ONNX 1.12
}

}  // namespace
}  // namespace faltung
