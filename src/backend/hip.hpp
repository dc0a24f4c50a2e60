// AMD GPUs, through HIP's own library, opened at run time.
#ifndef FALTUNG_SRC_BACKEND_HIP_HPP_
#define FALTUNG_SRC_BACKEND_HIP_HPP_

#include <memory>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"

namespace faltung {

// One for each GPU that the driver serves; none where there is no driver.
std::vector<std::shared_ptr<Device>> make_hip_devices();
// Why there are none.
const std::string& hip_missing();

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_HIP_HPP_
