// Conformance from outside: ONNX's backend test data (Debian: libonnx-testdata) for Conv, ConvTranspose and
// pooling, computed by every kernel that supports the case, in both layouts.
//
// A Conv is a forward convolution, a ConvTranspose a transposed one, of one, two or three dimensions. Pooling
// is the epilogue of a depthwise 1×1 convolution with the weight 1.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <optional>

#include "src/network/onnx.hpp"
#include "tests/builder.hpp"
#include "tests/node_cases.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;
using Sizes = std::vector<i64>;
using network::Node;

// A case that the problem language does not express, and why.
struct NotExpressible {
  std::string why;
};

struct OnnxCase {
  Problem problem;  // NCHW
  std::vector<float> in, w, bias;
  std::vector<float> expected;
};

// What a node says.
struct Attributes {
  std::string op, auto_pad;
  Sizes strides, dilations, pads, kernel_shape, output_padding, output_shape;
  i64 group = 1, ceil_mode = 0, count_include_pad = 0;
};

Attributes attributes_of(const Node& node) {
  const auto list = [&](const char* name) { return node.integers(name).value_or(Sizes{}); };
  return {node.op,
          node.text("auto_pad", ""),
          list("strides"),
          list("dilations"),
          list("pads"),
          list("kernel_shape"),
          list("output_padding"),
          list("output_shape"),
          node.integer("group", 1),
          node.integer("ceil_mode", 0),
          node.integer("count_include_pad", 0)};
}

// A tensor of the test data; values: where it has floats.
struct OnnxTensor {
  Sizes sizes;
  network::Type type;
  std::vector<float> values;
};

OnnxTensor read_data(const network::Constant& constant) {
  OnnxTensor data{constant.shape, constant.type, {}};
  if (constant.type != network::Type::f32) return data;
  for (const double v : network::decode(constant).data) data.values.push_back(static_cast<float>(v));
  return data;
}

// One value a spatial dimension; pads: those before, then those after.
struct Geometry {
  Sizes in, kernel, stride, dilation, pads;
  std::size_t dimensions() const { return in.size(); }
  i64 extent(std::size_t i) const { return dilation[i] * (kernel[i] - 1) + 1; }
};

Sizes given_or(const Sizes& given, std::size_t count, i64 otherwise) {
  return given.empty() ? Sizes(count, otherwise) : given;
}

// total, divided so that SAME_UPPER has the odd one at the end.
void split(Geometry& g, std::size_t i, i64 total, bool upper) {
  g.pads[i] = upper ? total / 2 : total - total / 2;
  g.pads[i + g.dimensions()] = total - g.pads[i];
}

Geometry geometry(const Attributes& a, const Sizes& in, const Sizes& kernel) {
  const std::size_t d = in.size();
  Geometry g{in, kernel, given_or(a.strides, d, 1), given_or(a.dilations, d, 1), given_or(a.pads, 2 * d, 0)};
  if (a.op == "ConvTranspose" || !a.auto_pad.starts_with("SAME")) return g;
  for (std::size_t i = 0; i < d; ++i) {
    const i64 out = (in[i] + g.stride[i] - 1) / g.stride[i];
    split(g, i, std::max<i64>(0, (out - 1) * g.stride[i] + g.extent(i) - in[i]), a.auto_pad == "SAME_UPPER");
  }
  return g;
}

// A field of each dimension, the outermost of three first.
struct Fields {
  i64 Problem::*in, Problem::*filter, Problem::*stride, Problem::*dilation, Problem::*before, Problem::*after,
      Problem::*output_pad;
};
constexpr Fields kFields[] = {{&Problem::d, &Problem::t, &Problem::stride_d, &Problem::dilation_d,
                               &Problem::pad_front, &Problem::pad_back, &Problem::output_pad_d},
                              {&Problem::h, &Problem::r, &Problem::stride_h, &Problem::dilation_h,
                               &Problem::pad_top, &Problem::pad_bottom, &Problem::output_pad_h},
                              {&Problem::w, &Problem::s, &Problem::stride_w, &Problem::dilation_w,
                               &Problem::pad_left, &Problem::pad_right, &Problem::output_pad_w}};

const Fields& fields_of(const Geometry& g, std::size_t i) { return kFields[3 - g.dimensions() + i]; }

void set(Problem& p, const Geometry& g) {
  p.dimensions = static_cast<int>(g.dimensions());
  for (std::size_t i = 0; i < g.dimensions(); ++i) {
    const Fields& f = fields_of(g, i);
    p.*f.in = g.in[i], p.*f.filter = g.kernel[i], p.*f.stride = g.stride[i], p.*f.dilation = g.dilation[i];
    p.*f.before = g.pads[i], p.*f.after = g.pads[i + g.dimensions()];
  }
}

Sizes spatial(const Sizes& sizes) { return {sizes.begin() + 2, sizes.end()}; }

void make_conv(const Attributes& a, const Sizes& x, const Sizes& w, OnnxCase& c) {
  Problem& p = c.problem;
  p.n = x[0], p.c = x[1], p.k = w[0], p.groups = a.group;
  set(p, geometry(a, spatial(x), spatial(w)));
  p.epilogue.bias = !c.bias.empty();
}

void make_transpose(const Attributes& a, const Sizes& x, const Sizes& w, const Sizes& y, OnnxCase& c) {
  Problem& p = c.problem;
  p.kind = ConvolutionKind::transposed;
  p.n = x[0], p.c = x[1], p.k = y[1], p.groups = a.group;
  Geometry g = geometry(a, spatial(x), spatial(w));
  Sizes more = given_or(a.output_padding, g.dimensions(), 0);
  // The padding follows from a given output size; where it would be negative, the output has rows that no
  // input reaches.
  for (std::size_t i = 0; i < g.dimensions() && (!a.output_shape.empty() || !a.auto_pad.empty()); ++i) {
    const i64 total = g.stride[i] * (g.in[i] - 1) + more[i] + g.extent(i) - y[i + 2];
    split(g, i, std::max<i64>(0, total), a.auto_pad == "SAME_UPPER");
    more[i] += std::max<i64>(0, -total);
  }
  set(p, g);
  for (std::size_t i = 0; i < g.dimensions(); ++i) p.*fields_of(g, i).output_pad = more[i];
  p.epilogue.bias = !c.bias.empty();
}

// Sizes of one or two dimensions, or an attribute, as two: one becomes (before, it).
Sizes two(const Sizes& v, i64 before) { return v.size() == 1 ? Sizes{before, v[0]} : v; }
Sizes four(const Sizes& sizes) {
  if (sizes.size() == 3) return {sizes[0], sizes[1], 1, sizes[2]};
  return sizes;
}

// Of two dimensions; a window of one has a height of 1.
Attributes of_two_dimensions(Attributes a) {
  for (Sizes* v : {&a.strides, &a.dilations, &a.kernel_shape}) *v = two(*v, 1);
  if (a.pads.size() == 2) a.pads = {0, a.pads[0], 0, a.pads[1]};
  return a;
}

void make_pool(const Attributes& given, const Sizes& x, OnnxCase& c) {
  const bool global = given.op.starts_with("Global"), average = given.op.ends_with("AveragePool");
  if (x.size() > 4) throw NotExpressible{"a pool of three dimensions"};
  // A graph of Unsqueeze, 2-D pooling and Squeeze has a trailing 1 that its input does not show.
  Sizes xs = x;
  if (!global && xs.size() == 3 && given.kernel_shape.size() == 2) xs.push_back(1);
  xs = four(xs);
  const Attributes a = of_two_dimensions(given);
  Problem& p = c.problem;
  p.n = xs[0], p.c = p.k = p.groups = xs[1], p.h = xs[2], p.w = xs[3];
  Geometry g = geometry(a, {p.h, p.w}, global ? Sizes{p.h, p.w} : a.kernel_shape);
  if (g.dilation != Sizes{1, 1}) throw NotExpressible{"a dilated pooling window"};
  if (a.count_include_pad != 0) {  // the zeros count: let the convolution pad, not the pool
    p.pad_top = g.pads[0], p.pad_left = g.pads[1], p.pad_bottom = g.pads[2], p.pad_right = g.pads[3];
    g.pads = {0, 0, 0, 0};
  }
  Pool& pool = p.epilogue.pool;
  pool.kind = average ? PoolKind::average : PoolKind::max;
  for (std::size_t i = 0; i < 2 && a.ceil_mode != 0; ++i) {  // a last window that reaches beyond the image
    const i64 padded = g.in[i] + g.pads[i] + g.pads[i + 2];
    const i64 more = (g.stride[i] - (padded - g.kernel[i]) % g.stride[i]) % g.stride[i];
    // One that would begin there is none.
    if (padded + more - g.kernel[i] < g.in[i] + g.pads[i]) g.pads[i + 2] += more;
  }
  pool.size_h = g.kernel[0], pool.size_w = g.kernel[1];
  pool.stride_h = g.stride[0], pool.stride_w = g.stride[1];
  pool.pad_top = g.pads[0], pool.pad_left = g.pads[1], pool.pad_bottom = g.pads[2],
  pool.pad_right = g.pads[3];
  c.w.assign(static_cast<std::size_t>(p.c), 1.0f);
}

bool is_about_convolution(const std::string& op) {
  return op.starts_with("Conv") || op == "QLinearConv" || op.ends_with("MaxPool") ||
         op.ends_with("AveragePool");
}

// Nothing if the folder's model is about something else.
std::optional<OnnxCase> read_case(const std::filesystem::path& folder) {
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
  std::vector<OnnxTensor> inputs;
  for (int i = 0;
       std::filesystem::exists(folder / "test_data_set_0" / ("input_" + std::to_string(i) + ".pb")); ++i)
    inputs.push_back(read("input_" + std::to_string(i) + ".pb"));
  for (const network::Value& value : model.values) {
    if (value.constant) inputs.push_back(read_data(*value.constant));
  }
  const OnnxTensor output = read("output_0.pb");
  for (const OnnxTensor& t : inputs) {
    if (t.type != network::Type::f32) throw NotExpressible{"8-bit integers"};
    if (t.sizes.size() > 5) throw NotExpressible{"more than three spatial dimensions"};
  }
  OnnxCase c;
  c.in = inputs.at(0).values;
  if (inputs.size() > 1) c.w = inputs[1].values;
  if (inputs.size() > 2) c.bias = inputs[2].values;
  c.expected = output.values;
  const Attributes attributes = attributes_of(node);
  if (node.op == "Conv") {
    make_conv(attributes, inputs[0].sizes, inputs.at(1).sizes, c);
  } else if (node.op == "ConvTranspose") {
    make_transpose(attributes, inputs[0].sizes, inputs.at(1).sizes, output.sizes, c);
  } else {
    make_pool(attributes, inputs[0].sizes, c);
  }
  validate(c.problem);
  return c;
}

// data, in NCHW, as layout has it.
std::vector<float> in_layout(const std::vector<float>& data, const TensorShape& from, const TensorShape& to) {
  std::vector<float> out(data.size());
  for (i64 i = 0; i < from.elements(); ++i) {
    const Position at = from.position(i);
    out[static_cast<std::size_t>(to.offset(at))] = data[static_cast<std::size_t>(from.offset(at))];
  }
  return out;
}

class Conformance : public testing::Test {
 protected:
  // Runs a kernel on the case in the problem's layout, and gives the result in NCHW.
  std::vector<float> run(const OnnxCase& c, const Problem& p, const Candidate& candidate) {
    const std::shared_ptr<const PlanImpl> plan = builder_.plan(p, candidate);
    const Problem& n = c.problem;
    std::vector<float> in = in_layout(c.in, x_shape(n), x_shape(p));
    std::vector<float> w = in_layout(c.w, w_shape(n), w_shape(p));
    std::vector<float> out(c.expected.size(), NAN);
    std::vector<std::byte> workspace(plan->workspace_bytes(false));
    RunOptions options;
    options.workspace = workspace.data();
    plan->run({in.data(), w.data(), out.data(), c.bias.data(), nullptr}, options);
    return in_layout(out, y_shape(p), y_shape(n));
  }

  // Each kernel that supports the case; how many there were.
  int check(const std::string& name, const OnnxCase& c) {
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
    // Of this case inputs and results were written down to four decimals.
    const bool is_rounded = what.find("ceil_last_window_starts_on_pad") != std::string::npos;
    const float bound = is_rounded ? 1e-4f : 1e-5f * largest;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_LE(std::abs(actual[i] - expected[i]), bound)
          << what << ": element " << i << " is " << actual[i] << ", expected " << expected[i];
    }
  }

  static void expect_sizes(const std::string& name, const OnnxCase& c) {
    const Problem& p = c.problem;
    const auto size = [](const TensorShape& s) { return static_cast<std::size_t>(s.elements()); };
    ASSERT_EQ(c.w.size(), size(w_shape(p))) << name;
    ASSERT_EQ(c.in.size(), size(x_shape(p))) << name;
    ASSERT_EQ(c.expected.size(), size(result_shape(p))) << name << " as " << to_string(p);
  }

  Builder builder_{find_device("cpu"), std::make_shared<Parallel>(2)};
};

TEST_F(Conformance, Onnx) {
  if (!std::filesystem::exists(node_cases::kFolder))
    GTEST_SKIP() << node_cases::kFolder << " is missing; Debian has it in libonnx-testdata";
  int run = 0, kernels = 0;
  std::map<std::string, std::string> skipped;
  for (const node_cases::Case& each : node_cases::all()) {
    try {
      const std::optional<OnnxCase> c = read_case(std::filesystem::path(each.data).parent_path());
      if (!c) continue;
      kernels += check(each.name, *c);
      ++run;
    } catch (const NotExpressible& reason) {
      skipped[each.name] = reason.why;
    } catch (const std::exception& error) {
      ADD_FAILURE() << each.name << ": " << error.what();
    }
    if (HasFatalFailure()) return;
  }
  std::cout << run << " cases run, by " << kernels << " kernels; " << skipped.size() << " not expressible:\n";
  for (const auto& [name, why] : skipped) std::cout << "  " << name << ": " << why << "\n";
  // As of ONNX 1.23 beside 1.12, and of 1.12 alone; a later version may have more.
  EXPECT_GE(run, node_cases::folders().size() > 1 ? 167 : 82);
}

}  // namespace
}  // namespace faltung
