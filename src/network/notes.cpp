// What `network explain` tells of a step beside its numbers.
#include <fmt/core.h>

#include "src/network/lowering.hpp"

namespace faltung::network {

namespace {

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    if (!part.empty()) text += (text.empty() ? "" : "; ") + part;
  }
  return text;
}

std::string after(const char* word, const std::string& text) { return text.empty() ? "" : word + text; }

}  // namespace

std::string epilogue_note(const Node& node) {
  return joined({after("with ", node.text("fused", "")), after("no more: ", node.text("unfused", "")),
                 node.text("precision", "")});
}

std::string chain_note(const std::vector<const Node*>& nodes) {
  std::string text;
  for (const Node* node : nodes) {
    if (node != nodes.back()) text += (text.empty() ? "with " : ", ") + node->op + " " + node->name;
  }
  return joined({text, nodes.back()->text("precision", "")});
}

// A node and what its layouts cost.
std::string Lowering::layout_note(int node) const {
  const auto i = static_cast<std::size_t>(node);
  const Node& n = graph_.nodes[i];
  const std::string title = n.op + " " + n.name;
  if (groups_[i] < 0 && layout_rule(graph_, n) == LayoutRule::plain) return title + " (in nchw alone)";
  const NodeCosts costs = i < costs_.size() ? costs_[i] : NodeCosts{};
  if (costs.nchw == costs.nhwc) return title + " (as fast in either layout)";
  const auto ms = [](std::int64_t ns) {
    return ns >= kNever ? "nothing" : fmt::format("{:.4f} ms", 1e-6 * static_cast<double>(ns));
  };
  return fmt::format("{} ({} in nchw, {} in nhwc)", title, ms(costs.nchw), ms(costs.nhwc));
}

std::string Lowering::copying_note(ValueId id, Layout from, Layout to) const {
  const std::string reader = lowered_ < 0 ? "an output of the network (in nchw)" : layout_note(lowered_);
  if (from == to) return "for " + reader + ", which reads no slice";
  const int maker = makers_[static_cast<std::size_t>(id)];
  return "for " + reader + "; of " + (maker < 0 ? "an input of the network (in nchw)" : layout_note(maker));
}

}  // namespace faltung::network
