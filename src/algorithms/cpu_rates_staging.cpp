// What copying planes of an image takes: timed on small ones, in the second-level cache and in none.
#include "src/algorithms/cpu_rates_staging.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "kernels/cpu/features.hpp"
#include "kernels/cpu/stage.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr i64 kChannels = 32, kLineFloats = 16;
constexpr i64 kFew = 8, kMany = 32;                        // rows of a plane, and columns
constexpr i64 kChannel = kMany * kMany + 3 * kLineFloats;  // from a plane to the next: no power of 2
constexpr i64 kPadding = 1;

// What is copied of a plane of so many rows: whole, or with padding.
struct Copied {
  double rows, floats;
};
Copied copied(Staging way, i64 size) {
  const i64 side = size + (way == Staging::rows ? 2 * kPadding : 0);
  return {way == Staging::rows ? static_cast<double>(side) : 1, static_cast<double>(side * side)};
}

void copy(Staging way, i64 size, const float* from, float* to) {
  if (way == Staging::runs) {
    TileStageCall call;
    call.from = from, call.from_channel = kChannel;
    call.channels = kChannels, call.columns = size * size;
    call.to = to;
    const i64 width = 2 * kLineFloats;
    return stage_tiles(call, width, kChannels * width);
  }
  StageCall call;
  call.from = from, call.from_row_stride = size;
  call.height = call.width = size;
  call.row0 = call.column0 = -kPadding;
  call.rows = call.columns = size + 2 * kPadding;
  call.channels = kChannels;
  call.to = to;
  stage_planes(call, kChannel, {1, 1, 1, 1, kChannel + 4 * kMany, call.rows * call.columns, call.columns});
}

struct Timed {
  double cached, fetched;  // nanoseconds of a channel
};

Timed time(Staging way, i64 size) {
  const std::vector<float> from(kChannels * kChannel, 1.0f);
  std::vector<float> to(kChannels * (kChannel + 4 * kMany));
  Timed best{INFINITY, INFINITY};
  for (int run = 0; run < 12; ++run) {  // what else the machine does only adds to the fastest
    const bool fetched = run % 2 == 0;
    if (fetched) flush_from_caches(from.data(), from.size() * sizeof(float));
    const auto begin = std::chrono::steady_clock::now();
    copy(way, size, from.data(), to.data());
    const double ns =
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
    double& least = fetched ? best.fetched : best.cached;
    least = std::min(least, ns / kChannels);
  }
  return best;
}

}  // namespace

std::array<StagingRates, kStagings> measure_staging() {
  std::array<StagingRates, kStagings> rates{};
  for (const Staging way : {Staging::runs, Staging::rows}) {
    const Timed few = time(way, kFew), many = time(way, kMany);
    const Copied less = copied(way, kFew), more = copied(way, kMany);
    // Noise must not make either of the two nothing, or less.
    const double alike = more.rows / less.rows, float_ns = many.cached / more.floats;
    const double step = std::clamp((many.cached - alike * few.cached) / (more.floats - alike * less.floats),
                                   0.25 * float_ns, float_ns);
    StagingRates& of = rates[static_cast<std::size_t>(way)];
    of.copy = {step, std::max(0.0, (few.cached - less.floats * step) / less.rows)};

    constexpr double kFewLines = kFew * kFew / kLineFloats, kManyLines = kMany * kMany / kLineFloats;
    const double few_wait = few.fetched - few.cached, many_wait = std::max(1.0, many.fetched - many.cached);
    const double line = std::clamp((many_wait - few_wait) / (kManyLines - kFewLines),
                                   0.25 * many_wait / kManyLines, many_wait / kManyLines);
    of.fetch = {line, std::max(0.0, few_wait - kFewLines * line)};
  }
  return rates;
}

}  // namespace faltung
