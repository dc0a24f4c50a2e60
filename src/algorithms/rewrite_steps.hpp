// The steps around a rewritten problem: a tensor of the inner problem out of the outer one's, and back, by
// the rewrite's index map alone.
#ifndef FALTUNG_SRC_ALGORITHMS_REWRITE_STEPS_HPP_
#define FALTUNG_SRC_ALGORITHMS_REWRITE_STEPS_HPP_

#include <string>

#include "src/plan/step.hpp"
#include "src/problem/rewrite.hpp"

namespace faltung {

// gather writes all of the inner tensor, zeros too. scatter writes those elements of the outer tensor that
// have an inner one.
enum class CopyWay { gather, scatter };

// A tensor on its way from one problem to the other.
struct TensorCopy {
  CopyWay way;
  IndexMap map;
  TensorShape inner, outer;  // how both lie in memory; the inner one densely
  DType dtype;
  Layout outer_layout;

  const TensorShape& target() const { return way == CopyWay::gather ? inner : outer; }
  std::size_t inner_bytes() const;
};
// Of an inner operand that is read, of the inner result.
TensorCopy gather_of(const Problem& outer, const Rewrite& rewrite, Operand inner_operand);
TensorCopy scatter_of(const Problem& outer, const Rewrite& rewrite);

// The CPU's step, and that of any GPU. `kernel` names the program in messages.
Step copy_call(const std::string& name, const TensorCopy& copy, Slot from, Slot to);
Step copy_launch(const std::string& name, const std::string& kernel, const TensorCopy& copy, Slot from,
                 Slot to, const DeviceInfo& device);

// Planes to pixels (nchw to nhwc, element for element) by the kernel that is tuned for it: channels of whole
// chunks of 16 bytes, on CUDA.
Step turn_planes_launch(const std::string& name, const std::string& kernel, const Problem& problem,
                        const TensorCopy& copy, Slot from, Slot to, const DeviceInfo& device);

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_REWRITE_STEPS_HPP_
