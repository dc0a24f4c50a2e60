// A network's constants as kernels read them, made once and shared by the schedules for all sizes.
#ifndef FALTUNG_SRC_NETWORK_WEIGHTS_HPP_
#define FALTUNG_SRC_NETWORK_WEIGHTS_HPP_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "src/network/graph.hpp"
#include "src/plan/plan.hpp"

namespace faltung::network {

using Bytes = std::shared_ptr<const std::byte[]>;  // aligned to 64 bytes

Bytes allocate_aligned(std::size_t bytes);
// A copy of its elements.
Bytes aligned_copy(const Constant& constant);

// Thread-safe.
class Weights {
 public:
  // Packed for the plan, whose filter is this constant in the plan's layout; w: the filter itself where the
  // kernel reads it as it is, else null.
  struct Packed {
    std::shared_ptr<const PackedWeights> packed;
    Bytes w;
  };
  // Throws Error(unsupported) where an element is beyond what the problem's type holds. parallel: who brings
  // the filter into the plan's layout. packs: else the filter itself in any case.
  Packed pack(const std::shared_ptr<const Constant>& filter, const std::shared_ptr<const PlanImpl>& plan,
              const Parallel& parallel, bool packs = true);
  // One element an output channel, of this type, where the plan's kernel reads it: a bias, or slopes.
  Bytes of_channels(const std::shared_ptr<const Constant>& from, DType dtype, const PlanImpl& plan);
  // is_finite_in (src/network/passes.hpp), once for each constant.
  bool finite_in(Type type, const std::shared_ptr<const Constant>& constant);
  // Of all of f32 that a graph reads, by every worker: often they come from the file here.
  void find_finite_in(Type type, const Graph& graph, const Parallel& parallel);

  // What packing alone needs is kept from one filter to the next until then.
  void give_back_scratch();

 private:
  // For whom it is packed, and what that depends on.
  using Key = std::tuple<const Constant*, std::string, std::string>;
  struct Entry {
    std::shared_ptr<const Constant> constant;  // which the key's address is of
    Packed packed;
  };
  Bytes scratch(std::size_t bytes);

  std::mutex mutex_;
  Bytes scratch_;
  std::size_t scratch_bytes_ = 0;
  std::map<Key, Entry> entries_;
  std::map<std::pair<const Constant*, DType>, std::pair<std::shared_ptr<const Constant>, Bytes>> of_channels_;
  std::map<std::pair<const Constant*, Type>, std::pair<std::shared_ptr<const Constant>, bool>> finite_in_;
};

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_WEIGHTS_HPP_
