// The choices of few_channels_sm90, what follows from them, and what they cost.
#ifndef FALTUNG_SRC_ALGORITHMS_FEW_CHANNELS_SM90_HPP_
#define FALTUNG_SRC_ALGORITHMS_FEW_CHANNELS_SM90_HPP_

#include <cstdint>

#include "kernels/sm90/few_channels_config.h"
#include "src/algorithms/candidate.hpp"

namespace faltung::few_channels_sm90 {

struct Tile {
  int channels, columns, rows, stages;
  template <class Name>
  void spell(Name& name) {
    name.key("bt", channels, columns, rows);
    name.key("st", stages);
  }
};

inline bool is_weights(const Problem& p) { return p.direction == Direction::backward_weights; }
inline bool is_data(const Problem& p) { return p.direction == Direction::backward_data; }

// What the kernel is specialised by.
Config config(const Tile& tile, const Problem& problem);

// Tiles of output channels, and of pixels: across and down an image, all of them; blocks.
struct Counts {
  std::int64_t k_tiles, across, down, tiles, blocks;
};
Counts counts(const Tile& tile, const Problem& problem, const DeviceInfo& device);

Cost cost(const Tile& tile, const Problem& problem, const Target& target);

}  // namespace faltung::few_channels_sm90

#endif  // FALTUNG_SRC_ALGORITHMS_FEW_CHANNELS_SM90_HPP_
