// A kernel to try out what a new algorithm touches: tests/changes_test.py.
#ifndef FALTUNG_KERNELS_CPU_TOY_HPP_
#define FALTUNG_KERNELS_CPU_TOY_HPP_

#include "faltung/faltung.hpp"

namespace faltung {

// All of one output plane of a forward f32 convolution without an epilogue.
void toy_plane(const Problem& problem, const Tensors& tensors, std::int64_t image, std::int64_t channel);

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_TOY_HPP_
