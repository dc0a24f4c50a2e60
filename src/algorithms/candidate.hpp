// A kernel that can compute a problem: an algorithm with its free choices made. Knows what it costs and makes
// the recipe.
#ifndef FALTUNG_SRC_ALGORITHMS_CANDIDATE_HPP_
#define FALTUNG_SRC_ALGORITHMS_CANDIDATE_HPP_

#include <concepts>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/plan/recipe.hpp"
#include "src/problem/tolerance.hpp"

namespace faltung {

class Algorithm;
struct Candidate;

// Where a plan is to run. The device outlives what is made for it.
struct Target {
  const DeviceInfo& device;
  int threads;  // CPU workers; 1 on a GPU
  // What the device was measured to reach, for the cost models of GPUs; zeros where it was not.
  Ceilings measured = {};
};

// An algorithm's free choices, typed and bound in what makes the kernel of them, for any problem of a
// direction that the algorithm computes without steps around it. None where the kernel does not compute the
// problem's pool; what the choices are not for otherwise throws Error(bad_problem).
using Maker = std::function<std::optional<Candidate>(const Problem& problem, const Target& target)>;

// What keeps a kernel from being faster.
enum class Bound { unknown, bytes, arithmetic, latency };
const char* name(Bound bound);

// By the algorithm's cost model.
struct Cost {
  double ms = 0;
  Bound bound = Bound::unknown;
};

// Whether two runs give the same bits.
enum class Repeatable { same_bits, may_differ };

// A recipe that is made when it is first asked for, and once: copies share it, and any number of threads may
// ask. Making one compiles nothing. What the maker throws, each call throws.
class RecipeOnce {
 public:
  RecipeOnce() = default;
  template <std::invocable Maker>
  requires(!std::same_as<Maker, RecipeOnce>) RecipeOnce(Maker maker) : made_(std::make_shared<Made>()) {
    made_->maker = std::move(maker);
  }

  Recipe operator()() const {
    const std::lock_guard lock(made().mutex);
    return recipe();
  }
  // Of that (plan/recipe.hpp): reading a recipe's sources takes as long as making it.
  std::vector<std::string> program_digests() const {
    const std::lock_guard lock(made().mutex);
    if (!made_->digests) made_->digests = faltung::program_digests(recipe());
    return *made_->digests;
  }

 private:
  struct Made {
    std::function<Recipe()> maker;  // until there is one
    std::mutex mutex;
    std::optional<Recipe> recipe;
    std::optional<std::vector<std::string>> digests;
  };
  Made& made() const {
    if (!made_) throw Error(Status::internal, "a candidate without a recipe");
    return *made_;
  }
  const Recipe& recipe() const {  // under the mutex
    if (!made_->recipe) {
      made_->recipe = made_->maker();
      made_->maker = nullptr;
    }
    return *made_->recipe;
  }
  std::shared_ptr<Made> made_;
};

struct Candidate {
  const Algorithm* algorithm = nullptr;
  std::string config;  // the choices' name, which parses back: it is what is stored, forced and reported
  Cost cost;
  // Of what a run needs beside the tensors: for the steps, pooling among them, and for the packed weights.
  std::size_t workspace_bytes = 0, packed_bytes = 0;
  Accuracy accuracy;
  Repeatable repeatable = Repeatable::same_bits;
  int registers = -1;  // of a thread, at most, that the cost model reckons with; -1 where it does not ask
  RecipeOnce recipe;   // the steps; what making them throws is a refusal
  Maker maker;         // of the same choices; for another problem Algorithm::candidate takes it

  std::string kernel() const;  // <algorithm>/<config>
  // Bytes of workspace that a caller brings: its plan's workspace_bytes.
  std::size_t workspace(bool weights_are_packed) const {
    return workspace_to_bring(workspace_bytes, weights_are_packed ? 0 : packed_bytes);
  }
};

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_CANDIDATE_HPP_
