// Any device with an OpenCL 1.2 driver, through the loader's library, opened at run time.
#ifndef FALTUNG_SRC_BACKEND_OPENCL_HPP_
#define FALTUNG_SRC_BACKEND_OPENCL_HPP_

#include <memory>
#include <vector>

#include "src/backend/backend.hpp"

namespace faltung {

class OpenClDevice : public Device {
 public:
  // An address for a buffer (cl_mem) that the caller made, to be used like those of allocate; it holds a
  // reference to the buffer until the last owner is gone. A plan that runs on the caller's queue takes
  // buffers of that queue's context.
  virtual Buffer adopt(void* cl_mem) = 0;
};

// One for each device of each platform that has a compiler; none where there is no loader.
std::vector<std::shared_ptr<Device>> make_opencl_devices();

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_OPENCL_HPP_
