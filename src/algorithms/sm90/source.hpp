// The text of Hopper's kernels.
#ifndef FALTUNG_SRC_ALGORITHMS_SM90_SOURCE_HPP_
#define FALTUNG_SRC_ALGORITHMS_SM90_SOURCE_HPP_

#include <string>

#include "src/algorithms/sm90/tiling.hpp"
#include "src/jit/session.hpp"

namespace faltung::sm90 {

// One translation unit, specialised as the tiling, the filter, stride, dilation, dtype and epilogue say; a
// new batch, image or channel count needs no other, but for the alignment of rows and planes, and 16-bit
// patches from buffers of rows, whose length it knows.
// `order` is of a tiling with phases.
jit::Source kernel_source(const Tiling& tiling, const Problem& problem,
                          PhaseOrder order = PhaseOrder::most_taps_first);

// activate(x, slope) as text, a clip's bounds in it: one of what kernels/sm90/activations.cuh has, which
// comes before it.
std::string activate_function(const Epilogue& epilogue, DType dtype);

}  // namespace faltung::sm90

#endif  // FALTUNG_SRC_ALGORITHMS_SM90_SOURCE_HPP_
