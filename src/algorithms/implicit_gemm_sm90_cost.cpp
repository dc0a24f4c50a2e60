// How long a tiling should take.
#include <algorithm>
#include <cmath>

#include "src/algorithms/implicit_gemm_sm90.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90 {
namespace {

using i64 = std::int64_t;

double pieces(i64 a, i64 b) { return static_cast<double>(ceil_div(a, b)); }

// Cycles in which warps bring a block of channels of 16-bit NCHW to a slot: as long as the cache that loads
// go through, what a block leaves of 256 KB, holds the lines that are under way; through registers, until the
// loads are there that a thread has room for.
double fetching(const Tiling& t, const Problem& p) {
  constexpr double kIssue = 3, kApart = 8;  // cycles an instruction of a warp; a load of every other pixel
  constexpr double kMiss = 1500,
                   kAnswer = 1000;  // cycles until a line is there, where many are wanted; or few
  constexpr double kHeld = 600;     // likewise through registers
  constexpr double kFirst = 250;    // a block's barriers
  constexpr double kLine = 128, kWarp = 32, kThreads = 192;
  int shared = 228 * 1024;
  for (const int step : kSharedSteps) shared = shared_bytes(t, p) <= step ? step + 1024 : shared;
  const double cache = 256 * 1024 - shared, k_block = t.k_block;
  const int sums = t.m_blocks() * t.n_blocks() * t.n() / 2;
  const double room = sums <= 64 ? 72 : sums <= 104 ? 48 : 32;      // words of a thread
  const auto lines = [](double rows, double row, double to_next) {  // bytes, begun anywhere
    return std::min(rows * (row + kLine - 2), rows * to_next + kLine - 2) / kLine;
  };
  const double image_row = static_cast<double>(p.w) * 2;
  if (t.turned) {
    const double rows = static_cast<double>(patch_height(t, p)), row = static_cast<double>(patch_width(t, p));
    const double loads = rows * row * k_block / pixels_turned_at_once(p);
    if (t.raws > 0) {
      // Each of eight loads, and two times 16 bytes to write.
      constexpr double kTurn = 27, kRaw = 40;  // cycles a warp's item; bytes a cycle of contiguous rows
      const double brought = k_block * raw_pitch(t, p) / kRaw;
      return std::max(brought, loads / 8 / kWarp * kTurn) + kFirst;
    }
    const double held = k_block * lines(rows, std::min(row * 2, image_row), image_row) * kLine;
    const double issue = loads * 9 / 8 / kWarp * (p.stride_w > pixels_turned_at_once(p) ? kApart : kIssue);
    return std::max(held / cache * kHeld, kAnswer * loads / kThreads / room) + issue + kFirst;
  }
  const double pixels = t.pixels(), together = fetch::pixels_a_load(p);
  const double columns = static_cast<double>(p.q()), down = static_cast<double>(p.stride_h);
  const double images = std::ceil(pixels / static_cast<double>(p.p() * p.q())),
               rows = pixels / columns / images;
  const double held = k_block * images * lines(rows, image_row, image_row * down) * kLine;
  const double loads = k_block * pixels / (fetch::odd_images(t, p) ? 2 : together);
  const double issue = loads / kWarp * 2 * kIssue;
  if (p.stride_w == 1 && p.stride_h == 1 && together > 1)
    return std::max(issue, held / cache * kMiss) + kFirst;
  const double words = loads * std::max(1.0, together * static_cast<double>(p.stride_w) / 2);
  return std::max(held / cache * kHeld, kAnswer * std::max(0.5, words / kThreads / room)) + issue + kFirst;
}

}  // namespace

// A tile takes the longest of its products, its loads, what shared memory moves and, for 32-bit elements, the
// preparation; with two consumers in turn a tile's epilogue hides behind the next one's products. The
// constants are fitted to kernels timed on an H200 (docs/performance/h200.md): cycles and bytes of one
// multiprocessor, milliseconds.
Estimate estimate(const Tiling& t, const Problem& p, int multiprocessors) {
  if (t.shift) return shift::estimate(t, p, multiprocessors);
  constexpr double kClock = 1.58e6,
                   kCool = 0.09;        // cycles a millisecond at full load; more by so much without
  constexpr double kFirstOperand = 16;  // cycles to read the 64 rows of one instruction
  constexpr double kL2 = 58;            // bytes a cycle
  constexpr double kGatherRow = 2.2, kBoxRow = 2.0;  // at least so many cycles a row of a box
  constexpr double kFewBlocks = 0.27;                // the share of a load's time when few blocks load
  constexpr double kLoadFirst = 500,
                   kLoadMore = 1500;  // cycles until a load is there; more where all blocks load
  constexpr double kShared = 128;     // bytes a cycle written while the matrix units read
  constexpr double kStreamed = 1.02;  // weights that do not stay
  constexpr double kPrepare = 16;     // bytes a cycle rounded to tf32
  constexpr double kHasty = 1.0;      // streamed weights that serve few pixels: slower by so much
  constexpr double kPrepared = 800;   // cycles until the low parts of gathered pixels are there
  constexpr double kPartial = 1.0e9;  // bytes a ms: stores of half a sector, NCHW's rows of 8 pixels
  constexpr double kRead = 6.4;       // bytes a cycle that the preparing warps read
  constexpr double kSector = 1.4e9;   // bytes a ms: sectors written in part, by rows that begin astray
  constexpr double kRawRow = 10.0, kTurned = 128;      // cycles, and bytes a cycle: turned patches
  constexpr double kEpilogue = 1000, kStore = 0.06;    // cycles a tile, and a 16-bit element
  constexpr double kRows = 1.4, kSingly = 4.3;         // storing NCHW, and 32-bit elements, by so much slower
  constexpr double kSplit = 1500, kAdd = 0.06;         // cycles a tile, and a byte of a split sum
  constexpr double kExposed = 0.4;                     // of the epilogue where two consumers share a tile
  constexpr double kDrained = 0.45;                    // planes: more of it for each buffer less than five
  constexpr double kLatency = 1500;                    // cycles, once
  constexpr double kBandwidth = 6e9, kOverlap = 0.55;  // bytes a ms; what is lost of the shorter of the two
  constexpr double kLaunch = 0.0008, kTurn = 2.9e9,
                   kPad = 0.0045;  // ms; bytes a ms of a step that turns the input
  const int element = size_of(p.dtype), sharers = t.cooperative ? 2 : 1, parts = std::max(1, tf32_parts(p));
  const double blocks = std::ceil(pieces(padded_channels(p), t.k_block) / t.split);
  const double taps = static_cast<double>(p.r * p.s), row = t.k_block * element;
  const double instructions =
      blocks * taps * row / 32 * t.m_blocks() * t.n_blocks() * sharers * (tf32_parts(p) == 2 ? 3 : 1);
  const double operands = instructions * (t.n() / 4.0 + kFirstOperand);  // cycles to read them
  const bool hasty = !t.im2col && !t.resident && element == 2 && t.m_blocks() * t.n() * t.n_blocks() <= 128;
  const double products = std::max(instructions * t.n() / 2.0, operands) * (hasty ? kHasty : 1);
  const double slot_rows = slot_bytes(t, p) / row, fills = blocks * (t.im2col ? taps : 1);
  const double pixel_rows = fills * slot_rows,
               weight_rows = t.resident ? 0 : blocks * taps * t.channels * parts;
  const double loaded = (pixel_rows + weight_rows) * row;
  const double count = static_cast<double>(sm90::blocks(t, p));
  const double few = std::clamp(count / multiprocessors, kFewBlocks, 1.0);
  const bool gathers = t.im2col && !t.planes && !t.fetch;
  const double load =
      few * std::max(loaded / kL2, pixel_rows * (gathers ? kGatherRow : kBoxRow) + weight_rows * kBoxRow);
  double preparation = prepares(t, p) ? pixel_rows * row / kPrepare : 0;
  if (reads_input(t, p)) preparation = blocks * fetching(t, p);
  if (t.im2col && parts == 2) preparation = std::max(preparation, blocks * taps * kPrepared);
  if (t.turned && !turns_16_bits(t, p)) {
    // Rows of NCHW come slowly, whatever part of 128 bytes they are; and shared memory is written by them,
    // read twice (two channels share a bank) and written again, while the matrix units read.
    const double raw_rows = static_cast<double>(patch_height(t, p)) * t.k_block,
                 raw_row = raw_width(t, p) * element;
    const double raw_bytes = blocks * raw_rows * raw_row, buffers = t.raws > 0 ? 3 : 0;
    const double shared =
        (buffers * raw_bytes + (1.3 * parts * pixel_rows + weight_rows / parts) * row) / kTurned;
    const double read =
        t.raws > 0 ? blocks * raw_rows * std::ceil(raw_row / 128) * kRawRow : raw_bytes / kRead;
    preparation = std::max(read, operands + shared);
  }
  double tile = std::max({products, load, preparation, operands + loaded / kShared});
  // A buffer is filled again once its products are through.
  if (!t.turned) tile = std::max(tile, (fills * (kLoadFirst + kLoadMore * few) + products) / t.slots);
  if (!t.resident && element == 2) tile *= kStreamed;
  // Where fewer than four pixels of NCHW lie together, as many more loads and stores.
  const double apart = p.layout == Layout::nchw ? 0.5 + 2.0 / std::min(4, pixels_a_store(t, p)) : 1;
  // Of a split sum, too, the load that nothing hides.
  const double split =
      t.split > 1 ? kSplit + t.channels * t.pixels() * 4 * kAdd * apart + (t.im2col ? 0 : kLoadFirst) : 0;
  const double epilogue = kEpilogue + t.channels * t.pixels() * element / 2 * kStore / sharers *
                                          (p.layout == Layout::nchw && !t.planes ? kRows : 1) *
                                          (t.direct                ? 1
                                           : p.dtype == DType::f32 ? kSingly
                                                                   : 1);
  const double exposed = kExposed + (t.planes ? kDrained * std::max(0, 5 - t.slots) : 0);
  const double waves = std::ceil(count / multiprocessors);
  const double cycles = t.split > 1     ? waves * (tile + split)
                        : t.cooperative ? waves * (tile + exposed * epilogue)
                                        : waves * std::max(tile, (epilogue + products) / 2) + epilogue;
  const double busy = std::min(1.0, waves * products * std::min(1.0, count / multiprocessors) / cycles);
  const double first = reads_input(t, p) ? preparation / blocks : 0;  // nothing hides it
  const double arithmetic = (cycles + kLatency + first) / (kClock * (1 + kCool * (1 - busy)));
  double bytes = min_bytes(p) / kBandwidth;
  const bool in_part =
      p.layout == Layout::nchw && !t.im2col && t.width * element < 32 && !fetch::whole_images(t, p);
  if (in_part) bytes += static_cast<double>(p.n * p.k * p.y_h() * p.y_w() * element) / kPartial;
  const bool astray = t.turned && p.y_w() * element % 32 != 0;
  if (astray) bytes += static_cast<double>(p.n * p.k * p.y_h() * p.y_w()) * 64 / t.width / kSector;
  Estimate e;
  e.ms = std::max(arithmetic, bytes) + kOverlap * std::min(arithmetic, bytes) + kLaunch;
  if (turns_input(t, p)) {
    const double images = static_cast<double>(p.n * p.h * p.w * element);
    e.ms += images * static_cast<double>(p.c + padded_channels(p)) / kTurn + 2 * kLaunch;
    if (padded_channels(p) * element <= 32) e.ms += kPad;  // few channels go by another way
  }
  e.bound_by = bytes > arithmetic                          ? "bytes"
               : waves <= 1 && 2 * count < multiprocessors ? "latency"
                                                           : "arithmetic";
  return e;
}

}  // namespace faltung::sm90
