// What the network commands share: a network that is loaded, planned and has data, and errors of its outputs.
#ifndef FALTUNG_TOOLS_NETWORK_HPP_
#define FALTUNG_TOOLS_NETWORK_HPP_

#include <optional>
#include <string>
#include <vector>

#include "src/network/verify.hpp"
#include "tools/network_data.hpp"
#include "tools/peer.hpp"
#include "tools/preparation.hpp"

namespace faltung::tools {

struct NetworkOptions {
  std::string model, device = "cpu", dtype = "f32", threads, math = "f32", bound, peer, repeat = "9",
                     least = "200ms", find;
  std::vector<std::string> sizes, inputs, outputs, keep_f32;
  std::uint64_t seed = 1;
  bool check = false, no_check = false;
};

NetworkRequest request_of(const NetworkOptions& options);

// A network, planned for the sizes that were asked for, with data.
struct LoadedNetwork {
  explicit LoadedNetwork(const NetworkOptions& options);

  Device& device() const { return NetworkInternals::impl(*plan).device(); }
  bool on_gpu() const { return device().info().kind != "cpu"; }
  int threads() const;
  // Runs it, and waits.
  void once() const;

  Engine engine;
  NetworkRequest request;
  std::optional<Network> network;
  std::optional<NetworkPlan> plan;
  std::vector<std::vector<std::int64_t>> sizes;
  std::optional<NetworkBuffers> in, out;
  double load_ms = 0, plan_ms = 0;
};

// Another engine that has the network ready, and what it says that it runs. Throws Error(unsupported) if it
// declines.
struct NetworkPeer {
  NetworkPeer(const LoadedNetwork& loaded, const NetworkOptions& options);
  Peer peer;
  std::string about;
  double ready_ms = 0;
};

// The outputs by the file's own graph in double precision, of the same inputs.
std::vector<network::Array> expected_outputs(LoadedNetwork& loaded);
// Each output's error: of a run of ours, and of one of the peer's, for which Error(unsupported) is thrown if
// its results cannot be had.
std::vector<network::TensorError> output_errors(LoadedNetwork& loaded,
                                                const std::vector<network::Array>& expected);
std::vector<network::TensorError> output_errors(Peer& peer, LoadedNetwork& loaded,
                                                const std::vector<network::Array>& expected);

std::string show_worst(const network::TensorError& error);

int bench_network(const NetworkOptions& options);
int prepare_network(const NetworkOptions& options, PrepareOptions& how);

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_NETWORK_HPP_
