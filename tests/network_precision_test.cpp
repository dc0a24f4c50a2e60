// Networks in 16 bits: what stays in f32, and where nodes that cast stand. No GPU is needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/network/onnx.hpp"
#include "src/network/passes.hpp"
#include "tests/onnx_writer.hpp"

namespace faltung {
namespace {

using network::Graph;
using network::Node;
using network::Type;
using testing::ElementsAre;
using testing::HasSubstr;

// Three convolutions with a pool and a join between: x -> a -> pool -> join of it and of a product -> b -> c.
struct Model {
  explicit Model(float largest) {
    text.add_input("x", {1, 4, 6, 6});
    std::vector<float> filter(16, 0.25f);
    text.add_constant(onnx::tensor("plain", {4, 4, 1, 1}, filter));
    text.add_constant(onnx::tensor("wide", {4, 8, 1, 1}, std::vector<float>(32, 0.25f)));
    filter[7] = largest;
    text.add_constant(onnx::tensor("large", {4, 4, 1, 1}, filter));
    text.add({"Conv", {"x", "large"}, {"a"}, {}, ""});
    text.add({"MaxPool",
              {"a"},
              {"pooled"},
              {{"kernel_shape", onnx::Sizes{2, 2}}, {"strides", onnx::Sizes{2, 2}}},
              ""});
    text.add({"Sigmoid", {"pooled"}, {"gate"}, {}, ""});
    text.add({"Concat", {"pooled", "gate"}, {"join"}, {{"axis", std::int64_t{1}}}, ""});
    text.add({"Conv", {"join", "wide"}, {"b"}, {}, ""});
    text.add({"Conv", {"b", "plain"}, {"c"}, {}, ""});
    text.add({"Relu", {"c"}, {"d"}, {}, ""});
    text.add({"Conv", {"d", "plain"}, {"y"}, {}, ""});
    text.add_output("y");
    bytes = text.bytes();
  }
  // No pass but this one: each node is seen.
  Graph in(DType dtype, const std::set<std::string>& kept = {}) const {
    return network::with_precision(network::with_sizes(onnx::read(bytes), {{1, 4, 6, 6}}), dtype, kept);
  }
  onnx::ModelText text;
  std::string bytes;
};

// Of each node but casts: its operator, and the types of its first input and its result.
std::vector<std::string> types(const Graph& graph) {
  std::vector<std::string> all;
  for (const Node& node : graph.nodes) {
    if (node.op != "Cast")
      all.push_back(node.op + " " + network::name(graph.at(node.inputs[0]).type) + " " +
                    network::name(graph.at(node.outputs[0]).type));
  }
  return all;
}

TEST(NetworkPrecision, WhatFitsIsOfSixteenBits) {
  const Graph graph = Model(65504).in(DType::f16);
  EXPECT_THAT(types(graph),
              ElementsAre("Conv f16 f16", "MaxPool f16 f16", "Sigmoid f16 f16", "Concat f16 f16",
                          "Conv f16 f16", "Conv f16 f16", "Relu f16 f16", "Conv f16 f16"));
  for (const Node& node : graph.nodes) EXPECT_FALSE(node.has("precision"));
}

// Results of a weight beyond the type stay in f32 as far as they are moved; the first convolution behind that
// reads them so, and what it makes is of 16 bits again.
TEST(NetworkPrecision, AWeightBeyondTheTypeIsInF32) {
  const Graph graph = Model(-70000).in(DType::f16);
  EXPECT_THAT(types(graph),
              ElementsAre("Conv f32 f32", "MaxPool f32 f32", "Sigmoid f32 f16", "Concat f32 f32",
                          "Conv f32 f32", "Conv f16 f16", "Relu f16 f16", "Conv f16 f16"));
  EXPECT_EQ(graph.nodes[0].text("precision", ""), "in f32: 'large' is beyond f16");
  EXPECT_EQ(graph.nodes[1].text("precision", ""), "in f32: 'a' stays so");
  // One cast of the gate, one of what follows the last convolution in f32, one of the network's output.
  EXPECT_EQ(std::ranges::count(graph.nodes, "Cast", &Node::op), 3);
  EXPECT_THAT(types(Model(-70000).in(DType::bf16)), testing::Each(testing::Not(HasSubstr("Conv f32"))));
  EXPECT_THAT(types(Model(3.4e38f).in(DType::bf16)), testing::Contains("Conv f32 f32"));
}

TEST(NetworkPrecision, NamedTensorsStayInF32) {
  const Graph graph = Model(1).in(DType::f16, {"c"});
  EXPECT_THAT(types(graph),
              ElementsAre("Conv f16 f16", "MaxPool f16 f16", "Sigmoid f16 f16", "Concat f16 f16",
                          "Conv f16 f16", "Conv f32 f32", "Relu f32 f16", "Conv f16 f16"));
  const Graph input = Model(1).in(DType::f16, {"x", "d"});
  EXPECT_THAT(types(input),
              ElementsAre("Conv f32 f32", "MaxPool f16 f16", "Sigmoid f16 f16", "Concat f16 f16",
                          "Conv f16 f16", "Conv f16 f16", "Relu f16 f32", "Conv f32 f32"));
  EXPECT_EQ(input.nodes[0].text("precision", ""), "in f32: 'x' stays so");
}

}  // namespace
}  // namespace faltung
