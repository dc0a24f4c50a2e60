// Group norm, which files write as rows that are standardized between two views, as one node on the image.
#include <algorithm>

#include "src/network/moments.hpp"
#include "src/network/passes.hpp"
#include "src/network/rewriting.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

bool standardizes(const Node& node) { return node.domain == "faltung" && node.op == "Standardize"; }

// Of the rows in which an image is seen: how many groups of its channels they are; 0: they are no groups.
i64 groups_of(const Shape& image, const Shape& rows) {
  if (image.size() != 4 || rows.size() < 3 || rows[0] != image[0] || rows[1] < 1) return 0;
  return image[1] % rows[1] == 0 ? rows[1] : 0;
}

}  // namespace

bool standardizes_groups(const Node& node) {
  return node.domain == "faltung" && node.op == "StandardizeGroups";
}

Extent rows_of_groups(const Shape& shape, const Node& node) {
  const i64 rows = std::max<i64>(1, shape[0] * node.integer("groups", 1));
  return {rows, elements(shape) / rows, 1};
}

Graph join_group_norms(Graph graph) {
  Rewriting r(std::move(graph));
  for (int i = 0; i < static_cast<int>(r.size()); ++i) {
    Node& node = r.node(i);
    if (!standardizes(node)) continue;
    const Graph& now = r.graph();
    const Shape& rows = *now.at(node.inputs[0]).shape;
    const i64 axis = node.integer("axis", -1);
    if (axis != 2 && axis != 2 - static_cast<i64>(rows.size())) continue;
    ValueId x = node.inputs[0], y = node.outputs[0];
    int back = -1;
    if (const Node* const view = r.maker(x, "Reshape"); view != nullptr) {
      back = r.only_reader(y);
      if (back < 0 || !r.node(back).domain.empty() || r.node(back).op != "Reshape") continue;
      x = view->inputs[0], y = r.node(back).outputs[0];
    }
    const i64 groups = groups_of(*now.at(x).shape, rows);
    if (groups == 0 || now.at(x).shape != now.at(y).shape) continue;
    node.op = "StandardizeGroups", node.inputs = {x}, node.outputs = {y};
    node.attributes = {{"groups", Attribute(groups)}, {"epsilon", node.attributes.at("epsilon")}};
    if (back >= 0) r.remove(back);
    r.update();
  }
  return r.finish();
}

}  // namespace faltung::network
