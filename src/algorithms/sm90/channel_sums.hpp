// The sums of results' channels that a kernel takes beside them (kernels/sm90/channel_sums.cuh): blocks'
// parts, and the step that adds these up.
#ifndef FALTUNG_SRC_ALGORITHMS_SM90_CHANNEL_SUMS_HPP_
#define FALTUNG_SRC_ALGORITHMS_SM90_CHANNEL_SUMS_HPP_

#include <cstddef>

#include "src/algorithms/sm90/chip.hpp"
#include "src/algorithms/sm90/tiling.hpp"
#include "src/plan/step.hpp"

namespace faltung::sm90 {

// As many blocks as there are multiprocessors; where weights or sums stay, all tiles of a block must have the
// same channels.
unsigned persistent_blocks(const Tiling& tiling, const Problem& problem, int k_tiles, int tiles,
                           const Chip& chip);

// Where they lie in a workspace whose first so many bytes are taken. Of a kernel without them: no parts, and
// nothing more of the workspace.
struct ChannelSums {
  int parts = 0, columns = 0;
  std::size_t at = 0, workspace_bytes = 0;
};
ChannelSums channel_sums(const Tiling& tiling, const Problem& problem, std::size_t taken, const Chip& chip);

Step sum_channels(const ChannelSums& sums);

}  // namespace faltung::sm90

#endif  // FALTUNG_SRC_ALGORITHMS_SM90_CHANNEL_SUMS_HPP_
