// Transposed convolutions that make each pixel a square of its own, of few channels: products by constants,
// whose channels are the square's pixels, and one copy that puts these where they belong. As what they are
// they would be one product for each pixel of the square, none of which fills a vector.
#include <algorithm>
#include <map>

#include "src/network/epilogue.hpp"
#include "src/network/passes.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

constexpr i64 kFewChannels = 32;

// Neither padding nor room between the squares, and so none that asks for more than its constants tell.
bool makes_squares(const Graph& graph, const Node& node) {
  if (node.op != "ConvTranspose" || !node.domain.empty() || !graph.is_constant(node.inputs[1])) return false;
  if (node.inputs.size() > 2 && node.inputs[2] != kNone && !graph.is_constant(node.inputs[2])) return false;
  const Shape& f = *graph.at(node.inputs[1]).shape;
  const auto all = [&](const char* name, i64 value) {
    return std::ranges::all_of(node.integers(name).value_or(Shape()), [&](i64 v) { return v == value; });
  };
  const bool plain = node.integer("group", 1) == 1 && node.text("auto_pad", "NOTSET") == "NOTSET" &&
                     !node.has("output_shape") && all("pads", 0) && all("output_padding", 0) &&
                     all("dilations", 1);
  return plain && graph.at(node.inputs[1]).type == Type::f32 && f.size() == 4 && f[1] < kFewChannels &&
         f[2] > 1 && f[2] == f[3] && node.integers("strides").value_or(Shape()) == Shape{f[2], f[2]};
}

ValueId value_like(Graph& graph, ValueId of, const char* what) {
  Value value;
  value.name = graph.at(of).name + what;
  value.type = graph.at(of).type;
  return graph.add(std::move(value));
}

// The square's pixels as channels: [(row, column, channel)][input channel].
ValueId weights(Graph& graph, const Node& node) {
  const Array w = *graph.constant(node.inputs[1]);
  const i64 c = w.shape[0], k = w.shape[1], size = w.shape[2] * w.shape[3];
  Array to{w.type, {size * k, c, 1, 1}, {}};
  for (i64 pixel = 0; pixel < size; ++pixel) {
    for (i64 out = 0; out < k; ++out) {
      for (i64 in = 0; in < c; ++in)
        to.data.push_back(w.data[static_cast<std::size_t>((in * k + out) * size + pixel)]);
    }
  }
  return graph.add_constant(node.name + " of squares", to);
}

// What is of channels, for each of the square's pixels.
ValueId repeated(Graph& graph, const Node& node, std::size_t input, i64 size) {
  if (node.inputs.size() <= input || node.inputs[input] == kNone) return kNone;
  const Array from = *graph.constant(node.inputs[input]);
  Array to{from.type, {size * elements(from.shape)}, {}};
  for (i64 pixel = 0; pixel < size; ++pixel)
    to.data.insert(to.data.end(), from.data.begin(), from.data.end());
  if (from.shape.size() > 1) to.shape.resize(3, 1);  // of pixels
  return graph.add_constant(node.name + " of squares", to);
}

}  // namespace

// An activation behind it is the product's: what each node of it reads and makes changes, not its place.
Graph split_upsampling(Graph graph) {
  const std::vector<int> uses = count_uses(graph);
  std::vector<Node> nodes = std::move(graph.nodes);
  graph.nodes.clear();
  std::map<ValueId, Node> behind;  // by what an activation makes: the copy of that
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    Node node = std::move(nodes[i]);
    if (!makes_squares(graph, node)) {
      const auto copy = node.outputs.empty() ? behind.end() : behind.find(node.outputs[0]);
      graph.nodes.push_back(std::move(node));
      if (copy == behind.end()) continue;
      graph.nodes.back().outputs[0] = copy->second.inputs[0];
      graph.nodes.push_back(std::move(copy->second));
      continue;
    }
    const Shape& filter = *graph.at(node.inputs[1]).shape;  // c k block block
    const i64 block = filter.at(2), channels = filter.at(1);
    const ValueId y = node.outputs[0], squares = value_like(graph, y, " in squares");
    Node copy;
    copy.op = "DepthToSpace", copy.name = node.name, copy.inputs = {squares}, copy.outputs = {y};
    copy.attributes = {{"blocksize", Attribute(block)}, {"mode", Attribute(std::string("DCR"))}};
    Node product;
    product.op = "Conv", product.name = node.name, product.outputs = {squares};
    product.inputs = {node.inputs[0], weights(graph, node)};
    if (const ValueId b = repeated(graph, node, 2, block * block); b != kNone) product.inputs.push_back(b);
    graph.nodes.push_back(std::move(product));
    const auto reads = [&](const Node& other) {
      return std::ranges::find(other.inputs, y) != other.inputs.end();
    };
    const auto reader = std::find_if(nodes.begin() + static_cast<std::ptrdiff_t>(i) + 1, nodes.end(), reads);
    std::optional<FusedActivation> activation;
    if (uses[static_cast<std::size_t>(y)] == 1 && reader != nodes.end())
      activation = as_activation(graph, *reader, {1, 4, channels});  // sizes need not be known yet
    if (!activation) {
      graph.nodes.push_back(std::move(copy));
      continue;
    }
    if (activation->slopes != nullptr) reader->inputs[1] = repeated(graph, *reader, 1, block * block);
    reader->inputs[0] = squares;
    copy.inputs = {value_like(graph, reader->outputs[0], " in squares")}, copy.outputs = reader->outputs;
    behind.emplace(reader->outputs[0], std::move(copy));
  }
  return graph;
}

}  // namespace faltung::network
