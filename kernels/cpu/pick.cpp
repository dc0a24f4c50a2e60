// What rows.hpp has of elements by a table and of the largest: nothing but loads and stores.
#include <algorithm>

#include "kernels/cpu/rows.hpp"

namespace faltung {
namespace {

// Elements [begin, end) of a row of the result.
template <class T>
void pick_columns(const PickCall& call, const T* from, T* to, std::int64_t begin, std::int64_t end) {
  const std::int64_t inner = call.inner;
  const std::int32_t* const index = call.columns.index.data();
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

// A task has some rows, or of long ones a part of one.
struct Cut {
  std::int64_t rows, parts;  // of a task, and of a row
};
Cut cut_of(const PickCall& call) {
  constexpr std::int64_t kElements = 16384, kMany = 64;  // of a task, and tasks
  const std::int64_t lines = call.outer * call.rows.size(), columns = call.columns.size();
  const std::int64_t row = std::max<std::int64_t>(1, columns * call.inner);
  const std::int64_t parts =
      std::clamp<std::int64_t>(std::min(row / kElements, kMany / std::max<std::int64_t>(1, lines)), 1,
                               std::max<std::int64_t>(1, columns));
  return {std::max<std::int64_t>(1, kElements / row), parts};
}

template <class T>
void pick(const PickCall& call, const T* from, T* to, std::int64_t task) {
  const Cut cut = cut_of(call);
  const std::int64_t part = task % cut.parts, columns = call.columns.size(), rows = call.rows.size();
  const std::int64_t begin = columns * part / cut.parts, end = columns * (part + 1) / cut.parts;
  const std::int64_t first = task / cut.parts * cut.rows,
                     last = std::min(first + cut.rows, call.outer * rows);
  const std::int64_t given = call.columns.length * call.inner, row_size = columns * call.inner;
  for (std::int64_t line = first; line < last; ++line) {
    const std::int64_t outer = line / rows, row = line - outer * rows;
    const std::int32_t at = call.rows.index[static_cast<std::size_t>(row)];
    T* const result = to + line * row_size;
    if (at < 0)
      std::fill(result + begin * call.inner, result + end * call.inner, static_cast<T>(call.fill));
    else if (line > first && row > 0 &&
             call.rows.index[static_cast<std::size_t>(row - 1)] == at)  // as the one before
      std::copy(result - row_size + begin * call.inner, result - row_size + end * call.inner,
                result + begin * call.inner);
    else
      pick_columns(call, from + (outer * call.rows.length + at) * given, result, begin, end);
  }
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

std::int64_t pick_tasks(const PickCall& call) {
  const Cut cut = cut_of(call);
  return (call.outer * call.rows.size() + cut.rows - 1) / cut.rows * cut.parts;
}

void pick_task(const PickCall& call, const std::byte* from, std::byte* to, std::int64_t task) {
  const auto as = [&]<class T>(T) {
    pick(call, reinterpret_cast<const T*>(from), reinterpret_cast<T*>(to), task);
  };
  if (call.bytes == 1)
    as(std::uint8_t{});
  else if (call.bytes == 2)
    as(std::uint16_t{});
  else if (call.bytes == 4)
    as(std::uint32_t{});
  else
    as(std::uint64_t{});
}

}  // namespace faltung
