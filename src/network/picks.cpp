#include "src/network/picks.hpp"

#include <algorithm>

#include "src/network/reduction.hpp"

namespace faltung::network {

std::size_t memory_axis(std::size_t axis, const Shape& shape, Layout layout) {
  constexpr std::size_t kNhwc[] = {0, 3, 1, 2};
  return is_image(shape) && layout == Layout::nhwc ? kNhwc[axis] : axis;
}
Shape memory_shape(const Shape& shape, Layout layout) {
  Shape lies(shape.size());
  for (std::size_t d = 0; d < shape.size(); ++d) lies[memory_axis(d, shape, layout)] = shape[d];
  return lies;
}

void lower_picked(Lowering& lowering, const Node& node, Picked picked, Ref from,
                  const std::function<Ref()>& result, Layout layout) {
  Shape& shape = picked.shape;
  std::vector<std::size_t> changed;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (!picked.tables[d].empty()) changed.push_back(d);
  }
  for (std::size_t i = 0; i < changed.size();) {
    const std::size_t first = changed[i];
    const bool pair = i + 1 < changed.size() && changed[i + 1] == first + 1;
    const std::size_t last = pair ? first + 1 : first;
    PickCall call;
    call.outer = extent(shape, first, first + 1).outer, call.inner = extent(shape, last, last + 1).inner;
    call.bytes = picked.bytes, call.fill = picked.fill;
    const auto axis = [&](std::size_t d) {
      PickedAxis of{shape[d], std::move(picked.tables[d])};
      call.fills = call.fills || std::ranges::find(of.index, -1) != of.index.end();
      shape[d] = of.size();
      return of;
    };
    if (pair) call.rows = axis(first);
    call.columns = axis(last);
    i += pair ? 2 : 1;
    const bool is_last = i == changed.size();
    const Ref to =
        is_last ? result() : lowering.scratch(static_cast<std::size_t>(elements(shape)) * picked.bytes);
    lowering.emit(node, std::move(call), {from}, to, layout);
    from = to;
  }
}

}  // namespace faltung::network
