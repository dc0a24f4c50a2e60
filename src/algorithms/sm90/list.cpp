#include "src/algorithms/sm90/list.hpp"

#include <algorithm>

#include "src/algorithms/sm90/bring.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90 {
namespace {

using i64 = std::int64_t;

// At most so many rows that divide the image evenly.
int even_height(const Problem& p, int limit) {
  const i64 parts = ceil_div(p.p(), limit);
  return static_cast<int>(ceil_div(p.p(), parts));
}

// The heights of patches of at most `most` rows of a width, and which of them are for split sums alone: low
// ones, and the lowest whose blocks fit at once.
struct Heights {
  std::set<int> all, low;
};
Heights heights(const Lister& lister, Tiling t, int most) {
  const Problem& p = lister.problem();
  Heights h;
  h.all = {most, even_height(p, most), even_height(p, std::max(4, most / 2))};
  if (p.dtype == DType::f32) h.all.insert({most / 2, most * 3 / 4});
  if (t.cooperative() && lister.few_tiles() && t.width < 32) {
    h.low.insert(64 / t.width);
    for (const int split : {4, 8}) {
      t.height = 64 / t.width;
      while (t.height < most && tiles(t, p) * split > lister.chip().clustered()) ++t.height;
      h.low.insert(t.height);
    }
    for (const int height : h.all) h.low.erase(height);
    h.all.insert(h.low.begin(), h.low.end());
  }
  if (!lister.pools()) return h;
  std::set<int> rounded;
  for (const int height : h.all) {
    rounded.insert(pool_window(p) == 3 ? std::min((most - 1) / 2 * 2 + 1, height / 2 * 2 + 1)
                                       : std::min(most / 4 * 4, round_up(height, 4)));
  }
  h.all = rounded;
  return h;
}

// So few channels that several groups make a row of 128 bytes, as many as there are.
int groups_side_by_side(const Problem& p) {
  const i64 row = group_channels(p) * size_of(p.dtype);
  if (p.groups == 1 || row == 0 || row % 32 != 0 || row >= 128 || tf32_parts(p) == 2) return 1;
  i64 groups = 128 / row;
  while (groups > p.groups || 128 % groups != 0) --groups;
  return group_results(p) * groups <= 256 ? static_cast<int>(groups) : 1;
}

// Widths of flat tiles of so many channels that fill the multiprocessors one, two and three times.
std::set<int> filling_widths(const Lister& lister, int channels) {
  const Problem& p = lister.problem();
  const i64 pixels = output_planes(p) * p.p() * p.q(), k_tiles = ceil_div(p.k, channels);
  std::set<int> widths;
  for (const i64 waves : {1, 2, 3}) {
    const i64 tiles = waves * lister.chip().multiprocessors / k_tiles;
    if (tiles > 0) widths.insert(static_cast<int>(std::min<i64>(512, round_up(ceil_div(pixels, tiles), 8))));
  }
  return widths;
}

// Halo patches of a width, with weights on M.
void list_patches(Lister& lister, Tiling shape, int width, int limit) {
  shape.width = width;
  const Heights found = heights(lister, shape, limit / width);
  for (const int height : found.all) {
    if (height * 8 < 32) continue;
    shape.height = height;
    const Sums sums = found.low.count(height) > 0 ? Sums::split_alone : Sums::whole_and_split;
    patch::list(lister, shape, sums);
    turned::list(lister, shape, sums);
  }
}

void channels_on_m(Lister& lister, Tiling shape, int m_blocks) {
  const int limit = 256 / m_blocks;  // pixels
  const Problem& p = lister.problem();
  const i64 k = group_results(p);
  shape.channels = 64 * m_blocks * shape.sharers();
  if (shape.channels >= 2 * k && shape.channels != 64) return;
  if (p.groups > 1 && k % shape.channels != 0) return;
  for (const int width : {8, 16, 32}) list_patches(lister, shape, width, limit);
  shape.height = 1;
  const std::set<int> widths = {64, 96, 128, 160, 192, 256};
  for (const int pixels : widths) {
    if (pixels > limit) continue;
    shape.width = pixels;
    im2col::list(lister, shape);
    planes::list(lister, shape);
  }
  for (const int pixels : filling_widths(lister, shape.channels)) {
    if (pixels < 64 || pixels > limit || widths.count(pixels) > 0) continue;
    shape.width = pixels;
    im2col::list(lister, shape);
  }
  im2col::list_images(lister, shape, limit);
}

void pixels_on_m(Lister& lister, Tiling shape, int m_blocks) {
  const Problem& p = lister.problem();
  const int m = 64 * m_blocks * shape.sharers(), limit = 256 / m_blocks;  // pixels; channels
  shape.m_side = MSide::pixels;
  const i64 k = group_results(p);
  std::set<int> columns = {64, 128, 160, 192, 256};
  // Where results go from registers, as many as divide them evenly, too; in parts by two halves.
  const bool planes_alone = p.layout == Layout::nchw && planes::in_registers(p);
  const int unit = planes_alone && tf32_parts(p) == 2 ? 16 : 8;
  if (planes_alone) columns.insert(static_cast<int>(round_up(ceil_div(k, ceil_div(k, limit)), unit)));
  if (k < 64) columns = {static_cast<int>(round_up(k, unit))};
  shape.groups = groups_side_by_side(p);
  if (shape.groups > 1) columns = {static_cast<int>(k * shape.groups)};
  for (const int n : columns) {
    if (n > limit || n >= 2 * std::max<i64>(k * shape.groups, 32)) continue;
    shape.channels = n;
    shape.bring = Bring::patch;
    shape.width = 8, shape.height = m / 8;
    lister.add(shape);
    shape.width = m, shape.height = 1;
    im2col::list(lister, shape);
    planes::list(lister, shape);
  }
  if (m_blocks != 2 || k <= 128) return;
  shape.channels = 160;
  im2col::list_wide(lister, shape);
  if (!shape.cooperative()) planes::list(lister, shape);
}

// The block of channels that wastes least, and rows of 128 bytes, of which fewer buffers are filled: what
// lies beyond the last channel costs products, but no bytes. A group's channels end where another's begin.
std::vector<int> k_blocks(const Problem& p) {
  const int most = 128 / size_of(p.dtype), best = best_k_block(group_channels(p), most);
  return p.groups > 1 || best == most ? std::vector{best} : std::vector{best, most};
}

}  // namespace

std::vector<Tiling> tilings(const Problem& p, const Chip& chip, std::size_t most) {
  Lister lister(p, chip, most);
  for (const int k_block : k_blocks(p)) {
    lister.take_channels_by(k_block);
    for (const Schedule schedule : {Schedule::ping_pong, Schedule::cooperative}) {
      for (const int m_blocks : {1, 2}) {
        Tiling shape;
        shape.schedule = schedule;
        channels_on_m(lister, shape, m_blocks);
        pixels_on_m(lister, shape, m_blocks);
      }
    }
  }
  for (const auto list : {fetch::list, lines::list, shift::list}) {
    if (!lister.full()) list(lister);
  }
  return lister.take();
}

Lister::Lister(const Problem& problem, const Chip& chip, std::size_t most)
    : p_(problem),
      chip_(chip),
      most_(most),
      k_block_(128 / size_of(problem.dtype)),
      pools_(problem.epilogue.pool.kind != PoolKind::none),
      // So few results that tiles of 128 x 128 leave half of the chip idle.
      few_(!pools_ && output_planes(problem) * problem.p() * problem.q() * problem.k <=
                          chip.multiprocessors / 2 * 128 * 128) {}

void Lister::add(const Tiling& tiling, Sums sums) {
  if (full()) return;
  const auto fill = bringer(tiling.bring).fill;
  if (sums == Sums::whole_and_split) {
    fill(*this, tiling);
    Tiling ahead = tiling;
    ahead.result_areas = 2;
    if (brings_residual(tiling, p_) && tiling.store_slots == 0) fill(*this, ahead);
  }
  if (tiling.bring == Bring::planes || tiling.stores == Stores::direct || tiling.store_slots > 0) return;
  for (const int split : splits(tiling)) {
    Tiling t = tiling;
    t.split = split;
    const i64 share = ceil_div(ceil_div(group_channels(p_), k_block_), split);
    if (t.row_slots <= share) fill(*this, t);
  }
}

std::vector<int> Lister::splits(Tiling t) const {
  std::vector<int> found;
  if (!t.cooperative()) return found;
  for (t.split = 2; t.split <= 8; t.split *= 2) {
    if (blocks(t, p_) <= (t.split == 2 ? chip_.multiprocessors : chip_.clustered())) found.push_back(t.split);
  }
  return found;
}

void Lister::keep(const Tiling& t) {
  if (full()) return;
  if (fits(t) && kept_.insert(numbers_of(t)).second) all_.push_back(t);
}

bool Lister::fits(const Tiling& t) {
  if (t.bring == Bring::lines || t.bring == Bring::shift) return unfit(t, p_).empty();
  Tiling shape = t;
  shape.pixel_slots = shape.weight_slots = 0;
  if (const Numbers of = numbers_of(shape); !last_ || last_->of != of) {
    last_ = Shape{of, unfit_shape(t, p_).empty(), {}};
    if (last_->fits) last_->config = kernel_config(t, p_);
  }
  if (!last_->fits) return false;
  last_->config.tile = t;
  // Most often it is memory that is short, and nobody asks of how much.
  return shared_bytes(last_->config) <= kSharedLimit && unfit_buffers(t, p_, last_->config).empty();
}

int Lister::k_block(const Tiling& t) const {
  return t.groups > 1 ? static_cast<int>(group_channels(p_) * t.groups) : k_block_;
}

// Every block has one tile's channels alone then. Of groups they are few, and taken together all of them.
bool Lister::may_stay(const Tiling& t) const {
  const i64 k_tiles = ceil_div(p_.k, t.channels), units = chip_.multiprocessors;
  if (t.split > 1) return false;
  return k_tiles <= 4 || (p_.groups > 1 && k_tiles <= units && units / k_tiles * k_tiles * 10 >= units * 9);
}

i64 Lister::waves(const Tiling& t) const { return ceil_div(tiles(t, p_), chip_.multiprocessors); }

bool Lister::even(const Tiling& t, i64 waves) const {
  return 20 * tiles(t, p_) >= 19 * waves * chip_.multiprocessors;
}

int best_k_block(i64 c, int most) {
  int best = most;
  for (const int block : {most / 2, most / 4}) {
    if (round_up(c, block) < round_up(c, best)) best = block;
  }
  return best;
}

}  // namespace faltung::sm90
