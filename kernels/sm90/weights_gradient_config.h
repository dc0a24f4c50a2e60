// What the kernels of the weights' gradient on Hopper are specialised by, and what follows from it: how a
// block's operands lie in shared memory. The host fills a Config in and writes it before the kernel's text;
// both sides compute the rest here.
#pragma once

// Of functions that the kernel computes, too: NVRTC takes no others.
#ifndef FALTUNG_BOTH
#ifdef __CUDACC__
#define FALTUNG_BOTH __device__
#else
#define FALTUNG_BOTH
#endif
#endif

namespace faltung::weights_gradient_sm90 {

// patch: NHWC in 16 bits, both operands from shared memory (weights_gradient.cu).
// planes: the same of NCHW as it is, 1x1 filters: a product of planes, by 64 pixels.
// fetch: the same of planes that the copy engine does not take, brought by warps (weights_gradient_fetch.cu).
// lines: NCHW as it is, or 32 bits in either layout, the output's gradient through registers
// (weights_gradient_lines.cu).
enum class Kind { patch, planes, fetch, lines };
enum class Element { f16, bf16, f32 };
// lines, 32 bits: rounded to tf32 as they are loaded, or multiplied as a high and a low part, for nearly
// fp32.
enum class Parts { one, two };
// As the kernel reads it.
enum class Order { nchw, nhwc };
// Whether a block's sums are the gradient, or parts of it for weights_gradient_sum.cu to add up.
enum class Result { whole, parts };
// What two blocks bring for each other (multicast), each a half: neither; x, of neighbouring output channels;
// dy, of neighbouring input channels. Pixels in one row, or planes.
enum class Pair { neither, x, dy };

struct Config {
  Kind kind = Kind::patch;
  Element element = Element::f16;
  Parts parts = Parts::one;
  Order order = Order::nhwc;
  Order filter = Order::nhwc;  // k, r, s, c; nchw: k, c, r, s
  int r = 1, s = 1;            // the filter
  // Of strides as channels (space to depth): those blocks of pixels, and the filter that the gradient is of.
  int depth_h = 1, depth_w = 1, depth_c = 0, depth_r = 0, depth_s = 0;
  int stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int pad_left = 0;                   // lines
  int group_k = 0, group_c = 0;       // channels of a group; 0: there are no groups
  int merged = 1;                     // groups whose products a block makes together, for those within each
  int tap_rows = 1, tap_columns = 1;  // of the filter, those that a block computes
  int k_blocks = 1, c_blocks = 1;     // of its results: of 64 output, of `channels` input channels
  int channels = 64;                  // of an operand row: 16, 32 or 64
  int width = 32, height = 8, images = 1;  // output pixels that are summed at a time
  int stages = 2;                          // buffers of such tiles; lines: of x alone
  int rows = 0;                            // lines: buffers of rows of the output's gradient
  int cluster = 1;                         // blocks that add up their sums before they store them
  Pair pair = Pair::neither;
  bool boxes_of_blocks = false;  // patch: one box brings a block's blocks of 64 channels: there are no others
  Result result = Result::whole;

  FALTUNG_BOTH constexpr int element_bytes() const { return element == Element::f32 ? 4 : 2; }
  FALTUNG_BOTH constexpr int part_count() const { return parts == Parts::two ? 2 : 1; }
  FALTUNG_BOTH constexpr bool grouped() const { return group_k > 0; }
  FALTUNG_BOTH constexpr bool deepened() const { return depth_c > 0; }
  // lines: x is turned; warps of their own make it ready.
  FALTUNG_BOTH constexpr bool turns() const { return kind == Kind::lines && order == Order::nhwc; }
  FALTUNG_BOTH constexpr bool prepares() const { return turns() || parts == Parts::two; }
};

constexpr int kOutChannels = 64;  // of an operand: an instruction's rows
constexpr int kPrepareWarps = 2;
constexpr int kFetchWarps = 8;

FALTUNG_BOTH constexpr int divided(int a, int b) { return (a + b - 1) / b; }
FALTUNG_BOTH constexpr int aligned(int bytes) {
  return (bytes + 1023) / 1024 * 1024;
}  // where swizzles begin
FALTUNG_BOTH constexpr int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }
FALTUNG_BOTH constexpr int larger(int a, int b) { return a > b ? a : b; }

FALTUNG_BOTH constexpr int consumers(const Config& c) {
  return c.kind == Kind::lines ? c.tap_columns : c.k_blocks * c.tap_rows;
}
FALTUNG_BOTH constexpr int threads(const Config& c) {
  const int warps = c.kind == Kind::fetch ? kFetchWarps : c.kind == Kind::lines ? 2 + kPrepareWarps : 1;
  return consumers(c) * 128 + warps * 32;
}

// ---------------------------------------------------------------------------------------- patch: phases
// With a horizontal stride the columns of x that a column of taps reads lie together, in one of as many
// phases. Tap columns s, s + phases, ... read the same phase, tap_pitch of its pixels apart.

FALTUNG_BOTH constexpr int phases(const Config& c) {
  const int period = c.stride_w / common_divisor(c.stride_w, c.dilation_w);
  return period < c.tap_columns ? period : c.tap_columns;
}
FALTUNG_BOTH constexpr int tap_pitch(const Config& c) {
  return c.dilation_w / common_divisor(c.stride_w, c.dilation_w);
}
// Of a phase, at most; the last few (short) phases have one fewer.
FALTUNG_BOTH constexpr int most_taps(const Config& c) { return divided(c.tap_columns, phases(c)); }
FALTUNG_BOTH constexpr int short_phases(const Config& c) { return most_taps(c) * phases(c) - c.tap_columns; }

// The columns of an instruction: of taps, or of blocks of channels; lines: of rows of taps.
FALTUNG_BOTH constexpr int columns(const Config& c) {
  if (c.kind == Kind::lines) return c.tap_rows * c.channels;
  return c.channels * (c.tap_columns > 1 ? most_taps(c) : c.c_blocks);
}
FALTUNG_BOTH constexpr int short_columns(const Config& c) {
  return short_phases(c) > 0 ? c.channels * (most_taps(c) - 1) : columns(c);
}
// Of a thread.
FALTUNG_BOTH constexpr int sums(const Config& c) {
  if (c.kind == Kind::lines) return columns(c) / 2;
  return ((phases(c) - short_phases(c)) * columns(c) + short_phases(c) * short_columns(c)) / 2;
}

// ------------------------------------------------------------------------------------------- operands
// patch: the output's gradient as boxes of 64 channels, then x as halo patches. With one row of taps the copy
// engine skips what a vertical stride does.

FALTUNG_BOTH constexpr int pixels(const Config& c) { return c.images * c.height * c.width; }
// Operands take pixels by eights. Where columns do not come so, a tile's images lie together in each pixel's
// place.
FALTUNG_BOTH constexpr int together(const Config& c) {
  return c.kind == Kind::patch && c.width % 8 != 0 ? c.images : 1;
}
FALTUNG_BOTH constexpr int row_step(const Config& c) {
  return c.kind != Kind::lines && c.tap_rows == 1 ? 1 : c.stride_h;
}
FALTUNG_BOTH constexpr int patch_width(const Config& c) {
  return c.kind == Kind::lines ? c.width : c.width + (most_taps(c) - 1) * tap_pitch(c);
}
FALTUNG_BOTH constexpr int patch_height(const Config& c) {
  return (c.height - 1) * row_step(c) + (c.tap_rows - 1) * c.dilation_h + 1;
}
FALTUNG_BOTH constexpr int row_bytes(const Config& c) {
  return (c.kind == Kind::lines ? c.width : c.channels) * c.element_bytes();
}
// lines: a row of x, of every channel.
FALTUNG_BOTH constexpr int planes_bytes(const Config& c) { return c.channels * row_bytes(c); }
FALTUNG_BOTH constexpr int patch_bytes(const Config& c) {
  if (c.kind == Kind::lines) return patch_height(c) * planes_bytes(c);
  return c.images * patch_height(c) * patch_width(c) * row_bytes(c);
}
FALTUNG_BOTH constexpr int patch_stride(const Config& c) { return aligned(patch_bytes(c)); }
FALTUNG_BOTH constexpr int patches(const Config& c) {
  return c.kind == Kind::lines ? 1 : c.c_blocks * phases(c);
}
// Of what a pair shares each brings half of the blocks of channels, or of the pixels of one block.
FALTUNG_BOTH constexpr int halved_blocks(int blocks, bool shared) {
  return shared && blocks > 1 ? blocks / 2 : blocks;
}
FALTUNG_BOTH constexpr int halved_pixels(int pixels, int blocks, bool shared) {
  return shared && blocks == 1 ? pixels / 2 : pixels;
}
FALTUNG_BOTH constexpr int gradient_bytes(const Config& c) {
  return pixels(c) * kOutChannels * 2;
}  // patch: a box
FALTUNG_BOTH constexpr int stage_stride(const Config& c) {
  if (c.kind == Kind::lines) return patch_stride(c) * c.part_count();
  return c.k_blocks * gradient_bytes(c) + patches(c) * patch_stride(c);
}

// lines: a row of the output's gradient begins `lead` pixels before x. NCHW: a multiple of 16 bytes; its
// channels lie so many bytes apart that the eight that a warp reads at once lie in different banks. NHWC: two
// halves of pixels of 32 channels.
FALTUNG_BOTH constexpr int lead(const Config& c) {
  const int reach = (c.s - 1) * c.dilation_w - c.pad_left, unit = c.turns() ? 1 : 16 / c.element_bytes();
  return reach > 0 ? divided(reach, unit) * unit : 0;
}
FALTUNG_BOTH constexpr int line_pitch(const Config& c) {  // from a channel to the next
  return (divided((lead(c) + c.width + c.pad_left + 1) * c.element_bytes(), 16) | 1) * 16;
}
FALTUNG_BOTH constexpr int line_pixels(const Config& c) {
  return c.turns() ? lead(c) + c.width + c.pad_left : line_pitch(c) / c.element_bytes();
}
FALTUNG_BOTH constexpr int half_line(const Config& c) { return aligned(line_pixels(c) * 128); }
FALTUNG_BOTH constexpr int line_bytes(const Config& c) {
  return c.turns() ? 2 * half_line(c) : kOutChannels * line_pitch(c);
}
// Where x is made ready: the parts of a patch that are so as soon as they have come. Those that are turned
// are rows.
FALTUNG_BOTH constexpr int landings(const Config& c) { return c.turns() ? patch_height(c) : 1; }

// ---------------------------------------------------------------------------------------- shared memory

FALTUNG_BOTH constexpr int barrier_bytes(const Config& c) {
  return (c.kind != Kind::lines ? c.stages * 2 : c.stages * (2 + landings(c)) + c.rows * 2) * 8;
}
FALTUNG_BOTH constexpr int operand_bytes(const Config& c) {
  if (c.kind != Kind::lines) return c.stages * stage_stride(c);
  return c.stages * stage_stride(c) + c.rows * line_bytes(c);
}
// Where a cluster's blocks put half of their sums for each other: in the place of the operands.
FALTUNG_BOTH constexpr int sum_bytes(const Config& c) {
  return c.cluster > 1 ? consumers(c) * sums(c) / 2 * 128 * 4 : 0;
}
// A block has whole filters of NCHW, a channel's taps side by side: they are put so in the place of the
// operands, and stored from there. Rows of output channels begin 16 bytes (odd) apart, so that threads write
// to different banks.
FALTUNG_BOTH constexpr bool has_filters(const Config& c) {
  return c.kind == Kind::patch && c.filter == Order::nchw && c.r * c.s > 1 && c.tap_rows == c.r &&
         c.tap_columns == c.s && c.result == Result::whole && c.cluster == 1 && !c.grouped() && !c.deepened();
}
FALTUNG_BOTH constexpr int filter_chunks(const Config& c) { return c.channels * c.c_blocks * c.r * c.s / 8; }
FALTUNG_BOTH constexpr int filter_pitch(const Config& c) { return (filter_chunks(c) | 1) * 16; }
FALTUNG_BOTH constexpr int filter_bytes(const Config& c) {
  return has_filters(c) ? c.k_blocks * kOutChannels * filter_pitch(c) : 0;
}
// Behind all of that a cluster's blocks have two barriers, for when the other one has read its operands, and
// for the sums that it puts here.
constexpr int kJoinBytes = 16;
FALTUNG_BOTH constexpr int join_at(const Config& c) {
  return larger(operand_bytes(c), larger(sum_bytes(c), filter_bytes(c))) + barrier_bytes(c);
}
FALTUNG_BOTH constexpr int shared_bytes(const Config& c) {
  return join_at(c) + (c.cluster > 1 ? kJoinBytes : 0) + 1024;
}

// Four pairs of sums are a run of eight channels, which is stored at once.
FALTUNG_BOTH constexpr bool stores_runs(const Config& c) {
  const bool along = c.filter == Order::nhwc || c.r * c.s == 1;
  return c.element != Element::f32 && along && !c.grouped() && !c.deepened() && c.kind != Kind::lines &&
         c.channels % 32 == 0 && columns(c) % 32 == 0 && short_columns(c) % 32 == 0;
}
// Of a block: its consumers' pairs of sums, 128 threads' side by side.
FALTUNG_BOTH constexpr int part_pairs(const Config& c) { return consumers(c) * (sums(c) / 2) * 128; }

// Where a weight of a tap and one of its channels, which is a pixel's of a block, lies in the filter that the
// gradient is of; negative beyond it.
FALTUNG_BOTH constexpr long long from_depth(const Config& c, int k, int tap_r, int tap_s, int channel) {
  const int pixel = channel / c.depth_c, of_pixel = channel % c.depth_c;
  const int r = tap_r * c.depth_h + pixel / c.depth_w, s = tap_s * c.depth_w + pixel % c.depth_w;
  if (r >= c.depth_r || s >= c.depth_s) return -1;
  if (c.filter == Order::nhwc) return ((1LL * k * c.depth_r + r) * c.depth_s + s) * c.depth_c + of_pixel;
  return ((1LL * k * c.depth_c + of_pixel) * c.depth_r + r) * c.depth_s + s;
}

// Filters of NCHW that are summed from parts: a block's output and input channels, by all taps, a thread a
// pair.
constexpr int kSumOutputs = 4, kSumInputs = 32;
FALTUNG_BOTH constexpr int sum_threads(long long taps) {
  return static_cast<int>(kSumOutputs * kSumInputs / 2 * taps);
}

// The arguments of the kernels beside the maps of x and dy.
struct Params {
  void* dw;
  void* parts;                        // Result::parts: [parts][part_pairs] pairs of sums
  long long part_pairs;               // of all results of blocks; of groups, k r s c_pitch / 2
  int results;                        // of blocks
  int k, c, c_pitch;                  // c: of a group
  int p;                              // rows of dy
  int k_tiles, c_tiles;               // of the merged groups' channels, and
  int group_tiles;                    // how often those are merged; without groups 1
  int pixel_tiles, tiles_w, tiles_h;  // all of them, and an image's
  int shares;                         // that the pixel tiles are divided into, for each result
  int pad_top, pad_left;
  const void *x, *dy;  // fetch
  int plane, images;   // a plane by 4 pixels
};

}  // namespace faltung::weights_gradient_sm90
