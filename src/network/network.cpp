#include "src/network/network.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <new>
#include <type_traits>

#include "src/network/onnx.hpp"
#include "src/network/passes.hpp"
#include "src/problem/problem.hpp"

namespace faltung {
namespace {

using network::Graph;
using network::Shape;

Element element_of(const network::Value& value) {
  switch (value.type) {
    case network::Type::f32:
      return Element::f32;
    case network::Type::boolean:
      return Element::boolean;
    case network::Type::i32:
      return Element::i32;
    case network::Type::i64:
      return Element::i64;
    default:
      throw Error(Status::unsupported,
                  fmt::format("the network's tensor {} is of type {}; inputs and outputs are of f32, "
                              "bool, i32 or i64",
                              network::in_quotes(value.name), network::name(value.type)));
  }
}

std::vector<NetworkTensor> tensors(const Graph& graph, const std::vector<network::ValueId>& ids) {
  std::vector<NetworkTensor> all;
  for (const network::ValueId id : ids) {
    const network::Value& value = graph.at(id);
    all.push_back({value.name, element_of(value), value.shape.value_or(Shape())});
  }
  return all;
}

}  // namespace

std::size_t bytes(Element element) {
  return element == Element::boolean ? 1 : element == Element::i64 ? 8 : 4;
}

// ---- a plan

// Taken for a run, and given back.
class NetworkPlanImpl::Arena {
 public:
  explicit Arena(const NetworkPlanImpl& plan) : plan_(plan) {
    const std::lock_guard lock(plan.mutex_);
    if (!plan.free_.empty()) {
      memory_ = std::move(plan.free_.back());
      plan.free_.pop_back();
    } else {
      memory_ = network::allocate_aligned(plan.schedule_.memory().bytes);
      plan.free_.reserve(plan.free_.capacity() + 1);  // room for giving it back, which must not fail
    }
  }
  ~Arena() {
    const std::lock_guard lock(plan_.mutex_);
    plan_.free_.push_back(std::move(memory_));
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  std::byte* begin() const { return const_cast<std::byte*>(memory_.get()); }

 private:
  const NetworkPlanImpl& plan_;
  network::Bytes memory_;
};

NetworkPlanImpl::NetworkPlanImpl(network::Schedule schedule)
    : schedule_(std::move(schedule)),
      inputs_(tensors(schedule_.graph(), schedule_.graph().inputs)),
      outputs_(tensors(schedule_.graph(), schedule_.graph().outputs)) {}

void NetworkPlanImpl::run(std::span<const void* const> inputs, std::span<void* const> outputs,
                          Watch before) const {
  if (inputs.size() != inputs_.size() || outputs.size() != outputs_.size()) {
    throw Error(Status::bad_problem,
                fmt::format("the network has {} inputs and {} outputs; {} and {} are given", inputs_.size(),
                            outputs_.size(), inputs.size(), outputs.size()));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr)
      throw Error(Status::bad_problem, "input " + network::in_quotes(inputs_[i].name) + " is null");
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == nullptr)
      throw Error(Status::bad_problem, "output " + network::in_quotes(outputs_[i].name) + " is null");
  }
  const Arena arena(*this);
  std::byte* const begin = arena.begin();
  schedule_.run(inputs, outputs, begin, [&](std::size_t step) { before(step, begin); });
}

NetworkReport NetworkPlanImpl::report() const {
  NetworkReport report;
  report.arena_bytes = schedule_.memory().bytes;
  report.arena_bound = schedule_.memory().bound;
  report.turned = schedule_.turned();
  for (std::size_t i = 0; i < schedule_.steps().size(); ++i) {
    const network::NetworkStep& step = schedule_.steps()[i];
    NetworkStepReport r;
    r.name = step.name;
    r.kernel = network::kind(step.work);
    r.layout = schedule_.products()[i].layout;
    r.offset = step.write.in == network::Place::In::arena ? step.write.offset : static_cast<std::size_t>(-1);
    r.workspace_bytes = step.workspace_bytes;
    if (const auto* work = std::get_if<network::ConvolutionWork>(&step.work))
      r.problem = to_string(work->plan->problem());
    report.steps.push_back(std::move(r));
  }
  return report;
}

// ---- a network

NetworkImpl::NetworkImpl(EngineImpl& engine, const std::string& file, const NetworkRequest& request)
    : engine_(engine), request_(request), original_(network::read_onnx(file)) {
  const std::shared_ptr<Device> device = find_device(request.request.device);
  if (device->info().kind != "cpu")
    throw Error(Status::unsupported, "networks run on the CPU alone; " + request.request.device + " is none");
  if (request_.math != Math::f32 && request_.math != Math::fast)
    throw Error(Status::bad_problem,
                std::string("a network's math is f32 or fast, not ") + name(request_.math));
  if (request_.request.threads == 0) request_.request.threads = available_processors();
  network::check_operators(original_);
  inputs_ = tensors(original_, original_.inputs);
  graph_ = network::run_passes(network::unsized_passes(), original_);
}

std::shared_ptr<const NetworkPlanImpl> NetworkImpl::plan(const std::vector<Shape>& shapes) {
  const auto find = [&] { return std::ranges::find(plans_, shapes, &Kept::shapes); };
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = find(); found != plans_.end()) {
      plans_.splice(plans_.begin(), plans_, found);
      return found->plan;
    }
  }
  Graph graph = network::with_sizes(graph_, shapes);
  graph = network::run_passes(network::sized_passes(), std::move(graph));
  auto made = std::make_shared<const NetworkPlanImpl>(
      network::Schedule(std::move(graph), {engine_, request_.request, weights_, request_.math}));
  const std::lock_guard lock(mutex_);
  if (const auto found = find(); found != plans_.end()) return found->plan;  // another thread was as fast
  plans_.push_front({shapes, made});
  while (plans_.size() > std::max<std::size_t>(1, request_.plans)) plans_.pop_back();
  return made;
}

}  // namespace faltung
