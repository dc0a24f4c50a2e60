// Every tiling worth trying for a problem.
#ifndef FALTUNG_SRC_ALGORITHMS_SM90_LIST_HPP_
#define FALTUNG_SRC_ALGORITHMS_SM90_LIST_HPP_

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "src/algorithms/sm90/chip.hpp"
#include "src/algorithms/sm90/tiling.hpp"

namespace faltung::sm90 {

constexpr std::size_t kAllTilings = -1;

// At most so many.
std::vector<Tiling> tilings(const Problem& problem, const Chip& chip, std::size_t most = kAllTilings);

// Empty if the tiling can compute the problem, else which limit it breaks.
std::string unfit(const Tiling& tiling, const Problem& problem);
// The same in two parts: what, but for lines and shifted sums, does not ask how many buffers of pixels and of
// weights there are, and what does.
std::string unfit_shape(const Tiling& tiling, const Problem& problem);
std::string unfit_buffers(const Tiling& tiling, const Problem& problem, const KernelConfig& config);

// Whether a tile's sum is taken whole as well, or by a cluster's blocks alone.
enum class Sums { whole_and_split, split_alone };

// What the ways of bringing pixels put their tilings into.
class Lister {
 public:
  Lister(const Problem& problem, const Chip& chip, std::size_t most);

  // Input channels at a time from now on, where the way of bringing them leaves a choice.
  void take_channels_by(int k_block) { k_block_ = k_block; }
  // With the whole sum in a block, and where there are few tiles with the sum over the channels split; each
  // with as many buffers as fit.
  void add(const Tiling& tiling, Sums sums = Sums::whole_and_split);
  // As it is, if it fits and is not there.
  void keep(const Tiling& tiling);
  // Whether nothing is unfit. Asked of one tiling with this many buffers and that many, most is known from
  // before.
  bool fits(const Tiling& tiling);
  // Whether weights may stay: no more than so many tiles' channels.
  bool may_stay(const Tiling& tiling) const;
  // The splits of a tile's sum whose blocks are at work at the same time.
  std::vector<int> splits(Tiling tiling) const;
  // Whether so many tiles leave hardly a multiprocessor idle.
  bool even(const Tiling& tiling, std::int64_t waves) const;
  std::int64_t waves(const Tiling& tiling) const;

  const Problem& problem() const { return p_; }
  const Chip& chip() const { return chip_; }
  // Input channels at a time, where the way of bringing them leaves a choice.
  int k_block(const Tiling& tiling) const;
  bool pools() const { return pools_; }
  bool few_tiles() const { return few_; }
  bool full() const { return all_.size() >= most_; }
  std::vector<Tiling> take() { return std::move(all_); }

 private:
  const Problem& p_;
  const Chip chip_;
  const std::size_t most_;
  int k_block_;
  const bool pools_, few_;
  std::vector<Tiling> all_;
  // A tiling's choices as numbers.
  static_assert(std::has_unique_object_representations_v<Choices>);
  using Numbers = std::array<int, sizeof(Choices) / sizeof(int)>;
  static Numbers numbers_of(const Choices& choices) { return std::bit_cast<Numbers>(choices); }
  std::set<Numbers> kept_;
  // What was asked last, but for its buffers.
  struct Shape {
    Numbers of;
    bool fits;
    KernelConfig config;
  };
  std::optional<Shape> last_;
};

// The largest block of channels that wastes least: `most`, or a half or a quarter of it.
int best_k_block(std::int64_t channels, int most);

}  // namespace faltung::sm90

#endif  // FALTUNG_SRC_ALGORITHMS_SM90_LIST_HPP_
