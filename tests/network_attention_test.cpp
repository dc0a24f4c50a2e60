// Which nodes are attention, as exporters write it: what is read from where, and which nodes are left. No GPU
// is needed.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "src/network/attention_finder.hpp"
#include "src/network/lowering.hpp"
#include "src/network/onnx.hpp"
#include "src/network/passes.hpp"
#include "tests/attention_model.hpp"

namespace faltung {
namespace {

using network::Attention;
using network::Graph;

constexpr AttentionModel kModel{2, 3, 10, 14, 16};

Graph read(const std::string& bytes, const AttentionModel& model) {
  Graph graph = network::run_passes(network::unsized_passes(), onnx::read(bytes));
  graph = network::with_sizes(std::move(graph), model.shapes());
  graph = network::run_passes(network::sized_passes(), std::move(graph));
  return network::with_precision(std::move(graph), DType::f16);
}

// With the file's bytes, in which the graph's constants lie.
struct Exported {
  std::string bytes;
  Graph graph;
  explicit Exported(const AttentionModel& model) : bytes(model.bytes()), graph(read(bytes, model)) {}
};

std::vector<Attention> find(const Graph& graph) {
  return network::find_attention(graph,
                                 network::elementwise_chains(graph, true, network::GroupNorms::in_rows));
}

void expect_strides(const network::AttentionCall::Strides& s, std::int64_t tokens, const AttentionModel& m) {
  EXPECT_EQ(s.batch, tokens * m.heads * m.depth);
  EXPECT_EQ(s.head, m.depth);
  EXPECT_EQ(s.row, m.heads * m.depth);
}

TEST(NetworkAttention, IsFoundAsExportersWriteIt) {
  for (const auto keys : {AttentionModel::Keys::turned_at_once, AttentionModel::Keys::turned_in_three}) {
    for (const auto scale : {AttentionModel::Scale::of_scores, AttentionModel::Scale::of_both}) {
      AttentionModel model = kModel;
      model.keys_are = keys, model.scale_is = scale;
      const Exported exported(model);
      const Graph& graph = exported.graph;
      const std::vector<Attention> found = find(graph);
      ASSERT_EQ(found.size(), 1u);
      const network::AttentionCall& call = found[0].call;
      EXPECT_EQ(call.batches, model.batch);
      EXPECT_EQ(call.heads, model.heads);
      EXPECT_EQ(call.queries, model.queries);
      EXPECT_EQ(call.keys, model.keys);
      EXPECT_EQ(call.depth, model.depth);
      EXPECT_FLOAT_EQ(call.scale, 0.25f);
      expect_strides(call.q, model.queries, model);
      expect_strides(call.k, model.keys, model);
      expect_strides(call.v, model.keys, model);
      expect_strides(call.y, model.queries, model);
      // Of the nodes none is left but casts, the one that writes, and what follows it.
      const auto left = std::ranges::count_if(graph.nodes, [&](const network::Node& node) {
        const auto i = static_cast<int>(&node - graph.nodes.data());
        return node.op != "Cast" && std::ranges::find(found[0].absorbed, i) == found[0].absorbed.end();
      });
      EXPECT_EQ(left, 3);
      EXPECT_EQ(graph.nodes[found[0].last].op, "Transpose");
    }
  }
}

// What others read is computed all the same; a softmax that is none of the scores is none of ours.
TEST(NetworkAttention, LeavesWhatOthersRead) {
  AttentionModel model = kModel;
  model.also_gives = "scores";
  EXPECT_TRUE(find(Exported(model).graph).empty());
  model.also_gives = "powers";
  EXPECT_TRUE(find(Exported(model).graph).empty());
  model.also_gives = "heads";
  const Exported exported(model);
  const Graph& graph = exported.graph;
  const std::vector<Attention> found = find(graph);
  ASSERT_EQ(found.size(), 1u);
  for (const int i : found[0].absorbed) {
    const network::Node& node = graph.nodes[static_cast<std::size_t>(i)];
    EXPECT_NE(graph.at(node.outputs[0]).name, "heads");
  }
  model = kModel;
  model.axis = 2;
  EXPECT_TRUE(find(Exported(model).graph).empty());
}

}  // namespace
}  // namespace faltung
