// Attention's step on a GPU.
#include "src/network/device_steps.hpp"
#include "src/network/lowering.hpp"
#include "src/network/map_builder.hpp"

namespace faltung::network {

void Lowering::find_attention() {
  for (Attention& found : network::find_attention(graph_, groups_)) {
    const AttentionCall& call = found.call;
    if (!computes_attention(call, device()) || (!trusts_all_ && !unproven(call, device()).empty())) continue;
    for (const int node : found.absorbed) absorbed_.insert(static_cast<std::size_t>(node));
    attention_.emplace(found.last, std::move(found));
  }
}

void Lowering::lower_attention(std::size_t last, const Attention& attention) {
  const Node& node = graph_.nodes[last];
  std::vector<Ref> reads;
  for (const ValueId id : attention.sources) {
    Ref from = read(id, Layout::nchw);
    if (from.offset % 16 != 0) {  // a view of something else
      const Shape all{elements(shape(id))};
      const StridedOperand run{graph_.at(id).type, {1}, 0};
      const Ref to = scratch(static_cast<std::size_t>(all[0]) * network::size_of(run.type));
      emit(node, make_copy(all, run, run, node.title()), {from}, to, Layout::nchw);
      from = to;
    }
    reads.push_back(from);
  }
  emit(node, attention.call, std::move(reads), write(node.outputs[0], Layout::nchw), Layout::nchw);
}

}  // namespace faltung::network
