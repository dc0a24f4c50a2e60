// The product of matrices in memory that some algorithms for GPUs end in: kernels/gpu/matrix_product.cl.
#ifndef FALTUNG_SRC_ALGORITHMS_MATRIX_PRODUCT_HPP_
#define FALTUNG_SRC_ALGORITHMS_MATRIX_PRODUCT_HPP_

#include <span>
#include <string>

#include "src/algorithms/gpu.hpp"

namespace faltung::gpu {

// A block's tile of the product and a thread's part of it, as tile_product.h has them.
struct ProductTile {
  int scalars, vectors, steps;  // BS, BV, BK
  int ts, vn, vw;
  int threads() const { return scalars / ts * (vectors / (vn * vw)); }
  std::size_t local_bytes() const {
    return std::size_t{8} * static_cast<std::size_t>((scalars + vectors) * steps);
  }
  std::string name() const;  // e.g. b64x64k16
};

// The largest first.
std::span<const ProductTile> product_tiles();
bool serves(const ProductTile& tile, const DeviceInfo& device);

// The kernel for matrices of problem's dtype. to_output: the results are forward's, and go through problem's
// epilogue into y; else they stay a matrix of floats. vector_pixels: vectors run along pixels.
jit::Built build_product(Device& device, const std::string& kernel, Problem problem, const ProductTile& tile,
                         bool to_output, bool vector_pixels);

// One product of each group (sizes.groups of them), as the kernel's arguments say it.
struct Product {
  const void *scalars, *vectors;
  void* result;
  std::int64_t steps, pitch_s, pitch_v;
  std::int64_t rows, columns;  // of the result: along scalars, along vectors
  std::int64_t pitch_out = 0, first_part = 0, parts = 1, first_image = 0;
};
void launch_product(Device& device, const Kernel& kernel, const ProductTile& tile, const Product& product,
                    const Tensors& tensors, const Sizes& sizes, const Stream& stream);

}  // namespace faltung::gpu

#endif  // FALTUNG_SRC_ALGORITHMS_MATRIX_PRODUCT_HPP_
