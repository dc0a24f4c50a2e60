// The transforms of FFT convolution: tiles of T x T pixels to and from their frequencies, T a power of two.
//
// A tile has T rows of T / 2 + 1 frequencies, the rest follows by symmetry. Frequency f of a tile is a row of
// channels, so that the sum over input channels is a matrix product for each frequency.
#ifndef FALTUNG_KERNELS_CPU_FFT_HPP_
#define FALTUNG_KERNELS_CPU_FFT_HPP_

#include <cstddef>
#include <cstdint>

#include "faltung/faltung.hpp"

namespace faltung {

inline constexpr std::int64_t fft_frequencies(std::int64_t tile) { return tile * (tile / 2 + 1); }
// Floats that a worker needs to transform a tile.
std::size_t fft_scratch_floats(std::int64_t tile);

// An image, of which a tile is read or written; pixels outside of it are zero or dropped.
struct FftImage {
  DType dtype;
  Layout layout;
  void* data;  // the image's first element
  std::int64_t channels, height, width;
};

// Channels [channel, channel + count) of the tile at (row, column): of frequency f, the real parts go to
// to[f · f_stride + i], the imaginary parts `channels` floats further, and their negatives twice as far.
// count is at most fft_channels().
void fft_forward(std::int64_t tile, const FftImage& from, std::int64_t channel, std::int64_t count,
                 std::int64_t row, std::int64_t column, float* to, std::int64_t f_stride, float* scratch);

// What is done to a tile's pixels before they are stored.
struct FftEpilogue {
  const void* bias = nullptr;      // of dtype, of channel 0
  const void* residual = nullptr;  // of dtype, an image like the result
  const float* slopes = nullptr;   // prelu's, of channel 0
  Epilogue of;                     // what is applied
};

// The reverse: the first rows x columns pixels of a tile, whose frequencies have real parts at
// from[f · f_stride + i] and imaginary parts `channels` floats further.
void fft_inverse(std::int64_t tile, const float* from, std::int64_t f_stride, const FftImage& to,
                 std::int64_t channel, std::int64_t count, std::int64_t row, std::int64_t column,
                 std::int64_t rows, std::int64_t columns, const FftEpilogue& epilogue, float* scratch);

// Channels that are transformed at a time.
std::int64_t fft_channels();

// The frequencies of a real r x s filter in the corner of a tile, conjugated and divided by the tile's
// pixels, in double: for filters are transformed once. taps: [r][s]; real and imaginary: [f].
void fft_filter(std::int64_t tile, std::int64_t r, std::int64_t s, const double* taps, double* real,
                double* imaginary);

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_FFT_HPP_
