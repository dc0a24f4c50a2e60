// A peer to try out what a new one touches: tests/changes_test.py. It takes a millisecond for everything.
#include "bench/peers/serve.hpp"

namespace faltung::peers {
namespace {

class Toy : public Adapter {
 public:
  std::string version() const override { return "toy 1"; }
  std::string prepare(const Task&) override { return "a millisecond"; }
  double time_once() override { return 1; }
  std::vector<char> result() override { return {}; }
};

}  // namespace
}  // namespace faltung::peers

int main() {
  faltung::peers::Toy toy;
  return faltung::peers::serve(toy);
}
