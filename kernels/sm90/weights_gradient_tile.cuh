// The tile of weights_gradient.cu: how a block's operands and sums lie.
#pragma once

constexpr int kPhases = phases(kConfig), kShortPhases = short_phases(kConfig), kFullPhases = kPhases - kShortPhases;
constexpr int kShortColumns = short_columns(kConfig);
constexpr int kPatchWidth = patch_width(kConfig), kPatchHeight = patch_height(kConfig), kRowStep = row_step(kConfig);
constexpr int kTogether = together(kConfig), kPatchLine = kPatchWidth * kTogether * kRow;
constexpr int kTapRowPitch = kConfig.dilation_h * kPatchLine;
constexpr bool kPlanes = kConfig.kind == Kind::planes || kConfig.kind == Kind::fetch,
               kPaired = kConfig.pair != Pair::neither;
static_assert(!kPaired || kCluster == 1, "a cluster is a pair, or adds up its sums");
constexpr int kPlanesBox = 64 * 128;  // 64 channels by 64 pixels
constexpr int kSteps = pixels(kConfig) / 16;
constexpr int kGradientBytes = gradient_bytes(kConfig);
constexpr int kStageBytes = kConfig.k_blocks * kGradientBytes + patches(kConfig) * patch_bytes(kConfig);
// From one 64 (or fewer) of an instruction's columns to the next: a tap, or a block of channels.
constexpr int kColumnPitch = kTapColumns > 1 ? tap_pitch(kConfig) * kTogether * kRow : kPatchStride;
static_assert(kConfig.width * kTogether % 8 == 0 && pixels(kConfig) % 16 == 0, "an operand's rows come by eights, twice");
static_assert(kTapColumns == 1 || kConfig.c_blocks == 1,
              "the columns of an instruction are several taps or several blocks of channels");

struct Sums {
  float full[kFullPhases][kColumns / 2];
  float less[kShortPhases > 0 ? kShortPhases : 1][kShortColumns / 2];
};

template <class Visit>
__device__ __forceinline__ void for_each_pair(const Sums& sums, const Visit& visit) {
  constexpr int kFull = kColumns / 4, kLess = kShortColumns / 4;
#pragma unroll
  for (int phase = 0; phase < kFullPhases; ++phase) {
#pragma unroll
    for (int i = 0; i < kFull; ++i)
      visit(phase * kFull + i, sums.full[phase][i * 2], sums.full[phase][i * 2 + 1]);
  }
#pragma unroll
  for (int phase = 0; phase < kShortPhases; ++phase) {
#pragma unroll
    for (int i = 0; i < kLess; ++i)
      visit(kFullPhases * kFull + phase * kLess + i, sums.less[phase][i * 2], sums.less[phase][i * 2 + 1]);
  }
}

// Where in the patch the eight pixels begin that are the tile's group-th.
__device__ constexpr int patch_offset(int group) {
  constexpr int kAcross = kConfig.width * kTogether / 8, kHeight = kConfig.height;
  const int across = group % kAcross, down = group / kAcross % kHeight, image = group / (kAcross * kHeight);
  return (image * kPatchHeight + down * kRowStep) * kPatchLine + across * 8 * kRow;
}

// Where a block has the sums of a place, among its pairs: the way back from place_of.
__device__ __forceinline__ int pair_in_block(const Place& at) {
  constexpr int kFull = kColumns / 4, kLess = kShortColumns / 4;
  const int row = at.k % kOutChannels, consumer = at.k / kOutChannels * kTapRows + at.r;
  const int phase = at.s % kPhases, column = kTapColumns == 1 ? at.c : at.s / kPhases * kChannels + at.c;
  const int before = phase < kFullPhases ? phase * kFull : kFullPhases * kFull + (phase - kFullPhases) * kLess;
  const int pair = before + column / 8 * 2 + row / 8 % 2, thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
  return (consumer * kPairs + pair) * 128 + thread;
}

__device__ __forceinline__ Place place_of(int consumer, int thread, int pair) {
  constexpr int kFull = kColumns / 4, kAllFull = kFullPhases * kFull, kLess = kShortColumns / 4;
  const int warp = thread / 32, lane = thread % 32;
  const bool full = pair < kAllFull;
  const int phase = full ? pair / kFull : kFullPhases + (pair - kAllFull) / kLess;
  const int at = full ? pair % kFull : (pair - kAllFull) % kLess;
  const int column = at / 2 * 8 + lane % 4 * 2, row = warp * 16 + at % 2 * 8 + lane / 4;
  const int k = consumer / kTapRows * kOutChannels + row, r = consumer % kTapRows;
  if constexpr (kTapColumns == 1) return {k, r, 0, column};
  return {k, r, phase + column / kChannels * kPhases, column % kChannels};
}
