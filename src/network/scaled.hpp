// A 1x1 convolution of images whose channels are scaled before it, as squeeze-excite ends: its filter is
// scaled instead, anew for each image, which is less where an image has many pixels.
#ifndef FALTUNG_SRC_NETWORK_SCALED_HPP_
#define FALTUNG_SRC_NETWORK_SCALED_HPP_

#include <cstddef>
#include <cstdint>

#include "src/backend/parallel.hpp"
#include "src/network/strips.hpp"

namespace faltung::network {

// Reads x, the scales (images, channels) and, where the epilogue has it, the residual.
struct ScaledWork {
  Problem problem;                                 // of all images
  ConvolutionWork image;                           // of one; its filter is not packed
  bool is_workers_own = false;                     // each image is one worker's, else all share each
  std::size_t x_bytes = 0, y_bytes = 0;            // of an image
  std::size_t filter_bytes = 0, worker_bytes = 0;  // of the workspace: of the scaled filter, and all of it
};
void run_scaled(const ScaledWork& work, const std::byte* const* reads, std::byte* write, std::byte* workspace,
                const Parallel& parallel);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_SCALED_HPP_
