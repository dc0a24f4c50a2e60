#include "kernels/cpu/brgemm_amx.hpp"

#include "kernels/cpu/features.hpp"

#if defined(__x86_64__) && defined(__linux__)
#if defined(__GNUC__) && !defined(__clang__)
// The intrinsics' own headers, as g++ 12 has them, use variables that it takes for uninitialized.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace faltung {
namespace {

#define FALTUNG_AMX __attribute__((target("amx-tile,amx-bf16"), noinline))

// The operand of ldtilecfg.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t bytes_a_row[16] = {};
  std::uint8_t rows[16] = {};
  void set(int tile, int row_count, int row_bytes) {
    rows[tile] = static_cast<std::uint8_t>(row_count);
    bytes_a_row[tile] = static_cast<std::uint16_t>(row_bytes);
  }
};
static_assert(sizeof(TileConfig) == 64);

// Tiles 0..3 are C's quadrants, 4 and 5 A's two groups of rows, 6 and 7 B's two halves.
FALTUNG_AMX void configure(int rows0, int rows1, int columns) {
  const int columns0 = std::min(columns, 16), columns1 = columns - columns0;
  TileConfig config;
  config.set(0, rows0, 4 * columns0);
  config.set(4, rows0, 64);
  config.set(6, kAmxLength, 4 * columns0);
  if (columns1 > 0) {
    config.set(1, rows0, 4 * columns1);
    config.set(7, kAmxLength, 4 * columns1);
  }
  if (rows1 > 0) {
    config.set(2, rows1, 4 * columns0);
    config.set(5, rows1, 64);
    if (columns1 > 0) config.set(3, rows1, 4 * columns1);
  }
  // The intrinsic tells the compiler of the first bytes alone that it reads.
  asm volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

FALTUNG_AMX void release() { _tile_release(); }

// What a step is multiplied with, walked together.
struct Steps {
  const char* a0;
  const char* a1;
  const char* b;
};

template <bool kTwoGroups, bool kTwoHalves>
FALTUNG_AMX void tile(const BrgemmCall& call) {
  const long c_stride = 4 * call.c_row_stride, a_stride = 4 * call.a_row_stride, b_stride = 4 * call.b_step;
  if (call.addend0 != nullptr) {
    _tile_loadd(0, call.c0, c_stride);
    if constexpr (kTwoHalves) _tile_loadd(1, call.c0 + 16, c_stride);
    if constexpr (kTwoGroups) _tile_loadd(2, call.c1, c_stride);
    if constexpr (kTwoGroups && kTwoHalves) _tile_loadd(3, call.c1 + 16, c_stride);
  } else {
    _tile_zero(0);
    if constexpr (kTwoHalves) _tile_zero(1);
    if constexpr (kTwoGroups) _tile_zero(2);
    if constexpr (kTwoGroups && kTwoHalves) _tile_zero(3);
  }
  const BrgemmSegment* const end = call.segments + call.segment_count;
  for (const BrgemmSegment* segment = call.segments; segment != end; ++segment) {
    Steps at{static_cast<const char*>(call.a0) + 4 * segment->a,
             kTwoGroups ? static_cast<const char*>(call.a1) + 4 * segment->a : nullptr,
             static_cast<const char*>(call.b) + 4 * segment->b};
    for (std::int64_t left = call.length; left > 0; left -= kAmxLength) {
      _tile_loadd(6, at.b, b_stride);
      _tile_loadd(4, at.a0, a_stride);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (kTwoGroups) {
        _tile_loadd(5, at.a1, a_stride);
        _tile_dpbf16ps(2, 5, 6);
      }
      if constexpr (kTwoHalves) {
        _tile_loadd(7, at.b + 64, b_stride);
        _tile_dpbf16ps(1, 4, 7);
        if constexpr (kTwoGroups) _tile_dpbf16ps(3, 5, 7);
      }
      at.a0 += 4 * kAmxLength;
      if constexpr (kTwoGroups) at.a1 += 4 * kAmxLength;
      at.b += kAmxLength * b_stride;
    }
  }
  _tile_stored(0, call.c0, c_stride);
  if constexpr (kTwoHalves) _tile_stored(1, call.c0 + 16, c_stride);
  if constexpr (kTwoGroups) _tile_stored(2, call.c1, c_stride);
  if constexpr (kTwoGroups && kTwoHalves) _tile_stored(3, call.c1 + 16, c_stride);
}

}  // namespace

bool amx_usable() {
  // Linux keeps the tile registers from a process until it asks for them.
  static const bool usable = [] {
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    return has_amx_bf16() && has_avx512_bf16() && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return usable;
}

AmxThread::~AmxThread() {
  if (configured_ != 0) release();
}

void AmxThread::run(const BrgemmCall& call, int rows0, int rows1) {
  const int wanted = rows0 | rows1 << 8 | call.columns << 16;
  if (wanted != configured_) {
    configure(rows0, rows1, call.columns);
    configured_ = wanted;
  }
  const bool two_halves = call.columns > 16;
  if (rows1 > 0) {
    two_halves ? tile<true, true>(call) : tile<true, false>(call);
  } else {
    two_halves ? tile<false, true>(call) : tile<false, false>(call);
  }
}

}  // namespace faltung

#else

namespace faltung {

bool amx_usable() { return false; }
AmxThread::~AmxThread() = default;
void AmxThread::run(const BrgemmCall&, int, int) {}

}  // namespace faltung

#endif
