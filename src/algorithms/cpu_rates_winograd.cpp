// What Winograd's transforms take: timed on a block of tiles in the second-level cache.
#include "src/algorithms/cpu_rates_winograd.hpp"

#include <vector>

#include "kernels/cpu/brgemm.hpp"
#include "kernels/cpu/winograd.hpp"
#include "src/algorithms/fastest_ns.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr i64 kSize = 28, kImageChannels = 32, kTiles = 32;
constexpr int kRuns = 7;

TransformTime time(Layout layout, int m) {
  WinogradShape shape;
  shape.m = m, shape.layout = layout;
  shape.h = shape.w = shape.p = shape.q = kSize;
  shape.pad_top = shape.pad_left = 1;
  shape.x_channels = shape.y_channels = kImageChannels;
  shape.tiles_h = shape.tiles_w = kSize / m;
  const bool nhwc = layout == Layout::nhwc;
  const i64 lanes = brgemm_lanes(), columns = round_up(nhwc ? kImageChannels : kTiles, lanes);
  const i64 rows = nhwc ? kTiles : kImageChannels, position = rows * columns + 16;  // no multiple of a page
  std::vector<float> x(kSize * kSize * kImageChannels, 1.0f), y(x.size());
  std::vector<float> v(static_cast<std::size_t>(shape.positions() * position));
  std::vector<float> scratch(static_cast<std::size_t>(winograd_scratch(shape, kTiles)));
  WinogradInput in;
  in.x = x.data(), in.v = v.data(), in.scratch = scratch.data();
  in.tiles = kTiles, in.channels = kImageChannels;
  in.position_stride = position, in.row_stride = columns;
  WinogradOutput out;
  out.m = v.data(), out.y = y.data(), out.scratch = scratch.data();
  out.tiles = kTiles, out.channels = kImageChannels;
  out.position_stride = in.position_stride, out.row_stride = in.row_stride;
  const WinogradInputKernel input = winograd_input_kernel(shape);
  const WinogradOutputKernel output = winograd_output_kernel(shape);
  const double vectors = static_cast<double>(shape.positions() * rows * columns / lanes);
  return {fastest_ns(kRuns, [&] { input(shape, in); }) / vectors,
          fastest_ns(kRuns, [&] { output(shape, out); }) / vectors};
}

}  // namespace

std::array<TransformTime, kWinogradTransforms> measure_winograd() {
  std::array<TransformTime, kWinogradTransforms> times{};
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    for (const int m : {2, 4}) times[winograd_transform(layout, m)] = time(layout, m);
  }
  return times;
}

}  // namespace faltung
