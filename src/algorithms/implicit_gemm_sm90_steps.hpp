// What is done before Hopper's implicit GEMM: tensors are brought into the form that its kernels read.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_SM90_STEPS_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_SM90_STEPS_HPP_

#include <functional>
#include <string>

#include "src/backend/cuda.hpp"
#include "src/plan/recipe.hpp"
#include "src/problem/problem.hpp"

namespace faltung::sm90 {

using Place = std::function<void*(const Invocation&)>;

// Images of c channels in the problem's layout to pixels of padded_channels in NHWC; a filter is K images. Of
// an input that is thinned only the pixels that the strides take. What compiling took is added to the
// recipe's.
Step to_pixels(const std::string& name, CudaDevice& device, const Problem& problem, bool filter, Place from,
               Place to, Recipe& recipe);
// Windows' rows as pixels of folded channels: of the input, or of the filter as K images with one column.
Step gather(const std::string& name, CudaDevice& device, const Problem& problem, bool filter, Place from,
            Place to, Recipe& recipe);
// Blocks of pixels, as wide and high as the strides, as pixels of more channels: of the input, or of the
// filter as K images.
Step space_to_depth(const std::string& name, CudaDevice& device, const Problem& problem, bool filter,
                    Place from, Place to, Recipe& recipe);
// 32-bit weights in the kernel's order, split in parts, where the packed ones lie.
Step split(CudaDevice& device, const Problem& problem, Place from, Recipe& recipe);

}  // namespace faltung::sm90

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_SM90_STEPS_HPP_
