// Conformance from outside: ONNX's backend test data (Debian: libonnx-testdata) for Conv, ConvTranspose and
// pooling, computed by every kernel that supports the case, in both layouts.
//
// A Conv is a forward convolution. A ConvTranspose is the gradient of the data of a convolution, its bias
// added here. Pooling is the epilogue of a depthwise 1×1 convolution with the weight 1. One-dimensional cases
// have height 1.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <optional>

#include "src/network/onnx.hpp"
#include "tests/builder.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;
using Sizes = std::vector<i64>;
using network::Node;
constexpr const char* kData = "/usr/share/libonnx-testdata/data";

// A case that the problem language does not express, and why.
struct NotExpressible {
  std::string why;
};

struct Case {
  Problem problem;           // NCHW
  std::vector<float> in, w;  // x and w; for ConvTranspose y and w
  std::vector<float> bias;   // of Conv: the epilogue's; of ConvTranspose: added to the result
  std::vector<float> expected;
};

// A 2-D view of sizes or of an attribute: one dimension becomes (before, it).
Sizes two(const Sizes& v, i64 before) { return v.size() == 1 ? Sizes{before, v[0]} : v; }

// A tensor of the test data; values: where it has floats.
struct Data {
  Sizes sizes;
  network::Type type;
  std::vector<float> values;
};

Data read_data(const network::Constant& constant) {
  Data data{constant.shape, constant.type, {}};
  if (constant.type != network::Type::f32) return data;
  for (const double v : network::decode(constant).data) data.values.push_back(static_cast<float>(v));
  return data;
}

struct Geometry {
  Sizes in, kernel, stride, dilation;
  Sizes pads;  // top, left, bottom, right
};

Sizes attribute(const Node& node, const std::string& name, i64 otherwise) {
  const auto found = node.integers(name);
  return found ? two(*found, otherwise) : Sizes(2, otherwise);
}

Sizes pads_of(const Node& node) {
  const Sizes p = node.integers("pads").value_or(Sizes{0, 0, 0, 0});
  return p.size() == 2 ? Sizes{0, p[0], 0, p[1]} : p;
}

// total, divided so that SAME_UPPER has the odd one at the end.
void split(Sizes& pads, std::size_t axis, i64 total, bool upper) {
  pads[axis] = upper ? total / 2 : total - total / 2;
  pads[axis + 2] = total - pads[axis];
}

Geometry geometry(const Node& node, const Sizes& in, const Sizes& kernel) {
  Geometry g{in, kernel, attribute(node, "strides", 1), attribute(node, "dilations", 1), pads_of(node)};
  const std::string auto_pad = node.text("auto_pad", "NOTSET");
  if (node.op != "ConvTranspose" && auto_pad.starts_with("SAME")) {
    for (std::size_t i = 0; i < 2; ++i) {
      const i64 out = (in[i] + g.stride[i] - 1) / g.stride[i];
      const i64 extent = g.dilation[i] * (kernel[i] - 1) + 1;
      split(g.pads, i, std::max<i64>(0, (out - 1) * g.stride[i] + extent - in[i]), auto_pad == "SAME_UPPER");
    }
  }
  return g;
}

void set_filter(Problem& p, const Geometry& g) {
  p.r = g.kernel[0], p.s = g.kernel[1];
  p.stride_h = g.stride[0], p.stride_w = g.stride[1];
  p.dilation_h = g.dilation[0], p.dilation_w = g.dilation[1];
  p.pad_top = g.pads[0], p.pad_left = g.pads[1], p.pad_bottom = g.pads[2], p.pad_right = g.pads[3];
}

// sizes of a tensor as four; spatial ones from the third on.
Sizes four(const Sizes& sizes) {
  if (sizes.size() == 3) return {sizes[0], sizes[1], 1, sizes[2]};
  return sizes;
}

void make_conv(const Node& node, const Data& x, const Data& w, Case& c) {
  const Sizes xs = four(x.sizes), ws = four(w.sizes);
  Problem& p = c.problem;
  p.n = xs[0], p.c = xs[1], p.h = xs[2], p.w = xs[3], p.k = ws[0], p.groups = node.integer("group", 1);
  set_filter(p, geometry(node, {p.h, p.w}, {ws[2], ws[3]}));
  p.epilogue.bias = !c.bias.empty();
}

void make_transpose(const Node& node, const Data& y, const Data& w, const Data& result, Case& c) {
  const Sizes ys = four(y.sizes), ws = four(w.sizes), xs = four(result.sizes);
  Problem& p = c.problem;
  p.direction = Direction::backward_data;
  p.n = xs[0], p.c = xs[1], p.h = xs[2], p.w = xs[3], p.k = ys[1], p.groups = node.integer("group", 1);
  Geometry g = geometry(node, {p.h, p.w}, {ws[2], ws[3]});
  // The padding follows from a given output size. Where it would be negative, the output has rows that no
  // input reaches; so has the gradient of an input that is larger than the filter's walk over it.
  if (node.has("output_shape") || node.has("auto_pad")) {
    const Sizes more = attribute(node, "output_padding", 0);
    for (std::size_t i = 0; i < 2; ++i) {
      const i64 extent = g.dilation[i] * (g.kernel[i] - 1) + 1;
      const i64 total = g.stride[i] * (ys[i + 2] - 1) + more[i] + extent - xs[i + 2];
      split(g.pads, i, std::max<i64>(0, total), node.text("auto_pad", "") == "SAME_UPPER");
    }
  }
  set_filter(p, g);
  if (p.p() != ys[2] || p.q() != ys[3]) throw NotExpressible{"the output is more than a stride too large"};
}

void make_pool(const Node& node, const Data& x, Case& c) {
  const bool global = node.op.starts_with("Global"), average = node.op.ends_with("AveragePool");
  // A graph of Unsqueeze, 2-D pooling and Squeeze has a trailing 1 that its input does not show.
  Sizes xs = x.sizes;
  if (!global && xs.size() == 3 && node.integers("kernel_shape").value().size() == 2) xs.push_back(1);
  xs = four(xs);
  Problem& p = c.problem;
  p.n = xs[0], p.c = p.k = p.groups = xs[1], p.h = xs[2], p.w = xs[3];
  const Sizes kernel = global ? Sizes{p.h, p.w} : two(node.integers("kernel_shape").value(), 1);
  Geometry g = geometry(node, {p.h, p.w}, kernel);
  if (g.dilation != Sizes{1, 1}) throw NotExpressible{"a dilated pooling window"};
  if (node.integer("count_include_pad", 0) != 0) {  // the zeros count: let the convolution pad, not the pool
    p.pad_top = g.pads[0], p.pad_left = g.pads[1], p.pad_bottom = g.pads[2], p.pad_right = g.pads[3];
    g.pads = {0, 0, 0, 0};
  }
  Pool& pool = p.epilogue.pool;
  pool.kind = average ? PoolKind::average : PoolKind::max;
  if (node.integer("ceil_mode", 0) != 0) {  // a last window that reaches beyond the image
    for (std::size_t i = 0; i < 2; ++i) {
      const i64 padded = g.in[i] + g.pads[i] + g.pads[i + 2];
      g.pads[i + 2] += (g.stride[i] - (padded - kernel[i]) % g.stride[i]) % g.stride[i];
    }
  }
  pool.size_h = kernel[0], pool.size_w = kernel[1], pool.stride_h = g.stride[0], pool.stride_w = g.stride[1];
  pool.pad_top = g.pads[0], pool.pad_left = g.pads[1], pool.pad_bottom = g.pads[2],
  pool.pad_right = g.pads[3];
  c.w.assign(static_cast<std::size_t>(p.c), 1.0f);
}

bool is_about_convolution(const std::string& op) {
  return op.find("Conv") != std::string::npos || op.ends_with("MaxPool") || op.ends_with("AveragePool");
}

// Nothing if the folder's model is about something else.
std::optional<Case> read_case(const std::filesystem::path& folder) {
  const network::Graph model = network::read_onnx(folder / "model.onnx");
  const auto found =
      std::ranges::find_if(model.nodes, [](const Node& n) { return is_about_convolution(n.op); });
  if (found == model.nodes.end()) return std::nullopt;
  const Node& node = *found;
  for (const Node& other : model.nodes) {
    if (&other != &node && other.op != "Squeeze" && other.op != "Unsqueeze")
      throw NotExpressible{"a graph of more than the convolution"};
  }
  if (node.op == "ConvInteger" || node.op == "QLinearConv") throw NotExpressible{"integer arithmetic"};

  const auto read = [&](const std::string& file) {
    return read_data(network::read_onnx_tensor(folder / "test_data_set_0" / file).constant);
  };
  std::vector<Data> inputs;
  for (int i = 0;
       std::filesystem::exists(folder / "test_data_set_0" / ("input_" + std::to_string(i) + ".pb")); ++i)
    inputs.push_back(read("input_" + std::to_string(i) + ".pb"));
  for (const network::Value& value : model.values) {
    if (value.constant) inputs.push_back(read_data(*value.constant));
  }
  const Data output = read("output_0.pb");
  for (const Data& t : inputs) {
    if (t.type != network::Type::f32) throw NotExpressible{"8-bit integers"};
    if (t.sizes.size() > 4) throw NotExpressible{"three spatial dimensions"};
  }
  Case c;
  c.in = inputs.at(0).values;
  if (inputs.size() > 1) c.w = inputs[1].values;
  if (inputs.size() > 2) c.bias = inputs[2].values;
  c.expected = output.values;
  if (node.op == "Conv") {
    make_conv(node, inputs[0], inputs.at(1), c);
  } else if (node.op == "ConvTranspose") {
    make_transpose(node, inputs[0], inputs.at(1), output, c);
  } else {
    make_pool(node, inputs[0], c);
  }
  validate(c.problem);
  return c;
}

// data, in NCHW, as layout has it.
std::vector<float> in_layout(const std::vector<float>& data, const TensorShape& from, const TensorShape& to) {
  std::vector<float> out(data.size());
  for (i64 n = 0; n < from.n; ++n)
    for (i64 c = 0; c < from.c; ++c)
      for (i64 h = 0; h < from.h; ++h)
        for (i64 w = 0; w < from.w; ++w)
          out[static_cast<std::size_t>(to.offset(n, c, h, w))] =
              data[static_cast<std::size_t>(from.offset(n, c, h, w))];
  return out;
}

class Conformance : public testing::Test {
 protected:
  // Runs a kernel on the case in the problem's layout, and gives the result in NCHW.
  std::vector<float> run(const Case& c, const Problem& p, const Candidate& candidate) {
    const std::shared_ptr<const PlanImpl> plan = builder_.plan(p, candidate);
    const bool forward = p.direction == Direction::forward;
    const Problem& n = c.problem;
    std::vector<float> in =
        forward ? in_layout(c.in, x_shape(n), x_shape(p)) : in_layout(c.in, y_shape(n), y_shape(p));
    std::vector<float> w = in_layout(c.w, w_shape(n), w_shape(p));
    std::vector<float> out(c.expected.size(), NAN);
    std::vector<std::byte> workspace(plan->workspace_bytes(false));
    RunOptions options;
    options.workspace = workspace.data();
    plan->run({forward ? in.data() : out.data(), w.data(), forward ? out.data() : in.data(), c.bias.data(),
               nullptr},
              options);
    out = in_layout(out, result_shape(p), result_shape(n));
    if (!forward && !c.bias.empty()) {
      const i64 plane = n.h * n.w;
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] += c.bias[static_cast<std::size_t>(static_cast<i64>(i) / plane % n.c)];
    }
    return out;
  }

  // Each kernel that supports the case; how many there were.
  int check(const std::string& name, const Case& c) {
    expect_sizes(name, c);
    int kernels = 0;
    for (const auto& algorithm : registry()) {
      if (algorithm->device_kind() != "cpu") continue;
      for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
        Problem p = c.problem;
        p.layout = layout;
        if (!algorithm->supports(p, builder_.target()).yes) p.math = Math::fast;
        if (!algorithm->supports(p, builder_.target()).yes) continue;
        for (const Candidate& candidate : algorithm->candidates(p, builder_.target())) {
          compare(name + " by " + candidate.kernel() + " as " + to_string(p), c.expected,
                  run(c, p, candidate));
          ++kernels;
        }
      }
    }
    return kernels;
  }

  // Both sides are fp32 and sum in an order of their own; the longest sum here has 144 products.
  static void compare(const std::string& what, const std::vector<float>& expected,
                      const std::vector<float>& actual) {
    float largest = 0;
    for (const float e : expected) largest = std::max(largest, std::abs(e));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_LE(std::abs(actual[i] - expected[i]), 1e-5f * largest)
          << what << ": element " << i << " is " << actual[i] << ", expected " << expected[i];
    }
  }

  static void expect_sizes(const std::string& name, const Case& c) {
    const Problem& p = c.problem;
    const auto size = [](const TensorShape& s) { return static_cast<std::size_t>(s.elements()); };
    ASSERT_EQ(c.w.size(), size(w_shape(p))) << name;
    ASSERT_EQ(c.in.size(), size(p.direction == Direction::forward ? x_shape(p) : y_shape(p))) << name;
    ASSERT_EQ(c.expected.size(), size(result_shape(p))) << name << " as " << to_string(p);
  }

  Builder builder_{find_device("cpu"), std::make_shared<Parallel>(2)};
};

TEST_F(Conformance, Onnx) {
  if (!std::filesystem::exists(kData))
    GTEST_SKIP() << kData << " is missing; Debian has it in libonnx-testdata";
  int run = 0, kernels = 0;
  std::map<std::string, std::string> skipped;
  for (const char* group : {"node", "pytorch-converted", "pytorch-operator"}) {
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(kData) / group)) {
      const std::string name = std::string(group) + "/" + entry.path().filename().string();
      try {
        const std::optional<Case> c = read_case(entry.path());
        if (!c) continue;
        kernels += check(name, *c);
        ++run;
      } catch (const NotExpressible& reason) {
        skipped[name] = reason.why;
      } catch (const std::exception& error) {
        ADD_FAILURE() << name << ": " << error.what();
      }
      if (HasFatalFailure()) return;
    }
  }
  std::cout << run << " cases run, by " << kernels << " kernels; " << skipped.size() << " not expressible:\n";
  for (const auto& [name, why] : skipped) std::cout << "  " << name << ": " << why << "\n";
  // As of ONNX 1.12; a later version may have more.
  EXPECT_GE(run, 74);
}

}  // namespace
}  // namespace faltung
