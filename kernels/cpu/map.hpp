// Elementwise chains over broadcast and strided tensors, and copies between strides: what a network has
// beside convolutions, products and reductions.
#ifndef FALTUNG_KERNELS_CPU_MAP_HPP_
#define FALTUNG_KERNELS_CPU_MAP_HPP_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace faltung {

enum class MapOp : std::uint8_t {
#define FALTUNG_MAP(op, inputs, value) op,
#include "kernels/common/map_ops.inc"
#undef FALTUNG_MAP
};

// How an element lies in memory. Programs compute in fp32; what is copied is not looked at.
enum class MapElement : std::uint8_t { f32, boolean, i32, i64, f16, bf16 };
inline constexpr bool is_half(MapElement element) {
  return element == MapElement::f16 || element == MapElement::bf16;
}
inline constexpr std::size_t size_of(MapElement element) {
  return element == MapElement::boolean ? 1 : is_half(element) ? 2 : element == MapElement::i64 ? 8 : 4;
}

inline constexpr int kMapRank = 8;
inline constexpr int kMapRegisters = 24;

// Strides, in elements, in the dimensions of the call: 0 where it is broadcast.
struct MapOperand {
  MapElement element = MapElement::f32;
  std::int64_t offset = 0;
  std::array<std::int64_t, kMapRank> strides{};
  bool operator==(const MapOperand&) const = default;
};

// to = op(x, y, z): numbers of registers.
struct MapInstruction {
  MapOp op = MapOp::copy;
  std::uint8_t to = 0, x = 0, y = 0, z = 0;
  float a = 0, b = 0;
};

struct MapCall {
  int rank = 1;  // at least 1
  std::array<std::int64_t, kMapRank> sizes{1};
  std::vector<MapOperand> inputs;       // in the registers 0, 1, ...
  MapOperand output;                    // what the last instruction has written
  std::vector<MapInstruction> program;  // empty: the first input is copied, in any order of dimensions
};

// Independent parts of it; in any order, on any thread.
std::int64_t map_tasks(const MapCall& call);
// inputs: one pointer an operand. The output may be an input of the same strides.
void map_task(const MapCall& call, const std::byte* const* inputs, std::byte* output, std::int64_t task);

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_MAP_HPP_
