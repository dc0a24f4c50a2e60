// What a kernel for Hopper's matrix units is specialised by: a tiling's free choices, and what the problem
// fixes. The host fills a KernelConfig in and writes it before the kernel's text
// (src/algorithms/sm90/source.cpp); what follows from it stands in layout.h, and both sides compute it there.
#pragma once

// Of functions that the kernel computes, too: NVRTC takes no others.
#ifdef __CUDACC__
#define FALTUNG_BOTH __device__
#else
#define FALTUNG_BOTH
#endif

namespace faltung::sm90 {

// How the pixels of a tile come to shared memory; a file each in kernels/sm90/bring and, for the host,
// src/algorithms/sm90.
enum class Bring {
  patch,   // halo patches, which the copy engine loads: every tap is a view of one patch
  im2col,  // the copy engine gathers pixels, a tap at a time
  planes,  // NCHW as it is by the copy engine: 1x1 filters, stride 1
  fetch,   // NCHW as it is by warps: 1x1 filters, any plane, stride and number of images a tile
  turned,  // halo patches of NCHW as it is, turned on the way to shared memory
  lines,   // halo patches of 32-bit NCHW as it is, whose rows go through registers
  shift,   // NCHW as it is by windows: a set of sums for each horizontal tap, shifted when they are added
};
// Two consumers, each a warpgroup, take a tile each in turn (one's epilogue hides behind the other's
// products), or share every tile.
enum class Schedule { ping_pong, cooperative };
// What lies on the M side of the matrix units' products.
enum class MSide { channels, pixels };
// Weights come through a ring of buffers, or are loaded once and stay.
enum class WeightsIn { ring, resident };
// The filter as packed: a row of an operand is an output channel's block of input channels. Or that of a
// backward_data as it lies: a row is an input channel's 64 output channels, and wgmma takes it transposed.
enum class Filter { packed, as_it_is };
// Results go through shared memory to the copy engine or to rows, or from registers.
enum class Stores { staged, direct };
// The tiles of a strided backward_data: those of a phase after those of the one before, most taps first; or,
// where phases are alike, one of each in turn, so that what one has read the next finds in the cache.
enum class PhaseOrder { most_taps_first, in_turn };

constexpr int kConsumers = 2;

// A tile of the output: channels by pixels. What the host chooses freely.
struct Choices {
  Bring bring = Bring::patch;
  Schedule schedule = Schedule::ping_pong;
  MSide m_side = MSide::channels;
  WeightsIn weights_in = WeightsIn::ring;
  Filter filter = Filter::packed;
  Stores stores = Stores::staged;
  int channels = 64;           // output channels of a tile
  int width = 8, height = 32;  // output pixels of a tile; where it is flat width counts them all, height is 1
  int k_block = 64;            // input channels at a time
  int pixel_slots = 2;         // buffers of pixels
  int weight_slots = 8;        // buffers of weights; 0 where they are resident
  int row_slots = 0;           // turned: buffers of rows of NCHW; 0 they are read as they are turned
  int store_slots = 0;         // pixels on M: stores of a tile that have room at once; 0 all of them
  int result_areas = 1;        // of a consumer, for its part of a tile; with 2 a residual comes a tile ahead
  int split = 1;               // blocks that share the sum over the channels of a tile, a cluster
  int groups = 1;              // of a tile, whole ones, each with products of its own
  int phases = 1;  // a strided backward_data: positions within a stride, each with taps of its own

  // Tiles are of pixels one after the other over all images (or a plane), not of windows.
  FALTUNG_BOTH constexpr bool flat() const {
    return bring == Bring::im2col || bring == Bring::planes || bring == Bring::fetch;
  }
  FALTUNG_BOTH constexpr bool cooperative() const { return schedule == Schedule::cooperative; }
  FALTUNG_BOTH constexpr bool pixels_on_m() const { return m_side == MSide::pixels; }
  FALTUNG_BOTH constexpr bool filter_as_it_is() const { return filter == Filter::as_it_is; }
  FALTUNG_BOTH constexpr bool phased() const { return phases > 1; }
  FALTUNG_BOTH constexpr bool resident() const { return weights_in == WeightsIn::resident; }
  // Consumers that work on one tile.
  FALTUNG_BOTH constexpr int sharers() const { return cooperative() ? kConsumers : 1; }
  FALTUNG_BOTH constexpr int pixels() const { return width * height; }
  FALTUNG_BOTH constexpr int m() const { return pixels_on_m() ? pixels() : channels; }
  // Of a consumer: blocks of 64 rows, and of n() columns.
  FALTUNG_BOTH constexpr int m_blocks() const { return bring == Bring::shift ? 1 : m() / 64 / sharers(); }
  FALTUNG_BOTH constexpr int n_blocks() const {
    return pixels_on_m() ? groups : bring == Bring::shift || flat() ? 1 : width / 8;
  }
  FALTUNG_BOTH constexpr int n() const {
    return bring == Bring::shift ? pixels() / kConsumers : (pixels_on_m() ? channels : pixels()) / n_blocks();
  }
  // Sums of a thread.
  FALTUNG_BOTH constexpr int sums() const { return m_blocks() * n_blocks() * n() / 2; }
};

enum class Element { f16, bf16, f32 };
enum class Pooling { none, max, average };

// How results go to the output; a file each in kernels/sm90/store.
enum class Way {
  bulk,    // NHWC, 16 bits: through shared memory, by the copy engine
  rows,    // NCHW, 16 bits: through shared memory, a row a channel
  planes,  // NCHW, 16 bits: through shared memory, planes by the copy engine
  images,  // NCHW, 16 bits: whole images as the contiguous bytes that they are
  values,  // 32 bits: through shared memory, a value at a time
  pairs,   // NCHW, 32 bits: from registers, two pixels at a time
  direct,  // NHWC, 32 bits: from registers, whole sectors
  plain,   // NHWC of any K: from registers, an element at a time
  split,   // the blocks of a cluster add up each other's sums
  shift,   // NCHW, 16 bits: the sums of horizontal taps, shifted
};

struct KernelConfig {
  Choices tile;

  Element element = Element::f16;
  bool grouped = false;  // a tile's input channels are those of its groups alone
  int parts = 1;  // 32 bits: 2 are multiplied as high and low parts, for nearly fp32; else rounded to tf32
  bool nchw = false;  // the output; the input too where `bring` takes NCHW as it is
  PhaseOrder phase_order = PhaseOrder::most_taps_first;
  // With phases r and s are those of the largest.
  int r = 1, s = 1, dilation_h = 1, dilation_w = 1;
  int stride_h = 1, stride_w = 1;  // 1 where tiles are flat: strides are arguments there
  int pad_left = 0;                // turned, shift
  int kept_weights = 0;            // resident: blocks of weights, taps by blocks of channels
  bool bias = false, f32_bias = false, residual = false;
  bool residual_after = false;  // the activation
  bool gates = false;           // the residual is what a ReLU gave: results pass where it is above zero
  bool slopes = false;          // prelu's, of each output channel
  bool relu = false;            // the activation

  // Three dimensions, whose input and output are planes of a volume, and taps in depth: each plane of the
  // output is the sum over these of convolutions of planes of the input.
  bool volume = false;
  int t = 1, dilation_d = 1;

  // x is read through a scale and a shift of its channels, and a ReLU; some taps reach beyond the image.
  bool affine = false, affine_relu = false, affine_pads = false;

  bool stats = false;  // each channel's results are added up, and their squares, as they are stored

  Pooling pooling = Pooling::none;                   // stride 2
  int pool_window = 0;                               // 2 or 3; 0 there is none
  int pool_pad = 0, pool_end_h = 0, pool_end_w = 0;  // its padding: before, below, to the right

  Way way = Way::bulk;
  bool mapped = false;        // the copy engine stores tensors' boxes
  bool whole_sectors = true;  // NHWC: K is a multiple of 16 bytes
  int pixels_a_store = 1;     // NCHW: that lie together and aligned
  bool even_images = false;   // images: their pairs of pixels are aligned

  int pixels_a_load = 1;    // fetch: pixels that a thread loads at once,
  int load_step = 1;        //   and how far they lie apart in a row
  bool odd_images = false;  //   by pairs of which every other channel's begin a pixel early

  int pixels_a_turn = 1;          // turned, 16 bits: pixels that a thread turns at once
  int row_pitch = 0;              //   with row buffers: bytes from a channel's rows to the next one's,
  bool rows_whole = false;        //   whole images,
  bool rows_begin_alike = false;  //   all channels' rows begin alike beside a multiple of 16 bytes

  bool walks = false;  // shift: a strip has several windows

  FALTUNG_BOTH constexpr int element_bytes() const { return element == Element::f32 ? 4 : 2; }
  FALTUNG_BOTH constexpr int taps() const { return r * s; }  // of a plane
  FALTUNG_BOTH constexpr bool turns_16_bits() const {
    return tile.bring == Bring::turned && element != Element::f32;
  }
  FALTUNG_BOTH constexpr bool turns_32_bits() const {
    return tile.bring == Bring::turned && element == Element::f32;
  }
  // Pixels are wgmma's first operand from registers, where their parts are made, too.
  FALTUNG_BOTH constexpr bool through_registers() const {
    return element == Element::f32 && (tile.bring == Bring::planes || tile.bring == Bring::lines);
  }
  // Warps of their own make pixels ready for the matrix units.
  FALTUNG_BOTH constexpr bool prepares() const {
    if (through_registers()) return false;
    return parts == 2 || affine || tile.bring == Bring::turned || tile.bring == Bring::fetch;
  }
  // Each of a tap, of a block of channels.
  FALTUNG_BOTH constexpr int weight_buffers() const {
    return tile.resident() ? kept_weights : tile.weight_slots * (tile.bring == Bring::lines ? taps() : 1);
  }
};

}  // namespace faltung::sm90
