// NVIDIA GPUs, through the driver's own library, opened at run time.
#ifndef FALTUNG_SRC_BACKEND_CUDA_HPP_
#define FALTUNG_SRC_BACKEND_CUDA_HPP_

#include <memory>
#include <vector>

#include "src/backend/backend.hpp"

namespace faltung {

// One for each GPU; none where there is no driver.
std::vector<std::shared_ptr<Device>> make_cuda_devices();

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_CUDA_HPP_
