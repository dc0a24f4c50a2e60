// The peer's side of the protocol in docs/bench.md: an adapter says what its library does with a problem, and
// serve() answers the harness.
#ifndef FALTUNG_BENCH_PEERS_SERVE_HPP_
#define FALTUNG_BENCH_PEERS_SERVE_HPP_

#include <stdexcept>
#include <string>
#include <vector>

#include "faltung/faltung.hpp"

namespace faltung::peers {

// Thrown by prepare: the library cannot do this, and why.
class Declined : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Task {
  Problem problem;
  std::string device = "cpu";
  int threads = 1;
  int sets = 2;      // of buffers, to be used in turn
  std::string data;  // a directory with x.bin, w.bin, y.bin, bias.bin, residual.bin; empty: make your own
};

class Adapter {
 public:
  virtual ~Adapter() = default;
  virtual std::string version() const = 0;  // the library's name and version
  // Gets everything ready outside of the timing, constant weights reordered. Returns what will run.
  virtual std::string prepare(const Task& task) = 0;
  // One run on the next set, in milliseconds.
  virtual double time_once() = 0;
  // Runs on the data given and returns the result's raw elements, in the problem's dtype and layout.
  virtual std::vector<char> result() = 0;
};

// Answers standard input until it ends.
int serve(Adapter& adapter);

// The elements of tensor `name` (x, w, y, bias or residual) as raw bytes: the task's data, else random
// numbers in [-1, 1].
std::vector<char> tensor_data(const Task& task, const std::string& name, std::size_t elements);

}  // namespace faltung::peers

#endif  // FALTUNG_BENCH_PEERS_SERVE_HPP_
