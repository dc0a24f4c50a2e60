// The product of matrices in memory that some algorithms for GPUs end in: kernels/gpu/matrix_product.cl.
#ifndef FALTUNG_SRC_ALGORITHMS_MATRIX_PRODUCT_HPP_
#define FALTUNG_SRC_ALGORITHMS_MATRIX_PRODUCT_HPP_

#include <string>

#include "src/algorithms/gpu.hpp"

namespace faltung::gpu {

// A block's tile of the product and a thread's part of it, as tile_product.h has them.
struct ProductTile {
  int scalars, vectors, steps;  // BS, BV, BK
  int ts, tv, vw;               // of a thread: scalars, and vectors' elements, in vectors of so many
  int threads() const { return scalars / ts * (vectors / tv); }
  std::size_t local_bytes() const {
    return std::size_t{8} * static_cast<std::size_t>((scalars + vectors) * steps);
  }
  template <class Name>
  void spell(Name& name) {
    name.key("bt", scalars, vectors);
    name.key("k", steps);
  }
};

// The largest first.
inline constexpr ProductTile kProductTiles[] = {
    {128, 128, 8, 8, 8, 4}, {64, 64, 16, 4, 4, 4}, {16, 64, 16, 2, 4, 4}};
bool serves(const ProductTile& tile, const DeviceInfo& device);

// matrix: of floats. output: forward's results, which go through the epilogue into y.
enum class ProductResult { matrix, output };
// Of an output.
enum class VectorsAlong { channels, pixels };
// The kernel for matrices of problem's dtype.
jit::Source product_source(const DeviceInfo& device, const std::string& kernel, Problem problem,
                           const ProductTile& tile, ProductResult result, VectorsAlong vectors);

// One product of each group (sizes.groups of them), as the kernel's arguments say it.
struct Product {
  Slot scalars, vectors, result;
  std::int64_t steps, pitch_s, pitch_v;
  std::int64_t rows, columns;  // of the result: along scalars, along vectors
  std::int64_t pitch_out = 0, first_part = 0, parts = 1, first_image = 0;
};
Step product_step(jit::Source source, const ProductTile& tile, const Product& product, const Sizes& sizes);

}  // namespace faltung::gpu

#endif  // FALTUNG_SRC_ALGORITHMS_MATRIX_PRODUCT_HPP_
