// A convolution with what is beside it, by strips of its result's rows: the convolution before it, whose
// result stays in a worker's second-level cache, and the average of each channel, while the strip is there.
// A worker computes a run of strips one after the other, and keeps the rows that two of them read.
#ifndef FALTUNG_SRC_NETWORK_STRIPS_HPP_
#define FALTUNG_SRC_NETWORK_STRIPS_HPP_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cpu/rows.hpp"
#include "src/backend/parallel.hpp"
#include "src/plan/plan.hpp"

namespace faltung::network {

// Reads x and, where the epilogue has it, the residual.
struct ConvolutionWork {
  std::shared_ptr<const PlanImpl> plan;
  std::shared_ptr<const PackedWeights> packed;
  std::shared_ptr<const std::byte[]> w, bias, slopes;  // w: null where the packed weights are enough

  // Of a run: residual only of a problem that has one.
  Tensors tensors(const std::byte* from, const std::byte* residual, std::byte* to) const;
};
void run_convolution(const ConvolutionWork& work, const std::byte* const* reads, std::byte* write,
                     std::byte* workspace);

struct StripsWork {
  // What strips of the same size and padding share: one worker's plans.
  struct Kind {
    std::optional<ConvolutionWork> first;  // of the rows that are not kept
    std::size_t kept_bytes = 0;            // of the strip before, in front of them
    ConvolutionWork second;
    RowsCall sums;  // of a strip's result, over its pixels
  };
  struct Strip {
    std::size_t kind;
    std::size_t x, y;       // bytes from the image's beginning
    std::size_t kept_from;  // bytes from the beginning of what the strip before has between the two
  };
  Problem problem;  // the second convolution's, of whole images
  std::vector<Kind> kinds;
  std::vector<Strip> strips;                      // of an image
  std::vector<std::size_t> runs;                  // the first strip of each, and how many strips there are
  std::size_t x_bytes = 0, y_bytes = 0;           // of an image
  std::size_t between_bytes = 0, plan_bytes = 0;  // of a worker's scratch

  std::size_t worker_bytes() const { return between_bytes + plan_bytes; }
};

// averages: null, or for each image and strip a row of channels: the strip's part of the image's average.
void run_strips(const StripsWork& work, const std::byte* x, std::byte* write, float* averages,
                std::byte* workspace, const Parallel& parallel);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_STRIPS_HPP_
