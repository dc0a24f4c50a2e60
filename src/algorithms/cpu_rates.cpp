#include "src/algorithms/cpu_rates.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <mutex>
#include <vector>

#include <unistd.h>

#include "kernels/cpu/brgemm_dot.hpp"
#include "kernels/cpu/features.hpp"
#include "src/algorithms/cpu_rates_depthwise.hpp"
#include "src/algorithms/cpu_rates_staging.hpp"
#include "src/algorithms/cpu_rates_winograd.hpp"
#include "src/algorithms/fastest_ns.hpp"

namespace faltung {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kReads = 7, kMostRows = 14;

std::atomic<std::size_t> tiles_asked{0};  // for the times of tiles

struct Rates {
  std::array<TileTime, kReads * kMostRows * kBrgemmMaxVectors> tiles{};  // 0 where there is no such tile
  TileTime dot_tile{};
  double far_byte = 0, near_byte = 0, memory_byte = 0;
  std::array<TileTime, kDepthwiseKernels> depthwise{};
  std::array<StagingRates, kStagings> staging{};
  std::array<TransformTime, kWinogradTransforms> winograd{};
  double best = INFINITY;  // of a multiply-add of vectors

  TileTime& tile(TileReads reads, int rows, int vectors) { return tiles[place(reads, rows, vectors)]; }
  const TileTime& tile(TileReads reads, int rows, int vectors) const {
    return tiles[place(reads, rows, vectors)];
  }

 private:
  static std::size_t place(TileReads reads, int rows, int vectors) {
    return static_cast<std::size_t>((static_cast<int>(reads) * kMostRows + rows - 1) * kBrgemmMaxVectors +
                                    vectors - 1);
  }
};

constexpr TileReads kAllReads[] = {TileReads::strided,          TileReads::strided_pages,
                                   TileReads::strided_stream,   TileReads::contiguous,
                                   TileReads::contiguous_split, TileReads::contiguous_stream,
                                   TileReads::contiguous_planes};

template <class Visit>
void each_tile(const Visit& visit) {
  for (int vectors = 1; vectors <= kBrgemmMaxVectors; ++vectors) {
    for (int rows = 1; rows <= brgemm_max_rows(vectors); ++rows) {
      for (const TileReads reads : kAllReads) visit(reads, rows, vectors);
    }
  }
}

constexpr int kShort = 24, kLong = 96;  // steps; B of the widest tile stays in the first-level cache

// Nanoseconds of so many steps each.
struct ShortAndLong {
  double few = INFINITY, many = INFINITY;
};

// Keeps the least of what was measured before and now, of either length by itself: what holds the processor
// up for a while must not make a step cheap by making the short run dear.
void measure_tiles(std::vector<ShortAndLong>& least) {
  constexpr std::int64_t kPageFloats = 4096 / 4, kPlaneFloats = 56 * 56;
  const int lanes = brgemm_lanes();
  // What is to come from the second-level cache is walked along call by call, and over again.
  const std::int64_t stream_floats = cpu_caches().level1 / 2;  // twice it in bytes
  std::vector<float> a(kMostRows * kPageFloats),
      b(static_cast<std::size_t>(stream_floats + kLong * kPlaneFloats + 64));
  std::vector<float> c(static_cast<std::size_t>(kMostRows * kBrgemmMaxVectors * lanes));
  std::size_t index = 0;
  each_tile([&](TileReads reads, int rows, int vectors) {
    const bool strided = reads < TileReads::contiguous;
    const bool planes = reads == TileReads::contiguous_planes;
    const bool stream = planes || reads == TileReads::strided_stream || reads == TileReads::contiguous_stream;
    const BrgemmKernel kernel =
        brgemm_kernel(strided ? BrgemmRows::strided : BrgemmRows::contiguous, rows, vectors);
    BrgemmCall call;
    call.a_row_stride = reads == TileReads::strided_pages ? kPageFloats : kLong + 16;
    call.a_step = strided ? 1 : rows;
    call.a0 = a.data(), call.a1 = a.data() + 7 * (strided ? call.a_row_stride : 1);
    const auto line = reinterpret_cast<std::uintptr_t>(b.data()) / 4 % 16;  // floats into one
    call.b = b.data() + (16 - line) + (reads == TileReads::contiguous_split ? 1 : 0);
    call.b_step = planes ? kPlaneFloats : vectors * lanes;
    call.c0 = c.data(), call.c1 = c.data() + 7 * vectors * lanes, call.c_row_stride = vectors * lanes;
    call.columns = vectors * lanes;
    const auto time = [&](int length, double& least_ns) {
      call.length = length;
      const std::int64_t call_floats = std::int64_t{length} * vectors * lanes;
      const int times =
          stream ? static_cast<int>(stream_floats / call_floats) : 4;  // beside which the clock is cheap
      const double ns = fastest_ns(stream ? 1 : 3, [&] {
        for (int i = 0; i < times; ++i) {
          const BrgemmSegment whole{0, !stream ? 0 : i * (planes ? vectors * lanes : call_floats)};
          call.segments = &whole, call.segment_count = 1;
          kernel(call);
        }
      });
      least_ns = std::min(least_ns, ns / times);
    };
    if (index == least.size()) least.emplace_back();
    time(kShort, least[index].few), time(kLong, least[index].many);
    ++index;
  });
}

// The least of what was measured before and now, as above.
void measure_dot(ShortAndLong& least) {
  constexpr int kRows = 2 * kDotRows;
  std::vector<float> a(kRows * (kLong + 16)), b(kLong * kPairColumns), c(kRows * kPairColumns);
  const BrgemmSegment whole{0, 0};
  BrgemmCall call;
  call.a_row_stride = kLong + 16, call.b_step = kPairColumns;
  call.a0 = a.data(), call.a1 = a.data() + kDotRows * call.a_row_stride, call.b = b.data();
  call.segments = &whole, call.segment_count = 1;
  call.c0 = c.data(), call.c1 = c.data() + kDotRows * kPairColumns, call.c_row_stride = kPairColumns;
  call.columns = kPairColumns;
  for (double ShortAndLong::*const ns : {&ShortAndLong::few, &ShortAndLong::many}) {
    call.length = ns == &ShortAndLong::few ? kShort : kLong;
    constexpr int kTimes = 4;
    least.*ns = std::min(least.*ns, fastest_ns(3, [&] {
                                      for (int i = 0; i < kTimes; ++i)
                                        brgemm_dot(call, kDotRows, kDotRows, nullptr);
                                    }) / kTimes);
  }
}

TileTime fitted(const ShortAndLong& least) {
  const double step =
      std::max(least.many - least.few, 0.5 * least.many * (kLong - kShort) / kLong) / (kLong - kShort);
  return {step, std::max(0.0, least.few - kShort * step)};
}

void fit_tiles(const std::vector<ShortAndLong>& least, Rates& rates) {
  std::size_t index = 0;
  each_tile([&](TileReads reads, int rows, int vectors) {
    rates.tile(reads, rows, vectors) = fitted(least[index++]);
  });
}

// Of a byte read again and again in a buffer of this size.
double byte_ns(std::int64_t bytes) {
  const std::vector<float> from(static_cast<std::size_t>(bytes / 4), 1.0f);
  volatile float sink = 0;
  const double ns = fastest_ns(10, [&] {
    float sums[16] = {};
    for (std::size_t i = 0; i + 16 <= from.size(); i += 16) sums[i / 16 % 16] += from[i];
    sink = sums[0];
  });
  static_cast<void>(sink);
  return ns / static_cast<double>(bytes);
}

// Of a byte read once from a buffer that no cache holds.
double memory_byte_ns_now() {
  constexpr std::size_t kFloats = (1 << 20) / 4, kLine = 16;
  const std::vector<float> from(kFloats, 1.0f);
  volatile float sink = 0;
  double best = INFINITY;
  for (int run = 0; run < 6; ++run) {
    flush_from_caches(from.data(), 4 * kFloats);
    const auto begin = Clock::now();
    float sums[kLine] = {};
    for (std::size_t i = 0; i + kLine <= kFloats; i += kLine) sums[i / kLine % kLine] += from[i];
    sink = sums[0];
    best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - begin).count());
  }
  static_cast<void>(sink);
  return best / (4 * kFloats);
}

Rates measure() {
  Rates rates;
  // Passes over all, so that what holds the processor up for a while holds up one pass of each.
  std::vector<ShortAndLong> least;
  ShortAndLong dot;
  for (int pass = 0; pass < 5; ++pass) {
    measure_tiles(least);
    if (dot_usable()) measure_dot(dot);
  }
  fit_tiles(least, rates);
  if (dot_usable()) rates.dot_tile = fitted(dot);
  rates.far_byte = byte_ns(2 * cpu_caches().level2);
  rates.near_byte = byte_ns(cpu_caches().level2 / 2);
  rates.memory_byte = std::max(rates.far_byte, memory_byte_ns_now());
  rates.depthwise = measure_depthwise();
  rates.staging = measure_staging();
  rates.winograd = measure_winograd();
  return rates;
}

void find_best(Rates& rates) {
  each_tile([&](TileReads reads, int rows, int vectors) {
    rates.best = std::min(rates.best, rates.tile(reads, rows, vectors).step / (rows * vectors));
  });
}

std::mutex making;
std::atomic<const Rates*> known{nullptr};  // lives as long as the process

const Rates& the_rates() {
  if (const Rates* rates = known.load(std::memory_order_acquire)) return *rates;
  const std::lock_guard lock(making);
  if (known.load(std::memory_order_acquire) == nullptr) {
    auto* rates = new Rates(measure());
    find_best(*rates);
    known.store(rates, std::memory_order_release);
  }
  return *known.load(std::memory_order_acquire);
}

}  // namespace

const CpuCaches& cpu_caches() {
  static const CpuCaches caches = [] {
    const auto size = [](int name, std::int64_t usual, std::int64_t least, std::int64_t most) {
      const long bytes = name < 0 ? 0 : sysconf(name);
      return std::clamp<std::int64_t>(bytes > 0 ? bytes : usual, least, most);
    };
#if defined(_SC_LEVEL1_DCACHE_SIZE)
    constexpr int kLevel1 = _SC_LEVEL1_DCACHE_SIZE, kLevel2 = _SC_LEVEL2_CACHE_SIZE;
#else
    constexpr int kLevel1 = -1, kLevel2 = -1;
#endif
    return CpuCaches{size(kLevel1, 32 << 10, 16 << 10, 256 << 10),
                     size(kLevel2, 1 << 20, 256 << 10, 4 << 20)};
  }();
  return caches;
}

TileTime tile_time(TileReads reads, int rows, int vectors) {
  tiles_asked.fetch_add(1, std::memory_order_relaxed);
  return the_rates().tile(reads, rows, vectors);
}
TileTime dot_tile_time() { return the_rates().dot_tile; }
std::size_t tile_times_asked() { return tiles_asked; }

double vector_multiply_add_ns() { return the_rates().best; }
double far_byte_ns() { return the_rates().far_byte; }
double near_byte_ns() { return the_rates().near_byte; }
double memory_byte_ns() { return the_rates().memory_byte; }

TileTime depthwise_time(Layout layout, DepthwiseTaps taps) {
  return the_rates().depthwise[depthwise_kernel(layout, taps)];
}

TileTime depthwise_turn_time() { return the_rates().depthwise[kDepthwiseTurn]; }

TileTime staging_time(Staging way) { return the_rates().staging[static_cast<std::size_t>(way)].copy; }
TileTime fetch_time(Staging way) { return the_rates().staging[static_cast<std::size_t>(way)].fetch; }

TransformTime winograd_transform_time(Layout layout, int m) {
  return the_rates().winograd[winograd_transform(layout, m)];
}

std::vector<double> cpu_rates() {
  const Rates& rates = the_rates();
  std::vector<double> numbers{static_cast<double>(brgemm_lanes()), rates.far_byte, rates.near_byte,
                              rates.memory_byte};
  for (const TileTime& time : rates.depthwise) numbers.insert(numbers.end(), {time.step, time.once});
  for (const StagingRates& way : rates.staging) {
    for (const TileTime& time : {way.copy, way.fetch}) numbers.insert(numbers.end(), {time.step, time.once});
  }
  for (const TransformTime& time : rates.winograd) numbers.insert(numbers.end(), {time.input, time.output});
  each_tile([&](TileReads reads, int rows, int vectors) {
    const TileTime& tile = rates.tile(reads, rows, vectors);
    numbers.insert(numbers.end(), {tile.step, tile.once});
  });
  if (dot_usable()) numbers.insert(numbers.end(), {rates.dot_tile.step, rates.dot_tile.once});
  return numbers;
}

KeptRates adopt_cpu_rates(const std::vector<double>& numbers) {
  auto rates = std::make_unique<Rates>();
  std::size_t taken = 0;
  const auto next = [&] { return taken < numbers.size() ? numbers[taken++] : -1; };
  bool whole = next() == brgemm_lanes();
  rates->far_byte = next(), rates->near_byte = next(), rates->memory_byte = next();
  whole = whole && rates->far_byte > 0 && rates->near_byte > 0 && rates->memory_byte > 0;
  const auto take = [&](TileTime& time) {
    time.step = next(), time.once = next();
    whole = whole && time.step > 0 && time.once >= 0;
  };
  for (TileTime& time : rates->depthwise) take(time);
  for (StagingRates& way : rates->staging) take(way.copy), take(way.fetch);
  for (TransformTime& time : rates->winograd) {
    time.input = next(), time.output = next();
    whole = whole && time.input > 0 && time.output > 0;
  }
  each_tile([&](TileReads reads, int rows, int vectors) { take(rates->tile(reads, rows, vectors)); });
  if (dot_usable()) take(rates->dot_tile);
  if (!whole || taken != numbers.size()) return KeptRates::damaged;
  find_best(*rates);
  const std::lock_guard lock(making);
  if (known.load(std::memory_order_acquire) == nullptr) {
    known.store(rates.release(), std::memory_order_release);
  }
  return KeptRates::whole;
}

}  // namespace faltung
