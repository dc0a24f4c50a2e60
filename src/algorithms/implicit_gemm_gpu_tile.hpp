// The choices of implicit_gemm_gpu: a block's tile and the split of the sum, and what they cost.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_GPU_TILE_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_GPU_TILE_HPP_

#include <string>
#include <vector>

#include "src/algorithms/config_name.hpp"
#include "src/algorithms/gpu.hpp"

namespace faltung::implicit_gemm {

// block: kernels/gpu/implicit_gemm.cl, many threads through local memory. wide: implicit_gemm_wide.cl, where
// the block is one thread's.
enum class Kind { block, wide };

// A block's tile and a thread's part of it. The vector side is the one whose results lie together in memory:
// pixels in nchw, channels in nhwc, the filter's columns in backward_weights.
struct Tile {
  Kind kind;
  int scalars, vectors, steps;  // BS, BV, BK
  int ts, tv, vw;               // of a thread: scalars, and vectors' elements, in vectors of so many
  gpu::AmdRegisters amd = {};
  int threads() const { return kind == Kind::wide ? 1 : scalars / ts * (vectors / tv); }
  // An upper bound over the directions and layouts.
  std::size_t local_bytes() const;
  template <class Name>
  void spell(Name& name) {
    constexpr NameWord<Kind> kKinds[] = {{Kind::wide, "wide"}, {Kind::block, ""}};
    name.word(kind, kKinds);
    name.key("bt", scalars, vectors);
    name.key("k", steps);
    name.key("tt", ts, tv);
    name.key("v", vw);
  }
};
using Choice = TileChoice<Tile>;

// Throws Error(bad_problem) if config is none.
Choice parse(const std::string& config);
// Those that serve the problem, the largest first.
std::vector<const Tile*> tiles(const Problem& problem, const DeviceInfo& device);
// Why even the smallest blocks are too many for a launch, or empty.
std::string launch_limit(const Problem& problem);
// Each tile that serves, and with it the splits worth trying.
std::vector<Choice> choices(const Problem& problem, const DeviceInfo& device);

bool vectors_are_pixels(const Problem& problem);
// The product's sides, for one group (and one phase of backward_data).
struct Shape {
  std::int64_t scalars, vectors, steps;
  std::int64_t products;  // groups times phases
};
Shape shape_of(const Problem& problem);
// Among how many blocks a result's sum is shared. backward_weights decides that by itself: enough blocks for
// the device, none with too short a sum.
std::int64_t splits_of(const Problem& problem, const Choice& choice, const DeviceInfo& device);

double predicted_ms(const Problem& problem, const Choice& choice, const DeviceInfo& device);

}  // namespace faltung::implicit_gemm

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_GPU_TILE_HPP_
