// Another library in a process of its own, timed in turn with us. docs/bench.md has the protocol.
#ifndef FALTUNG_TOOLS_PEER_HPP_
#define FALTUNG_TOOLS_PEER_HPP_

#include <string>

#include "faltung/network.hpp"
#include "tools/race.hpp"

namespace faltung::tools {

// Between its answers its process is stopped: threads of its own that spin for more work, as ONNX Runtime's
// do for tens of milliseconds, would take a processor from whoever is timed next.
class Peer {
 public:
  // Starts faltung-peer-<name>, looked for in FALTUNG_PEER_PATH, beside the command and in PATH. Throws
  // Error(bad_problem) if there is none or it does not start.
  explicit Peer(const std::string& name);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const std::string& name() const { return name_; }
  const std::string& version() const { return version_; }

  struct Answer {
    bool yes;
    std::string text;  // what it runs, or why it declines
  };
  // data: a directory with x.bin, w.bin, ... as raw elements; empty lets the peer make its own.
  Answer prepare(const Problem& problem, const std::string& device, int threads, int sets,
                 const std::string& data);
  // A whole network: inputs tells the sizes of each; on the request's device, of its dtype and math.
  Answer prepare_network(const std::string& model, const std::vector<NetworkTensor>& inputs,
                         const NetworkRequest& request, int threads);
  // One run on the data given; the result's raw elements are written to file.
  Answer result(const std::string& file);
  // One run of the network on folder/input0.npy, …; its results are folder/output0.npy, … then.
  Answer outputs(const std::string& folder);
  // Throws Error(device_error) if the peer fails.
  Block run(double ms);

 private:
  std::string ask(const std::string& line, double timeout_s);
  std::string read_line(double timeout_s);
  // Returns when all its threads stand still.
  void stop() const;
  [[noreturn]] void fail(const std::string& what) const;

  std::string name_, version_, buffered_;
  int pid_ = -1, in_ = -1, out_ = -1;
};

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_PEER_HPP_
