// One way to compute a convolution on one kind of device.
//
// To add one: a host file <algorithm>_<target>.cpp with a subclass, its kernel file, and a line in
// registry.cpp. The finder, the tests, the benchmark, explain and doctor enumerate the registry and need no
// change.
#ifndef FALTUNG_SRC_ALGORITHMS_ALGORITHM_HPP_
#define FALTUNG_SRC_ALGORITHMS_ALGORITHM_HPP_

#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/algorithms/candidate.hpp"
#include "src/backend/backend.hpp"
#include "src/problem/problem.hpp"

namespace faltung {

// Yes, or a reason in words that a user can act on.
struct Support {
  bool yes;
  std::string why;
  static Support supported() { return {true, ""}; }
  static Support declined(std::string why) { return {false, std::move(why)}; }
};

// How much of a list is asked for: all, or what a choice needs, which is cheaper.
enum class Extent { all, nearest };

// Candidates by the cost model; what is left out takes longer than complete_to_ms.
struct Shortlist {
  std::vector<Candidate> candidates;
  double complete_to_ms = std::numeric_limits<double>::infinity();
};

class Algorithm {
 public:
  struct About {
    std::string name;         // <algorithm>_<target>, e.g. winograd_cpu
    std::string description;  // one line
    std::string device_kind;  // cpu, gpu or nki
  };
  explicit Algorithm(About about) : about_(std::move(about)) {}
  virtual ~Algorithm() = default;
  Algorithm(const Algorithm&) = delete;
  Algorithm& operator=(const Algorithm&) = delete;

  std::string_view name() const { return about_.name; }
  std::string_view description() const { return about_.description; }
  std::string_view device_kind() const { return about_.device_kind; }

  // problem is valid. One of one or three dimensions, and a transposed one, is rewritten to plain ones
  // (src/problem/rewrite_plain.hpp) where the algorithm has no kernel for it as it is.
  Support supports(const Problem& problem, const Target& target) const;
  // What supports says and, if that is yes, what candidates gives, or the nearest of it.
  struct Offer;
  Offer offer(const Problem& problem, const Target& target, Extent extent = Extent::all) const;

  // Never empty for a supported problem; best first by the cost model. A pool that a candidate does not
  // compute itself is a step after it.
  std::vector<Candidate> candidates(const Problem& problem, const Target& target) const;
  // The candidate of this config, whether it is listed or not. Throws Error(bad_problem) if config is no name
  // of this algorithm's, Error(unsupported) if it cannot compute the problem.
  Candidate candidate(const Problem& problem, const std::string& config, const Target& target) const;
  // That of the choices of another candidate of this algorithm's, for a problem of the same direction:
  // nothing is parsed. Throws as above.
  Candidate candidate(const Problem& problem, const Maker& maker, const Target& target) const;

  // Chosen only where nothing else supports the problem: the reference.
  virtual bool last_resort() const { return false; }
  // Whether it may be used on a device where it was never tried: the test suite ran it on the same
  // instruction set. A GPU's kernels meet drivers that nobody has seen.
  virtual bool starts_trusted() const { return device_kind() == "cpu"; }

 private:
  // A problem as the algorithm takes it.
  struct Question;
  Question question(const Problem& asked, const Target& target) const;
  Support supports(const Question& question) const;
  Shortlist candidates(const Question& question, Extent extent) const;
  void require_support(const Question& question) const;  // throws Error(unsupported)
  Candidate candidate(const Question& question, const Maker& maker) const;
  Candidate finished(Candidate candidate, const Question& question) const;

  // What an algorithm answers: of plain problems, and of those that it computes as they are. With a pool in
  // it, for the convolution.
  virtual Support accepts(const Problem& problem, const Target& target) const = 0;
  // Whether it computes a problem that is not plain as it is, if it accepts it.
  virtual bool is_native(const Problem&) const { return false; }
  // Whether it reads and writes slices of tensors (Problem::x_pitch), if it accepts the problem without.
  virtual bool takes_pitch(const Problem&, const Target&) const { return false; }
  // Whether it reads a bias of fp32 beside tensors of 16 bits, as every epilogue of a GPU's kernels does.
  virtual bool takes_f32_bias() const { return device_kind() == "gpu"; }
  // What it adds, for a problem that it accepts. problem has a pool only for those that fuse it: fuses
  // says whether the algorithm's kernels may compute this problem's pool. Those that list gives without the
  // pool alone are made for it where they compute it; else they get a step.
  virtual std::vector<Candidate> list(const Problem& problem, const Target& target) const = 0;
  // The same, perhaps without those far behind the first (src/algorithms/shortlist.hpp): where lists are so
  // long that naming what is not chosen takes long.
  virtual Shortlist shortlist(const Problem& problem, const Target& target) const {
    return {list(problem, target)};
  }
  // What config says. Throws Error(bad_problem) for what is no config of the direction's.
  virtual Maker parse(const std::string& config, Direction direction) const = 0;
  virtual bool fuses(const Problem&, const Target&) const { return false; }
  // Whether its kernels have what training asks for in them; else it is a step after them.
  virtual bool fuses_training(const Problem&, const Target&) const { return false; }
  // Whether its kernels read x through a scale and shift (Problem::affine), if it accepts the problem
  // without; else a step before them stores what comes of it.
  virtual bool reads_affine(const Problem&, const Target&) const { return false; }

  About about_;
};

struct Algorithm::Offer : Shortlist {
  Support support;
};

// Every algorithm, in the order of their names.
const std::vector<std::unique_ptr<Algorithm>>& registry();
// Adds one to the registry of this process. For tests of what happens with kernels that are broken: call it
// before anything else of the library.
void add_to_registry(std::unique_ptr<Algorithm> algorithm);
// Throws Error(bad_problem) naming the nearest.
const Algorithm& find_algorithm(std::string_view name);

// `winograd_cpu/f4x4` → its algorithm and config. Throws Error(bad_problem) where there is no such algorithm;
// whether there is such a config depends on the problem.
struct KernelName {
  const Algorithm* algorithm;
  std::string config;
};
KernelName parse_kernel(std::string_view kernel);
// parse_kernel's candidate for the problem; throws as both do.
Candidate find_candidate(std::string_view kernel, const Problem& problem, const Target& target);

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_ALGORITHM_HPP_
