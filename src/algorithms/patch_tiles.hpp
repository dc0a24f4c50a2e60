// What the algorithms on NVIDIA's matrix units (mma.sync) share whose blocks bring halo patches of some
// channels, as pixels, to local memory (kernels/gpu/mma_patch.h), and whose one free choice is the block's
// tile of places: results of forward, pixels of the output's gradient, and of backward_data as many results
// each as there are strides.
#ifndef FALTUNG_SRC_ALGORITHMS_PATCH_TILES_HPP_
#define FALTUNG_SRC_ALGORITHMS_PATCH_TILES_HPP_

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/algorithms/algorithm.hpp"
#include "src/algorithms/config_name.hpp"
#include "src/algorithms/gpu.hpp"
#include "src/algorithms/pass_time.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::patch_tiles {

using i64 = std::int64_t;

constexpr int kOctet = 8;                // channels of 16 bytes
constexpr i64 kMostBytes = 99 << 10;     // that every chip since Ampere has for a block
constexpr i64 kUnitRegisters = 65536;    // of a multiprocessor
constexpr double kCyclesPerMs = 1.65e6;  // that the cost models reckon with

inline bool is_weights(const Problem& p) { return p.direction == Direction::backward_weights; }

struct Places {
  i64 images, rows, columns;
};
inline Places places(const Problem& p) {
  if (p.direction != Direction::backward_data) return {p.n, p.p(), p.q()};
  return {p.n, ceil_div(p.h, p.stride_h), ceil_div(p.w, p.stride_w)};
}

// A Tile says its spelling, rows, columns, images and channels; and of a problem whether it serves, the bytes
// of local memory that a block has, its threads and their registers, and what its kernels are told beside
// what mma_patch.h asks for. At most kMostResident blocks are a multiprocessor's. Where it has a `cluster`,
// and that is more than 1, so many blocks have all the pixels of their channels in backward_weights and add
// up their sums. Beside it are weights_ms(problem, tile, target) and, of the other directions, results_ms:
// what it is predicted to take.

// So many patches there are of each chunk of channels.
template <class Tile>
i64 patches(const Problem& p, const Tile& t) {
  const Places all = places(p);
  return ceil_div(all.images, i64{t.images}) * ceil_div(all.rows, i64{t.rows}) *
         ceil_div(all.columns, i64{t.columns});
}
template <class Tile>
i64 chunks(const Problem& p, const Tile& t) {
  return ceil_div(p.c, i64{t.channels});
}

template <class Tile>
i64 block_registers(const Problem& p, const Tile& t) {
  return t.threads(p) * round_up(t.registers(p), 8);
}
// How many blocks a multiprocessor has room for.
template <class Tile>
int resident(const Problem& p, const Tile& t) {
  constexpr i64 kUnitBytes = 227 << 10, kReserved = 1 << 10;
  const i64 by_bytes = kUnitBytes / (t.local_bytes(p) + kReserved);
  const i64 by_registers = kUnitRegisters / block_registers(p, t);
  return static_cast<int>(std::clamp<i64>(std::min(by_bytes, by_registers), 1, Tile::kMostResident));
}

template <class Tile>
int cluster_of(const Tile& t) {
  if constexpr (requires { t.cluster; })
    return t.cluster;
  else
    return 1;
}

// backward_weights: among so many blocks the patches are shared, as many as there is room for at once.
template <class Tile>
i64 splits(const Problem& p, const Tile& t, const DeviceInfo& device) {
  if (cluster_of(t) > 1) return cluster_of(t);
  const i64 room = std::max<i64>(1, i64{std::max(1, device.units)} * resident(p, t) / chunks(p, t));
  return ceil_div(patches(p, t), ceil_div(patches(p, t), room));
}

// Of the filter's gradient there are so many parts, which another kernel adds up.
template <class Tile>
i64 parts(const Problem& p, const Tile& t, const DeviceInfo& device) {
  return splits(p, t, device) / cluster_of(t);
}

// Whether it has what a launch and a block hold, at most so many bytes, and is not much larger than the
// image: most_rows are too many.
template <class Tile>
bool fits(const Problem& p, const Tile& t, i64 most_rows, i64 most_bytes = kMostBytes) {
  const Places all = places(p);
  const bool larger = t.columns >= all.columns + 16 || t.rows >= most_rows || t.images > all.images ||
                      (t.images > 1 && t.columns < all.columns);
  return !larger && t.local_bytes(p) <= most_bytes && patches(p, t) * chunks(p, t) < i64{1} << 30;
}

// A launch, and what goes on side by side: the longest, and of the others a share.
inline double launch_ms(double launch, std::initializer_list<double> all, double share) {
  const double longest = std::max(all);
  return launch + longest + share * (std::accumulate(all.begin(), all.end(), 0.0) - longest);
}

template <class Tile>
class PatchTiles : public Algorithm {
 protected:
  // entry: the kernel's function, beside which there is one of backward_weights; step: what it is called in
  // reports.
  PatchTiles(std::string entry, std::string step, std::string description, std::span<const Tile> tiles)
      : Algorithm({entry + "_gpu", std::move(description), "gpu"}),
        entry_(std::move(entry)),
        step_(std::move(step)),
        table_(name(), tiles) {}

 private:
  // What it declines beside the device, dtypes and layouts; supported where it declines nothing.
  virtual Support takes(const Problem& problem) const = 0;
  // Whether blocks turn planes on the way: nchw.
  virtual bool takes_planes(const Problem&) const { return false; }
  // Zeros beside the filter of forward and backward_data.
  virtual void add_zeros(const Problem& problem, Accuracy& accuracy) const = 0;

  Support accepts(const Problem& p, const Target& target) const final {
    const DeviceInfo& device = target.device;
    if (device.dialect != "cuda" || !device.has("mma_sync"))
      return Support::declined("mma.sync is CUDA's, of compute capability 8.0 or higher");
    if (p.dtype == DType::f32) return Support::declined("tensors are f16 or bf16");
    if (p.layout == Layout::nchw && !takes_planes(p))
      return Support::declined("tensors are in nhwc, in this direction at least");
    if (Support support = takes(p); !support.yes) return support;
    if (std::none_of(table_.begin(), table_.end(), [&](const Tile& t) { return t.serves(p, device); }))
      return Support::declined("no tile serves so small or so large an image");
    return gpu::fits(p);
  }

  std::vector<Candidate> list(const Problem& p, const Target& target) const final {
    std::vector<Candidate> all;
    for (const Tile& t : table_) {
      if (t.serves(p, target.device)) all.push_back(candidate_of(p, t, target));
    }
    return all;
  }

  Maker parse(const std::string& config, Direction) const final { return maker(*table_.parse(config).tile); }
  Maker maker(const Tile& t) const {
    return [this, t](const Problem& p, const Target& target) {
      if (t.serves(p, target.device)) return candidate_of(p, t, target);
      throw Error(Status::bad_problem,
                  kernel(t) + " does not compute " + to_string(p) +
                      ": its tile is too large for the image, its patch for a block, or its "
                      "cluster for the device");
    };
  }
  std::string kernel(const Tile& t) const { return std::string(name()) + "/" + config_name(t); }

  Candidate candidate_of(const Problem& p, const Tile& t, const Target& target) const {
    const DeviceInfo& device = target.device;
    Candidate c;
    c.config = config_name(t);
    c.accuracy = dot_product_accuracy(p);
    c.cost = {is_weights(p) ? weights_ms(p, t, target) : results_ms(p, t, target), Bound::bytes};
    c.maker = maker(t);
    if (is_weights(p)) {
      c.accuracy.zeros_meet = ZerosMeet::channel;  // patches reach beyond the result's gradient
      c.workspace_bytes = gpu::shared_sum_bytes(p, parts(p, t, device));
    } else {
      add_zeros(p, c.accuracy);
    }
    c.recipe = [this, p, t, &device] {
      return is_weights(p) ? weights_recipe(p, t, device) : recipe(p, t, device);
    };
    return c;
  }

  Step launch_step(const Problem& p, const Tile& t, i64 blocks, const std::string& entry, gpu::Constants own,
                   std::vector<StepArgument> arguments, const DeviceInfo& device) const {
    const auto n = [](i64 value) { return std::to_string(value); };
    own.insert(own.end(), {gpu::direction_constant(p),
                           {"CHANNELS", n(t.channels)},
                           {"COLUMNS", n(t.columns)},
                           {"ROWS", n(t.rows)},
                           {"IMAGES", n(t.images)},
                           {"THREADS", n(t.threads(p))},
                           {"BLOCKS", n(resident(p, t))}});
    LaunchShape shape = gpu::grid(blocks, 1, 1, t.threads(p));
    shape.overlaps_previous = device.has("sm_90");
    if (is_weights(p)) shape.cluster[0] = static_cast<unsigned>(cluster_of(t));
    return launch(step_,
                  gpu::source(device, kernel(t), entry + ".cu", entry, gpu::constants(p, own),
                              static_cast<int>(t.local_bytes(p))),
                  shape, std::move(arguments));
  }

  Recipe recipe(const Problem& p, const Tile& t, const DeviceInfo& device) const {
    Recipe recipe;
    recipe.alignment = 16;
    recipe.steps.push_back(
        launch_step(p, t, patches(p, t) * chunks(p, t), entry_, t.constants(p, device),
                    {in(gpu::gathered_place(p)), in(Place::w), out(result_place(p)), in(Place::bias),
                     in(Place::residual), in(Place::slopes), value(gpu::sizes(p))},
                    device));
    return recipe;
  }

  Recipe weights_recipe(const Problem& p, const Tile& t, const DeviceInfo& device) const {
    const i64 blocks = splits(p, t, device), parts = patch_tiles::parts(p, t, device);
    gpu::Constants own = t.constants(p, device);
    own.emplace_back("SPLIT", parts > 1 ? "1" : "0");
    Recipe recipe;
    recipe.alignment = 16;
    recipe.workspace_bytes = gpu::shared_sum_bytes(p, parts);
    recipe.steps.push_back(launch_step(p, t, blocks * chunks(p, t), entry_ + "_weights", std::move(own),
                                       {in(Place::x), in(Place::y), out(gpu::shared_sum(p, parts)),
                                        gpu::number(blocks), value(gpu::sizes(p))},
                                       device));
    if (parts > 1) recipe.steps.push_back(gpu::sum_many_parts_step(p, kernel(t), parts, device));
    return recipe;
  }

  std::string entry_, step_;
  TileTable<Tile> table_;
};

}  // namespace faltung::patch_tiles

#endif  // FALTUNG_SRC_ALGORITHMS_PATCH_TILES_HPP_
