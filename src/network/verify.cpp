#include "src/network/verify.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "src/network/interpreter.hpp"

namespace faltung::network {
namespace {

// A step's result, copied while it was there.
struct Seen {
  std::size_t step;
  Layout layout;
  Shape shape;
  std::int64_t pitch;  // of a slice, else 0
  Type type;
  std::vector<std::byte> bytes;
};

// In nchw.
Array as_array(const Seen& seen) {
  const auto there = static_cast<std::int64_t>(seen.bytes.size() / size_of(seen.type));
  Array lies = decode({seen.type, {there}, nullptr, seen.bytes.data()});
  Array array{seen.type, seen.shape, std::vector<double>(static_cast<std::size_t>(elements(seen.shape)))};
  Odometer at(seen.shape, {strides_in(seen.shape, seen.layout, seen.pitch)});
  for (double& v : array.data) {
    v = lies.data[static_cast<std::size_t>(at.offset())];
    at.next();
  }
  return array;
}

// A plan's memory for its inputs and outputs: the device's, where it has its own.
class Memories {
 public:
  explicit Memories(Device& device) : device_(device) {}
  void* make(std::size_t bytes) {
    buffers_.push_back(device_.allocate(std::max<std::size_t>(1, bytes)));
    return buffers_.back().pointer;
  }
  const void* copy(const void* from, std::size_t bytes) {
    make(bytes);
    device_.copy_in(buffers_.back(), from, bytes);
    return buffers_.back().pointer;
  }
  std::vector<std::byte> read(const std::byte* from, std::size_t bytes) const {
    std::vector<std::byte> to(bytes);
    device_.copy_out(to.data(), {nullptr, const_cast<std::byte*>(from), bytes}, bytes);
    return to;
  }

 private:
  Device& device_;
  std::vector<faltung::Buffer> buffers_;
};

std::size_t bytes_of(const NetworkTensor& tensor) {
  return static_cast<std::size_t>(elements(tensor.sizes)) * bytes(tensor.element);
}

// Whether an element is finite, and not so in the type.
bool is_beyond(Type type, const Array& array) {
  return std::ranges::any_of(array.data,
                             [&](double v) { return std::isfinite(v) && std::isinf(round_to(type, v)); });
}

}  // namespace

TensorError compare(const Array& expected, const Array& actual) {
  TensorError error;
  double largest = 0, worst = 0, squares = 0;
  for (std::size_t i = 0; i < expected.data.size(); ++i) {
    const double e = expected.data[i], a = actual.data[i];
    if (std::isfinite(e)) largest = std::max(largest, std::abs(e));
    if (e == a || (std::isnan(e) && std::isnan(a))) continue;
    const double difference = std::abs(e - a);
    if (!std::isfinite(difference)) {
      error.finite = false;
      continue;
    }
    worst = std::max(worst, difference);
    squares += difference * difference;
  }
  const double scale = largest > 0 ? largest : 1;
  error.worst = worst / scale;
  error.rms =
      std::sqrt(squares / static_cast<double>(std::max<std::size_t>(1, expected.data.size()))) / scale;
  return error;
}

Verified verify(NetworkImpl& network, const NetworkPlanImpl& plan, std::span<const void* const> inputs) {
  const Schedule& schedule = plan.schedule();
  const Graph& graph = schedule.graph();
  Memories memories(plan.device());
  std::vector<const void*> reads;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    reads.push_back(memories.copy(inputs[i], bytes_of(plan.inputs()[i])));
  std::vector<void*> writes;
  for (const NetworkTensor& tensor : plan.outputs()) writes.push_back(memories.make(bytes_of(tensor)));
  // The last step that writes to a value has completed it.
  std::map<ValueId, std::size_t> last;
  for (std::size_t s = 0; s < schedule.steps().size(); ++s) {
    if (schedule.products()[s].value != kNone) last[schedule.products()[s].value] = s;
  }
  std::map<std::string, Seen> seen;
  const auto keep = [&](std::size_t s, std::byte* arena) {
    const auto [value, layout, offset, pitch] = schedule.products()[s];
    if (value == kNone || last.at(value) != s) return;
    const Value& v = graph.at(value);
    std::int64_t extent = 1;  // from its first element to its last
    const Shape strides = strides_in(*v.shape, layout, pitch);
    for (std::size_t d = 0; d < strides.size(); ++d) extent += ((*v.shape)[d] - 1) * strides[d];
    const std::byte* const from = schedule.result(s, writes, arena) + static_cast<std::ptrdiff_t>(offset);
    const std::size_t size = static_cast<std::size_t>(elements(*v.shape) == 0 ? 0 : extent) * size_of(v.type);
    seen[v.name] = {s, layout, *v.shape, pitch, v.type, memories.read(from, size)};
  };
  plan.watch(reads, writes, [&](std::size_t step, std::byte* arena) {
    if (step > 0) keep(step - 1, arena);
  });

  Verified all;
  const NetworkRequest& request = network.request();
  const Type type = request.dtype == DType::f32   ? Type::f32
                    : request.dtype == DType::f16 ? Type::f16
                                                  : Type::bf16;
  const auto watch_range = [&](const std::string& name, const Array& array) {
    const bool kept = std::ranges::find(request.keep_f32, name) != request.keep_f32.end();
    if (array.type == Type::f32 && !kept && is_beyond(type, array)) all.beyond.push_back(name);
  };
  std::vector<Array> arrays;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Value& value = graph.at(graph.inputs[i]);
    arrays.push_back(decode({value.type, *value.shape, nullptr, static_cast<const std::byte*>(inputs[i])}));
    watch_range(value.name, arrays.back());
  }
  std::map<std::size_t, TensorError> by_step;
  std::set<ValueId> compared;
  const Graph& original = network.original();
  all.outputs = interpret(original, arrays, [&](ValueId id, const Array& expected) {
    const auto found = seen.find(original.at(id).name);
    if (found == seen.end() || found->second.shape != expected.shape) return;
    TensorError error = compare(expected, as_array(found->second));
    error.name = found->first;
    error.step = schedule.steps()[found->second.step].name;
    error.shape = expected.shape;
    error.is_output = std::ranges::find(original.outputs, id) != original.outputs.end();
    // Results of f32 that are no outputs are in f32 in any case.
    if (found->second.type != Type::f32 || !error.finite) watch_range(error.name, expected);
    by_step[found->second.step] = error;
    compared.insert(id);
    seen.erase(found);
  });
  for (auto& [step, error] : by_step) all.tensors.push_back(std::move(error));
  // Outputs that are an input, a constant or another output once more: copies.
  for (std::size_t i = 0; i < writes.size(); ++i) {
    if (compared.erase(original.outputs[i]) > 0) continue;
    const Array& expected = all.outputs[i];
    const std::vector<std::byte> there =
        memories.read(static_cast<const std::byte*>(writes[i]), bytes_of(plan.outputs()[i]));
    TensorError error = compare(expected, decode({expected.type, expected.shape, nullptr, there.data()}));
    error.name = plan.outputs()[i].name;
    error.step = "output " + error.name;
    error.shape = expected.shape;
    error.is_output = true;
    all.tensors.push_back(std::move(error));
  }
  return all;
}

}  // namespace faltung::network
