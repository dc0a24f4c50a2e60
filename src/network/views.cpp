#include "src/network/views.hpp"

#include <algorithm>
#include <numeric>
#include <string>

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// The result as a view of six dimensions: n, and of c, h, w what lies outside and inside of a block.
template <bool kToDepth>
View blocks(const Site& s, const Shape& strides) {
  const Shape& x = s.in(0).shape;
  const i64 b = s.node().integer("blocksize", 0);
  s.require(x.size() == 4 && b > 0 && b < (1 << 20), "it needs four dimensions and a block size");
  const i64 n = x[0], c = x[1], h = x[2], w = x[3];
  const i64 image = strides[0], plane = strides[1], row = strides[2], pixel = strides[3];
  const std::string mode = s.node().text("mode", "DCR");
  s.require(mode == "DCR" || mode == "CRD", "its mode is neither DCR nor CRD");
  if (kToDepth) {
    s.require(h % b == 0 && w % b == 0, "its image is no multiple of the block");
    if (mode == "CRD") return {{n, c, b, b, h / b, w / b}, {image, plane, row, pixel, b * row, b * pixel}, 0};
    return {{n, b, b, c, h / b, w / b}, {image, row, pixel, plane, b * row, b * pixel}, 0};
  }
  s.require(c % (b * b) == 0, "its channels are no multiple of the block's pixels");
  const i64 k = c / (b * b);
  if (mode == "DCR") return {{n, k, h, b, w, b}, {image, plane, row, b * k * plane, pixel, k * plane}, 0};
  return {{n, k, h, b, w, b}, {image, b * b * plane, row, b * plane, pixel, plane}, 0};
}

}  // namespace

View transpose_view(const Site& s) {
  const Shape& from = s.in(0).shape;
  const i64 rank = s.in(0).rank();
  std::vector<i64> order(from.size());
  std::iota(order.rbegin(), order.rend(), 0);
  order = s.node().integers("perm").value_or(order);
  s.require(static_cast<i64>(order.size()) == rank, "its permutation has another number of dimensions");
  View view;
  for (const std::size_t axis : s.axes(order, rank)) {
    view.shape.push_back(from[axis]);
    view.strides.push_back(contiguous_strides(from)[axis]);
  }
  return view;
}

View expand_view(const Site& s) {
  try {
    View view{broadcast(s.in(0).shape, s.integers(1)), {}, 0};
    elements(view.shape);
    view.strides = broadcast_strides(s.in(0).shape, view.shape);
    return view;
  } catch (const Error& error) {
    s.fail(error.what());
  }
}

View slice_view(const Site& s) {
  const auto starts = s.integers("starts", 1), ends = s.integers("ends", 2), steps = s.integers("steps", 4);
  auto given = s.integers("axes", 3);
  s.require(starts && ends && starts->size() == ends->size(), "its starts and ends do not match");
  if (!given) given.emplace(starts->size()), std::iota(given->begin(), given->end(), 0);
  s.require(given->size() == starts->size() && (!steps || steps->size() == starts->size()),
            "its axes or steps do not match its starts");
  View view{s.in(0).shape, contiguous_strides(s.in(0).shape), 0};
  const std::vector<std::size_t> axes = s.axes(*given, s.in(0).rank());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    i64& size = view.shape[axes[i]];
    i64& stride = view.strides[axes[i]];
    const i64 step = steps ? (*steps)[i] : 1;
    s.require(step != 0, "a step of 0");
    const auto bound = [&](i64 v, i64 least, i64 most) {
      return std::clamp(v < 0 ? v + size : v, least, most);
    };
    const i64 last = std::max<i64>(size - 1, 0);
    const i64 begin = step > 0 ? bound((*starts)[i], 0, size) : bound((*starts)[i], 0, last);
    const i64 end = step > 0 ? bound((*ends)[i], 0, size) : bound((*ends)[i], -1, last);
    const i64 span = step > 0 ? end - begin : begin - end,
              stretch = std::abs(std::max(step, -(i64{1} << 62)));
    size = size == 0 || span <= 0 ? 0 : (span - 1) / stretch + 1;
    if (size > 0) view.begin += begin * stride;
    stride = size > 1 ? stride * step : stride;
  }
  return view;
}

View depth_to_space_view(const Site& site) {
  return depth_to_space_view(site, contiguous_strides(site.in(0).shape));
}
View depth_to_space_view(const Site& site, const Shape& strides) { return blocks<false>(site, strides); }
View space_to_depth_view(const Site& site) {
  return blocks<true>(site, contiguous_strides(site.in(0).shape));
}

}  // namespace faltung::network
