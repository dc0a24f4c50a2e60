// The moments of groups of an image's channels, as one step of a GPU: a group norm is then elementwise.
#ifndef FALTUNG_SRC_NETWORK_MOMENTS_HPP_
#define FALTUNG_SRC_NETWORK_MOMENTS_HPP_

#include <cstdint>

#include "kernels/cpu/map.hpp"
#include "src/network/reduction.hpp"
#include "src/problem/problem.hpp"

namespace faltung::network {

// Reads the image in either layout, writes in f32 a mean for each channel of each image, which is its
// group's, and behind all of them one over the square root of the variance and epsilon. The CPU has no kernel
// for it: rows that are standardized stay in its cache.
struct MomentsCall {
  std::int64_t images = 1, channels = 1, pixels = 1, groups = 1;
  std::int64_t pitch = 1;  // channels of the image that this one lies in
  Layout layout = Layout::nchw;
  MapElement x = MapElement::f32;
  float epsilon = 0;
};
inline std::int64_t moments_of(const MomentsCall& call) { return call.images * call.channels; }

// A node that standardizes groups of an image's channels: rows of memory in NCHW, and where such a step has
// their moments a part of an elementwise chain.
bool standardizes_groups(const Node& node);
// Each group of its images of this shape, which in NCHW is one run of memory.
Extent rows_of_groups(const Shape& shape, const Node& node);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_MOMENTS_HPP_
