#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "src/problem/dtype.hpp"
#include "src/problem/text.hpp"
#include "tools/op.hpp"
#include "tools/units.hpp"

namespace faltung::tools {
namespace {

using network::Array;
using network::Attribute;
using network::Shape;
using network::Type;
using network::ValueId;
using i64 = std::int64_t;
using Attributes = std::map<std::string, Attribute, std::less<>>;

Type type_of(DType dtype) {
  return dtype == DType::f32 ? Type::f32 : dtype == DType::f16 ? Type::f16 : Type::bf16;
}

[[noreturn]] void refuse(const Op& op, const std::string& why) {
  throw Error(Status::bad_problem, fmt::format("--op {}: {}", to_string(op), why));
}

std::size_t whole_number(const Op& op, i64 most) {
  i64 value = -1;
  try {
    value = parse_count("", op.how, 0);
  } catch (const Error&) {  // told below
  }
  if (value < 0 || value > most) refuse(op, fmt::format("'{}' is no whole number up to {}", op.how, most));
  return static_cast<std::size_t>(value);
}

// nchw>nhwc: dimensions by letters, before and after.
struct Letters {
  std::string from, to;
};
Letters letters(const Op& op) {
  const std::vector<std::string> sides = split(op.how, '>');
  if (sides.size() != 2) refuse(op, fmt::format("'{}' is not as nchw>nhwc, a letter a dimension", op.how));
  const Letters l{sides[0], sides[1]};
  const auto repeats = [](std::string text) {
    std::ranges::sort(text);
    return std::ranges::adjacent_find(text) != text.end();
  };
  if (l.from.size() != op.sizes.size() || repeats(l.from) || repeats(l.to) ||
      l.to.find_first_not_of(l.from) != std::string::npos)
    refuse(op, fmt::format("'{}' does not name {} dimensions by a letter each, and some of them again",
                           op.how, op.sizes.size()));
  return l;
}
// Of those that stay, in the order of before; the others are gone.
Shape gone(const Op& op) {
  const Letters l = letters(op);
  Shape axes;
  std::string stay;
  for (std::size_t d = 0; d < l.from.size(); ++d) {
    if (l.to.find(l.from[d]) == std::string::npos)
      axes.push_back(static_cast<i64>(d));
    else
      stay += l.from[d];
  }
  if (axes.empty() || stay != l.to) refuse(op, fmt::format("'{}' does not leave dimensions out", op.how));
  return axes;
}

class Builder {
 public:
  Builder(const Op& op, std::uint64_t seed, bool is_exact) : op_(op), exact_(is_exact), random_(seed) {
    net_.graph.opset = 21;
  }

  ValueId input(const Shape& shape) {
    const Type type = type_of(op_.from);
    net_.graph.inputs.push_back(net_.graph.add(
        {fmt::format("x{}", net_.graph.inputs.size()), exact_ ? Type::f32 : type, shape, {}, {}}));
    read(static_cast<double>(network::elements(shape)));
    return net_.graph.inputs.back();
  }
  ValueId input() { return input(op_.sizes); }
  // Numbers that the operator's type holds, whatever the graph computes in.
  ValueId parameters(const Shape& shape) {
    Array array{type_of(op_.from), shape, {}};
    std::normal_distribution<float> normal;
    for (i64 i = 0; i < network::elements(shape); ++i)
      array.data.push_back(network::round_to(array.type, normal(random_)));
    if (exact_) array.type = Type::f32;
    return net_.graph.add_constant("parameters", array);
  }
  ValueId integers(const std::vector<i64>& values) {
    return net_.graph.add_constant(
        "integers", {Type::i64, {static_cast<i64>(values.size())}, {values.begin(), values.end()}});
  }
  ValueId numbers(const std::vector<double>& values) {
    return net_.graph.add_constant("numbers", {Type::f32, {static_cast<i64>(values.size())}, values});
  }
  std::vector<i64> permutation(i64 size) {
    std::vector<i64> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    std::ranges::shuffle(all, random_);
    return all;
  }
  ValueId node(const char* name, const std::vector<ValueId>& inputs, Attributes attributes = {}) {
    network::Node node;
    node.op = name, node.name = op_.name;
    node.attributes = std::move(attributes), node.inputs = inputs;
    const ValueId y =
        net_.graph.add({fmt::format("y{}", net_.graph.nodes.size()), Type::unknown, {}, {}, {}});
    node.outputs = {y};
    net_.graph.nodes.push_back(std::move(node));
    return y;
  }

  void read(double elements) { net_.least_bytes += elements * info(op_.from).bytes; }
  // Instead of the inputs whole.
  void reads_only(double elements) { net_.least_bytes = 0, read(elements); }
  void write(double elements) { net_.least_bytes += elements * info(op_.to).bytes; }
  void write(ValueId y, double elements) {
    net_.graph.outputs = {y};
    write(elements);
  }
  void allow(int roundings, double growth) { net_.roundings = roundings, net_.growth = growth; }

  const Op& op() const { return op_; }
  Type to() const { return exact_ ? Type::f32 : type_of(op_.to); }
  double count() const { return static_cast<double>(network::elements(op_.sizes)); }
  OpNetwork take() { return std::move(net_); }

 private:
  const Op& op_;
  bool exact_;
  std::mt19937_64 random_;
  OpNetwork net_;
};

void build_copy(Builder& b, double) { b.write(b.node("Identity", {b.input()}), b.count()); }

void build_cast(Builder& b, double) {
  b.write(b.node("Cast", {b.input()}, {{"to", static_cast<i64>(b.to())}}), b.count());
  b.allow(1, 0);
}

void build_transpose(Builder& b, double) {
  const Letters l = letters(b.op());
  if (l.to.size() != l.from.size()) refuse(b.op(), fmt::format("'{}' loses dimensions", b.op().how));
  std::vector<i64> order;
  for (const char letter : l.to) order.push_back(static_cast<i64>(l.from.find(letter)));
  b.write(b.node("Transpose", {b.input()}, {{"perm", order}}), b.count());
}

// What each word of a chain does to the value so far. scale and bias are of channels, the former of each
// image's.
void build_chain(Builder& b, double largest) {
  const Shape& sizes = b.op().sizes;
  Shape channels(sizes.size(), 1);
  channels[1] = sizes[1];
  Shape of_images = channels;
  of_images[0] = sizes[0];
  ValueId y = b.input();
  double products = 1, words = 0;
  for (const std::string& word : split(b.op().how, '+')) {
    ++words;
    if (word == "relu") {
      y = b.node("Relu", {y});
    } else if (word == "silu") {
      y = b.node("Mul", {y, b.node("Sigmoid", {y})});
    } else if (word == "add") {
      y = b.node("Add", {y, b.input()});
    } else if (word == "mul") {
      y = b.node("Mul", {y, b.input()}), products *= largest;
    } else if (word == "scale") {
      y = b.node("Mul", {y, b.input(of_images)}), products *= largest;
    } else if (word == "bias") {
      y = b.node("Add", {y, b.parameters(channels)});
    } else {
      refuse(b.op(), fmt::format("a chain has no '{}'; {}", word,
                                 suggestion(word, {"relu", "silu", "add", "mul", "scale", "bias"})));
    }
  }
  b.write(y, b.count());
  b.allow(1, 16 * words * products);
}

void reduce(Builder& b, const char* name, bool rounds) {
  const Shape axes = gone(b.op());
  double length = 1;
  for (const i64 axis : axes) length *= static_cast<double>(b.op().sizes[static_cast<std::size_t>(axis)]);
  b.write(b.node(name, {b.input(), b.integers(axes)}, {{"keepdims", i64{0}}}), b.count() / length);
  if (rounds) b.allow(1, length + 2);
}
void build_mean(Builder& b, double) { reduce(b, "ReduceMean", true); }
void build_max(Builder& b, double) { reduce(b, "ReduceMax", false); }

void build_softmax(Builder& b, double largest) {
  b.write(b.node("Softmax", {b.input()}, {{"axis", i64{-1}}}), b.count());
  b.allow(1, 2 * largest + 8 + static_cast<double>(b.op().sizes.back()));
}

// A mean's error is that of so many sums; what is standardized is rounded before it is scaled, and after it.
void allow_norm(Builder& b, double length, double largest) { b.allow(3, 4 * (length + 8) * largest); }

void build_layer_norm(Builder& b, double largest) {
  const Shape row{b.op().sizes.back()};
  const ValueId x = b.input(), scale = b.parameters(row), bias = b.parameters(row);
  b.write(b.node("LayerNormalization", {x, scale, bias}), b.count());
  allow_norm(b, static_cast<double>(row[0]), largest);
}

void build_group_norm(Builder& b, double largest) {
  const i64 channels = b.op().sizes[1], groups = static_cast<i64>(whole_number(b.op(), channels));
  if (groups == 0 || channels % groups != 0)
    refuse(b.op(), fmt::format("{} groups do not divide {} channels", groups, channels));
  const ValueId x = b.input(), scale = b.parameters({channels}), bias = b.parameters({channels});
  b.write(b.node("GroupNormalization", {x, scale, bias}, {{"num_groups", groups}}), b.count());
  allow_norm(b, b.count() / static_cast<double>(b.op().sizes[0] * groups), largest);
}

void build_instance_norm(Builder& b, double largest) {
  const Shape channels{b.op().sizes[1]};
  const ValueId x = b.input(), scale = b.parameters(channels), bias = b.parameters(channels);
  b.write(b.node("InstanceNormalization", {x, scale, bias}), b.count());
  allow_norm(b, b.count() / static_cast<double>(b.op().sizes[0] * channels[0]), largest);
}

void build_concat(Builder& b, double) {
  const auto axis = static_cast<i64>(whole_number(b.op(), static_cast<i64>(b.op().sizes.size()) - 1));
  const ValueId first = b.input(), second = b.input();
  b.write(b.node("Concat", {first, second}, {{"axis", axis}}), 2 * b.count());
}

// The second half.
void build_slice(Builder& b, double) {
  const std::size_t axis = whole_number(b.op(), static_cast<i64>(b.op().sizes.size()) - 1);
  const i64 size = b.op().sizes[axis];
  if (size < 2) refuse(b.op(), fmt::format("dimension {} has no half", axis));
  const double elements = b.count() / static_cast<double>(size) * static_cast<double>(size - size / 2);
  const ValueId y = b.node(
      "Slice", {b.input(), b.integers({size / 2}), b.integers({size}), b.integers({static_cast<i64>(axis)})});
  b.reads_only(elements);
  b.write(y, elements);
}

// An image twice as high and wide, by repeating its pixels.
void build_upsample(Builder& b, double) {
  const bool nhwc = b.op().how == "nhwc";
  if (!nhwc && b.op().how != "nchw") refuse(b.op(), fmt::format("'{}' is neither nchw nor nhwc", b.op().how));
  ValueId y = b.input();
  if (nhwc) y = b.node("Transpose", {y}, {{"perm", Shape{0, 3, 1, 2}}});
  y = b.node("Resize", {y, network::kNone, b.numbers({1, 1, 2, 2})},
             {{"mode", std::string("nearest")},
              {"coordinate_transformation_mode", std::string("asymmetric")},
              {"nearest_mode", std::string("floor")}});
  if (nhwc) y = b.node("Transpose", {y}, {{"perm", Shape{0, 2, 3, 1}}});
  b.write(y, 4 * b.count());
}

// Zeros around the last two dimensions.
void build_pad(Builder& b, double) {
  const auto by = static_cast<i64>(whole_number(b.op(), 1 << 16));
  const std::size_t rank = b.op().sizes.size();
  std::vector<i64> pads(2 * rank);
  for (const std::size_t d : {rank - 2, rank - 1}) pads[d] = pads[rank + d] = by;
  const double planes = b.count() / static_cast<double>(b.op().sizes[rank - 2] * b.op().sizes[rank - 1]);
  const auto padded = [&](std::size_t d) { return static_cast<double>(b.op().sizes[d] + 2 * by); };
  b.write(b.node("Pad", {b.input(), b.integers(pads)}), planes * padded(rank - 2) * padded(rank - 1));
}

// So many of the first dimension's parts, drawn without repetition.
void build_gather(Builder& b, double) {
  const i64 all = b.op().sizes[0];
  const std::size_t wanted = whole_number(b.op(), all);
  if (wanted == 0) refuse(b.op(), "it gathers nothing");
  std::vector<i64> index = b.permutation(all);
  index.resize(wanted);
  const double elements = b.count() / static_cast<double>(all) * static_cast<double>(wanted);
  const ValueId y = b.node("Gather", {b.input(), b.integers(index)}, {{"axis", i64{0}}});
  b.reads_only(elements);
  b.write(y, elements);
}

struct Kind {
  OpKind kind;
  void (*build)(Builder&, double largest);
};
constexpr Kind kKinds[] = {
    {{"copy", 1, 8, nullptr}, build_copy},
    {{"cast", 1, 8, nullptr}, build_cast},
    {{"transpose", 2, 8, "nchw>nhwc"}, build_transpose},
    {{"chain", 2, 8, "silu+add+scale"}, build_chain},
    {{"mean", 1, 8, "nchw>nc"}, build_mean},
    {{"max", 1, 8, "nchw>nc"}, build_max},
    {{"softmax", 1, 8, nullptr}, build_softmax},
    {{"layer_norm", 1, 8, nullptr}, build_layer_norm},
    {{"group_norm", 4, 4, "32"}, build_group_norm},
    {{"instance_norm", 4, 4, nullptr}, build_instance_norm},
    {{"concat", 1, 8, "1"}, build_concat},
    {{"slice", 1, 8, "1"}, build_slice},
    {{"upsample", 4, 4, "nchw"}, build_upsample},
    {{"pad", 2, 8, "1"}, build_pad},
    {{"gather", 1, 8, "1000"}, build_gather},
};

}  // namespace

std::vector<OpKind> op_kinds() {
  std::vector<OpKind> all;
  for (const Kind& kind : kKinds) all.push_back(kind.kind);
  return all;
}

OpNetwork op_network(const Op& op, std::uint64_t seed, bool is_exact, double largest) {
  Builder builder(op, seed, is_exact);
  std::ranges::find(kKinds, op.name, [](const Kind& k) { return k.kind.name; })->build(builder, largest);
  return builder.take();
}

}  // namespace faltung::tools
