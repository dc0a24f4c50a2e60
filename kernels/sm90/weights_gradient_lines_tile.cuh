// The tile of weights_gradient_lines.cu: how a block's operands lie.
#pragma once

constexpr bool kTurns = kConfig.turns(), kPrepares = kConfig.prepares(), kTwoParts = kConfig.parts == Parts::two;
constexpr int kElement = kConfig.element_bytes();
constexpr int kSteps = kRow / 32;                    // instructions a row
constexpr int kPlanesBytes = planes_bytes(kConfig);  // a row of x, of every channel
constexpr int kPatchHeight = patch_height(kConfig), kPatchBytes = patch_bytes(kConfig);
constexpr int kLandings = landings(kConfig);
constexpr int kLines = kConfig.rows;  // buffers of rows of dy
constexpr int kLead = lead(kConfig), kLinePixels = line_pixels(kConfig), kLinePitch = line_pitch(kConfig);
constexpr int kHalfLine = half_line(kConfig), kLineBytes = line_bytes(kConfig);
constexpr int kBarriersAt = join_at(kConfig) - barrier_bytes(kConfig);
static_assert(kBarriersAt >= operand_bytes(kConfig) && kBarriersAt + barrier_bytes(kConfig) <= join_at(kConfig),
              "a cluster's own barriers lie behind");
static_assert(kRow == 128 || (kRow == 64 && !kTurns), "a row is swizzled in 64 or 128 bytes");
static_assert(kPlanesBytes % 1024 == 0, "every row begins where its swizzle does");
static_assert(!kTurns || (kElement == 4 && kChannels % 32 == 0), "32 channels of 4 bytes are turned at once");
static_assert(!kPrepares || kElement == 4, "32-bit elements are prepared");

__device__ __forceinline__ Place place_of(int consumer, int thread, int pair) {
  const int warp = thread / 32, lane = thread % 32;
  const int column = pair / 2 * 8 + lane % 4 * 2;
  return {warp * 16 + pair % 2 * 8 + lane / 4, column / kChannels, consumer, column % kChannels};
}
