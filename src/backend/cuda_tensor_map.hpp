// Tensor maps of Hopper's copy engine, encoded by the driver.
#ifndef FALTUNG_SRC_BACKEND_CUDA_TENSOR_MAP_HPP_
#define FALTUNG_SRC_BACKEND_CUDA_TENSOR_MAP_HPP_

#include "src/backend/tensor_map.hpp"

namespace faltung::cuda {

// Throws Error(unsupported) that says which limit the shape breaks. Asks no driver.
void check_limits(const MapShape& shape, const void* address);

// In the current context. Throws what check_limits does.
TensorMap encode(const MapShape& shape, const void* address);

}  // namespace faltung::cuda

#endif  // FALTUNG_SRC_BACKEND_CUDA_TENSOR_MAP_HPP_
