// Elementwise nodes, in chains that are computed in one step.
#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "src/network/lowering.hpp"
#include "src/network/map_builder.hpp"
#include "src/network/moments.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// What a node of ONNX is in the words of maps. swapped: its two inputs change places.
struct Word {
  MapOp op;
  bool swapped = false;
};

const std::unordered_map<std::string_view, Word>& words() {
  static const std::unordered_map<std::string_view, Word> all = {
      {"Identity", {MapOp::copy}},
      {"Abs", {MapOp::abs}},
      {"Neg", {MapOp::neg}},
      {"Sqrt", {MapOp::sqrt}},
      {"Reciprocal", {MapOp::reciprocal}},
      {"Exp", {MapOp::exp}},
      {"Log", {MapOp::log}},
      {"Erf", {MapOp::erf}},
      {"Tanh", {MapOp::tanh}},
      {"Sin", {MapOp::sin}},
      {"Cos", {MapOp::cos}},
      {"Floor", {MapOp::floor}},
      {"Ceil", {MapOp::ceil}},
      {"Round", {MapOp::round}},
      {"Sign", {MapOp::sign}},
      {"Not", {MapOp::logical_not}},
      {"Sigmoid", {MapOp::sigmoid}},
      {"Relu", {MapOp::relu}},
      {"Softplus", {MapOp::softplus}},
      {"Softsign", {MapOp::softsign}},
      {"Mish", {MapOp::mish}},
      {"Silu", {MapOp::silu}},
      {"HardSwish", {MapOp::hardswish}},
      {"Gelu", {MapOp::gelu}},
      {"LeakyRelu", {MapOp::leaky_relu}},
      {"ThresholdedRelu", {MapOp::thresholded_relu}},
      {"Elu", {MapOp::elu}},
      {"Celu", {MapOp::celu}},
      {"Selu", {MapOp::selu}},
      {"HardSigmoid", {MapOp::hard_sigmoid}},
      {"Clip", {MapOp::clip}},
      {"Add", {MapOp::add}},
      {"Sub", {MapOp::sub}},
      {"Mul", {MapOp::mul}},
      {"Div", {MapOp::div}},
      {"Pow", {MapOp::pow}},
      {"Mod", {MapOp::fmod}},
      {"PRelu", {MapOp::prelu}},
      {"Equal", {MapOp::equal}},
      {"Less", {MapOp::less}},
      {"Greater", {MapOp::less, true}},
      {"LessOrEqual", {MapOp::less_or_equal}},
      {"GreaterOrEqual", {MapOp::less_or_equal, true}},
      {"And", {MapOp::logical_and}},
      {"Or", {MapOp::logical_or}},
      {"Xor", {MapOp::logical_xor}},
      {"Where", {MapOp::select}},
      {"Sum", {MapOp::add}},
      {"Mean", {MapOp::add}},
      {"Max", {MapOp::max}},
      {"Min", {MapOp::min}},
      {"Cast", {MapOp::copy}},
      {"CastLike", {MapOp::copy}},
  };
  return all;
}

const Word* find_word(const Node& node) {
  if (!node.domain.empty() && !(node.domain == "faltung" && node.op == "Silu")) return nullptr;
  const auto found = words().find(node.op);
  return found == words().end() ? nullptr : &found->second;
}

// How many inputs are tensors, and not parameters of the function.
std::size_t tensors(const Node& node) {
  const bool one = node.op == "Clip" || node.op == "CastLike";
  return one ? 1 : node.inputs.size();
}
// Instructions that it takes, at most.
std::size_t instructions(const Node& node) { return std::max<std::size_t>(2, node.inputs.size() + 1); }

// In registers numbers are floats.
bool is_computed(Type type) { return type == Type::f32 || type == Type::f16 || type == Type::bf16; }

bool is_whole(Type type) { return type == Type::i32 || type == Type::i64; }

// A cast among whole numbers, of which registers, being floats, have not all: 32 bits are copied as they are,
// and the upper ones are 0 or, of what is negative, -1.
void cast_whole(Lowering& lowering, const Node& node) {
  const ValueId from = node.inputs[0], to = node.outputs[0];
  const Shape& shape = lowering.shape(to);
  const Layout layout = is_image(shape) ? lowering.layout_of(node) : Layout::nchw;
  const Ref x = lowering.read(from, layout);
  if (lowering.graph().at(from).type == lowering.graph().at(to).type) return lowering.alias(to, x, layout);
  const auto words = [&](ValueId id, i64 offset) {
    StridedOperand half{Type::i32, strides_in(shape, layout), offset};
    for (i64& stride : half.strides) stride *= lowering.graph().at(id).type == Type::i64 ? 2 : 1;
    return half;
  };
  const Ref y = lowering.write(to, layout);
  lowering.emit(node, make_copy(shape, words(from, 0), words(to, 0), node.title()), {x}, y, layout);
  if (lowering.graph().at(to).type == Type::i32) return;
  std::vector<MapInstruction> upper{{MapOp::sign, 1, 0}, {MapOp::clip, 2, 1, 0, 0, -1, 0}};
  lowering.emit(node, make_map(shape, {words(from, 0)}, words(to, 1), std::move(upper), node.title()), {x}, y,
                layout);
}

// ---- a chain's program

class Program {
 public:
  Program(const Lowering& lowering, const std::vector<const Node*>& nodes, const Node* normalized = nullptr)
      : lowering_(lowering), graph_(lowering.graph()), normalized_(normalized) {
    for (const Node* node : nodes) {
      for (std::size_t i = 0; i < tensors(*node); ++i) add_input(node->inputs[i]);
      inside_.emplace(node->outputs[0], 0);
      if (is_norm(*node) && node != normalized) norms.push_back(node);
    }
    next_ = inputs.size() + 2 * norms.size();
    for (const Node* node : nodes) translate(*node);
  }

  // Whose registers come first: what is read from outside, and then of each of these nodes mean and inverse.
  std::vector<ValueId> inputs;
  std::vector<const Node*> norms;
  std::vector<MapInstruction> code;
  std::size_t registers() const { return next_; }

 private:
  void add_input(ValueId id) {
    if (inside_.contains(id) || std::ranges::find(inputs, id) != inputs.end()) return;
    registers_[id] = static_cast<std::uint8_t>(inputs.size());
    inputs.push_back(id);
  }
  std::uint8_t emit(MapOp op, std::uint8_t x, std::uint8_t y = 0, std::uint8_t z = 0, double a = 0,
                    double b = 0) {
    const auto to = static_cast<std::uint8_t>(next_++);
    code.push_back({op, to, x, y, z, static_cast<float>(a), static_cast<float>(b)});
    return to;
  }

  void require_types(const Node& node) const {
    const bool cast = node.op.starts_with("Cast");
    for (std::size_t i = 0; i < tensors(node); ++i) {
      const Type type = graph_.at(node.inputs[i]).type;
      const bool may_be_whole = cast || (node.op == "Pow" && i == 1);  // the exponent is of a type of its own
      const bool known = is_computed(type) || type == Type::boolean || (may_be_whole && is_whole(type));
      if (!known)
        throw Error(Status::unsupported, node.title() + ": arithmetic on elements of type " + name(type));
    }
  }

  void translate(const Node& node) {
    require_types(node);
    if (&node == normalized_) {
      registers_[node.outputs[0]] = registers_.at(node.inputs[0]);
      return;
    }
    if (is_norm(node)) {
      const auto norm = std::ranges::find(norms, &node) - norms.begin();
      const auto mean = static_cast<std::uint8_t>(inputs.size() + 2 * static_cast<std::size_t>(norm));
      const std::uint8_t above = emit(MapOp::sub, registers_.at(node.inputs[0]), mean);
      registers_[node.outputs[0]] = emit(MapOp::mul, above, mean + 1);
      return;
    }
    const Word& word = *find_word(node);
    std::vector<std::uint8_t> x;
    for (std::size_t i = 0; i < tensors(node); ++i) x.push_back(registers_.at(node.inputs[i]));
    registers_[node.outputs[0]] = compute(node, word, x);
  }

  std::uint8_t compute(const Node& node, const Word& word, const std::vector<std::uint8_t>& x) {
    const Type to = graph_.at(node.outputs[0]).type;
    if (word.op == MapOp::copy) {
      if (to == Type::boolean && graph_.at(node.inputs[0]).type != Type::boolean)
        return emit(MapOp::logical_not, emit(MapOp::logical_not, x[0]));
      const bool rounds = !is_computed(to) && is_computed(graph_.at(node.inputs[0]).type);
      return emit(rounds ? MapOp::truncate : MapOp::copy, x[0]);
    }
    if (node.op == "Gelu" && node.text("approximate", "none") == "tanh") return emit(MapOp::gelu_tanh, x[0]);
    if (node.op == "Pow") {
      const std::optional<Array> power = graph_.constant(node.inputs[1]);
      if (power && power->data.size() == 1 && power->data[0] == 2) return emit(MapOp::mul, x[0], x[0]);
      if (power && power->data.size() == 1 && power->data[0] == 0.5) return emit(MapOp::sqrt, x[0]);
    }
    if (x.size() == 1) {
      if (node.op == "Max" || node.op == "Min" || node.op == "Sum" || node.op == "Mean")
        return emit(MapOp::copy, x[0]);
      const auto [a, b] = parameters(node);
      return emit(word.op, x[0], 0, 0, a, b);
    }
    if (word.op == MapOp::select) return emit(word.op, x[0], x[1], x[2]);
    if (node.op == "Mod" && node.integer("fmod", 0) == 0)
      return emit(MapOp::as_divisor, emit(word.op, x[0], x[1]), x[1]);
    std::uint8_t sum = word.swapped ? emit(word.op, x[1], x[0]) : emit(word.op, x[0], x[1]);
    for (std::size_t i = 2; i < x.size(); ++i) sum = emit(word.op, sum, x[i]);
    return node.op == "Mean" ? emit(MapOp::affine, sum, 0, 0, 1.0 / static_cast<double>(x.size()), 0) : sum;
  }

  std::pair<double, double> parameters(const Node& node) const {
    const Site site = lowering_.site(node);
    if (node.op == "Clip") {
      const auto bound = [&](const char* key, std::size_t i, float otherwise) -> double {
        return site.has(i) ? site.numbers(i).at(0) : node.number(key, otherwise);
      };
      return {bound("min", 1, -HUGE_VALF), bound("max", 2, HUGE_VALF)};
    }
    if (node.op == "HardSigmoid") return {node.number("alpha", 0.2f), node.number("beta", 0.5f)};
    if (node.op == "Selu") return {node.number("alpha", 1.67326319f), node.number("gamma", 1.05070102f)};
    return {node.number("alpha", node.op == "LeakyRelu" ? 0.01f : 1.0f), 0};
  }

  const Lowering& lowering_;
  const Graph& graph_;
  const Node* const normalized_;
  std::unordered_map<ValueId, int> inside_;
  std::unordered_map<ValueId, std::uint8_t> registers_;
  std::size_t next_ = 0;
};

// What a node that standardizes groups reads from, summed: the step's result.
Ref lower_moments(Lowering& lowering, const Node& node, Ref from, Layout layout) {
  const Shape& shape = lowering.shape(node.inputs[0]);
  MomentsCall call;
  call.images = shape[0], call.channels = shape[1], call.pixels = shape[2] * shape[3];
  call.groups = node.integer("groups", 1), call.pitch = from.pitch != 0 ? from.pitch : shape[1];
  call.layout = layout, call.x = element_of(lowering, node.inputs[0], node);
  call.epsilon = node.number("epsilon", 1e-5f);
  const Ref to = lowering.scratch(2 * static_cast<std::size_t>(moments_of(call)) * sizeof(float));
  lowering.emit(node, call, {from}, to, layout);
  return to;
}

}  // namespace

bool is_norm(const Node& node) {
  return standardizes_groups(node) || (node.domain == "faltung" && node.op == "Standardize");
}

std::size_t chain_registers(Lowering& lowering, const std::vector<const Node*>& nodes) {
  return Program(lowering, nodes).registers();
}

bool is_elementwise(const Node& node) { return find_word(node) != nullptr; }

std::vector<int> elementwise_chains(const Graph& graph, bool fuse, GroupNorms norms) {
  const std::vector<int> uses = count_uses(graph);
  std::vector<int> last(graph.nodes.size(), -1);
  std::vector<std::size_t> sizes(graph.nodes.size());  // registers of a chain, at its last node
  std::vector<std::vector<int>> readers(graph.values.size());
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    const bool is_norm = norms == GroupNorms::in_chains && standardizes_groups(node);
    if (find_word(node) == nullptr && !is_norm) {
      for (const ValueId id : node.inputs) {
        if (id != kNone) readers[static_cast<std::size_t>(id)].push_back(-1);
      }
      continue;
    }
    const ValueId y = node.outputs[0];
    const std::vector<int>& of = readers[static_cast<std::size_t>(y)];
    // It joins the chain in which all of its readers are, if its result is as large as theirs.
    int chain = fuse && !of.empty() && static_cast<int>(of.size()) == uses[static_cast<std::size_t>(y)]
                    ? of.front()
                    : -1;
    for (const int other : of) chain = other == chain ? chain : -1;
    const std::size_t moments = is_norm ? 2 : 0, needs = node.inputs.size() + moments + instructions(node);
    if (chain >= 0) {
      const Value& end = graph.at(graph.nodes[static_cast<std::size_t>(chain)].outputs[0]);
      const bool fits =
          *end.shape == *graph.at(y).shape && sizes[static_cast<std::size_t>(chain)] + needs <= kMapRegisters;
      // Whole numbers are rounded on their way to memory, and not in a register.
      // So is what the file itself casts to 16 bits.
      const bool narrows = node.op.starts_with("Cast") && !node.has("by_precision") &&
                           (graph.at(y).type == Type::f16 || graph.at(y).type == Type::bf16);
      const bool exact = (is_computed(graph.at(y).type) && !narrows) || graph.at(y).type == Type::boolean;
      if (!fits || !exact) chain = -1;
    }
    if (chain < 0) chain = static_cast<int>(i);
    sizes[static_cast<std::size_t>(chain)] += needs;
    last[i] = chain;
    for (const ValueId id : node.inputs) {
      if (id != kNone)
        readers[static_cast<std::size_t>(id)].push_back(is_norm ? -1 : chain);  // summed before
    }
  }
  return last;
}

ValueId turned_image(const Graph& graph, const std::vector<const Node*>& nodes) {
  ValueId image = kNone;
  const ValueId y = nodes.back()->outputs[0];
  for (const Node* node : nodes) {
    for (const ValueId id : node->inputs) {
      const bool inside = std::ranges::any_of(nodes, [&](const Node* n) { return n->outputs[0] == id; });
      if (id == kNone || inside || graph.is_constant(id) || id == image) continue;
      if (image != kNone || !is_image(*graph.at(id).shape)) return kNone;
      image = id;
    }
  }
  const bool alone = std::ranges::all_of(
      nodes, [](const Node* node) { return node->inputs.size() == 1 && !standardizes_groups(*node); });
  return image != kNone && alone && *graph.at(image).shape == *graph.at(y).shape ? image : kNone;
}

ChainProgram chain_program(const Lowering& lowering, const std::vector<const Node*>& nodes,
                           const Node* normalized) {
  Program program(lowering, nodes, normalized);
  return {std::move(program.inputs), std::move(program.code)};
}

Shape read_strides(const Shape& from, const Shape& to, Layout layout, i64 pitch) {
  const Shape own = strides_in(from, layout, pitch);
  Shape strides(to.size(), 0);
  for (std::size_t d = 0; d < from.size(); ++d) {
    if (from[d] != 1) strides[to.size() - from.size() + d] = own[d];
  }
  return strides;
}

void lower_chain(Lowering& lowering, const std::vector<const Node*>& nodes) {
  const Node& end = *nodes.back();
  const Graph& graph = lowering.graph();
  if (end.op.starts_with("Cast") && is_whole(graph.at(end.outputs[0]).type) &&
      is_whole(graph.at(end.inputs[0]).type))
    return cast_whole(lowering, end);  // a chain of its own: whole numbers end one
  const Program program(lowering, nodes);
  if (program.code.size() + program.inputs.size() + 2 * program.norms.size() > kMapRegisters)
    throw Error(Status::unsupported, end.title() + ": it has too many inputs");
  const ValueId y = end.outputs[0];
  const Shape& shape = lowering.shape(y);
  const Layout layout = is_image(shape) ? lowering.layout_of(end) : Layout::nchw;
  const bool turns = lowering.on_gpu() && turned_image(graph, nodes) != kNone;
  std::vector<StridedOperand> operands;
  std::vector<Ref> reads;
  std::vector<int> in_place;
  std::map<const Node*, Ref> moments;
  const Node* const own = lowering.on_gpu() || program.norms.empty() ? nullptr : program.norms[0];
  for (const ValueId id : program.inputs) {
    const bool constant = graph.is_constant(id);
    const Layout lies = constant || !is_image(lowering.shape(id)) ? Layout::nchw
                        : turns                                   ? lowering.where(id, layout)
                                                                  : layout;
    const bool is_rows = own != nullptr && own->inputs[0] == id;
    Ref from = constant || turns || is_rows ? lowering.read(id, lies) : lowering.read_slice(id, lies);
    for (const Node* norm : program.norms) {
      if (own == nullptr && norm->inputs[0] == id) moments[norm] = lower_moments(lowering, *norm, from, lies);
    }
    const bool whole = from.pitch == 0 && from.offset == 0;
    operands.push_back(
        operand_at(from, graph.at(id).type, read_strides(lowering.shape(id), shape, lies, from.pitch)));
    reads.push_back(from);
    if (whole && !constant && lowering.shape(id) == shape && lies == layout &&
        graph.at(id).type == graph.at(y).type)
      in_place.push_back(static_cast<int>(reads.size()) - 1);
  }
  for (const Node* norm : own != nullptr ? std::vector<const Node*>() : program.norms) {
    const Shape by_channel{shape[1], 1, 0, 0};
    for (const i64 begin : {i64{0}, shape[0] * shape[1]}) {
      operands.push_back({Type::f32, by_channel, begin});
      reads.push_back(moments.at(norm));
    }
  }
  const std::optional<Ref> slice = turns || own != nullptr ? std::nullopt : lowering.slice_of_join(y, layout);
  if (slice) lowering.write_slice(y, *slice, layout);
  Ref to = slice ? *slice : lowering.write(y, layout);
  if (to.pitch != 0 || to.offset != 0) in_place.clear();
  const StridedOperand out = operand_at(to, graph.at(y).type, strides_in(shape, layout, to.pitch));
  Work work;
  if (own != nullptr) {
    const auto x = std::ranges::find(program.inputs, own->inputs[0]) - program.inputs.begin();
    work = standardize_then(lowering, *own, shape, layout, operands, out, program.code, static_cast<int>(x));
  } else {
    work = make_map(shape, operands, out, program.code, end.title());
  }
  lowering.emit(end, std::move(work), std::move(reads), to, layout);
  lowering.drafts.back().in_place = std::move(in_place);
  lowering.drafts.back().note = chain_note(nodes);
}

}  // namespace faltung::network
