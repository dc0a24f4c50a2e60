#include "src/network/window.hpp"

#include <algorithm>

namespace faltung::network {
namespace {

using i64 = std::int64_t;
constexpr i64 kMost = i64{1} << 31;  // of any size, stride or pad: nothing computed from them overflows

// An attribute with one number a dimension.
Triple triple(const Site& s, const char* key, int dimensions, i64 least, i64 otherwise) {
  Triple all{otherwise, otherwise, otherwise};
  const std::size_t first = static_cast<std::size_t>(3 - dimensions);
  for (std::size_t d = 0; d < first; ++d) all[d] = least;  // a dimension that the tensor has not
  const auto given = s.node().integers(key);
  if (!given) return all;
  s.require(given->size() == static_cast<std::size_t>(dimensions),
            std::string(key) + " has not one number a dimension of the image");
  for (std::size_t d = 0; d < given->size(); ++d) {
    s.require((*given)[d] >= least && (*given)[d] < kMost, std::string(key) + " has a number out of range");
    all[first + d] = (*given)[d];
  }
  return all;
}

Window begin_window(const Site& s, const Shape* weights) {
  const Shape& shape = s.in(0).shape;
  Window w;
  w.dimensions = static_cast<int>(shape.size()) - 2;
  if (w.dimensions < 1) s.fail("it needs an image, and its input has shape " + to_string(shape));
  if (w.dimensions > 3) s.decline("images of more than three dimensions are not known");
  const std::size_t first = static_cast<std::size_t>(3 - w.dimensions);
  for (std::size_t d = first; d < 3; ++d) w.image[d] = shape[d - first + 2];
  if (weights == nullptr) {
    s.require(s.node().has("kernel_shape"), "it has no kernel_shape");
    w.kernel = triple(s, "kernel_shape", w.dimensions, 1, 1);
  } else {
    s.require(weights->size() == shape.size(),
              "its weights have another number of dimensions than its input");
    for (std::size_t d = first; d < 3; ++d) w.kernel[d] = (*weights)[d - first + 2];
    const Triple said = triple(s, "kernel_shape", w.dimensions, 1, 0);
    for (std::size_t d = first; d < 3; ++d)
      s.require(said[d] == 0 || said[d] == w.kernel[d], "its kernel_shape is not that of its weights");
  }
  w.stride = triple(s, "strides", w.dimensions, 1, 1);
  w.dilation = triple(s, "dilations", w.dimensions, 1, 1);
  for (std::size_t d = 0; d < 3; ++d)
    s.require(w.kernel[d] < kMost && w.extent(d) < kMost, "its kernel is too large");
  if (const auto pads = s.node().integers("pads")) {
    const auto n = static_cast<std::size_t>(w.dimensions);
    s.require(pads->size() == 2 * n, "it has not two pads a dimension");
    for (std::size_t d = 0; d < n; ++d) {
      s.require(std::abs((*pads)[d]) < kMost && std::abs((*pads)[n + d]) < kMost, "a pad is too large");
      w.before[first + d] = (*pads)[d], w.after[first + d] = (*pads)[n + d];
    }
  }
  return w;
}

// total, divided so that SAME_UPPER has the odd one at the end.
void share_pads(Window& w, std::size_t d, i64 total, bool upper) {
  w.before[d] = upper ? total / 2 : total - total / 2;
  w.after[d] = total - w.before[d];
}

std::string read_auto_pad(const Site& s) {
  const std::string mode = s.node().text("auto_pad", "NOTSET");
  s.require(mode == "NOTSET" || mode == "VALID" || mode == "SAME_UPPER" || mode == "SAME_LOWER",
            "its auto_pad " + in_quotes(mode) + " is not known");
  return mode;
}

}  // namespace

Window read_window(const Site& s, const Shape* weights) {
  Window w = begin_window(s, weights);
  const std::string mode = read_auto_pad(s);
  if (mode == "VALID") w.before = w.after = {};
  const bool ceil = s.node().integer("ceil_mode", 0) != 0;
  for (std::size_t d = 0; d < 3; ++d) {
    if (mode.starts_with("SAME")) {
      const i64 out = (w.image[d] + w.stride[d] - 1) / w.stride[d];
      share_pads(w, d, std::max<i64>(0, (out - 1) * w.stride[d] + w.extent(d) - w.image[d]),
                 mode == "SAME_UPPER");
    }
    const i64 room = w.image[d] + w.before[d] + w.after[d] - w.extent(d);
    // With ceil_mode a single window may reach beyond a smaller image.
    s.require(room >= 0 || (ceil && room > -w.stride[d]), "its kernel is larger than its padded image");
    w.out[d] = room < 0 ? 0 : room / w.stride[d] + 1;
    if (ceil && room % w.stride[d] != 0 && w.out[d] * w.stride[d] < w.image[d] + w.before[d]) {
      w.beyond[d] = (room < 0 ? 0 : w.stride[d]) - room % w.stride[d];
      w.after[d] += w.beyond[d];
      ++w.out[d];
    }
  }
  return w;
}

Window read_transposed_window(const Site& s, const Shape& weights) {
  Window w = begin_window(s, &weights);
  const std::string mode = read_auto_pad(s);
  const Triple more = triple(s, "output_padding", w.dimensions, 0, 0);
  const bool sized = s.node().has("output_shape");
  const Triple wanted = sized ? triple(s, "output_shape", w.dimensions, 1, 1) : Triple{1, 1, 1};
  if (mode == "VALID") w.before = w.after = {};
  for (std::size_t d = static_cast<std::size_t>(3 - w.dimensions); d < 3; ++d) {
    const i64 full = w.stride[d] * (w.image[d] - 1) + more[d] + w.extent(d);
    if (sized || mode.starts_with("SAME")) {
      w.out[d] = sized ? wanted[d] : w.image[d] * w.stride[d];
      share_pads(w, d, std::max<i64>(0, full - w.out[d]), mode == "SAME_UPPER");
    } else {
      w.out[d] = full - w.before[d] - w.after[d];
    }
    s.require(w.out[d] > 0 && w.out[d] < kMost, "its padding leaves nothing of its result");
  }
  return w;
}

Shape with_image(i64 n, i64 c, const Triple& image, int dimensions) {
  Shape shape{n, c};
  shape.insert(shape.end(), image.end() - dimensions, image.end());
  return shape;
}

}  // namespace faltung::network
