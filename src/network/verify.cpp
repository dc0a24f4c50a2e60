#include "src/network/verify.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "src/network/interpreter.hpp"

namespace faltung::network {
namespace {

// A step's result, copied while it was there.
struct Seen {
  std::size_t step;
  Layout layout;
  Shape shape;
  Type type;
  std::vector<std::byte> bytes;
};

// In nchw.
Array as_array(const Seen& seen) {
  const Array lies = decode({seen.type, seen.shape, nullptr, seen.bytes.data()});
  if (seen.layout == Layout::nchw || !is_image(seen.shape)) return lies;
  Array array{seen.type, seen.shape, std::vector<double>(lies.data.size())};
  Odometer at(seen.shape, {strides_in(seen.shape, Layout::nhwc)});
  for (double& v : array.data) {
    v = lies.data[static_cast<std::size_t>(at.offset())];
    at.next();
  }
  return array;
}

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

}  // namespace

std::vector<TensorError> verify(NetworkImpl& network, const NetworkPlanImpl& plan,
                                std::span<const void* const> inputs) {
  const Schedule& schedule = plan.schedule();
  const Graph& graph = schedule.graph();
  std::vector<std::vector<std::byte>> outputs;
  std::vector<void*> writes;
  for (const NetworkTensor& tensor : plan.outputs()) {
    outputs.emplace_back(static_cast<std::size_t>(elements(tensor.sizes)) * bytes(tensor.element));
    writes.push_back(outputs.back().data());
  }
  // The last step that writes to a value has completed it.
  std::map<ValueId, std::size_t> last;
  for (std::size_t s = 0; s < schedule.steps().size(); ++s) {
    if (schedule.products()[s].value != kNone) last[schedule.products()[s].value] = s;
  }
  std::map<std::string, Seen> seen;
  const auto keep = [&](std::size_t s, std::byte* arena) {
    const auto [value, layout] = schedule.products()[s];
    if (value == kNone || last.at(value) != s) return;
    const Value& v = graph.at(value);
    const std::size_t size = static_cast<std::size_t>(elements(*v.shape)) * size_of(v.type);
    const std::byte* const from = schedule.result(s, writes, arena);
    seen[v.name] = {s, layout, *v.shape, v.type, {from, from + size}};
  };
  plan.run(inputs, writes, [&](std::size_t step, std::byte* arena) {
    if (step > 0) keep(step - 1, arena);
  });

  std::vector<Array> arrays;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Value& value = graph.at(graph.inputs[i]);
    arrays.push_back(decode({value.type, *value.shape, nullptr, static_cast<const std::byte*>(inputs[i])}));
  }
  std::map<std::size_t, TensorError> by_step;
  const Graph& original = network.original();
  interpret(original, arrays, [&](ValueId id, const Array& expected) {
    const auto found = seen.find(original.at(id).name);
    if (found == seen.end() || found->second.shape != expected.shape) return;
    TensorError error = compare(expected, as_array(found->second));
    error.name = found->first;
    error.step = schedule.steps()[found->second.step].name;
    error.shape = expected.shape;
    error.is_output = std::ranges::find(original.outputs, id) != original.outputs.end();
    by_step[found->second.step] = error;
    seen.erase(found);
  });
  std::vector<TensorError> all;
  for (auto& [step, error] : by_step) all.push_back(std::move(error));
  return all;
}

}  // namespace faltung::network
