// Implicit GEMM: the convolution as a product of matrices of which the larger is never built. The filter's
// taps are offsets into the input, and a register tile sums over all of them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>

#include "kernels/cpu/brgemm.hpp"
#include "kernels/cpu/epilogue.hpp"
#include "src/algorithms/cpu_rates.hpp"
#include "src/algorithms/implicit_gemm_bands.hpp"
#include "src/algorithms/implicit_gemm_cpu_tile.hpp"
#include "src/algorithms/implicit_gemm_groups.hpp"
#include "src/algorithms/implicit_gemm_part.hpp"
#include "src/algorithms/implicit_gemm_turns.hpp"
#include "src/algorithms/implicit_gemm_weights.hpp"
#include "src/algorithms/packing.hpp"
#include "src/algorithms/registry.hpp"
#include "src/algorithms/tap_lists.hpp"
#include "src/algorithms/training.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"
#include "src/problem/rewrite_plain.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// Forward or backward_data with a tile: a convolution over taps, or several that write a part of the result
// each; or one whose bands are pooled at once.
class DataPass {
 public:
  // The filter may lie as in the other layout.
  DataPass(const Problem& p, Layout filter, const BrgemmTile& tile, int threads)
      : p_(p), filter_(filter), threads_(threads) {
    if (p.epilogue.pool.kind != PoolKind::none) bands_ = PoolBands::make(p, threads);
    std::vector<TapConvolution> convolutions =
        bands_ ? std::vector<TapConvolution>{bands_->convolution()} : tap_convolutions(p);
    // What no tap reaches lies between what some do: written by itself it brings each line once more.
    const auto untouched = [](const TapConvolution& t) { return t.taps.empty(); };
    if (p.epilogue.empty() && !has_pitch(p) && std::erase_if(convolutions, untouched) > 0)
      cleared_bytes_ = result_shape(p).elements() * size_of(p.dtype);
    std::vector<std::unique_ptr<ImplicitGemmPart>> all = parts_of(convolutions, tile);
    const bool few = !convolutions.empty() && convolutions.front().out_channels * p.stride_w <= tile.rows;
    if (few && p.layout == Layout::nchw) {
      std::vector<std::unique_ptr<ImplicitGemmPart>> joined =
          parts_of(with_joined_columns(p, convolutions), tile);
      joins_columns_ = !joined.empty() && work_ns(joined) < work_ns(all);
      if (joins_columns_) all = std::move(joined);
    }
    if (tile.unit == Unit::vectors && p.layout == Layout::nchw && !joins_columns_) {
      std::vector<std::unique_ptr<ImplicitGemmPart>> side_by_side;
      for (const std::vector<TapConvolution>& phases : by_columns(convolutions))
        side_by_side.push_back(make_phase_lanes(p, phases, {tile.rows, tile.width}, threads_));
      if (!side_by_side.empty() && work_ns(side_by_side) < work_ns(all)) all = std::move(side_by_side);
    }
    for (std::unique_ptr<ImplicitGemmPart>& made : all) {
      made->take_filter_in(filter);
      parts_.push_back({std::move(made), packed_bytes_});
      const ImplicitGemmPart& part = *parts_.back().part;
      packed_bytes_ += ScratchPieces::bytes<float>(part.packed_floats());
      scratch_bytes_ = std::max(scratch_bytes_, aligned(part.scratch_bytes()));
    }
    band_ = scratch_bytes_;
    if (bands_) scratch_bytes_ += aligned(bands_->bytes());
    if (p.epilogue.bias && bias_dtype(p) != DType::f32) bias_bytes_ = ScratchPieces::bytes<float>(p.k);
    // What takes no longer than waking others and waiting for them is one worker's.
    constexpr double kAloneNs = 5000;
    alone_ = !bands_ && work_ns() <= kAloneNs;
  }

  // Whether the filter has zeros beside its columns then, which are multiplied with what is read.
  bool joins_columns() const { return joins_columns_; }
  std::size_t packed_bytes() const { return packed_bytes_; }
  std::size_t scratch_bytes() const { return scratch_bytes_; }  // of a worker
  std::size_t workspace_bytes() const {
    return bias_bytes_ + scratch_bytes_ * static_cast<std::size_t>(threads_);
  }
  // By the cost model, of all threads together: who comes last is waited for.
  double run_ns() const {
    const double ns = work_ns();
    if (alone_) return ns;
    if (parts_.size() == 1 && !bands_) return ns * parts_.front().part->busiest_share(threads_) + clear_ns();
    double items = 0;
    for (const Part& p : parts_) items += static_cast<double>(p.part->items());
    const double bands = bands_ ? static_cast<double>(bands_->count()) : 1, threads = threads_;
    const double turns = bands_ ? bands : items;
    if (parts_.empty()) return clear_ns();
    return ns * bands / turns * std::ceil(turns / threads) + clear_ns();
  }
  double pack_ns() const {
    double ns = 0;
    for (const Part& p : parts_) ns += p.part->pack_ns();
    return ns / threads_;
  }
  // Whether all of the result is to be zero before a run writes a part of it.
  bool clears() const { return cleared_bytes_ > 0; }
  void clear(const Memory& m, const Parallel& parallel) const {
    constexpr i64 kPiece = 256 << 10;
    parallel.each(ceil_div(cleared_bytes_, kPiece), [&](i64 piece, int) {
      const i64 begin = piece * kPiece;
      std::memset(m[to()] + begin, 0, static_cast<std::size_t>(std::min(kPiece, cleared_bytes_ - begin)));
    });
  }
  const char* step_name() const { return bands_ ? "implicit_gemm and pool" : "implicit_gemm"; }
  Place from() const { return walks_over_x(p_) ? Place::x : Place::y; }
  Place to() const { return result_place(p_); }

  std::string packing() const {
    Problem of_filter = p_;
    of_filter.layout = filter_;
    std::string text = packing_of(of_filter);
    for (const Part& p : parts_) text += "; " + p.part->packing();
    return text;
  }

  void pack(const Memory& m, const Parallel& parallel) const {
    for_items(parallel, &ImplicitGemmPart::pack_items, false, [&](const Part& p, i64 item, int) {
      p.part->pack(item, m[Place::w], reinterpret_cast<float*>(m[Place::packed] + p.packed));
    });
  }

  void run(const Memory& m, const Parallel& parallel) const {
    PartCall shared;
    shared.in = m[from()], shared.out = m[to()], shared.residual = m[Place::residual];
    shared.slopes = reinterpret_cast<const float*>(m[Place::slopes]);
    shared.bias = bias(m), shared.affine = input_affine(p_, m);
    if (bands_) return run_bands(shared, m, parallel);
    for_items(parallel, &ImplicitGemmPart::items, alone_, [&](const Part& p, i64 item, int worker) {
      p.part->run(item, of_worker(shared, p, m, worker));
    });
  }

 private:
  struct Part {
    std::shared_ptr<const ImplicitGemmPart> part;
    std::size_t packed;  // where its weights begin
  };

  static std::unique_ptr<ImplicitGemmPart> make_part(const Problem& p, const TapConvolution& convolution,
                                                     const BrgemmTile& tile, int threads) {
    if (sums_pairs(tile.unit)) {
      return make_pair_tiles(p, convolution, tile.unit == Unit::amx ? PairUnit::amx : PairUnit::dot, threads);
    }
    if (tile.unit == Unit::groups) return make_group_lanes(p, convolution, tile.rows, threads);
    const TileShape shape{tile.rows, tile.width};
    return p.layout == Layout::nhwc ? make_channel_lanes(p, convolution, shape, threads)
                                    : make_pixel_lanes(p, convolution, shape, threads);
  }

  std::vector<std::unique_ptr<ImplicitGemmPart>> parts_of(const std::vector<TapConvolution>& convolutions,
                                                          const BrgemmTile& tile) const {
    std::vector<std::unique_ptr<ImplicitGemmPart>> all;
    // A band is one worker's.
    for (const TapConvolution& convolution : convolutions)
      all.push_back(make_part(p_, convolution, tile, bands_ ? 0 : threads_));
    return all;
  }

  // Of one thread.
  static double work_ns(const std::vector<std::unique_ptr<ImplicitGemmPart>>& parts) {
    double ns = 0;
    for (const std::unique_ptr<ImplicitGemmPart>& part : parts) ns += part->work_ns();
    return ns;
  }
  double work_ns() const {
    double ns = 0;
    for (const Part& p : parts_) ns += p.part->work_ns();
    return ns;
  }

  // Runs body(part, item, worker) for all items of all parts; count says how many a part has. alone: all of
  // them by one worker.
  template <class Body>
  void for_items(const Parallel& parallel, i64 (ImplicitGemmPart::*count)() const, bool alone,
                 const Body& body) const {
    i64 total = 0;
    for (const Part& p : parts_) total += ((*p.part).*count)();
    const auto run = [&](i64 index, int worker) {
      for (const Part& p : parts_) {
        const i64 items = ((*p.part).*count)();
        if (index < items) return body(p, index, worker);
        index -= items;
      }
    };
    parallel.each(total, run, alone ? total : 1);
  }

  // As floats.
  const float* bias(const Memory& m) const {
    if (!p_.epilogue.bias || bias_dtype(p_) == DType::f32)
      return reinterpret_cast<const float*>(m[Place::bias]);
    float* const bias = reinterpret_cast<float*>(m[Place::workspace]);
    convert_to_float(p_.dtype, m[Place::bias], bias, p_.k);
    return bias;
  }

  PartCall of_worker(PartCall call, const Part& p, const Memory& m, int worker) const {
    call.packed = reinterpret_cast<const float*>(m[Place::packed] + p.packed);
    call.scratch = m[Place::workspace] + bias_bytes_ + static_cast<std::size_t>(worker) * scratch_bytes_;
    return call;
  }

  void run_bands(const PartCall& shared, const Memory& m, const Parallel& parallel) const {
    const TensorShape x = x_shape(p_), conv = conv_shape(p_);
    const i64 bytes = size_of(p_.dtype);
    const ImplicitGemmPart& part = *parts_.front().part;
    parallel.each(bands_->count(), [&](i64 index, int worker) {
      const Band band = bands_->band(index);
      PartCall call = of_worker(shared, parts_.front(), m, worker);
      call.in = m[from()] + x.offset(band.image, 0, 0, 0) * bytes;
      if (shared.residual != nullptr)
        call.residual = m[Place::residual] + conv.offset(band.image, 0, band.conv_row, 0) * bytes;
      call.out = call.scratch + band_;
      call.first_row = band.conv_row;
      for (i64 item = 0; item < part.items(); ++item) part.run(item, call);
      bands_->pool(band, call.out, shared.out);
    });
  }

  double clear_ns() const { return far_byte_ns() * static_cast<double>(cleared_bytes_) / threads_; }

  Problem p_;
  Layout filter_;
  int threads_;
  i64 cleared_bytes_ = 0;
  std::optional<PoolBands> bands_;
  bool alone_ = false, joins_columns_ = false;
  std::vector<Part> parts_;
  std::size_t packed_bytes_ = 0;
  // The workspace: the bias as floats, then each worker's scratch, in it a band.
  std::size_t bias_bytes_ = 0, scratch_bytes_ = 0, band_ = 0;
};

Recipe recipe_of(const std::shared_ptr<const DataPass>& pass) {
  Recipe recipe;
  recipe.packed_bytes = pass->packed_bytes();
  recipe.workspace_bytes = pass->workspace_bytes();
  recipe.packing = pass->packing();
  recipe.packed_for = "implicit_gemm_cpu";  // each part says its order in full
  recipe.pack.push_back(call("pack", {Place::w}, {Place::packed},
                             [pass](const Memory& m, const Parallel& parallel) { pass->pack(m, parallel); }));
  if (pass->clears()) {
    recipe.steps.push_back(call("clear", {}, {pass->to()}, [pass](const Memory& m, const Parallel& parallel) {
      pass->clear(m, parallel);
    }));
  }
  recipe.steps.push_back(call(
      pass->step_name(),
      {pass->from(), Place::packed, Place::bias, Place::residual, Place::slopes, Place::scale, Place::shift},
      {pass->to(), Place::workspace},
      [pass](const Memory& m, const Parallel& parallel) { pass->run(m, parallel); }));
  return recipe;
}

class ImplicitGemmCpu : public Algorithm {
 public:
  ImplicitGemmCpu()
      : Algorithm({"implicit_gemm_cpu", "matrix product over the filter's taps, without building the matrix",
                   "cpu"}) {}

  Support accepts(const Problem& p, const Target&) const override {
    const std::string why = beyond_tap_lists(p);
    return why.empty() ? Support::supported() : Support::declined(why);
  }

 private:
  bool takes_pitch(const Problem&, const Target&) const override { return true; }
  bool takes_f32_bias() const override { return true; }
  // Tiles that stage x as floats do; candidates of the others have the step before them.
  bool reads_affine(const Problem& p, const Target&) const override {
    return p.direction == Direction::forward || !is_transposed(p);
  }
  static bool reads_affine(const BrgemmTile& tile) { return !tile.turns && !sums_pairs(tile.unit); }
  bool fuses(const Problem& p, const Target& target) const override {
    return is_plain(p) && PoolBands::make(p, target.threads).has_value();
  }
  // Filters of depth alone are of two dimensions where they lie, and one dimension is two.
  bool is_native(const Problem& p) const override { return p.dimensions > 1 && !has_planes_of_one_tap(p); }

  std::vector<Candidate> list(const Problem& p, const Target& target) const override {
    std::vector<Candidate> all = tied_candidates(p, target);
    for (const BrgemmTile& tile : brgemm_tiles()) {
      if (ties(tile, p) || !serves(tile, p)) continue;
      if (std::optional<Candidate> c = candidate_of_tile(p, tile, target, kMostScratch))
        all.push_back(std::move(*c));
    }
    return all;
  }

  // Packed weights have the order of their tile's width. A tile that the cost model cannot tell from a later
  // one has its cost, and comes first, so that most batches and images of a filter read the same.
  static bool ties(const BrgemmTile& tile, const Problem& p) {
    return tile.unit == Unit::vectors && !tile.turns && weights_are_constant(p);
  }
  static std::vector<Candidate> tied_candidates(const Problem& p, const Target& target) {
    constexpr double kTie = 1.01;
    std::vector<Candidate> all;
    std::vector<double> own;  // costs
    for (const BrgemmTile& tile : brgemm_tiles()) {
      if (!ties(tile, p)) continue;
      Candidate c = candidate_of_tile(p, tile, target, kAnyScratch).value();
      const double ms = c.cost.ms;
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (own[i] <= kTie * ms) all[i].cost.ms = std::min(all[i].cost.ms, ms);
      }
      all.push_back(std::move(c));
      own.push_back(ms);
    }
    return all;
  }

  Maker parse(const std::string& config, Direction) const override {
    return maker(parse_brgemm_tile(config));
  }

  // Bands of a pool are as modest as what is listed.
  static Maker maker(const BrgemmTile& tile) {
    return [tile](const Problem& p, const Target& target) {
      require_served(tile, p);
      const bool pools = p.epilogue.pool.kind != PoolKind::none;
      const std::size_t most = pools ? kMostScratch : kAnyScratch;
      if (!ties(tile, p)) return candidate_of_tile(p, tile, target, most);
      std::vector<Candidate> all = tied_candidates(p, target);
      return std::optional(std::move(*std::ranges::find(all, config_name(tile), &Candidate::config)));
    };
  }

  // Of a worker, that implicit GEMM promises; tiles of pairs may ask for more.
  static constexpr std::size_t kMostScratch = std::size_t{4} << 20,
                               kAnyScratch = std::numeric_limits<std::size_t>::max();

  // None where pairs ask for more scratch.
  static std::optional<Candidate> candidate_of_tile(const Problem& p, const BrgemmTile& tile,
                                                    const Target& target, std::size_t most_scratch) {
    if (has_affine(p) && !reads_affine(tile)) {
      std::optional<Candidate> c = candidate_of_tile(without_affine(p), tile, target, most_scratch);
      if (c) c = with_affine_step(std::move(*c), p, target);
      return c;
    }
    if (p.direction == Direction::backward_weights) return weights_candidate(p, tile, target);
    if (tile.turns) return turned_candidate(p, tile, target, most_scratch);
    const auto pass = std::make_shared<const DataPass>(p, p.layout, tile, target.threads);
    if (sums_pairs(tile.unit) && pass->scratch_bytes() > most_scratch) return std::nullopt;
    return data_candidate(p, tile, pass);
  }

  // None where what is turned is too much for caches, and where a pool is to be computed at once.
  static std::optional<Candidate> turned_candidate(const Problem& p, const BrgemmTile& tile,
                                                   const Target& target, std::size_t most_scratch) {
    constexpr std::size_t kMostTurned = std::size_t{32} << 20;
    const PlaneTurns turns(p);
    if (p.epilogue.pool.kind != PoolKind::none) return std::nullopt;
    if (most_scratch != kAnyScratch && turns.bytes() > kMostTurned) return std::nullopt;
    const auto pass = std::make_shared<const DataPass>(turns.inner(), p.layout, tile, target.threads);
    Candidate c = data_candidate(p, tile, pass);
    c.cost.ms += 1e-6 * turns.ns() / target.threads;
    c.workspace_bytes += turns.bytes();
    c.recipe = [pass, turns] { return turns.around(recipe_of(pass)); };
    return c;
  }

  using Pass = std::shared_ptr<const DataPass>;
  static Candidate data_candidate(const Problem& p, const BrgemmTile& tile, const Pass& pass) {
    Candidate c = candidate_of(p, tile, pass->run_ns() + (weights_are_constant(p) ? 0 : pass->pack_ns()));
    c.workspace_bytes = pass->workspace_bytes();
    c.packed_bytes = pass->packed_bytes();
    if (pass->joins_columns()) c.accuracy.zeros_beside_w = static_cast<int>(p.stride_w) - 1;
    c.recipe = [pass] { return recipe_of(pass); };
    return c;
  }

  static Candidate weights_candidate(const Problem& p, const BrgemmTile& tile, const Target& target) {
    const auto gradient =
        std::make_shared<const WeightsGradient>(p, TileShape{tile.rows, tile.width}, target.threads);
    const double items = static_cast<double>(gradient->items()), threads = target.threads;
    Candidate c = candidate_of(p, tile, gradient->work_ns() / items * std::ceil(items / threads));
    c.workspace_bytes =
        gradient->partial_bytes() + gradient->scratch_bytes() * static_cast<std::size_t>(target.threads);
    c.recipe = [p, gradient, bytes = c.workspace_bytes] { return weights_recipe(p, gradient, bytes); };
    return c;
  }

  static Candidate candidate_of(const Problem& p, const BrgemmTile& tile, double ns) {
    // At a rate of memory that is usual: it is the same for all.
    const double arithmetic = ns * 1e-6, bytes = min_bytes(p) / 15e6;
    Candidate c;
    c.config = config_name(tile);
    c.maker = maker(tile);
    // Where bytes bind, less arithmetic hides behind them the better.
    c.cost = {std::max(arithmetic, bytes) + 0.1 * std::min(arithmetic, bytes) + 0.002,
              arithmetic > bytes ? Bound::arithmetic : Bound::bytes};
    c.accuracy = dot_product_accuracy(p);
    if (sums_pairs(tile.unit)) c.accuracy.factors = Factors::normal;
    return c;
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_implicit_gemm_cpu() { return std::make_unique<ImplicitGemmCpu>(); }

}  // namespace faltung
