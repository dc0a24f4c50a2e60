// A window that slides over an image: what Conv, ConvTranspose and the pools have in common.
#ifndef FALTUNG_SRC_NETWORK_WINDOW_HPP_
#define FALTUNG_SRC_NETWORK_WINDOW_HPP_

#include <array>

#include "src/network/operator.hpp"

namespace faltung::network {

// Always three dimensions; those that a tensor lacks come first, of size 1.
using Triple = std::array<std::int64_t, 3>;

struct Window {
  int dimensions = 2;  // of them, the last ones are the tensor's
  Triple image{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1};
  Triple before{}, after{};  // padding
  Triple beyond{};           // of after, what is no padding: there ceil_mode's last window reaches
  Triple out{1, 1, 1};
  // How far a kernel reaches.
  std::int64_t extent(std::size_t d) const { return dilation[d] * (kernel[d] - 1) + 1; }
};

// Of Conv and faltung.Conv, MaxPool, AveragePool: image is the input's, out the result's. weights: the shape
// of a convolution's; a pool has none.
Window read_window(const Site& site, const Shape* weights = nullptr);
// Of ConvTranspose: image is the input's; out may be larger than what the windows reach.
Window read_transposed_window(const Site& site, const Shape& weights);

// n, c and the image.
Shape with_image(std::int64_t n, std::int64_t c, const Triple& image, int dimensions);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_WINDOW_HPP_
