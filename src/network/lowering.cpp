#include "src/network/lowering.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/network/device_steps.hpp"
#include "src/network/layouts.hpp"
#include "src/network/map_builder.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

std::size_t bytes_of(const Value& value) {
  return static_cast<std::size_t>(elements(*value.shape)) * size_of(value.type);
}

// To turn a value from one layout to the other: nanoseconds, at a rate that is usual.
i64 turning_cost(const Value& value, int threads, const DeviceInfo& device) {
  if (same_memory(*value.shape)) return 0;
  if (device.kind == "gpu")
    return static_cast<i64>(1e6 * moving_cost_ms(2.0 * static_cast<double>(bytes_of(value)), device));
  constexpr double kBytesPerNs = 12;  // of a thread, read and written
  constexpr i64 kStepNs = 1500;
  return static_cast<i64>(2.0 * static_cast<double>(bytes_of(value)) / (kBytesPerNs * threads)) + kStepNs;
}

GroupNorms group_norms(const DeviceInfo& device, bool trusts_all) {
  const bool has_moments = device.kind == "gpu" && (trusts_all || unproven(MomentsCall{}, device).empty());
  return has_moments ? GroupNorms::in_chains : GroupNorms::in_rows;
}

}  // namespace

bool is_image(const Shape& shape) { return shape.size() == 4; }
bool is_pixel(const Shape& shape) { return is_image(shape) && shape[2] * shape[3] == 1; }

Shape strides_in(const Shape& shape, Layout layout, std::int64_t pitch) {
  if (!is_image(shape)) {
    Shape rows = shape;
    if (pitch != 0) rows.back() = pitch;
    return contiguous_strides(rows);
  }
  const i64 channels = pitch != 0 ? pitch : shape[1], pixels = shape[2] * shape[3];
  if (layout == Layout::nchw) return {channels * pixels, pixels, shape[3], 1};
  return {channels * pixels, 1, shape[3] * channels, channels};
}

bool same_memory(const Shape& shape) { return !is_image(shape) || shape[1] == 1 || shape[2] * shape[3] == 1; }

Lowering::Lowering(const Graph& graph, const Settings& settings)
    : graph_(graph),
      settings_(settings),
      device_(find_device(settings.request.device)),
      trusts_all_(Settled(Problem{}, settings.request).trust == TrustPolicy::all),
      makers_(producers(graph)),
      located_(graph.values.size()),
      joins_(graph.values.size()),
      layouts_(graph.nodes.size(), Layout::nchw),
      groups_(elementwise_chains(graph, settings.fuse_chains, group_norms(device_->info(), trusts_all_))),
      output_of_(graph.values.size(), -1) {
  const auto place = [&](ValueId id, Place::In in, std::size_t index) {
    buffers.push_back({bytes_of(graph_.at(id)), in, index});
    located_[static_cast<std::size_t>(id)].ref[0] = Ref{static_cast<int>(buffers.size()) - 1, 0};
  };
  for (std::size_t i = 0; i < graph_.inputs.size(); ++i) place(graph_.inputs[i], Place::In::input, i);
  for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
    int& first = output_of_[static_cast<std::size_t>(graph_.outputs[i])];
    if (first < 0) first = static_cast<int>(i);
  }
}

// ---- what is known of a node

Site Lowering::site(const Node& node) const {
  std::vector<const Operand*> inputs;
  for (const ValueId id : node.inputs) {
    if (id == kNone) {
      inputs.push_back(nullptr);
      continue;
    }
    const Value& value = graph_.at(id);
    operands_.push_back({value.type, *value.shape, nullptr});
    prepare(operands_.back(), id);
    inputs.push_back(&operands_.back());
  }
  return {node, graph_.opset, std::move(inputs)};
}

void Lowering::prepare(Operand& operand, ValueId id) const {
  if (!graph_.is_constant(id) || elements(operand.shape) > kSmall) return;
  operand.data = Elements(&decoded_.try_emplace(id, graph_.at(id).constant).first->second);
}

Layout Lowering::layout_of(const Node& node) const {
  return layouts_[static_cast<std::size_t>(&node - graph_.nodes.data())];
}

Layout Lowering::where(ValueId id, Layout layout) const {
  const Located& at = located_[static_cast<std::size_t>(id)];
  const int index = layout == Layout::nhwc ? 1 : 0;
  if (at.ref[index] || at.slice[index] || same_memory(shape(id))) return layout;
  return layout == Layout::nhwc ? Layout::nchw : Layout::nhwc;
}

// ---- buffers

Ref Lowering::scratch(std::size_t bytes) {
  buffers.push_back({bytes, Place::In::arena, 0});
  return {static_cast<int>(buffers.size()) - 1, 0};
}

Ref Lowering::read(ValueId id, Layout layout) {
  Located& at = located_[static_cast<std::size_t>(id)];
  const Value& value = graph_.at(id);
  if (value.constant && !at.ref[0]) {
    constants.push_back(wanted_ != nullptr ? nullptr : aligned_copy(*value.constant));
    buffers.push_back({bytes_of(value), Place::In::constant, constants.size() - 1});
    at.ref[0] = Ref{static_cast<int>(buffers.size()) - 1, 0};
  }
  std::optional<Ref>& wanted = at.ref[layout == Layout::nhwc];
  if (wanted) return *wanted;
  const std::optional<Ref>& there = at.ref[layout != Layout::nhwc];
  const int own = layout == Layout::nhwc ? 1 : 0;
  if (at.slice[own]) return *(wanted = copy_whole(id, *at.slice[own], layout, layout));
  if (!there && at.slice[1 - own]) {
    ++turned;
    const Layout other = layout == Layout::nhwc ? Layout::nchw : Layout::nhwc;
    return *(wanted = copy_whole(id, *at.slice[1 - own], other, layout));
  }
  if (!there) throw Error(Status::internal, "nothing made the value " + in_quotes(value.name));
  if (same_memory(*value.shape)) return *(wanted = there);
  ++turned;
  return *(wanted = copy_whole(id, *there, layout == Layout::nhwc ? Layout::nchw : Layout::nhwc, layout));
}

Ref Lowering::write(ValueId id, Layout layout) {
  const Value& value = graph_.at(id);
  const int output = output_of_[static_cast<std::size_t>(id)];
  Ref to;
  if (output >= 0 && (layout == Layout::nchw || same_memory(*value.shape))) {
    buffers.push_back({bytes_of(value), Place::In::output, static_cast<std::size_t>(output)});
    to = {static_cast<int>(buffers.size()) - 1, 0};
  } else {
    to = scratch(bytes_of(value));
  }
  located_[static_cast<std::size_t>(id)].ref[layout == Layout::nhwc] = to;
  return to;
}

void Lowering::alias(ValueId id, Ref ref, Layout layout) {
  located_[static_cast<std::size_t>(id)].ref[layout == Layout::nhwc] = ref;
}

void Lowering::emit(const Node& node, Work work, std::vector<Ref> reads, Ref to, Layout layout,
                    std::size_t workspace) {
  if (const auto* const map = std::get_if<MapCall>(&work)) {  // of no elements no step is made
    const auto sizes = std::span(map->sizes).first(static_cast<std::size_t>(map->rank));
    if (std::ranges::find(sizes, 0) != sizes.end()) return;
  }
  Draft draft;
  draft.name = node.op + " " + node.name;
  draft.work = std::move(work);
  draft.reads = std::move(reads);
  draft.write = to;
  draft.layout = layout;
  draft.note = epilogue_note(node);
  draft.workspace_bytes = workspace + workspace_of(draft.work, node);
  for (const ValueId id : node.outputs) {
    if (id == kNone) continue;
    const Located& at = located_[static_cast<std::size_t>(id)];
    for (const std::optional<Ref>* lies :
         {&at.slice[layout == Layout::nhwc], &at.ref[layout == Layout::nhwc]}) {
      if (*lies && (*lies)->buffer == to.buffer) draft.value = id, draft.value_at = **lies;
    }
  }
  drafts.push_back(std::move(draft));
}

// Throws Error(unsupported) for what the device has no kernel for.
std::size_t Lowering::workspace_of(const Work& work, const Node& node) const {
  const auto* const convolution = std::get_if<ConvolutionWork>(&work);
  const bool is_planned =
      convolution != nullptr && convolution->plan != nullptr;  // not yet, ahead of the plans
  const std::size_t planned = is_planned ? convolution->plan->workspace_bytes(true) : 0;
  if (on_gpu()) {
    const std::string lacking = trusts_all_ ? "" : unproven(work, device());
    if (lacking.empty()) return planned + device_workspace(work, device());
    throw Error(Status::unsupported,
                node.title() + ": not proven on GPUs like " + device().id + " yet: " + lacking);
  }
  const bool known = std::visit(
      [](const auto& call) {
        using Call = std::remove_cvref_t<decltype(call)>;
        if constexpr (std::is_same_v<Call, RowsCall> || std::is_same_v<Call, TapsCall>)
          return !is_half(call.from) && !is_half(call.to);
        if constexpr (std::is_same_v<Call, BestCall>) return !is_half(call.from);
        if constexpr (std::is_same_v<Call, ProductCall>)
          return !is_half(call.a_element) && !is_half(call.b_element) && !is_half(call.y_element);
        if constexpr (std::is_same_v<Call, PoolWork>) return call.problem.dtype == DType::f32;
        if constexpr (std::is_same_v<Call, ConvolutionWork>) return call.plan->problem().dtype == DType::f32;
        return true;
      },
      work);
  if (!known)
    throw Error(Status::unsupported, node.title() + ": the CPU computes it on elements of f32 alone");
  return planned;
}

i64 Lowering::copying_cost(ValueId id) const {
  return turning_cost(graph_.at(id), std::max(1, settings_.request.threads), device());
}

// ---- layouts

void Lowering::choose_layouts() {
  const int threads = std::max(1, settings_.request.threads);
  LayoutChoice choice;
  std::vector<int> of_node(graph_.nodes.size(), LayoutChoice::kNchw);
  std::vector<LayoutRule> rules;
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    const bool in_chain = groups_[i] >= 0 && standardizes_groups(graph_.nodes[i]);
    rules.push_back(in_chain ? LayoutRule::any : layout_rule(graph_, graph_.nodes[i]));
  }
  const auto chooses = [&](std::size_t i) {
    return rules[i] != LayoutRule::plain && (groups_[i] < 0 || groups_[i] == static_cast<int>(i));
  };
  // What each costs in either layout takes most of the time here.
  std::vector<std::vector<Problem>> problems(graph_.nodes.size());
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (chooses(i)) problems[i] = node_problems(*this, graph_.nodes[i]);
  }
  price_ahead(problems);
  costs_.resize(graph_.nodes.size());
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (!chooses(i)) continue;
    costs_[i] = node_costs(*this, graph_.nodes[i], problems[i]);
    of_node[i] = choice.add(costs_[i].nchw, costs_[i].nhwc);
  }
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {  // a chain has the choice of its last node
    if (groups_[i] >= 0) of_node[i] = of_node[static_cast<std::size_t>(groups_[i])];
  }
  // Images that are turned as a chain reads them.
  std::vector<ValueId> turned(graph_.nodes.size(), kNone);
  for (std::size_t i = 0; on_gpu() && i < graph_.nodes.size(); ++i) {
    if (groups_[i] == static_cast<int>(i)) turned[i] = turned_image(graph_, chain(i));
  }
  std::vector<std::vector<int>> readers(graph_.values.size());
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    const int reader = rules[i] == LayoutRule::from_plain ? LayoutChoice::kNchw : of_node[i];
    for (const ValueId id : graph_.nodes[i].inputs) {
      if (id == kNone || (groups_[i] >= 0 && id == turned[static_cast<std::size_t>(groups_[i])])) continue;
      readers[static_cast<std::size_t>(id)].push_back(reader);
    }
  }
  for (const ValueId id : graph_.outputs)
    readers[static_cast<std::size_t>(id)].push_back(LayoutChoice::kNchw);
  for (std::size_t v = 0; v < graph_.values.size(); ++v) {
    const Value& value = graph_.values[v];
    if (value.constant || readers[v].empty() || !value.shape || !is_image(*value.shape)) continue;
    const int node = makers_[v];
    const bool plain = node < 0 || rules[static_cast<std::size_t>(node)] == LayoutRule::to_plain;
    choice.add_value(plain ? LayoutChoice::kNchw : of_node[static_cast<std::size_t>(node)], readers[v],
                     turning_cost(value, threads, device()));
  }
  const LayoutChoice::Solution solution = choice.solve();
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (of_node[i] >= 0 && solution.nhwc[static_cast<std::size_t>(of_node[i])]) layouts_[i] = Layout::nhwc;
  }
}

// ---- all nodes

std::vector<const Node*> Lowering::chain(std::size_t last) const {
  std::vector<const Node*> nodes;
  for (std::size_t i = 0; i <= last; ++i) {
    if (groups_[i] == static_cast<int>(last)) nodes.push_back(&graph_.nodes[i]);
  }
  return nodes;
}

void Lowering::lower(std::size_t i) {
  const Node& node = graph_.nodes[i];
  lowered_ = static_cast<int>(i);
  const auto nothing = [&](ValueId id) { return id == kNone || elements(*graph_.at(id).shape) == 0; };
  if (std::ranges::all_of(node.outputs, nothing)) {
    for (const ValueId id : node.outputs) {
      if (id != kNone) write(id, Layout::nchw);
    }
    return;
  }
  if (absorbed_.contains(i)) return;
  if (const auto gate = gates_.find(i); gate != gates_.end()) return lower_gate(i, gate->second);
  if (const auto layer = layers_.find(i); layer != layers_.end()) return lower_layer(i, layer->second);
  if (const auto attention = attention_.find(i); attention != attention_.end())
    return lower_attention(i, attention->second);
  if (const auto norm = normalized_.find(i); norm != normalized_.end())
    return lower_normalized(i, norm->second);
  if (const auto strips = strips_.find(i); strips != strips_.end()) return lower_strips(i, strips->second);
  if (const auto scaled = scaled_.find(i); scaled != scaled_.end()) return lower_scaled(i, scaled->second);
  if (lower_average(node)) return;
  if (groups_[i] >= 0) {
    if (groups_[i] != static_cast<int>(i)) return;
    return lower_chain(*this, chain(i));
  }
  if (lower_convolution(*this, node) || lower_rows(*this, node) || lower_movement(*this, node) ||
      lower_product(*this, node))
    return;
  throw Error(Status::unsupported, node.title() + ": it can be computed beforehand only, from constants");
}

void Lowering::lower_all() {
  std::string lacking;
  int count = 0;
  constexpr int kMost = 100;
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    try {
      lower(i);
    } catch (const Error& error) {
      if (error.status() != Status::unsupported) throw;
      if (++count <= kMost) lacking += (lacking.empty() ? "" : "; ") + std::string(error.what());
      for (const ValueId id : graph_.nodes[i].outputs) {
        if (id != kNone) alias(id, {0, 0}, Layout::nchw);  // what follows is looked at, too
      }
    }
  }
  if (count > 0)
    throw Error(Status::unsupported,
                fmt::format("{} node{} cannot be scheduled{}: {}", count, count == 1 ? "" : "s",
                            on_gpu() ? " (FALTUNG_TRUST=all uses what is not proven)" : "", lacking));
}

// A GPU's compilers may take most of the time until a network is ready. A lowering of which only the
// convolutions' problems are kept tells which plans this one will ask for: all are made side by side.
void Lowering::plan_ahead() {
  std::vector<Problem> problems;
  Lowering survey = *this;
  survey.wanted_ = &problems, survey.only_plans_ = true;
  try {
    survey.lower_all();
  } catch (const Error&) {  // which comes again
    return;
  }
  priced_ = std::move(survey.priced_);
  settings_.engine.plan_ahead(problems, settings_.request);
}

void Lowering::decide() {
  if (settings_.choose_layouts) choose_layouts();
  if (settings_.use_slices) find_joins();
  if (settings_.fuse_gates && on_gpu()) find_gates();
  if (settings_.fuse_attention && on_gpu()) find_attention();
  if (settings_.few_rows && on_gpu()) find_layers();
  if (settings_.use_strips && !on_gpu()) find_strips();
  if (settings_.scale_filters && !on_gpu()) find_scaled();
  if (settings_.fuse_chains) find_normalized();
}

void Lowering::run() {
  decide();
  if (on_gpu()) plan_ahead();
  lower_all();
  lower_outputs();
}

std::vector<Problem> Lowering::survey() {
  decide();
  std::vector<Problem> problems;
  wanted_ = &problems;
  lower_all();
  lower_outputs();
  wanted_ = nullptr;
  return problems;
}

// What is no step's own result: inputs, constants and views of other values, and values that are wanted
// twice.
void Lowering::lower_outputs() {
  lowered_ = -1;
  for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
    const ValueId id = graph_.outputs[i];
    if (elements(*graph_.at(id).shape) == 0) continue;
    const Ref from = read(id, Layout::nchw);
    const Buffer& buffer = buffers[static_cast<std::size_t>(from.buffer)];
    if (buffer.in == Place::In::output && buffer.index == i) continue;
    const Value& value = graph_.at(id);
    const Shape all{elements(*value.shape)};
    Draft draft;
    draft.name = "output " + value.name;
    draft.work = make_copy(all, {value.type, {1}, 0}, {value.type, {1}, 0}, value.name);
    draft.reads = {from};
    buffers.push_back({bytes_of(value), Place::In::output, i});
    draft.write = {static_cast<int>(buffers.size()) - 1, 0};
    drafts.push_back(std::move(draft));
  }
  if (settings_.fuse_chains) write_into_joins();
}

MapElement element_of(const Lowering& lowering, ValueId id, const Node& node) {
  return map_element(lowering.graph().at(id).type, node.title());
}

}  // namespace faltung::network
