// What implicit_gemm_mma_gpu's products share: the tile of the sum, and what a sum of tiles takes.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_MMA_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_MMA_HPP_

#include <algorithm>
#include <cstdint>

#include "src/algorithms/gathered_product.hpp"
#include "src/problem/dtype.hpp"

namespace faltung::mma {

using gpu::kMostBlocks;
// A tile of the sum has so many bytes of each pixel, or channel; the copies bring chunks of them.
constexpr int kStepBytes = 128, kChunkBytes = 16;
inline std::int64_t steps_of_tile(DType dtype) { return kStepBytes / size_of(dtype); }
inline std::int64_t elements_of_chunk(DType dtype) { return kChunkBytes / size_of(dtype); }

// The blocks of one multiprocessor, in rounds of as many as it holds.
struct Rounds {
  std::int64_t blocks, resident;
  std::int64_t tiles;  // of a block's sum
  std::int64_t area;   // of a block's tile of results
  double gflops;       // of a multiprocessor that such blocks fill, 16-bit
  double least_ms;     // that a tile of the sum takes, if nothing else is in the way
  double gathering;    // how much longer it takes for what is gathered

  // The constants are fitted to resnet50's rows on an H200.
  double ms(DType dtype) const {
    constexpr double kRoundMs = 0.0034;  // a round begins, fills its stages, and writes
    const double rate = gflops * (size_of(dtype) == 2 ? 1 : 0.45);
    const double tile_ms =
        2.0 * static_cast<double>(area) * static_cast<double>(steps_of_tile(dtype)) / rate * 1e-6;
    const auto round_ms = [&](std::int64_t count) {
      if (count == 0) return 0.0;
      return kRoundMs + static_cast<double>(tiles) *
                            std::max(static_cast<double>(count) * tile_ms, least_ms) * gathering;
    };
    return static_cast<double>(blocks / resident) * round_ms(resident) + round_ms(blocks % resident);
  }
};

}  // namespace faltung::mma

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_MMA_HPP_
