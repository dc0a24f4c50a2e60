// Attention among a network's nodes: two products, a softmax between them, and what exporters write around
// them.
#ifndef FALTUNG_SRC_NETWORK_ATTENTION_FINDER_HPP_
#define FALTUNG_SRC_NETWORK_ATTENTION_FINDER_HPP_

#include <cstddef>
#include <vector>

#include "src/network/attention.hpp"
#include "src/network/graph.hpp"

namespace faltung::network {

struct Attention {
  AttentionCall call;
  std::vector<ValueId> sources;  // of queries, keys and values, in nchw
  std::size_t last = 0;          // the node whose result is written
  std::vector<int> absorbed;     // nodes of which nothing is left to compute
};

// In 16 bits, whether a device has a kernel for it or not. chains: what elementwise_chains() says.
std::vector<Attention> find_attention(const Graph& graph, const std::vector<int>& chains);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_ATTENTION_FINDER_HPP_
