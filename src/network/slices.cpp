// Slices: an image that is joined with others along their channels is written where it belongs, and read
// from there; channels that are taken from an image are read where they are.
#include <algorithm>

#include "src/network/lowering.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// Kernels of a GPU move so many bytes at a time.
constexpr int kGpuAlignment = 16;

}  // namespace

std::int64_t pitch_of(const Shape& shape, Layout layout, i64 pitch) {
  if (!is_image(shape)) return elements(shape) == shape.back() || pitch == shape.back() ? 0 : pitch;
  const i64 runs = layout == Layout::nchw ? shape[0] : shape[0] * shape[2] * shape[3];
  return runs == 1 || pitch == shape[1] ? 0 : pitch;
}

StridedOperand operand_at(Ref& ref, Type type, const Shape& strides) {
  const auto offset = static_cast<i64>(ref.offset / size_of(type));
  ref = {ref.buffer, 0, 0};
  return {type, strides, offset};
}

// The last concatenation of a row of growing ones has room for all of them.
void Lowering::find_joins() {
  for (std::size_t i = graph_.nodes.size(); i-- > 0;) {
    const Node& node = graph_.nodes[i];
    if (!node.domain.empty() || node.op != "Concat" || !is_image(shape(node.outputs[0]))) continue;
    if (site(node).axis(node.integer("axis", 1), 4) != 1) continue;
    i64 begin = 0;
    for (const ValueId id : node.inputs) {
      Join& join = joins_[static_cast<std::size_t>(id)];
      const bool is_made = !graph_.is_constant(id) && makers_[static_cast<std::size_t>(id)] >= 0 &&
                           output_of_[static_cast<std::size_t>(id)] < 0;
      if (is_made && join.node == nullptr && elements(shape(id)) > 0) join = {&node, begin};
      begin += shape(id)[1];
    }
  }
}

Ref Lowering::place_of_join(const Node& node, Layout layout) {
  const ValueId y = node.outputs[0];
  Located& at = located_[static_cast<std::size_t>(y)];
  const int index = layout == Layout::nhwc ? 1 : 0;
  if (at.ref[index]) return *at.ref[index];
  if (at.slice[index]) return *at.slice[index];
  if (const std::optional<Ref> slice = slice_of_join(y, layout)) {
    write_slice(y, *slice, layout);
    return *slice;
  }
  return write(y, layout);
}

std::optional<Ref> Lowering::slice_of_join(ValueId id, Layout layout) {
  const Join& join = joins_[static_cast<std::size_t>(id)];
  if (join.node == nullptr || layout_of(*join.node) != layout) return std::nullopt;
  const ValueId y = join.node->outputs[0];
  const Shape &own = shape(id), &all = shape(y);
  if (graph_.at(id).type != graph_.at(y).type) return std::nullopt;
  const auto bytes = static_cast<i64>(size_of(graph_.at(id).type));
  const i64 run = layout == Layout::nhwc ? 1 : own[2] * own[3];  // elements from channel to channel
  const i64 outer = layout == Layout::nhwc ? all[1] : all[1] * all[2] * all[3];
  if (on_gpu() && (join.begin * run * bytes % kGpuAlignment != 0 || outer * bytes % kGpuAlignment != 0))
    return std::nullopt;
  Ref place = place_of_join(*join.node, layout);
  place.offset += static_cast<std::size_t>(join.begin * run * bytes);
  place.pitch = pitch_of(own, layout, place.pitch != 0 ? place.pitch : all[1]);
  return place;
}

void Lowering::write_slice(ValueId id, Ref slice, Layout layout) {
  Located& at = located_[static_cast<std::size_t>(id)];
  (slice.pitch != 0 ? at.slice : at.ref)[layout == Layout::nhwc] = slice;
}

bool Lowering::lies_whole(ValueId id, Layout layout) const {
  return located_[static_cast<std::size_t>(id)].ref[layout == Layout::nhwc].has_value();
}

std::optional<i64> Lowering::slice_pitch(ValueId id, Layout layout) const {
  const Located& at = located_[static_cast<std::size_t>(id)];
  const int index = layout == Layout::nhwc ? 1 : 0;
  if (at.ref[index] || !at.slice[index]) return std::nullopt;
  return at.slice[index]->pitch;
}

Ref Lowering::read_slice(ValueId id, Layout layout) {
  const Located& at = located_[static_cast<std::size_t>(id)];
  const int index = layout == Layout::nhwc ? 1 : 0;
  return slice_pitch(id, layout) ? *at.slice[index] : read(id, layout);
}

std::optional<Ref> Lowering::slice_of(ValueId id, Layout layout, i64 begin, i64 channels) {
  const Value& value = graph_.at(id);
  if (!settings_.use_slices || value.constant || channels == 0) return std::nullopt;
  Shape part = *value.shape;
  i64& sliced = is_image(part) ? part[1] : part.back();
  const auto bytes = static_cast<i64>(size_of(value.type));
  const i64 run = is_image(part) && layout == Layout::nchw ? part[2] * part[3] : 1;
  Ref from = read_slice(id, layout);
  const i64 pitch = from.pitch != 0 ? from.pitch : sliced;
  if (on_gpu() && (begin * run * bytes % kGpuAlignment != 0 || pitch * run * bytes % kGpuAlignment != 0))
    return std::nullopt;
  from.offset += static_cast<std::size_t>(begin * run * bytes);
  sliced = channels;
  from.pitch = pitch_of(part, layout, pitch);
  return from;
}

std::optional<Ref> Lowering::run_of(ValueId id, i64 begin) {
  const Value& value = graph_.at(id);
  const auto offset = static_cast<std::size_t>(begin) * size_of(value.type);
  if (!settings_.use_slices || value.constant || (on_gpu() && offset % kGpuAlignment != 0))
    return std::nullopt;
  Ref from = read(id, Layout::nchw);
  from.offset += offset;
  return from;
}

Ref Lowering::copy_whole(ValueId id, Ref from, Layout from_layout, Layout layout) {
  const Value& value = graph_.at(id);
  const Ref to = write(id, layout);
  Draft draft;
  draft.name = value.name + (from_layout == layout    ? " out of a slice"
                             : layout == Layout::nhwc ? " to nhwc"
                                                      : " to nchw");
  const StridedOperand input =
      operand_at(from, value.type, strides_in(*value.shape, from_layout, from.pitch));
  draft.work = make_copy(*value.shape, input, {value.type, strides_in(*value.shape, layout), 0}, value.name);
  draft.reads = {from};
  draft.write = to;
  draft.layout = layout;
  draft.note = copying_note(id, from_layout, layout);
  drafts.push_back(std::move(draft));
  return to;
}

void Lowering::join(const Node& node, Layout layout) {
  const ValueId y = node.outputs[0];
  const Type type = graph_.at(y).type;
  const int index = layout == Layout::nhwc ? 1 : 0;
  const auto run = [&](ValueId id) {  // bytes of a channel
    return (layout == Layout::nhwc ? 1 : shape(id)[2] * shape(id)[3]) * static_cast<i64>(size_of(type));
  };
  // Copies the parts that lie whole to where a larger concatenation wants them, if all parts lie side by side
  // then.
  const auto complete = [&] {
    std::vector<std::pair<ValueId, Ref>> whole;
    std::optional<Ref> last;
    std::size_t end = 0;
    for (const ValueId id : node.inputs) {
      const Located& at = located_[static_cast<std::size_t>(id)];
      const Node* const larger = joins_[static_cast<std::size_t>(id)].node;
      if (graph_.at(id).type != type) return;
      std::optional<Ref> place = at.slice[index];
      if (!place) {
        if (larger == nullptr || larger == &node || !at.ref[index]) return;
        place = slice_of_join(id, layout);
        if (!place || place->pitch == 0) return;
        whole.emplace_back(id, *place);
      }
      if (last && (place->buffer != last->buffer || place->pitch != last->pitch || place->offset != end))
        return;
      last = place;
      end = place->offset + static_cast<std::size_t>(shape(id)[1] * run(id));
    }
    for (auto& [id, place] : whole) {
      write_slice(id, place, layout);
      Ref from = read(id, layout);
      const StridedOperand input = operand_at(from, type, strides_in(shape(id), layout));
      const Shape strides = strides_in(shape(id), layout, place.pitch);
      const StridedOperand output = operand_at(place, type, strides);
      emit(node, make_copy(shape(id), input, output, node.title()), {from}, place, layout);
    }
  };
  // Where all parts lie side by side already, whatever for, there is nothing to do.
  const auto begun = [&] {
    const Located& at = located_[static_cast<std::size_t>(y)];
    return at.ref[index].has_value() || at.slice[index].has_value();
  };
  if (!begun() && output_of_[static_cast<std::size_t>(y)] < 0 && settings_.use_slices) {
    complete();
    std::optional<Ref> first;
    i64 expected = 0;
    bool adjacent = true;
    for (const ValueId id : node.inputs) {
      const std::optional<Ref>& slice = located_[static_cast<std::size_t>(id)].slice[index];
      adjacent = adjacent && slice && graph_.at(id).type == type;
      if (!adjacent) break;
      if (!first) first = slice, expected = static_cast<i64>(slice->offset);
      adjacent = slice->buffer == first->buffer && slice->pitch == first->pitch &&
                 static_cast<i64>(slice->offset) == expected;
      expected += shape(id)[1] * run(id);
    }
    if (adjacent && first && shape(y)[1] < first->pitch) return write_slice(y, *first, layout);
  }
  const Ref to = place_of_join(node, layout);
  const Shape strides = strides_in(shape(y), layout, to.pitch);
  i64 offset = 0;
  for (const ValueId id : node.inputs) {
    if (elements(shape(id)) == 0) continue;
    const Located& at = located_[static_cast<std::size_t>(id)];
    const bool there =
        std::ranges::any_of(std::initializer_list{&at.ref[index], &at.slice[index]}, [&](auto* r) {
          return *r && (*r)->buffer == to.buffer &&
                 (*r)->offset == to.offset + static_cast<std::size_t>(offset);
        });
    if (!there) {
      Ref from = read_slice(id, layout), into = to;
      const StridedOperand input = operand_at(from, type, strides_in(shape(id), layout, from.pitch));
      StridedOperand output = operand_at(into, type, strides);
      output.offset += offset / static_cast<i64>(size_of(type));
      emit(node, make_copy(shape(id), input, output, node.title()), {from}, into, layout);
    }
    offset += shape(id)[1] * run(id);
  }
}

}  // namespace faltung::network
