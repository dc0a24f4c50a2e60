// Convolutions and pools.
#include <algorithm>
#include <cmath>
#include <limits>

#include "src/network/epilogue.hpp"
#include "src/network/window.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

i64 volume(const Triple& t) { return t[0] * t[1] * t[2]; }

// ---- convolution

Window conv_window(const Site& s) { return read_window(s, &s.in(1).shape); }

std::vector<Result> conv(const Site& s) {
  const Shape &x = s.in(0).shape, &w = s.in(1).shape;
  const Window window = conv_window(s);
  const i64 groups = s.node().integer("group", 1), k = w[0];
  s.require(groups > 0 && k % groups == 0 && x[1] == w[1] * groups,
            "weights of shape " + to_string(w) + " do not fit an input of shape " + to_string(x));
  if (s.has(2)) s.require(elements(s.in(2).shape) == k, "its bias has not one element an output channel");
  return {{s.in(0).type, with_image(x[0], k, window.out, window.dimensions)}};
}

// One image and channel of the result, from its input channels.
void add_plane(const Window& w, const double* x, const double* filter, double* y) {
  for (i64 r0 = 0; r0 < w.kernel[0]; ++r0)
    for (i64 r1 = 0; r1 < w.kernel[1]; ++r1)
      for (i64 r2 = 0; r2 < w.kernel[2]; ++r2) {
        const double weight = *filter++;
        const i64 shift = r2 * w.dilation[2] - w.before[2], step = w.stride[2];
        // The columns whose windows' element lies inside of the image.
        const i64 first = shift >= 0 ? 0 : (-shift + step - 1) / step;
        const i64 last =
            w.image[2] - 1 - shift < 0 ? -1 : std::min(w.out[2] - 1, (w.image[2] - 1 - shift) / step);
        for (i64 p0 = 0; p0 < w.out[0]; ++p0) {
          const i64 h0 = p0 * w.stride[0] + r0 * w.dilation[0] - w.before[0];
          if (h0 < 0 || h0 >= w.image[0]) continue;
          for (i64 p1 = 0; p1 < w.out[1]; ++p1) {
            const i64 h1 = p1 * w.stride[1] + r1 * w.dilation[1] - w.before[1];
            if (h1 < 0 || h1 >= w.image[1]) continue;
            const double* const from = x + (h0 * w.image[1] + h1) * w.image[2] + shift;
            double* const to = y + (p0 * w.out[1] + p1) * w.out[2];
            if (step == 1) {
              for (i64 q = first; q <= last; ++q) to[q] += weight * from[q];
            } else {
              for (i64 q = first; q <= last; ++q) to[q] += weight * from[q * step];
            }
          }
        }
      }
}

void evaluate_conv(const Site& s, std::vector<Array>& out) {
  const Window w = conv_window(s);
  const Shape &x = s.in(0).shape, &f = s.in(1).shape;
  const i64 k = f[0], c = f[1], groups = s.node().integer("group", 1);
  const i64 in_plane = volume(w.image), out_plane = volume(w.out), taps = volume(w.kernel);
  for (i64 n = 0; n < x[0]; ++n) {
    for (i64 i = 0; i < k; ++i) {
      double* const y = out[0].data.data() + (n * k + i) * out_plane;
      std::fill_n(y, out_plane, s.has(2) ? s.in(2).data[i] : 0.0);
      for (i64 j = 0; j < c; ++j) {
        const i64 channel = i / (k / groups) * c + j;
        add_plane(w, s.in(0).data + (n * x[1] + channel) * in_plane, s.in(1).data + (i * c + j) * taps, y);
      }
    }
  }
}

// ---- with an epilogue, as a pass leaves it

Site without_epilogue(const Site& s, Node& bare) {
  bare = s.node();
  std::vector<const Operand*> inputs;
  for (std::size_t i = 0; i < 3; ++i) inputs.push_back(s.has(i) ? &s.in(i) : nullptr);
  return {bare, s.opset(), std::move(inputs)};
}
Operand operand(const Array& array) { return {array.type, array.shape, array.data.data()}; }

// The pool that follows, as a node of its own.
Node pool_node(const Site& s) {
  Node pool = s.node();
  pool.op = s.node().text("pool", "");
  pool.attributes.clear();
  for (const auto& [key, value] : s.node().attributes) {
    if (key.starts_with("pool_")) pool.attributes.emplace(key.substr(5), value);
  }
  return pool;
}
const Operator& pool_operator(const Site& s, const Node& pool) {
  const Operator* row = find_operator(pool);
  if (row == nullptr) s.fail("its pool is not known");
  return *row;
}

std::vector<Result> fused_conv(const Site& s) {
  Node bare;
  std::vector<Result> results = conv(without_epilogue(s, bare));
  if (s.has(3)) s.require(s.in(3).shape == results[0].shape, "its residual is not of its result's shape");
  if (!s.node().has("pool")) return results;
  const Node pool = pool_node(s);
  const Operand y{results[0].type, results[0].shape, nullptr};
  return pool_operator(s, pool).shapes({pool, s.opset(), {&y}});
}
void evaluate_fused_conv(const Site& s, std::vector<Array>& out) {
  Node bare;
  const Site inner = without_epilogue(s, bare);
  const Result result = conv(inner)[0];
  std::vector<Array> y{
      {result.type, result.shape, std::vector<double>(static_cast<std::size_t>(elements(result.shape)))}};
  evaluate_conv(inner, y);
  const NodeEpilogue finish(s.node());
  const i64 k = result.shape[1], pixels = elements(result.shape) / std::max<i64>(1, result.shape[0] * k);
  for (std::size_t i = 0; i < y[0].data.size(); ++i) {
    const i64 channel = static_cast<i64>(i) / pixels % k;
    y[0].data[i] = finish(channel, y[0].data[i], s.has(3) ? &s.in(3).data[i] : nullptr);
  }
  if (!s.node().has("pool")) return std::swap(out[0].data, y[0].data);
  const Node pool = pool_node(s);
  const Operand x = operand(y[0]);
  pool_operator(s, pool).evaluate({pool, s.opset(), {&x}}, out);
}

// ---- transposed convolution: every input element adds its weights to the result

Window transposed_window(const Site& s) { return read_transposed_window(s, s.in(1).shape); }

std::vector<Result> transposed(const Site& s) {
  const Shape &x = s.in(0).shape, &w = s.in(1).shape;
  const Window window = transposed_window(s);
  const i64 groups = s.node().integer("group", 1);
  s.require(groups > 0 && w[0] == x[1] && x[1] % groups == 0,
            "weights of shape " + to_string(w) + " do not fit an input of shape " + to_string(x));
  if (s.has(2))
    s.require(elements(s.in(2).shape) == w[1] * groups, "its bias has not one element an output channel");
  return {{s.in(0).type, with_image(x[0], w[1] * groups, window.out, window.dimensions)}};
}

void scatter_plane(const Window& w, const double* x, const double* filter, double* y) {
  for (i64 r0 = 0; r0 < w.kernel[0]; ++r0)
    for (i64 r1 = 0; r1 < w.kernel[1]; ++r1)
      for (i64 r2 = 0; r2 < w.kernel[2]; ++r2) {
        const double weight = *filter++;
        for (i64 i = 0; i < volume(w.image); ++i) {
          const i64 p0 = i / (w.image[1] * w.image[2]) * w.stride[0] + r0 * w.dilation[0] - w.before[0];
          const i64 p1 = i / w.image[2] % w.image[1] * w.stride[1] + r1 * w.dilation[1] - w.before[1];
          const i64 p2 = i % w.image[2] * w.stride[2] + r2 * w.dilation[2] - w.before[2];
          const bool inside =
              p0 >= 0 && p0 < w.out[0] && p1 >= 0 && p1 < w.out[1] && p2 >= 0 && p2 < w.out[2];
          if (inside) y[(p0 * w.out[1] + p1) * w.out[2] + p2] += weight * x[i];
        }
      }
}

void evaluate_transposed(const Site& s, std::vector<Array>& out) {
  const Window w = transposed_window(s);
  const Shape &x = s.in(0).shape, &f = s.in(1).shape;
  const i64 groups = s.node().integer("group", 1), c = x[1], each = f[1], k = each * groups;
  const i64 in_plane = volume(w.image), out_plane = volume(w.out), taps = volume(w.kernel);
  for (i64 n = 0; n < x[0]; ++n) {
    for (i64 i = 0; i < k; ++i) {
      double* const y = out[0].data.data() + (n * k + i) * out_plane;
      std::fill_n(y, out_plane, s.has(2) ? s.in(2).data[i] : 0.0);
      for (i64 j = i / each * (c / groups); j < (i / each + 1) * (c / groups); ++j) {
        scatter_plane(w, s.in(0).data + (n * c + j) * in_plane, s.in(1).data + (j * each + i % each) * taps,
                      y);
      }
    }
  }
}

// ---- pools

std::vector<Result> pool(const Site& s) {
  const Window w = read_window(s);
  if (s.node().outputs.size() > 1 && s.node().outputs[1] != kNone)
    s.decline("the places of the largest elements are not known");
  const Shape& x = s.in(0).shape;
  return {{s.in(0).type, with_image(x[0], x[1], w.out, w.dimensions)}};
}

// visit(h0, h1, h2, inside): every element of the window at p, inside of the image or not.
template <class Visit>
void each_element(const Window& w, const Triple& p, const Visit& visit) {
  for (i64 r0 = 0; r0 < w.kernel[0]; ++r0)
    for (i64 r1 = 0; r1 < w.kernel[1]; ++r1)
      for (i64 r2 = 0; r2 < w.kernel[2]; ++r2) {
        const Triple h{p[0] * w.stride[0] + r0 * w.dilation[0] - w.before[0],
                       p[1] * w.stride[1] + r1 * w.dilation[1] - w.before[1],
                       p[2] * w.stride[2] + r2 * w.dilation[2] - w.before[2]};
        bool inside = true;
        for (std::size_t d = 0; d < 3; ++d) inside = inside && h[d] >= 0 && h[d] < w.image[d];
        visit(h, inside);
      }
}

template <bool kMax>
void evaluate_pool(const Site& s, std::vector<Array>& out) {
  const Window w = read_window(s);
  const bool count_pads = s.node().integer("count_include_pad", 0) != 0;
  // Padding counts, but not what ceil_mode reaches beyond it.
  Triple end = w.image;
  for (std::size_t d = 0; d < 3; ++d) end[d] += w.after[d] - w.beyond[d];
  const i64 planes = s.in(0).shape[0] * s.in(0).shape[1];
  auto y = out[0].data.begin();
  for (i64 plane = 0; plane < planes; ++plane) {
    const double* const x = s.in(0).data + plane * volume(w.image);
    for (i64 i = 0; i < volume(w.out); ++i, ++y) {
      const Triple p{i / (w.out[1] * w.out[2]), i / w.out[2] % w.out[1], i % w.out[2]};
      double most = -std::numeric_limits<double>::infinity(), sum = 0, count = 0;
      each_element(w, p, [&](const Triple& h, bool inside) {
        const bool counts = inside || (count_pads && h[0] < end[0] && h[1] < end[1] && h[2] < end[2]);
        count += counts ? 1 : 0;
        if (!inside) return;
        const double v = x[(h[0] * w.image[1] + h[1]) * w.image[2] + h[2]];
        sum += v;
        most = std::isnan(most) || most > v ? most : v;
      });
      *y = kMax ? most : sum / count;
    }
  }
}

constexpr Operator kConvolutionOperators[] = {
    {"Conv", 2, 3, conv, evaluate_conv},
    // A Conv with a residual as its fourth input, an activation and a pool: what the passes leave.
    {"faltung.Conv", 2, 4, fused_conv, evaluate_fused_conv},
    {"ConvTranspose", 2, 3, transposed, evaluate_transposed},
    {"MaxPool", 1, 1, pool, evaluate_pool<true>},
    {"AveragePool", 1, 1, pool, evaluate_pool<false>},
};

}  // namespace

std::span<const Operator> convolution_operators() { return kConvolutionOperators; }

}  // namespace faltung::network
