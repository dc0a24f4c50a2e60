#include "src/backend/cuda_tensor_map.hpp"

#include <string>
#include <variant>

#include "faltung/faltung.hpp"
#include "src/backend/cuda_driver.hpp"
#include "src/problem/dtype.hpp"

namespace faltung::cuda {
namespace {

// The driver's element types and swizzles.
int element_type(DType dtype, bool rounds_to_tf32) {
  constexpr int kTf32 = 11;
  if (rounds_to_tf32) return kTf32;
  switch (dtype) {
    case DType::f16:
      return 6;
    case DType::bf16:
      return 9;
    case DType::f32:
      return 7;
  }
  return 0;
}

int swizzle_code(int bytes) { return bytes == 0 ? 0 : bytes == 32 ? 1 : bytes == 64 ? 2 : 3; }

// The limits that the driver's interface states, checked here so that the message says which is broken.
void require(bool holds, const std::string& limit) {
  if (!holds) throw Error(Status::unsupported, "the copy engine cannot address this tensor: " + limit);
}

void require_common(const void* address, const std::int64_t* sizes, const std::int64_t* strides, int rank) {
  require(reinterpret_cast<std::uintptr_t>(address) % 16 == 0, "its address is no multiple of 16 bytes");
  for (int i = 0; i < rank; ++i) {
    require(sizes[i] >= 1 && sizes[i] <= (std::int64_t{1} << 32), "a dimension is beyond 2^32 elements");
    if (i + 1 < rank) {
      require(strides[i] % 16 == 0,
              "a stride of " + std::to_string(strides[i]) + " bytes is no multiple of 16");
      require(strides[i] < (std::int64_t{1} << 40), "a stride is beyond 2^40 bytes");
    }
  }
}

void require_limits(const TiledMap& m, const void* address) {
  require_common(address, m.size, m.stride_bytes, m.rank);
  for (int i = 0; i < m.rank; ++i) {
    require(m.box[i] >= 1 && m.box[i] <= 256, "a box of " + std::to_string(m.box[i]) + " is beyond 256");
    require(m.step[i] >= 1 && m.step[i] <= 8, "a step of " + std::to_string(m.step[i]) + " is beyond 8");
  }
}

void require_limits(const Im2colMap& m, const void* address) {
  require_common(address, m.size, m.stride_bytes, m.rank);
  const int reach = im2col_reach(m.rank);
  for (int i = 0; i + 2 < m.rank; ++i) {
    const bool within =
        m.lower[i] >= -reach - 1 && m.lower[i] <= reach && m.upper[i] >= -reach - 1 && m.upper[i] <= reach;
    require(within, "padding or filter extent beyond " + std::to_string(reach) + " pixels");
    require(m.step[i] >= 1 && m.step[i] <= 8, "a stride of " + std::to_string(m.step[i]) + " is beyond 8");
  }
}

constexpr int kPromoteTo256Bytes = 3;

TensorMap encode_tiled(const TiledMap& m, const void* address) {
  require(driver()->tensor_map_encode_tiled != nullptr, "the driver is older than CUDA 12.0");
  std::uint64_t sizes[5], strides[5] = {};
  std::uint32_t box[5], steps[5];
  for (int i = 0; i < m.rank; ++i) {
    sizes[i] = static_cast<std::uint64_t>(m.size[i]);
    box[i] = static_cast<std::uint32_t>(m.box[i]);
    steps[i] = static_cast<std::uint32_t>(m.step[i]);
    if (i + 1 < m.rank) strides[i] = static_cast<std::uint64_t>(m.stride_bytes[i]);
  }
  TensorMap map;
  check(driver()->tensor_map_encode_tiled(&map, element_type(m.dtype, m.rounds_to_tf32),
                                          static_cast<std::uint32_t>(m.rank), const_cast<void*>(address),
                                          sizes, strides, box, steps, 0, swizzle_code(m.swizzle_bytes),
                                          kPromoteTo256Bytes, 0),
        "encoding a tiled tensor map");
  return map;
}

TensorMap encode_im2col(const Im2colMap& m, const void* address) {
  require(driver()->tensor_map_encode_im2col != nullptr, "the driver is older than CUDA 12.0");
  std::uint64_t sizes[5], strides[4] = {};
  std::uint32_t steps[5] = {1, 1, 1, 1, 1};
  for (int i = 0; i < m.rank; ++i) sizes[i] = static_cast<std::uint64_t>(m.size[i]);
  for (int i = 0; i + 1 < m.rank; ++i) strides[i] = static_cast<std::uint64_t>(m.stride_bytes[i]);
  for (int i = 0; i + 2 < m.rank; ++i) steps[i + 1] = static_cast<std::uint32_t>(m.step[i]);
  TensorMap map;
  check(driver()->tensor_map_encode_im2col(
            &map, element_type(m.dtype, m.rounds_to_tf32), static_cast<std::uint32_t>(m.rank),
            const_cast<void*>(address), sizes, strides, m.lower, m.upper,
            static_cast<std::uint32_t>(m.channels), static_cast<std::uint32_t>(m.pixels), steps, 0,
            swizzle_code(m.swizzle_bytes), kPromoteTo256Bytes, 0),
        "encoding an im2col tensor map");
  return map;
}

}  // namespace

void check_limits(const MapShape& shape, const void* address) {
  std::visit([&](const auto& map) { require_limits(map, address); }, shape);
}

TensorMap encode(const MapShape& shape, const void* address) {
  check_limits(shape, address);
  if (const auto* tiled = std::get_if<TiledMap>(&shape)) return encode_tiled(*tiled, address);
  return encode_im2col(std::get<Im2colMap>(shape), address);
}

}  // namespace faltung::cuda
