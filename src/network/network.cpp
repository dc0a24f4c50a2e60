#include "src/network/network.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <type_traits>

#include "src/finder/settings.hpp"
#include "src/network/onnx.hpp"
#include "src/network/onnx_metadata.hpp"
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
    case network::Type::f16:
      return Element::f16;
    case network::Type::bf16:
      return Element::bf16;
    default:
      throw Error(Status::unsupported,
                  fmt::format("the network's tensor {} is of type {}; inputs and outputs are of f32, f16, "
                              "bf16, bool, i32 or i64",
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
  switch (element) {
    case Element::boolean:
      return 1;
    case Element::f16:
    case Element::bf16:
      return 2;
    case Element::i64:
      return 8;
    default:
      return 4;
  }
}

// ---- a plan

Arenas::Arena Arenas::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::ranges::sort(free_, {}, &Arena::bytes);
  auto chosen = std::ranges::find_if(free_, [&](const Arena& arena) { return arena.bytes >= bytes; });
  if (chosen == free_.end() && !free_.empty()) --chosen;  // the largest
  Arena arena;
  if (chosen != free_.end()) {
    arena = std::move(*chosen);
    free_.erase(chosen);
  } else {
    free_.reserve(free_.capacity() + 1);  // room for giving it back, which must not fail
  }
  if (arena.memory == nullptr || arena.bytes < bytes) {
    arena = {};  // before there is another
    arena = {network::allocate_aligned(bytes), bytes};
  }
  return arena;
}

void Arenas::give_back(Arena arena) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(arena));
}

class NetworkPlanImpl::Arena {
 public:
  explicit Arena(const NetworkPlanImpl& plan)
      : arenas_(*plan.arenas_), arena_(arenas_.take(plan.schedule_.memory().bytes)) {}
  ~Arena() { arenas_.give_back(std::move(arena_)); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  std::byte* begin() const { return const_cast<std::byte*>(arena_.memory.get()); }

 private:
  Arenas& arenas_;
  Arenas::Arena arena_;
};

NetworkPlanImpl::NetworkPlanImpl(network::Schedule schedule, EngineImpl& engine,
                                 const std::shared_ptr<Device>& device, const std::vector<std::string>& names,
                                 std::shared_ptr<Arenas> arenas)
    : schedule_(std::move(schedule)),
      device_(device),
      inputs_(tensors(schedule_.graph(), schedule_.graph().inputs)),
      outputs_(tensors(schedule_.graph(), schedule_.graph().outputs)),
      arenas_(std::move(arenas)) {
  for (std::size_t i = 0; i < names.size(); ++i) outputs_[i].name = names[i];
  if (device->info().kind != "cpu")
    on_device_ = std::make_unique<const network::DeviceRuns>(schedule_, engine, device);
}

void NetworkPlanImpl::check(std::span<const void* const> inputs, std::span<void* const> outputs) const {
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
}

void NetworkPlanImpl::run(std::span<const void* const> inputs, std::span<void* const> outputs,
                          const NetworkRunOptions& options) const {
  check(inputs, outputs);
  if (on_device_ != nullptr)
    return on_device_->run(inputs, outputs, options.stream, static_cast<std::byte*>(options.arena));
  const Arena arena(*this);
  schedule_.run(inputs, outputs, arena.begin());
}

void NetworkPlanImpl::watch(std::span<const void* const> inputs, std::span<void* const> outputs,
                            Watch before) const {
  check(inputs, outputs);
  if (on_device_ != nullptr) return on_device_->watch(inputs, outputs, before);
  const Arena arena(*this);
  std::byte* const begin = arena.begin();
  schedule_.run(inputs, outputs, begin, [&](std::size_t step) { before(step, begin); });
}

std::vector<double> NetworkPlanImpl::time_steps(std::span<const void* const> inputs,
                                                std::span<void* const> outputs, int runs) const {
  check(inputs, outputs);
  if (on_device_ != nullptr) return on_device_->time_steps(inputs, outputs, runs);
  using Clock = std::chrono::steady_clock;
  std::vector<double> all(schedule_.steps().size());
  std::vector<Clock::time_point> at(all.size() + 1);
  for (int run = 0; run < std::max(1, runs); ++run) {
    watch(inputs, outputs, [&](std::size_t step, std::byte*) { at[step] = Clock::now(); });
    for (std::size_t s = 0; s < all.size(); ++s) {
      const double ms = std::chrono::duration<double, std::milli>(at[s + 1] - at[s]).count();
      all[s] = run == 0 ? ms : std::min(all[s], ms);
    }
  }
  return all;
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
    r.predicted_ms = step.predicted_ms;
    r.note = step.note;
    if (const auto* work = std::get_if<network::ConvolutionWork>(&step.work))
      r.problem = to_string(work->plan->problem());
    if (const auto* work = std::get_if<network::StripsWork>(&step.work)) r.problem = to_string(work->problem);
    if (const auto* work = std::get_if<network::ScaledWork>(&step.work)) r.problem = to_string(work->problem);
    report.steps.push_back(std::move(r));
  }
  return report;
}

// ---- a network

NetworkImpl::NetworkImpl(EngineImpl& engine, const std::string& file, const NetworkRequest& request)
    : NetworkImpl(engine, network::read_onnx(file), request) {
  metadata_ = network::read_onnx_metadata(file);
}

NetworkImpl::NetworkImpl(EngineImpl& engine, Graph graph, const NetworkRequest& request)
    : engine_(engine), request_(request), original_(std::move(graph)) {
  const std::shared_ptr<Device> device = find_device(request.request.device);
  if (device->info().kind == "cpu" && request_.dtype != DType::f32)
    throw Error(Status::unsupported,
                std::string("on the CPU networks compute in f32; ") + name(request_.dtype) + " is a GPU's");
  const bool tf32 =
      request_.math == Math::tf32 && device->info().kind != "cpu" && request_.dtype == DType::f32;
  if (request_.math != Math::f32 && request_.math != Math::fast && !tf32)
    throw Error(Status::bad_problem,
                std::string("a network's math is f32 or fast, or on a GPU tf32 where its "
                            "elements are of f32; not ") +
                    name(request_.math));
  request_.request.threads = threads_of(request_.request, device->info());
  network::check_operators(original_);
  for (const std::string& name : request_.keep_f32) {
    if (std::ranges::find(original_.values, name, &network::Value::name) == original_.values.end())
      throw Error(Status::bad_problem,
                  "the network has no tensor " + network::in_quotes(name) + " to keep in f32");
  }
  inputs_ = tensors(original_, original_.inputs);
  graph_ = network::run_passes(network::unsized_passes(), original_, network::passes_off(device->info().kind),
                               *planners());
}

std::shared_ptr<const Parallel> NetworkImpl::planners() {
  return engine_.planners(find_device(request_.request.device)->info(), request_.request.threads);
}

Graph NetworkImpl::passed(const std::vector<Shape>& shapes, const Parallel& planners) {
  Graph graph = network::with_sizes(graph_, shapes);
  graph = network::run_passes(network::sized_passes(), std::move(graph));
  if (request_.dtype != DType::f32) {
    const network::Type type = request_.dtype == DType::f16 ? network::Type::f16 : network::Type::bf16;
    weights_.find_finite_in(type, graph, planners);
  }
  return network::with_precision(
      std::move(graph), request_.dtype, {request_.keep_f32.begin(), request_.keep_f32.end()},
      [&](network::Type type, const auto& constant) { return weights_.finite_in(type, constant); });
}

network::Survey NetworkImpl::survey(const std::vector<Shape>& shapes) {
  if (find_device(request_.request.device)->info().kind == "cpu")
    throw Error(Status::unsupported, "the CPU's kernels come compiled, and need no preparation");
  const std::shared_ptr<const Parallel> workers = planners();
  return network::survey(passed(shapes, *workers),
                         {engine_, request_.request, weights_, *workers, request_.math});
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
  const std::shared_ptr<const Parallel> workers = planners();  // once: on a GPU each time starts them
  Graph graph = passed(shapes, *workers);
  std::vector<std::string> names;
  for (const network::ValueId id : original_.outputs) names.push_back(original_.at(id).name);
  auto made = std::make_shared<const NetworkPlanImpl>(
      network::Schedule(std::move(graph), {engine_, request_.request, weights_, *workers, request_.math}),
      engine_, find_device(request_.request.device), names, arenas_);
  const std::lock_guard lock(mutex_);
  if (const auto found = find(); found != plans_.end()) return found->plan;  // another thread was as fast
  plans_.push_front({shapes, made});
  while (plans_.size() > std::max<std::size_t>(1, request_.plans)) plans_.pop_back();
  return made;
}

}  // namespace faltung
