// What few_channels.cu and those beside it for the gradients are specialised by, and what follows from it:
// how a patch of the input, the filter and the results, or the output's gradient, lie in shared memory. The
// host fills a Config in and writes it before the kernel's text; both sides compute the rest here.
#pragma once

// Of functions that the kernel computes, too: NVRTC takes no others.
#ifndef FALTUNG_BOTH
#ifdef __CUDACC__
#define FALTUNG_BOTH __device__
#else
#define FALTUNG_BOTH
#endif
#endif

namespace faltung::few_channels_sm90 {

enum class Element { f16, bf16 };

struct Config {
  Element element = Element::f16;
  bool nchw = false;
  int c = 3, r = 7, s = 7;  // the filter
  int stride_h = 2, stride_w = 2;
  int pad_left = 3;
  int channels = 64;            // output channels of a block, by eights
  int width = 16, height = 16;  // results of a tile, and pixels of the output's gradient: by 16 in a row
  int stages = 4;               // buffers of patches
  bool bias = false, f32_bias = false;
  bool slopes = false;  // prelu's, of each output channel
};

constexpr int kColumns = 16;  // of a step: a warp's results; pixels that are summed at a time

FALTUNG_BOTH constexpr int divided(int a, int b) { return (a + b - 1) / b; }
FALTUNG_BOTH constexpr int rounded(int a, int unit) { return divided(a, unit) * unit; }

// Forward: a warp has a row of results.
FALTUNG_BOTH constexpr int threads(const Config& c) { return c.height * 32; }

// ------------------------------------------------------------------------------------------- the sum's terms
// A run of the filter lies side by side in memory, and so does what it meets of the input: of NHWC a row's
// taps and channels, of NCHW a row's taps of a channel. It is taken by octets, with zeros for the weights of
// what is beside it; two octets are an instruction's depth.

// The copy engine begins at a multiple of 16 bytes, so many elements left of what a tile's first run meets.
// The first octet begins at a word: an element before the run where that is none.
FALTUNG_BOTH constexpr int lead(const Config& c) {
  const int before = c.pad_left * (c.nchw ? 1 : c.c) % 8;
  return before > 0 ? 8 - before : 0;
}
FALTUNG_BOTH constexpr int before_run(const Config& c) { return lead(c) % 2; }
FALTUNG_BOTH constexpr int runs(const Config& c) { return c.nchw ? c.c * c.r : c.r; }
FALTUNG_BOTH constexpr int run_elements(const Config& c) { return c.nchw ? c.s : c.s * c.c; }
FALTUNG_BOTH constexpr int octets_of_run(const Config& c) {
  return divided(before_run(c) + run_elements(c), 8);
}
FALTUNG_BOTH constexpr int octets(const Config& c) { return runs(c) * octets_of_run(c); }
FALTUNG_BOTH constexpr int steps(const Config& c) { return divided(octets(c), 2); }
FALTUNG_BOTH constexpr int filter_elements(const Config& c) { return c.r * c.s * c.c; }
// Where in an output channel's filter an octet's element is; negative where there is none.
FALTUNG_BOTH constexpr int weight_of(const Config& c, int octet, int element) {
  const int run = octet / octets_of_run(c), within = octet % octets_of_run(c) * 8 + element - before_run(c);
  return run < runs(c) && within >= 0 && within < run_elements(c) ? run * run_elements(c) + within : -1;
}

// ------------------------------------------------------------------------------------------------- the input
// Elements from a result's column to the next one's: even, so that a pair of elements is a word.
FALTUNG_BOTH constexpr int pixel_pitch(const Config& c) { return c.stride_w * (c.nchw ? 1 : c.c); }
FALTUNG_BOTH constexpr int patch_rows(const Config& c) { return (c.height - 1) * c.stride_h + c.r; }
FALTUNG_BOTH constexpr int patch_planes(const Config& c) { return c.nchw ? c.c : 1; }
// In backward_weights a warp reads two of a plane's rows at once: they begin in different banks.
FALTUNG_BOTH constexpr int row_elements(const Config& c) {
  int elements = rounded(lead(c) + (c.width - 1) * pixel_pitch(c) + octets_of_run(c) * 8, 8);
  while (c.nchw && c.width > kColumns && (elements / 2 % 32 < 12 || elements / 2 % 32 > 20)) elements += 8;
  return elements;
}
FALTUNG_BOTH constexpr int row_bytes(const Config& c) { return row_elements(c) * 2; }
FALTUNG_BOTH constexpr int patch_bytes(const Config& c) {
  return patch_planes(c) * patch_rows(c) * row_bytes(c);
}
// Bytes in a patch to what an octet of the first result meets.
FALTUNG_BOTH constexpr int octet_place(const Config& c, int octet) {
  const int run = octet / octets_of_run(c), row = run % c.r, plane = run / c.r;
  return (plane * patch_rows(c) + row) * row_bytes(c) + (lead(c) - before_run(c)) * 2 +
         octet % octets_of_run(c) * 16;
}

FALTUNG_BOTH constexpr int patch_stride(const Config& c) { return rounded(patch_bytes(c), 128); }

// -------------------------------------------------------------------------------------------------- forward
// The filter as the matrix units' second operand: rows of 64 terms of an output channel, swizzled by 128
// bytes.
FALTUNG_BOTH constexpr int weights_bytes(const Config& c) { return divided(steps(c), 4) * c.channels * 128; }
FALTUNG_BOTH constexpr int weights_place(const Config& c, int channel, int octet) {
  return octet / 8 * c.channels * 128 + channel * 128 + (octet % 8 ^ channel % 8) * 16;
}
// A warp's results on their way out, NHWC: pixels of all channels; NCHW: channels of its pixels. For the copy
// engine rows are swizzled by as many bytes as they have.
FALTUNG_BOTH constexpr int result_rows(const Config& c) { return c.nchw ? c.channels : kColumns; }
FALTUNG_BOTH constexpr int result_chunks(const Config& c) { return (c.nchw ? kColumns : c.channels) / 8; }
FALTUNG_BOTH constexpr int result_pitch(const Config& c) { return result_chunks(c) * 16; }
FALTUNG_BOTH constexpr int result_place(const Config& c, int row, int chunk) {
  const int at = row * result_pitch(c) + chunk * 16;
  return at ^ (at >> 7 & (result_chunks(c) - 1)) << 4;
}
FALTUNG_BOTH constexpr int result_bytes(const Config& c) { return result_rows(c) * result_pitch(c); }

FALTUNG_BOTH constexpr int patches_at(const Config& c) { return rounded(weights_bytes(c), 1024); }
FALTUNG_BOTH constexpr int results_at(const Config& c) {
  return rounded(patches_at(c) + c.stages * patch_stride(c), 1024);
}
FALTUNG_BOTH constexpr int bias_at(const Config& c) { return results_at(c) + c.height * result_bytes(c); }
FALTUNG_BOTH constexpr int slopes_at(const Config& c) { return bias_at(c) + c.channels * 4; }
FALTUNG_BOTH constexpr int barriers_at(const Config& c) {
  return slopes_at(c) + (c.slopes ? c.channels * 4 : 0);
}
FALTUNG_BOTH constexpr int shared_bytes(const Config& c) { return barriers_at(c) + c.stages * 16 + 1024; }

// ----------------------------------------------------------------------------------------- backward_weights
// Terms are the first operand's rows, 64 a consumer: a warp has 8 pairs of them, the first ones in its upper
// eight rows, the second ones below. The second operand is the output's gradient, as pixels of 64 channels or
// as channels of 64 pixels.
constexpr int kGradientChannels = 64;
FALTUNG_BOTH constexpr int consumers(const Config& c) { return divided(octets(c) * 8, 64); }
FALTUNG_BOTH constexpr int weights_threads(const Config& c) { return consumers(c) * 128 + 32; }
FALTUNG_BOTH constexpr int gradient_bytes(const Config& c) {
  return c.height * c.width * kGradientChannels * 2;
}
FALTUNG_BOTH constexpr int weights_stage(const Config& c) {
  return gradient_bytes(c) + rounded(patch_bytes(c), 1024);
}
// The sums on their way out, in the place of all that: of each channel the filter.
FALTUNG_BOTH constexpr int sums_bytes(const Config& c) { return kGradientChannels * filter_elements(c) * 4; }
FALTUNG_BOTH constexpr int weights_barriers_at(const Config& c) {
  const int stages = c.stages * weights_stage(c);
  return rounded(stages > sums_bytes(c) ? stages : sums_bytes(c), 8);
}
FALTUNG_BOTH constexpr int weights_shared_bytes(const Config& c) {
  return weights_barriers_at(c) + c.stages * 16 + 1024;
}

// -------------------------------------------------------------------------------------------- backward_data
// A block of x's gradient as large as the stride is a row of the product, pixels of the output's gradient
// times a filter of ceil(r / stride) by so many taps; its elements, by lines that lie side by side in memory,
// are 16 columns. A row of the output's gradient meets `reach_h` such blocks below each other: 16 columns
// each, sums that move on by 16 with the next row. Lines begin where x's rows do: the taps across are counted
// from there, `turn_w` of them from the first one's.
constexpr int kBlockColumns = 16;
constexpr int kDataWidth = 128;  // blocks of a tile beside each other, 64 a consumer
FALTUNG_BOTH constexpr int floored(int a, int b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
FALTUNG_BOTH constexpr int reach_h(const Config& c) { return divided(c.r, c.stride_h); }
FALTUNG_BOTH constexpr int turn_w(const Config& c) { return c.pad_left % c.stride_w; }
FALTUNG_BOTH constexpr int first_w(const Config& c) { return -((c.stride_w - 1 + turn_w(c)) / c.stride_w); }
FALTUNG_BOTH constexpr int last_w(const Config& c) { return floored(c.s - 1 - turn_w(c), c.stride_w); }
FALTUNG_BOTH constexpr int reach_w(const Config& c) { return last_w(c) - first_w(c) + 1; }
FALTUNG_BOTH constexpr int data_columns(const Config& c) { return reach_h(c) * kBlockColumns; }
// Of x's gradient: a line of a block, of NHWC its pixels in a row, of NCHW those of a channel.
FALTUNG_BOTH constexpr int line_elements(const Config& c) { return pixel_pitch(c); }
FALTUNG_BOTH constexpr int lines(const Config& c) { return c.stride_h * patch_planes(c); }
FALTUNG_BOTH constexpr int block_elements(const Config& c) { return lines(c) * line_elements(c); }
// Of tap `across` (0 to reach_w - 1) and a column: where in an output channel's filter the weight is;
// negative where none.
FALTUNG_BOTH constexpr int data_weight_of(const Config& c, int across, int column) {
  const int element = column % kBlockColumns, line = element / line_elements(c),
            within = element % line_elements(c);
  const int channel = c.nchw ? line % c.c : within % c.c, b = c.nchw ? within : within / c.c;
  const int r = column / kBlockColumns * c.stride_h + (c.nchw ? line / c.c : line);
  const int s = (first_w(c) + across) * c.stride_w + b + turn_w(c);
  if (element >= block_elements(c) || r >= c.r || s < 0 || s >= c.s) return -1;
  return c.nchw ? (channel * c.r + r) * c.s + s : (r * c.s + s) * c.c + channel;
}
// A row of the output's gradient, pixels of 64 channels swizzled by 128 bytes; of NCHW it comes as channels
// of so many pixels, and warps turn it.
constexpr int kTurnWarps = 2;
// From a tile's first block to the first pixel that it reads, and to where the copy engine begins.
FALTUNG_BOTH constexpr int left_pixel(const Config& c) { return c.pad_left / c.stride_w - last_w(c); }
FALTUNG_BOTH constexpr int row_begin(const Config& c) {
  return c.nchw ? floored(left_pixel(c), 8) * 8 : left_pixel(c);
}
FALTUNG_BOTH constexpr int row_pixels(const Config& c) {
  return rounded(left_pixel(c) - row_begin(c) + kDataWidth + reach_w(c) - 1, c.nchw ? 16 : 8) +
         (c.nchw ? 8 : 0);
}
FALTUNG_BOTH constexpr int row_stride(const Config& c) { return rounded(row_pixels(c) * 128, 1024); }
FALTUNG_BOTH constexpr int raw_rows(const Config& c) { return c.nchw ? 3 : 0; }
FALTUNG_BOTH constexpr int data_threads(const Config& c) { return 256 + 32 + (c.nchw ? kTurnWarps * 32 : 0); }
FALTUNG_BOTH constexpr int data_weights_bytes(const Config& c) { return reach_w(c) * data_columns(c) * 128; }
FALTUNG_BOTH constexpr int data_weights_place(const Config& c, int across, int column, int octet) {
  return (across * data_columns(c) + column) * 128 + (octet ^ column % 8) * 16;
}
// A warp's 16 blocks on their way out, by lines.
FALTUNG_BOTH constexpr int line_chunks(const Config& c) { return kColumns * line_elements(c) / 8; }
FALTUNG_BOTH constexpr int line_pitch(const Config& c) { return (line_chunks(c) | 1) * 16; }
FALTUNG_BOTH constexpr int rows_at(const Config& c) { return rounded(data_weights_bytes(c), 1024); }
FALTUNG_BOTH constexpr int raws_at(const Config& c) { return rows_at(c) + c.stages * row_stride(c); }
FALTUNG_BOTH constexpr int lines_at(const Config& c) { return raws_at(c) + raw_rows(c) * row_stride(c); }
FALTUNG_BOTH constexpr int data_barriers_at(const Config& c) {
  return lines_at(c) + 8 * rounded(lines(c) * line_pitch(c), 16);
}
FALTUNG_BOTH constexpr int data_shared_bytes(const Config& c) {
  return data_barriers_at(c) + (c.stages + raw_rows(c)) * 16 + 1024;
}

// The kernels' arguments beside the maps.
struct Params {
  const void *w, *bias;
  const float* slopes;  // prelu's
  void* y;
  float* parts;                          // backward_weights: of each block its channels' filters
  int k, p, q;                           // output channels, height, width
  int k_tiles, tiles, tiles_w, tiles_h;  // of channels; of pixels, all of them and an image's
  int pad_top, pad_left;
  float slope;
  int weights_rest;  // no kernel that may still run writes them
  int h, row;        // backward_data: x's rows, and elements of one
  int first, end;    //   rows of blocks
};

}  // namespace faltung::few_channels_sm90
