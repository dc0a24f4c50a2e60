#include "src/algorithms/cpu_rates.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <vector>

#include <unistd.h>

namespace faltung {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kReads = 3, kMostRows = 14;

// Of the fastest of a few runs: what else the machine does only adds to them.
template <class Work>
double fastest_ns(int runs, const Work& work) {
  double best = INFINITY;
  for (int run = 0; run <= runs; ++run) {  // the first warms up
    const auto begin = Clock::now();
    work();
    const double ns = std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
    if (run > 0) best = std::min(best, ns);
  }
  return best;
}

class TileTimes {
 public:
  TileTimes() {
    const int lanes = brgemm_lanes();
    std::vector<float> a(kMostRows * (kLong + 16)),
        b(static_cast<std::size_t>(kLong * kBrgemmMaxVectors * lanes + 64));
    std::vector<float> c(static_cast<std::size_t>(kMostRows * kBrgemmMaxVectors * lanes));
    for (int vectors = 1; vectors <= kBrgemmMaxVectors; ++vectors) {
      for (int rows = 1; rows <= brgemm_max_rows(vectors); ++rows) {
        for (const TileReads reads :
             {TileReads::strided, TileReads::contiguous, TileReads::contiguous_split}) {
          const bool strided = reads == TileReads::strided;
          const BrgemmKernel kernel =
              brgemm_kernel(strided ? BrgemmRows::strided : BrgemmRows::contiguous, rows, vectors);
          const BrgemmSegment whole{0, 0};
          BrgemmCall call;
          call.a_row_stride = kLong + 16, call.a_step = strided ? 1 : rows;
          call.a0 = a.data(), call.a1 = a.data() + 7 * (strided ? call.a_row_stride : 1);
          const auto line = reinterpret_cast<std::uintptr_t>(b.data()) / 4 % 16;  // floats into one
          call.b = b.data() + (16 - line) + (reads == TileReads::contiguous_split ? 1 : 0);
          call.b_step = vectors * lanes;
          call.segments = &whole, call.segment_count = 1;
          call.c0 = c.data(), call.c1 = c.data() + 7 * vectors * lanes, call.c_row_stride = vectors * lanes;
          call.columns = vectors * lanes;
          const auto time = [&](int length) {
            call.length = length;
            constexpr int kTimes = 4;  // beside which the clock is cheap
            return fastest_ns(3,
                              [&] {
                                for (int i = 0; i < kTimes; ++i) kernel(call);
                              }) /
                   kTimes;
          };
          const double few = time(kShort), many = time(kLong);
          TileTime& entry = at(reads, rows, vectors);
          entry.step = std::max(many - few, 0.5 * many * (kLong - kShort) / kLong) / (kLong - kShort);
          entry.once = std::max(0.0, few - kShort * entry.step);
          best_ = std::min(best_, entry.step / (rows * vectors));
        }
      }
    }
  }

  TileTime& at(TileReads reads, int rows, int vectors) {
    return times_[static_cast<std::size_t>(
        (static_cast<int>(reads) * kMostRows + rows - 1) * kBrgemmMaxVectors + vectors - 1)];
  }
  double best() const { return best_; }

 private:
  static constexpr int kShort = 24, kLong = 96;  // B of the widest tile stays in the first-level cache
  std::array<TileTime, kReads * kMostRows * kBrgemmMaxVectors> times_{};
  double best_ = INFINITY;
};

TileTimes& tile_times() {
  static TileTimes times;
  return times;
}

// Of a byte read again and again in a buffer of this size.
double byte_ns(std::int64_t bytes) {
  const std::vector<float> from(static_cast<std::size_t>(bytes / 4), 1.0f);
  volatile float sink = 0;
  const double ns = fastest_ns(2, [&] {
    float sums[16] = {};
    for (std::size_t i = 0; i + 16 <= from.size(); i += 16) sums[i / 16 % 16] += from[i];
    sink = sums[0];
  });
  static_cast<void>(sink);
  return ns / static_cast<double>(bytes);
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

TileTime tile_time(TileReads reads, int rows, int vectors) { return tile_times().at(reads, rows, vectors); }

double vector_multiply_add_ns() { return tile_times().best(); }

double far_byte_ns() {
  static const double ns = byte_ns(2 * cpu_caches().level2);
  return ns;
}

double near_byte_ns() {
  static const double ns = byte_ns(cpu_caches().level2 / 2);
  return ns;
}

}  // namespace faltung
