// What rows.hpp has of elements by a table and of the largest: nothing but loads and stores.
#include <algorithm>

#include "kernels/cpu/rows.hpp"

namespace faltung {
namespace {

// Elements [begin, end) of the result.
template <class T>
void pick(const PickCall& call, const T* from, T* to, std::int64_t begin, std::int64_t end) {
  const std::int64_t inner = call.extent.inner;
  const std::int32_t* const index = call.index.data();
  if (inner == 1 && !call.fills) {  // the columns of images: nothing but loads and stores
    for (std::int64_t i = begin; i < end; ++i) to[i] = from[index[i]];
    return;
  }
  // By runs of neighbours, or of nothing.
  for (std::int64_t i = begin; i < end;) {
    const std::int32_t first = index[i], step = first < 0 ? 0 : 1;
    std::int64_t next = i + 1;
    while (next < end && index[next] == index[next - 1] + step) ++next;
    if (first < 0)
      std::fill_n(to + i * inner, (next - i) * inner, static_cast<T>(call.fill));
    else
      std::copy_n(from + first * inner, (next - i) * inner, to + i * inner);
    i = next;
  }
}

// How many parts an index is divided into, where nothing else is divided.
std::int64_t pick_parts(const PickCall& call) {
  constexpr std::int64_t kPart = 16384, kMany = 64;  // elements of a part, and parts
  const std::int64_t length = static_cast<std::int64_t>(call.index.size());
  const std::int64_t wanted =
      std::min(length * call.extent.inner / kPart, kMany / std::max<std::int64_t>(1, call.extent.outer));
  return std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, length));
}

}  // namespace

void best_task(const BestCall& call, const float* from, std::int64_t* to, std::int64_t task) {
  const RowsExtent& e = call.extent;
  const float sign = call.kind == BestKind::largest ? 1.0f : -1.0f;
  const bool last = call.of_equal == OfEqual::last;
  from += task * e.length * e.inner, to += task * e.inner;
  constexpr std::int64_t kBlock = 64;  // columns, so that rows are read in order
  for (std::int64_t column = 0; column < e.inner; column += kBlock) {
    const std::int64_t columns = std::min(kBlock, e.inner - column);
    float best[kBlock];
    for (std::int64_t i = 0; i < columns; ++i) best[i] = sign * from[column + i], to[column + i] = 0;
    for (std::int64_t row = 1; row < e.length; ++row) {
      const float* const x = from + row * e.inner + column;
      for (std::int64_t i = 0; i < columns; ++i) {
        const float value = sign * x[i];
        if (value > best[i] || (last && value == best[i])) best[i] = value, to[column + i] = row;
      }
    }
  }
}

std::int64_t pick_tasks(const PickCall& call) { return call.extent.outer * pick_parts(call); }

void pick_task(const PickCall& call, const std::byte* from, std::byte* to, std::int64_t task) {
  const RowsExtent& e = call.extent;
  const std::int64_t parts = pick_parts(call), part = task % parts;
  const std::int64_t length = static_cast<std::int64_t>(call.index.size());
  const std::int64_t begin = length * part / parts, end = length * (part + 1) / parts;
  task /= parts;
  const std::int64_t size = static_cast<std::int64_t>(call.bytes);
  from += task * e.length * e.inner * size;
  to += task * static_cast<std::int64_t>(call.index.size()) * e.inner * size;
  if (call.bytes == 1)
    pick(call, reinterpret_cast<const std::uint8_t*>(from), reinterpret_cast<std::uint8_t*>(to), begin, end);
  else if (call.bytes == 2)
    pick(call, reinterpret_cast<const std::uint16_t*>(from), reinterpret_cast<std::uint16_t*>(to), begin,
         end);
  else if (call.bytes == 4)
    pick(call, reinterpret_cast<const std::uint32_t*>(from), reinterpret_cast<std::uint32_t*>(to), begin,
         end);
  else
    pick(call, reinterpret_cast<const std::uint64_t*>(from), reinterpret_cast<std::uint64_t*>(to), begin,
         end);
}

}  // namespace faltung
