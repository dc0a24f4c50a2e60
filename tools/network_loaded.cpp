#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "src/network/interpreter.hpp"
#include "src/problem/parse.hpp"
#include "src/problem/temporary_folder.hpp"
#include "tools/arguments.hpp"
#include "tools/network.hpp"
#include "tools/race.hpp"
#include "tools/report.hpp"
#include "tools/units.hpp"

namespace faltung::tools {
namespace {

// Measures the convolutions and products in either layout: both the choice of kernels and that of layouts
// are made by what was measured.
void find_all(Engine& engine, const Request& request, const NetworkReport& report, double budget_ms) {
  Request each = request;
  each.budget_ms = budget_ms;
  std::set<std::string> done;
  for (const NetworkStepReport& step : report.steps) {
    if (step.problem.empty()) continue;
    Problem p = parse_problem(step.problem);
    for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
      if (p.h * p.w == 1 && layout != p.layout) continue;  // the same in memory
      Problem other = p;
      other.layout = layout;
      if (!done.insert(to_string(other)).second) continue;
      try {
        engine.find(other, each);
      } catch (const Error& error) {
        if (error.status() != Status::unsupported) throw;
      }
    }
  }
}

}  // namespace

NetworkRequest request_of(const NetworkOptions& options) {
  NetworkRequest request;
  if (!options.threads.empty()) request.request.threads = parse_threads(options.threads);
  request.request.device = options.device;
  request.dtype = parse_dtype(options.dtype);
  request.keep_f32 = options.keep_f32;
  request.math = parse_math(options.math);
  return request;
}

LoadedNetwork::LoadedNetwork(const NetworkOptions& options) : request(request_of(options)) {
  print_warnings(engine);
  // One that runs nothing says so before anything is planned for it.
  if (const std::shared_ptr<Device> there = find_device(options.device); !there->runs())
    there->synchronize({});
  const auto begin = std::chrono::steady_clock::now();
  network.emplace(engine, options.model, request);
  load_ms = ms_since(begin);
  const std::vector<NamedArray> arrays = read_arrays(options.inputs);
  sizes = network_sizes(network->inputs(), options.sizes, arrays);
  if (!options.find.empty()) {
    find_all(engine, request.request, network->plan(sizes).report(),
             parse_duration_ms("--find", options.find));
    network.emplace(engine, options.model, request);
  }
  const auto planned = std::chrono::steady_clock::now();
  plan.emplace(network->plan(sizes));
  plan_ms = ms_since(planned);
  in.emplace(plan->inputs(), options.device);
  out.emplace(plan->outputs(), options.device);
  in->draw(options.seed);
  in->read(arrays);
  in->upload();
}

int LoadedNetwork::threads() const {
  return request.request.threads > 0 ? request.request.threads : available_processors();
}

void LoadedNetwork::once() const {
  plan->run(in->reads(), out->writes());
  device().synchronize({});
}

NetworkPeer::NetworkPeer(const LoadedNetwork& loaded, const NetworkOptions& options) : peer(options.peer) {
  const auto begin = std::chrono::steady_clock::now();
  const Peer::Answer answer =
      peer.prepare_network(options.model, loaded.plan->inputs(), loaded.request, loaded.threads());
  if (!answer.yes) throw Error(Status::unsupported, "peer " + options.peer + " declines: " + answer.text);
  about = answer.text;
  ready_ms = ms_since(begin);
}

// ---- errors

std::vector<network::Array> expected_outputs(LoadedNetwork& loaded) {
  const network::Graph& original = NetworkInternals::impl(*loaded.network).original();
  std::vector<network::Array> inputs;
  for (std::size_t i = 0; i < original.inputs.size(); ++i)
    inputs.push_back(network::decode(
        {original.at(original.inputs[i]).type, loaded.plan->inputs()[i].sizes, nullptr, loaded.in->data(i)}));
  return network::interpret(original, inputs, nullptr);
}

std::vector<network::TensorError> output_errors(LoadedNetwork& loaded,
                                                const std::vector<network::Array>& expected) {
  loaded.once();
  loaded.out->download();
  std::vector<network::TensorError> errors;
  for (std::size_t i = 0; i < expected.size(); ++i)
    errors.push_back(network::compare(
        expected[i], network::decode({expected[i].type, expected[i].shape, nullptr, loaded.out->data(i)})));
  return errors;
}

std::vector<network::TensorError> output_errors(Peer& peer, LoadedNetwork& loaded,
                                                const std::vector<network::Array>& expected) {
  const TemporaryFolder folder;
  const auto file = [&](const char* what, std::size_t i) {
    return fmt::format("{}/{}{}.npy", folder.path(), what, i);
  };
  for (std::size_t i = 0; i < loaded.plan->inputs().size(); ++i)
    write_npy(file("input", i), DType::f32, loaded.plan->inputs()[i].sizes, loaded.in->data(i));
  if (const Peer::Answer done = peer.outputs(folder.path()); !done.yes)
    throw Error(Status::unsupported, "peer " + peer.name() + ": its results cannot be had: " + done.text);
  std::vector<network::TensorError> errors;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const NpyArray theirs = read_npy(file("output", i));
    check_npy(theirs, file("output", i), loaded.plan->outputs()[i].name, DType::f32, expected[i].shape);
    errors.push_back(network::compare(
        expected[i], network::decode({network::Type::f32, expected[i].shape, nullptr, theirs.data.data()})));
  }
  return errors;
}

std::string show_worst(const network::TensorError& error) {
  return error.finite ? fmt::format("{:.2e}", error.worst) : "NaN, Inf";
}

}  // namespace faltung::tools
