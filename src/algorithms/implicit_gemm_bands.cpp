#include "src/algorithms/implicit_gemm_bands.hpp"

#include <algorithm>

#include "kernels/cpu/pool.hpp"
#include "src/algorithms/implicit_gemm_tiling.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr i64 kBandBytes = 512 << 10;   // of a band, beside its input and weights in L2
constexpr i64 kMostBytes = 1536 << 10;  // of a band of one row of windows; more is left to memory
constexpr double kMostRepeated = 1.25;

}  // namespace

PoolBands::PoolBands(const Problem& p, i64 y_rows) : p_(p), y_rows_(y_rows) {
  const Pool& pool = p.epilogue.pool;
  conv_rows_ = std::min(p.p(), (y_rows - 1) * pool.stride_h + pool.size_h);
  row_bytes_ = p.q() * p.k * size_of(p.dtype);
}

i64 PoolBands::bands_per_image() const { return ceil_div(p_.y_h(), y_rows_); }

i64 PoolBands::count() const { return p_.n * bands_per_image(); }

double PoolBands::repeated() const {
  return static_cast<double>(bands_per_image() * conv_rows_) / static_cast<double>(p_.p());
}

std::optional<PoolBands> PoolBands::make(const Problem& p, int threads) {
  // A residual is read where the convolution's output would lie: in nchw a band's planes lie elsewhere.
  if (p.epilogue.residual && p.layout == Layout::nchw) return std::nullopt;
  PoolBands bands(p, 1);
  if (static_cast<i64>(bands.bytes()) > kMostBytes) return std::nullopt;
  for (i64 y_rows = 2; y_rows <= p.y_h(); ++y_rows) {
    const PoolBands larger(p, y_rows);
    if (static_cast<i64>(larger.bytes()) > kBandBytes) break;
    // Enough for all threads, unless smaller ones would repeat too much.
    if (larger.count() < 4 * threads && bands.repeated() <= kMostRepeated) break;
    bands = larger;
  }
  if (bands.repeated() > kMostRepeated) return std::nullopt;
  // A band is one thread's: where some would have none, the pool is a step of its own.
  if (bands.count() < threads) return std::nullopt;
  return bands;
}

TapConvolution PoolBands::convolution() const {
  TapConvolution t = tap_convolutions(p_).front();
  t.rows = conv_rows_;
  t.in.n = 1;
  t.out = make_shape(p_.layout, 1, p_.k, conv_rows_, p_.q());
  return t;
}

Band PoolBands::band(i64 index) const {
  const Pool& pool = p_.epilogue.pool;
  Band band;
  band.image = index / bands_per_image();
  band.y_row = index % bands_per_image() * y_rows_;
  band.y_rows = std::min(y_rows_, p_.y_h() - band.y_row);
  // The first windows may begin in the padding; the last band computes as many rows as the others, and so
  // begins earlier.
  band.conv_row = std::min(std::max<i64>(band.y_row * pool.stride_h - pool.pad_top, 0), p_.p() - conv_rows_);
  return band;
}

void PoolBands::pool(const Band& band, const void* conv, void* y) const {
  const ConvRows rows{conv, band.image, band.conv_row, conv_rows_};
  const i64 planes = p_.layout == Layout::nchw ? p_.k : 1;
  for (i64 plane = 0; plane < planes; ++plane) {
    for (i64 row = 0; row < band.y_rows; ++row) {
      pool_row(p_, rows, y, (band.image * planes + plane) * p_.y_h() + band.y_row + row, pool_pitches(p_));
    }
  }
}

}  // namespace faltung
