// Addresses for the buffers of OpenCL and of Vulkan.
//
// Both hand out buffers as handles, and a kernel takes a handle, not a pointer; the rest of the engine
// knows device memory as addresses that one may add to. So each buffer is given a range of the process's
// address space that is reserved and never touched: such an address is no other memory's, and leads back to
// the buffer and the offset in it.
#ifndef FALTUNG_SRC_BACKEND_BUFFER_ADDRESSES_HPP_
#define FALTUNG_SRC_BACKEND_BUFFER_ADDRESSES_HPP_

#include <cstddef>
#include <cstdint>

namespace faltung {

// Whose memory an address is.
struct BufferPlace {
  void* buffer = nullptr;  // the driver's handle; null: no buffer has this address
  std::uint64_t offset = 0;
  std::size_t bytes_left = 0;    // from the address to the buffer's end
  const void* device = nullptr;  // as given to reserve_range
  std::uint64_t serial = 0;      // the range's, which no other ever has
};

// A new range for the buffer. Throws Error(out_of_memory) if the process has no addresses left.
void* reserve_range(void* buffer, std::size_t bytes, const void* device);
void release_range(void* begin);
BufferPlace locate(const void* address);

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_BUFFER_ADDRESSES_HPP_
