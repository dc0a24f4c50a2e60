// A network of f32 whose values are of 16 bits. What is small and sensitive stays in f32, and kernels compute
// in it. So does what 16 bits cannot hold: nodes by weights beyond their range, and what the caller names.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "kernels/cpu/convert.hpp"
#include "src/network/lowering.hpp"
#include "src/network/moments.hpp"
#include "src/network/passes.hpp"

namespace faltung::network {
namespace {

bool is_one_of(const Node& node, std::initializer_list<std::string_view> ops) {
  return node.domain.empty() && std::ranges::find(ops, node.op) != ops.end();
}

// Sums and products that may be far beyond their terms, and are few.
bool sums(const Node& node) {
  return is_one_of(node, {"ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceProd"});
}

// Kernels that read and write elements of any float type, each operand its own.
bool takes_any(const Node& node) {
  return is_norm(node) || is_elementwise(node) || sums(node) ||
         is_one_of(node, {"ReduceMean", "ReduceMax", "ReduceMin", "GlobalAveragePool", "GlobalMaxPool",
                          "Softmax", "LogSoftmax", "ArgMax", "ArgMin", "LRN", "MatMul", "Gemm"});
}

// Of the others: those that compute new elements of a dtype of their own, by weights.
bool weighs(const Node& node) {
  return is_one_of(node, {"Conv", "ConvTranspose"}) ||
         (node.domain == "faltung" && (node.op == "Conv" || node.op == "Linear"));
}

// Of the others: inputs that hold elements, and are no weights or parameters.
bool is_data(const Node& node, std::size_t input) {
  if (input == 0 || is_one_of(node, {"Concat"})) return true;
  const bool fused = node.domain == "faltung" || is_one_of(node, {"Conv"});
  return fused && input == 3;  // the residual
}

class Narrowing {
 public:
  Narrowing(Graph graph, Type type, const std::set<std::string>& kept, const FiniteIn& finite_in)
      : graph_(std::move(graph)), type_(type), finite_in_(finite_in), stays_(graph_.values.size()) {
    for (std::size_t i = 0; i < stays_.size(); ++i) stays_[i] = kept.contains(graph_.values[i].name);
  }

  Graph run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      const bool any = takes_any(node), wide = is_wide(node);
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (any || !is_data(node, i)) continue;
        node.inputs[i] = wide ? widen(node, node.inputs[i]) : narrow(node, node.inputs[i]);
      }
      std::vector<std::pair<ValueId, ValueId>> outputs;  // what the node makes, and what is read
      for (ValueId& id : node.outputs) {
        if (id == kNone || graph_.at(id).type != Type::f32 || sums(node)) continue;
        const bool is_output = std::ranges::find(graph_.outputs, id) != graph_.outputs.end();
        const Type read = is_output || stays(id) ? Type::f32 : type_;
        const Type made = any ? read : wide ? Type::f32 : type_;
        graph_.at(id).type = read;
        if (made == read) continue;
        outputs.emplace_back(copy_of(id, made), id);
        (wide ? wide_ : narrow_)[id] = outputs.back().first;
        id = outputs.back().first;
      }
      const std::string name = node.name;
      graph_.nodes.push_back(std::move(node));
      for (const auto& [from, to] : outputs) cast(name, from, to);
    }
    return std::move(graph_);
  }

 private:
  bool stays(ValueId id) const {
    return static_cast<std::size_t>(id) < stays_.size() && stays_[static_cast<std::size_t>(id)];
  }
  bool is_beyond(ValueId id) const {
    return graph_.is_constant(id) && graph_.at(id).type == Type::f32 &&
           !finite_in_(type_, graph_.at(id).constant);
  }
  // Whether the node reads and makes f32, which it is told. Results of weights beyond the type may be as
  // large, and what moves elements leaves them as they are: these stay in f32, too.
  bool is_wide(Node& node) {
    std::string why;
    bool results_stay = false;
    for (std::size_t i = 0; i < node.inputs.size() && !takes_any(node); ++i) {
      const ValueId id = node.inputs[i];
      const bool is_weight = i == 1 && weighs(node);
      if (id == kNone || !(is_weight || is_data(node, i))) continue;
      if (is_beyond(id)) {
        why = in_quotes(graph_.at(id).name) + " is beyond " + name(type_);
        results_stay = true;
      } else if (!is_weight && stays(id)) {
        if (why.empty()) why = in_quotes(graph_.at(id).name) + " stays so";
        results_stay = results_stay || !weighs(node);
      }
    }
    for (const ValueId id : node.outputs) {
      if (id == kNone) continue;
      if (stays(id) && why.empty()) why = "as was asked for";
      if (results_stay) stays_[static_cast<std::size_t>(id)] = true;
    }
    if (!why.empty()) node.attributes["precision"] = "in f32: " + why;
    return !why.empty();
  }

  ValueId copy_of(ValueId id, Type type) {
    Value value = graph_.at(id);
    value.name += std::string(" as ") + name(type);
    value.type = type;
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
    ValueId& to = narrow_.try_emplace(id, kNone).first->second;
    if (to != kNone) return to;
    if (const std::optional<Array> constant = graph_.constant(id)) {
      return to = graph_.add_constant(graph_.at(id).name, {type_, constant->shape, constant->data});
    }
    cast(reader.name, id, to = copy_of(id, type_));
    return to;
  }
  // The same in f32.
  ValueId widen(const Node& reader, ValueId id) {
    if (id == kNone || graph_.at(id).type != type_) return id;
    ValueId& to = wide_.try_emplace(id, kNone).first->second;
    if (to == kNone) cast(reader.name, id, to = copy_of(id, Type::f32));
    return to;
  }

  Graph graph_;
  Type type_;
  const FiniteIn& finite_in_;
  std::vector<bool> stays_;  // by value: in f32
  std::map<ValueId, ValueId> narrow_, wide_;
};

}  // namespace

bool is_finite_in(Type type, const std::shared_ptr<const Constant>& constant) {
  constexpr std::int64_t kPiece = 4096;
  float piece[kPiece];  // files do not align their data
  const std::int64_t count = elements(constant->shape);
  for (std::int64_t at = 0; at < count; at += kPiece) {
    const std::int64_t here = std::min(kPiece, count - at);
    std::memcpy(piece, constant->data + at * 4, static_cast<std::size_t>(here) * sizeof(float));
    if (std::isinf(round_to(type, magnitudes(piece, here).most))) return false;
  }
  return true;
}

Graph with_precision(Graph graph, DType dtype, const std::set<std::string>& kept, const FiniteIn& finite_in) {
  if (dtype == DType::f32) return graph;
  return Narrowing(std::move(graph), dtype == DType::f16 ? Type::f16 : Type::bf16, kept, finite_in).run();
}

}  // namespace faltung::network
