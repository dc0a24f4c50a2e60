#include "src/network/interpreter.hpp"

#include <fmt/core.h>

namespace faltung::network {

std::vector<Array> evaluate(const Node& node, std::int64_t opset, const std::vector<const Array*>& inputs) {
  std::vector<Operand> operands;
  operands.reserve(inputs.size());
  std::vector<const Operand*> pointers;
  for (const Array* input : inputs) {
    operands.push_back(input == nullptr ? Operand{} : Operand{input->type, input->shape, input->data.data()});
    pointers.push_back(input == nullptr ? nullptr : &operands.back());
  }
  const Operator* row = find_operator(node);
  if (row == nullptr) throw Error(Status::unsupported, node.title() + ": its operator is not known");
  const Site site(node, opset, std::move(pointers));
  std::vector<Array> outputs;
  for (Result& result : row->shapes(site)) {
    if (outputs.size() == node.outputs.size()) break;
    const auto count = static_cast<std::size_t>(elements(result.shape));
    outputs.push_back({result.type, std::move(result.shape), std::vector<double>(count)});
  }
  if (outputs.size() < node.outputs.size())
    throw Error(Status::bad_file, fmt::format("{} has {} outputs, and its operator gives {}", node.title(),
                                              node.outputs.size(), outputs.size()));
  row->evaluate(site, outputs);
  return outputs;
}

std::vector<Array> interpret(const Graph& graph, const std::vector<Array>& inputs,
                             const std::function<void(ValueId, Array&)>& seen) {
  check_operators(graph);
  std::vector<std::optional<Array>> values(graph.values.size());
  std::vector<int> uses = count_uses(graph);
  const auto at = [&](ValueId id) -> std::optional<Array>& { return values[static_cast<std::size_t>(id)]; };
  if (inputs.size() != graph.inputs.size())
    throw Error(Status::bad_problem, fmt::format("the network has {} inputs, and {} are given",
                                                 graph.inputs.size(), inputs.size()));
  for (std::size_t i = 0; i < inputs.size(); ++i) at(graph.inputs[i]) = inputs[i];
  const auto need = [&](ValueId id) -> const Array& {
    if (!at(id)) at(id) = graph.constant(id);
    if (!at(id)) throw Error(Status::bad_file, "nothing gives the value " + in_quotes(graph.at(id).name));
    return *at(id);
  };
  for (const Node& node : graph.nodes) {
    std::vector<const Array*> operands;
    for (const ValueId id : node.inputs) operands.push_back(id == kNone ? nullptr : &need(id));
    std::vector<Array> results = evaluate(node, graph.opset, operands);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const ValueId id = node.outputs[i];
      if (id == kNone) continue;
      if (seen) seen(id, results[i]);
      at(id) = std::move(results[i]);
    }
    for (const ValueId id : node.inputs) {
      if (id != kNone && --uses[static_cast<std::size_t>(id)] == 0) at(id).reset();
    }
  }
  std::vector<Array> outputs;
  for (const ValueId id : graph.outputs) outputs.push_back(need(id));
  return outputs;
}

}  // namespace faltung::network
