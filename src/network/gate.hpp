// Squeeze-excite as one step of a GPU: an image, and numbers by channel that two small layers make of its
// averages.
#ifndef FALTUNG_SRC_NETWORK_GATE_HPP_
#define FALTUNG_SRC_NETWORK_GATE_HPP_

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/cpu/map.hpp"

namespace faltung::network {

// Layers of more weights or results than that are steps of their own: every block computes the first layer.
inline constexpr std::int64_t kMostGateWeights = 1 << 15, kMostGateHidden = 256;

// Reads the image in NHWC, what the first layer takes (channels, of each image), its weights (hidden ×
// channels) and bias (f32), the second one's weights (hidden × channels) and bias (f32). Without a first
// layer: the image, what the second takes (hidden, of each image), its weights and bias. The CPU has no
// kernel for it: a step costs little there.
struct GateCall {
  std::int64_t images = 1, pixels = 1, channels = 1, hidden = 1;
  std::int64_t x_pitch = 1, y_pitch = 1;  // elements from pixel to pixel
  MapElement x = MapElement::f32, squeezed = MapElement::f32, weight = MapElement::f32, y = MapElement::f32;
  std::optional<MapInstruction> first;  // the first layer's activation, where it is computed
  MapInstruction second;
  // Of the image and its gate, in the first two registers.
  std::vector<MapInstruction> program;
  std::uint8_t image_register = 0;  // the gate is in the other
};

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_GATE_HPP_
