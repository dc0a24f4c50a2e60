// A linear layer of few rows as one step of a GPU; what it shares with squeeze-excite's two.
#ifndef FALTUNG_SRC_NETWORK_LAYER_HPP_
#define FALTUNG_SRC_NETWORK_LAYER_HPP_

#include <cstdint>
#include <initializer_list>
#include <optional>

#include "kernels/cpu/map.hpp"
#include "src/network/graph.hpp"

namespace faltung::network {

// More are a convolution's, whose kernels read a weight once for many of them.
inline constexpr std::int64_t kMostLayerRows = 4;

// Reads rows of terms, the weights (results × terms) and a bias (f32). Such a step is as long as its weights'
// way from memory, which here begins before the step in front has ended. The CPU has no kernel for it: its
// convolutions do that.
struct LayerCall {
  std::int64_t rows = 1, terms = 1, results = 1;
  MapElement x = MapElement::f32, weight = MapElement::f32, y = MapElement::f32;
  MapInstruction activation;
};

// A 1×1 convolution of an image of one pixel, with nothing but a bias and an activation.
bool is_layer(const Graph& graph, const Node& node);
// The activation that a pass has put behind the node, in the words of maps; none where those have none.
std::optional<MapInstruction> layer_activation(const Node& node);
// The type in which a kernel reads weights: f32 where they are beyond f16.
Type weight_type(Type type, std::initializer_list<const Array*> weights);
// Zeros where it has none.
Array bias_of(const Graph& graph, const Node& layer);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_LAYER_HPP_
