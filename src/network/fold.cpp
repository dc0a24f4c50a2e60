// What is known before the network runs: constants, types and shapes.
#include <fmt/core.h>

#include <algorithm>
#include <unordered_map>

#include "src/network/interpreter.hpp"
#include "src/network/passes.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

class Folder {
 public:
  explicit Folder(Graph graph) : graph_(std::move(graph)) {
    // A small file must not make large constants: as much as it has, and some megabytes.
    budget_ = i64{1} << 22;
    for (const Value& value : graph_.values) {
      if (value.constant) budget_ += 4 * elements(value.constant->shape);
    }
  }

  Graph run() {
    std::vector<Node> kept;
    for (Node& node : graph_.nodes) {
      bool folded = false;
      try {
        folded = visit(node);
      } catch (const Error& error) {
        if (error.status() != Status::unsupported) throw;
        if (++count_ <= kMostTold) unknown_ += (unknown_.empty() ? "" : "; ") + std::string(error.what());
      }
      if (!folded) kept.push_back(std::move(node));
    }
    graph_.nodes = std::move(kept);
    return std::move(graph_);
  }

  // Why shapes are not known, all of them.
  std::string unknown() const {
    return count_ > kMostTold ? fmt::format("{} and {} more", unknown_, count_ - kMostTold) : unknown_;
  }

 private:
  static constexpr int kMostTold = 50;

  static bool is_known(const Value& value) {
    return value.shape && std::ranges::all_of(*value.shape, [](i64 size) { return size >= 0; });
  }

  Elements small_constant(ValueId id) {
    if (!graph_.is_constant(id) || elements(graph_.at(id).constant->shape) > kSmall) return {};
    return Elements(&decoded_.try_emplace(id, graph_.at(id).constant).first->second);
  }

  // Whether it was computed, so that the node is no longer needed.
  bool visit(const Node& node) {
    std::vector<Operand> operands;
    std::vector<const Operand*> pointers;
    operands.reserve(node.inputs.size());
    bool constant = true;
    for (const ValueId id : node.inputs) {
      if (id == kNone) {
        pointers.push_back(nullptr);
        continue;
      }
      const Value& value = graph_.at(id);
      if (!is_known(value)) return false;
      operands.push_back({value.type, *value.shape, small_constant(id)});
      pointers.push_back(&operands.back());
      constant = constant && value.constant;
    }
    const Operator* row = find_operator(node);
    if (row == nullptr) return false;
    const std::vector<Result> results = row->shapes(Site(node, graph_.opset, pointers));
    i64 size = 0;
    for (std::size_t i = 0; i < std::min(results.size(), node.outputs.size()); ++i) {
      if (node.outputs[i] == kNone) continue;
      Value& value = graph_.at(node.outputs[i]);
      value.type = results[i].type;
      value.shape = results[i].shape;
      size += elements(results[i].shape);
    }
    const bool of_shapes = node.op == "Shape" || node.op == "Size";  // which do not look at elements
    if (!(constant || of_shapes) || size > budget_) return false;
    budget_ -= size;
    compute(node);
    return true;
  }

  void compute(const Node& node) {
    std::vector<Array> decoded;
    decoded.reserve(node.inputs.size());
    std::vector<const Array*> inputs;
    for (const ValueId id : node.inputs) {
      if (id == kNone) {
        inputs.push_back(nullptr);
        continue;
      }
      const Value& value = graph_.at(id);
      decoded.push_back(value.constant ? decode(*value.constant) : Array{value.type, *value.shape, {}});
      inputs.push_back(&decoded.back());
    }
    const std::vector<Array> results = evaluate(node, graph_.opset, inputs);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (node.outputs[i] != kNone)
        graph_.at(node.outputs[i]).constant = std::make_shared<const Constant>(encode(results[i]));
    }
  }

  Graph graph_;
  i64 budget_;
  std::unordered_map<ValueId, LazyElements> decoded_;
  std::string unknown_;
  int count_ = 0;
};

}  // namespace

Graph fold_constants(Graph graph) { return without_dead_nodes(Folder(std::move(graph)).run()); }

Graph with_sizes(Graph graph, const std::vector<Shape>& shapes) {
  if (shapes.size() != graph.inputs.size())
    throw Error(Status::bad_problem, fmt::format("the network has {} inputs, and shapes of {} are given",
                                                 graph.inputs.size(), shapes.size()));
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    Value& input = graph.at(graph.inputs[i]);
    const auto refuse = [&](const std::string& why) {
      throw Error(Status::bad_problem,
                  fmt::format("input {}: shape {} {}", in_quotes(input.name), to_string(shapes[i]), why));
    };
    if (input.shape) {
      bool fits = input.shape->size() == shapes[i].size();
      for (std::size_t d = 0; fits && d < shapes[i].size(); ++d)
        fits = (*input.shape)[d] < 0 || (*input.shape)[d] == shapes[i][d];
      if (!fits) refuse("does not fit the network's " + to_string(*input.shape));
    }
    if (elements(shapes[i]) == 0) refuse("has no elements");
    input.shape = shapes[i];
  }
  Folder folder(std::move(graph));
  graph = without_dead_nodes(folder.run());
  std::string lacking = folder.unknown();
  for (const Node& node : graph.nodes) {
    for (const ValueId id : node.outputs) {
      if (id != kNone && !graph.at(id).shape && lacking.empty())
        lacking = node.title() + ": the shape of its result is not known";
    }
  }
  if (!lacking.empty()) throw Error(Status::unsupported, lacking);
  return graph;
}

namespace {

// One that does not divide its work.
template <Graph (*kPass)(Graph)>
Graph alone(Graph graph, const Parallel&) {
  return kPass(std::move(graph));
}

}  // namespace

std::span<const Pass> unsized_passes() {
  static constexpr Pass kPasses[] = {{"fold", alone<fold_constants>},
                                     {"patterns", alone<find_patterns>},
                                     {"products", make_products},
                                     {"scales", alone<fold_scales>},
                                     {"upsampling", alone<split_upsampling>}};
  return kPasses;
}

std::span<const Pass> sized_passes() {
  static constexpr Pass kPasses[] = {{"recurrences", alone<unroll_recurrences>},
                                     {"norms", alone<split_norms>},
                                     {"group_norms", alone<join_group_norms>},
                                     {"epilogues", alone<fuse_epilogues>}};
  return kPasses;
}

// A GPU computes all phases of a transposed convolution in one launch.
std::set<std::string> passes_off(std::string_view device_kind) {
  if (device_kind == "cpu") return {};
  return {"upsampling"};
}

Graph run_passes(std::span<const Pass> passes, Graph graph, const std::set<std::string>& off,
                 const Parallel& parallel) {
  for (const Pass& pass : passes) {
    if (!off.contains(pass.name)) graph = pass.run(std::move(graph), parallel);
  }
  return graph;
}

}  // namespace faltung::network
