// What is computed only to be copied into a part of a larger tensor (a concatenation's) is written there.
#include <algorithm>
#include <numeric>
#include <optional>

#include "src/network/lowering.hpp"
#include "src/network/map_builder.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

bool is_contiguous(const MapCall& call, const MapOperand& operand) {
  i64 expected = 1;
  for (auto d = static_cast<std::size_t>(call.rank); d-- > 0; expected *= call.sizes[d]) {
    if (call.sizes[d] > 1 && operand.strides[d] != expected) return false;
  }
  return operand.offset == 0;
}

// The coarsest sizes of which the dimensions of both are made, if there are such: the last one first.
std::optional<Shape> common_sizes(const MapCall& a, const MapCall& b) {
  int i = a.rank - 1, j = b.rank - 1;
  i64 left = 1, right = 1;  // what remains of the two dimensions
  Shape sizes;
  for (;;) {
    while (left == 1 && i >= 0) left = a.sizes[static_cast<std::size_t>(i--)];
    while (right == 1 && j >= 0) right = b.sizes[static_cast<std::size_t>(j--)];
    if (left == 1 || right == 1) break;
    const i64 size = std::min(left, right);
    if (left % size != 0 || right % size != 0) return std::nullopt;
    sizes.push_back(size);
    left /= size, right /= size;
  }
  if (left != right || sizes.size() > kMapRank) return std::nullopt;
  if (sizes.empty()) sizes.push_back(1);
  return sizes;
}

// The operand's strides where the call's dimensions are made of these sizes, the last one first.
MapOperand in_parts(const MapCall& call, const MapOperand& operand, const Shape& sizes) {
  MapOperand made{operand.element, operand.offset, {}};
  auto of = static_cast<std::size_t>(call.rank);
  i64 left = 1, stride = 0;
  for (std::size_t part = 0; part < sizes.size(); ++part) {
    while (left == 1 && of > 0) left = call.sizes[--of], stride = operand.strides[of];
    made.strides[sizes.size() - 1 - part] = stride;
    stride *= sizes[part], left /= sizes[part];
  }
  return made;
}

// A copy with its dimensions in the order of its result.
MapCall in_order(const MapCall& copy) {
  std::array<std::size_t, kMapRank> order{};
  const auto end = order.begin() + copy.rank;
  std::iota(order.begin(), end, std::size_t{0});
  std::stable_sort(order.begin(), end, [&](std::size_t a, std::size_t b) {
    return copy.output.strides[a] > copy.output.strides[b];
  });
  MapCall made = copy;
  for (std::size_t d = 0; d < static_cast<std::size_t>(copy.rank); ++d) {
    made.sizes[d] = copy.sizes[order[d]];
    made.inputs[0].strides[d] = copy.inputs[0].strides[order[d]];
    made.output.strides[d] = copy.output.strides[order[d]];
  }
  return made;
}

// The map with its result where the copy has it; null where their dimensions do not go together.
std::optional<MapCall> joined(const MapCall& map, const MapCall& copy) {
  if (!is_contiguous(map, map.output) || !is_contiguous(copy, copy.inputs[0])) return std::nullopt;
  const std::optional<Shape> sizes = common_sizes(map, copy);
  if (!sizes) return std::nullopt;
  MapCall call;
  call.rank = static_cast<int>(sizes->size());
  std::ranges::copy(sizes->rbegin(), sizes->rend(), call.sizes.begin());
  for (const MapOperand& input : map.inputs) call.inputs.push_back(in_parts(map, input, *sizes));
  call.output = in_parts(copy, copy.output, *sizes);
  call.output.element = map.output.element;
  call.program = map.program;
  return call;
}

bool is_copy(const Draft& draft) {
  const auto* const call = std::get_if<MapCall>(&draft.work);
  return call != nullptr && call->program.empty() && call->inputs.size() == 1;
}

}  // namespace

void Lowering::write_into_joins() {
  for (std::size_t s = 0; s < drafts.size(); ++s) {
    if (!is_copy(drafts[s]) || drafts[s].reads[0].offset != 0) continue;
    const int buffer = drafts[s].reads[0].buffer, to = drafts[s].write.buffer;
    if (buffer == to || buffers[static_cast<std::size_t>(buffer)].in != Place::In::arena) continue;
    // By whom it is written last; nobody else may read it afterwards, or write there what that would cover.
    std::size_t maker = s;
    bool alone = true;
    for (std::size_t other = 0; other < drafts.size(); ++other) {
      const Draft& draft = drafts[other];
      if (other < s && draft.write.buffer == buffer) maker = other;
      const bool reads = std::ranges::any_of(draft.reads, [&](const Ref& r) { return r.buffer == buffer; });
      if (other > s && (reads || draft.write.buffer == buffer)) alone = false;
    }
    for (std::size_t other = maker + 1; other < s; ++other) {
      for (const Ref& ref : drafts[other].reads) alone = alone && ref.buffer != buffer;
    }
    if (!alone || maker == s || drafts[maker].write.offset != 0) continue;
    const auto* const map = std::get_if<MapCall>(&drafts[maker].work);
    if (map == nullptr) continue;
    // A GPU's copies walk in the order of their results already.
    const bool rearranged = !on_gpu() && is_copy(drafts[maker]);
    std::optional<MapCall> call =
        joined(rearranged ? in_order(*map) : *map, std::get<MapCall>(drafts[s].work));
    if (!call) continue;
    if (rearranged) arrange_rows(*call);
    // What is left of it in its own memory is not the value that it had.
    for (Draft& draft : drafts) {
      if (draft.write.buffer == buffer) draft.value = kNone;
    }
    Draft& draft = drafts[maker];
    draft.work = *call;
    draft.write = drafts[s].write;
    draft.in_place.clear();
    draft.layout = drafts[s].layout;
    draft.value = drafts[s].value;
    drafts.erase(drafts.begin() + static_cast<std::ptrdiff_t>(s--));
  }
}

}  // namespace faltung::network
