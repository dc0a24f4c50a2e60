// A network of f32 whose values are of 16 bits. What is small and sensitive stays in f32, and kernels compute
// in it.
#include <algorithm>
#include <map>

#include "src/network/lowering.hpp"
#include "src/network/moments.hpp"
#include "src/network/passes.hpp"

namespace faltung::network {
namespace {

bool is_one_of(const Node& node, std::initializer_list<std::string_view> ops) {
  return node.domain.empty() && std::ranges::find(ops, node.op) != ops.end();
}

// Sums that may be far beyond their terms, and are few.
bool sums(const Node& node) {
  return is_one_of(node, {"ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2"});
}

// Kernels that read and write elements of any float type, each operand its own.
bool takes_any(const Node& node) {
  return is_norm(node) || is_elementwise(node) || sums(node) ||
         is_one_of(node, {"ReduceMean", "ReduceMax", "ReduceMin", "GlobalAveragePool", "GlobalMaxPool",
                          "Softmax", "LogSoftmax", "ArgMax", "ArgMin", "LRN", "MatMul", "Gemm"});
}

// Of the others: inputs that hold elements, and are no weights or parameters.
bool is_data(const Node& node, std::size_t input) {
  if (input == 0 || is_one_of(node, {"Concat"})) return true;
  const bool fused = node.domain == "faltung" || is_one_of(node, {"Conv"});
  return fused && input == 3;  // the residual
}

class Narrowing {
 public:
  Narrowing(Graph graph, Type type) : graph_(std::move(graph)), type_(type) {}

  Graph run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      const bool any = takes_any(node);
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (!any && is_data(node, i)) node.inputs[i] = narrow(node, node.inputs[i]);
      }
      std::vector<std::pair<ValueId, ValueId>> outputs;  // narrow ones, and what the network gives
      for (ValueId& id : node.outputs) {
        if (id == kNone || graph_.at(id).type != Type::f32 || sums(node)) continue;
        if (std::ranges::find(graph_.outputs, id) == graph_.outputs.end()) {
          graph_.at(id).type = type_;
        } else if (!any) {
          outputs.emplace_back(copy_of(id), id);
          id = outputs.back().first;
        }
      }
      const std::string name = node.name;
      graph_.nodes.push_back(std::move(node));
      for (const auto& [from, to] : outputs) {
        narrow_[to] = from;
        cast(name, from, to);
      }
    }
    return std::move(graph_);
  }

 private:
  ValueId copy_of(ValueId id) {
    Value value = graph_.at(id);
    value.name += std::string(" as ") + name(type_);
    value.type = type_;
    return graph_.add(std::move(value));
  }
  void cast(const std::string& name, ValueId from, ValueId to) {
    Node node;
    node.op = "Cast", node.name = name;
    node.attributes["to"] = static_cast<std::int64_t>(graph_.at(to).type);
    node.attributes["by_precision"] = std::int64_t{1};  // may be computed in f32 with what follows it
    node.inputs = {from}, node.outputs = {to};
    graph_.nodes.push_back(std::move(node));
  }
  // The value in 16 bits, made once for all that read it so.
  ValueId narrow(const Node& reader, ValueId id) {
    if (id == kNone || graph_.at(id).type != Type::f32) return id;
    const auto [at, is_new] = narrow_.try_emplace(id, kNone);
    if (!is_new) return at->second;
    if (const std::optional<Array> constant = graph_.constant(id)) {
      return at->second = graph_.add_constant(graph_.at(id).name, {type_, constant->shape, constant->data});
    }
    const ValueId to = at->second = copy_of(id);
    cast(reader.name, id, to);
    return to;
  }

  Graph graph_;
  Type type_;
  std::map<ValueId, ValueId> narrow_;
};

}  // namespace

Graph with_precision(Graph graph, DType dtype) {
  if (dtype == DType::f32) return graph;
  return Narrowing(std::move(graph), dtype == DType::f16 ? Type::f16 : Type::bf16).run();
}

}  // namespace faltung::network
