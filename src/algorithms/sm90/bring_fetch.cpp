// NCHW planes that warps bring: 1x1 filters, planes or strides that the copy engine does not take as they are
// (kernels/sm90/bring/fetch.cuh). Of tiles that are an image it may take every second channel
// (kernels/sm90/bring/alternating.cuh).
#include <algorithm>
#include <cmath>

#include "src/algorithms/sm90/bring.hpp"
#include "src/algorithms/sm90/fitted.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90::fetch {
namespace {

using i64 = std::int64_t;

i64 plane(const Problem& p) { return p.p() * p.q(); }

// Every load of so many pixels, a stride apart each, is aligned, and reads within a plane.
bool loads(const Problem& p, int pixels) {
  const i64 elements = pixels * p.stride_w;
  if (!strides(p)) return p.h * p.w % elements == 0;
  return elements <= 8 && p.stride_w <= 2 && p.q() % pixels == 0 && p.w * p.stride_h % elements == 0 &&
         p.h * p.w % elements == 0 && p.q() * p.stride_w <= p.w;
}

// Whole images of an odd number of pixels, side by side: they are loaded by aligned pairs. A pair may reach
// beyond its channel, but not beyond the tensor.
bool odd_images(const Tiling& t, const Problem& p) {
  return whole_images(t, p) && !strides(p) && plane(p) % 2 == 1 && p.c % 2 == 0;
}

// As many buffers as fit, and fewer: with less shared memory, which leaves more to the loads.
void fill(Lister& lister, Tiling t) {
  const Problem& p = lister.problem();
  int most = kSharedLimit;
  for (t.pixel_slots = 8; t.pixel_slots >= 2; --t.pixel_slots) {
    t.weight_slots = t.resident() ? 0 : t.pixel_slots;
    if (!lister.fits(t) || shared_bytes(t, p) > most) continue;
    lister.keep(t);
    for (const int step : kSharedSteps)
      most = shared_bytes(t, p) <= most && most > kSharedSteps[1] ? step : most;
    if (shared_bytes(t, p) <= kSharedSteps[1]) return;
  }
}

void list_width(Lister& lister, Tiling t, int width) {
  t.width = width;
  if (width * t.m_blocks() > 256) return;
  fill(lister, t);
  if (lister.may_stay(t)) {
    Tiling resident = t;
    resident.weights_in = WeightsIn::resident;
    fill(lister, resident);
  }
  for (const int split : lister.splits(t)) {
    t.split = split;
    fill(lister, t);
  }
}

// The widths of tiles of whole images, where those are worth it.
std::vector<int> image_widths(const Problem& p) {
  std::vector<int> widths;
  for (i64 images = 1; images * plane(p) <= 200 && plane(p) % 4 != 0; ++images) {
    const int width = static_cast<int>(round_up(images * plane(p), 8));
    if (width >= 48) widths.push_back(width);
  }
  return widths;
}

}  // namespace

int pixels_a_load(const Problem& p) { return loads(p, 4) ? 4 : loads(p, 2) ? 2 : 1; }

void specialise(KernelConfig& c, const Tiling& t, const Problem& p) {
  if (alternates(t, p)) return;
  c.pixels_a_load = pixels_a_load(p);
  c.load_step = c.pixels_a_load > 1 ? static_cast<int>(p.stride_w) : 1;
  c.odd_images = odd_images(t, p);
}

std::string unfit(const Tiling& t, const Problem& p) {
  if (p.layout != Layout::nchw || p.r != 1 || p.s != 1 || pads(p))
    return "planes are fetched for NCHW, 1x1 filters, no padding";
  if (p.groups > 1) return "planes are fetched of all channels, not of a group's";
  if (p.dtype == DType::f32) return "the matrix units take 32-bit channels side by side only";
  if (t.k_block != 64 || t.pixels_on_m()) return "planes are fetched by 64 channels, with the weights on M";
  // What the copy engine brings is waited for with the weights.
  if (alternates(t, p) && t.resident()) return "alternating channels come with weights that do not stay";
  return "";
}

void list(Lister& lister) {
  constexpr i64 kFewest = 16;  // channels that fill a quarter of a block
  const Problem& p = lister.problem();
  Tiling t;
  t.bring = Bring::fetch;
  t.height = 1;
  // Where the copy engine takes the planes as they are it brings them with less work.
  const bool copied = !strides(p) && p.h * p.w % 8 == 0 && p.c % 8 == 0;
  if (!fetch::unfit(t, p).empty() || copied || p.c < kFewest || p.h * p.w == 1) return;
  const std::vector<int> whole = image_widths(p);
  for (const Schedule schedule : {Schedule::ping_pong, Schedule::cooperative}) {
    for (const int m_blocks : {1, 2}) {
      t.schedule = schedule;
      t.channels = 64 * m_blocks * t.sharers();
      if (t.channels >= 2 * p.k && t.channels > 64) continue;
      for (const int width : whole) list_width(lister, t, width);
      if (!whole.empty()) continue;
      t.width = static_cast<int>(round_up(plane(p), 8));
      if (alternates(t, p)) list_width(lister, t, t.width);
      for (const int width : {192, 160, 128, 96, 64}) {
        t.width = width;
        const i64 waves = lister.waves(t);
        if (width % 64 == 0 || waves > 3 || lister.even(t, waves) || width == 96)
          list_width(lister, t, width);
      }
    }
  }
}

std::vector<Tiling> tilings(const Problem& p, const Chip& chip) {
  Lister lister(p, chip, kAllTilings);
  list(lister);
  return lister.take();
}

// Cycles in which warps bring the blocks of channels: as long as the cache that loads go through holds the
// lines that are under way; through registers, until the loads are there that a thread has room for.
double preparation(const Tiling& t, const Problem& p, const Traffic& traffic) {
  using namespace fitted::reading;
  const double cache = cache_bytes(shared_bytes(t, p)),
               k_block = alternates(t, p) ? t.k_block / 2 : t.k_block;  // what warps bring of it
  const double pixels = t.pixels(), together = pixels_a_load(p);
  const double columns = static_cast<double>(p.q()), down = static_cast<double>(p.stride_h);
  const double images = std::ceil(pixels / static_cast<double>(plane(p))), rows = pixels / columns / images;
  const double image_row = static_cast<double>(p.w) * 2;
  const double held = k_block * images * cache_lines(rows, image_row, image_row * down) * kLine;
  const double loads = k_block * pixels / (odd_images(t, p) ? 2 : together);
  const double issue = loads / kWarp * 2 * kIssue;
  if (!strides(p) && together > 1) return traffic.blocks * (std::max(issue, held / cache * kMiss) + kFirst);
  const double words = loads * std::max(1.0, together * static_cast<double>(p.stride_w) / 2);
  const double answer = kAnswer * std::max(0.5, words / kThreads / room(t));
  return traffic.blocks * (std::max(held / cache * kHeld, answer) + issue + kFirst);
}

}  // namespace faltung::sm90::fetch
