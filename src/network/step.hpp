// A step of a scheduled network, as data: what it computes, and where in memory.
//
// On the CPU a step is run by the kernels of kernels/cpu; nothing in it is an address or a function, so that
// a GPU can make launches of the same step, bound to an arena of its own.
#ifndef FALTUNG_SRC_NETWORK_STEP_HPP_
#define FALTUNG_SRC_NETWORK_STEP_HPP_

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kernels/cpu/map.hpp"
#include "kernels/cpu/pool.hpp"
#include "kernels/cpu/product.hpp"
#include "kernels/cpu/rows.hpp"
#include "src/network/attention.hpp"
#include "src/network/gate.hpp"
#include "src/network/layer.hpp"
#include "src/network/moments.hpp"
#include "src/network/normalize.hpp"
#include "src/network/scaled.hpp"
#include "src/network/strips.hpp"
#include "src/plan/plan.hpp"

namespace faltung::network {

// A pool alone: the problem's epilogue, over its convolution's result; in nhwc of slices.
struct PoolWork {
  Problem problem;
  PoolPitches pitches;
};

using Work =
    std::variant<ConvolutionWork, StripsWork, ScaledWork, PoolWork, MapCall, RowsCall, TapsCall, PickCall,
                 BestCall, ProductCall, GateCall, LayerCall, AttentionCall, MomentsCall, NormalizeCall>;
const char* kind(const Work& work);

// Memory: of the arena, of a constant, or the caller's.
struct Place {
  enum class In : std::uint8_t { arena, constant, input, output };
  In in = In::arena;
  std::size_t index = 0;   // of the constant, input or output
  std::size_t offset = 0;  // bytes
};

struct NetworkStep {
  std::string name;  // of the nodes that it computes
  Work work;
  std::vector<Place> reads;
  Place write;
  std::optional<Place> averages;  // of strips
  std::size_t workspace_bytes = 0;
  Place workspace;
  double predicted_ms = 0;  // 0 where nothing is known
  std::string note;         // what `network explain` tells of it
};

// reads: as many as the step has, and no more than kMapRegisters. averages: null where it has none.
void run_work(const Work& work, const std::byte* const* reads, std::byte* write, std::byte* averages,
              std::byte* workspace, const Parallel& parallel);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_STEP_HPP_
