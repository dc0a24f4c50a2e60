// Forward and backward_data as a product of packed weights with pixels that are gathered on the way: what
// kernels/gpu/gathered_product.h asks of the host, whichever kernel multiplies.
#ifndef FALTUNG_SRC_ALGORITHMS_GATHERED_PRODUCT_HPP_
#define FALTUNG_SRC_ALGORITHMS_GATHERED_PRODUCT_HPP_

#include <optional>
#include <string>
#include <vector>

#include "src/algorithms/gpu.hpp"

namespace faltung::gpu {

// The product for one group and one phase of backward_data: the pixels whose taps coincide.
struct GatheredProduct {
  std::int64_t pixels, in, out;
  std::int64_t products;  // groups times phases
};
GatheredProduct gathered_product(const Problem& problem);

// A grid's second and third dimension have at most so many blocks.
inline constexpr std::int64_t kMostBlocks = 65535;
// Whether blocks of so many out channels, the fewest that a tile has, are launched at once.
Support fits_a_grid(const Problem& problem, std::int64_t block_channels);
// The same of the gradient of the weights, whose blocks have so many of a group's out channels.
Support weights_fit_a_grid(const Problem& problem, std::int64_t block_channels);

// Blocks whose tiles are of so many pixels and channels.
std::int64_t blocks_of(const Problem& problem, std::int64_t pixels, std::int64_t channels);
// Into how many parts a tile's sum, of so many steps, may be split: 1, and more while the device has units
// with little to do and each block a sum worth the exchange.
std::vector<int> splits_of(const Problem& problem, std::int64_t blocks, std::int64_t steps,
                           const DeviceInfo& device);

// The same of the gradient of the weights: as many as fill the device's room for blocks once, twice and four
// times, and most at most.
std::vector<int> weights_splits_of(std::int64_t room, std::int64_t blocks, std::int64_t most);

// What a kernel makes of it. out_pad: to so many out channels each group's weights are filled up with zeros.
// splits: so many blocks share a result's sum.
struct GatheredLaunch {
  std::int64_t out_pad = 0, splits = 1;
  LaunchShape shape;
  std::optional<Sizes> sizes = {};  // where the kernel takes others than the problem's
};
std::size_t packed_bytes(const Problem& problem, std::int64_t out_pad, const DeviceInfo& device);
// The weights as the product's kernel reads them, and the step that brings them there; packed_weights: in the
// order of kernels/gpu/gathered_product.h.
struct PackedWeights {
  std::size_t bytes;
  Step pack;
};
PackedWeights packed_weights(const Problem& problem, const std::string& kernel, std::int64_t out_pad,
                             const DeviceInfo& device);
// A kernel that is said to take so long: all of its candidate but the recipe and the maker.
template <class Choice>
Candidate gathered_candidate(const Problem& problem, const Choice& choice, double ms,
                             std::size_t packed_bytes) {
  Candidate c;
  c.config = choice.name();
  c.cost = {ms, Bound::arithmetic};
  c.workspace_bytes = shared_sum_bytes(problem, choice.splits);
  c.packed_bytes = packed_bytes;
  c.accuracy = gathering_accuracy(problem);
  return c;
}
// Packs the weights, launches the product, and finishes sums that are shared.
Recipe gathered_recipe(const Problem& problem, const std::string& kernel, jit::Source product,
                       const GatheredLaunch& launched, PackedWeights weights, const DeviceInfo& device);

}  // namespace faltung::gpu

#endif  // FALTUNG_SRC_ALGORITHMS_GATHERED_PRODUCT_HPP_
