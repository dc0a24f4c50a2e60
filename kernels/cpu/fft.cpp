#include "kernels/cpu/fft.hpp"

#include <algorithm>
#include <array>

#include "kernels/cpu/fft_twiddles.hpp"

#include "kernels/cpu/each_target.hpp"

#include "kernels/cpu/direct-inl.hpp"
#include "kernels/cpu/with_dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace {

using V = FloatVec;

struct Complex {
  V r, i;
};
HWY_INLINE Complex operator+(Complex a, Complex b) { return {hn::Add(a.r, b.r), hn::Add(a.i, b.i)}; }
HWY_INLINE Complex operator-(Complex a, Complex b) { return {hn::Sub(a.r, b.r), hn::Sub(a.i, b.i)}; }
// a · w
HWY_INLINE Complex times(Complex a, float real, float imaginary) {
  const FloatTag d;
  const V wr = hn::Set(d, real), wi = hn::Set(d, imaginary);
  return {hn::NegMulAdd(a.i, wi, hn::Mul(a.r, wr)), hn::MulAdd(a.i, wr, hn::Mul(a.r, wi))};
}

// n complex vectors: real parts, then imaginary parts.
struct Line {
  float* real;
  float* imaginary;
  HWY_INLINE Complex get(int k) const {
    const FloatTag d;
    return {hn::LoadU(d, real + k * kFloatLanes), hn::LoadU(d, imaginary + k * kFloatLanes)};
  }
  HWY_INLINE void set(int k, Complex v) const {
    const FloatTag d;
    hn::StoreU(v.r, d, real + k * kFloatLanes);
    hn::StoreU(v.i, d, imaginary + k * kFloatLanes);
  }
};

// Stockham's FFT in radix 4, with a pass of radix 2 at the end where it must: in order, between two lines.
// The result is in whichever is returned. Exchanging real and imaginary parts makes it the inverse, times kN.
// Out of line, once for all that use it: a call is little beside it.
template <int kN>
HWY_NOINLINE Line transform(Line x, Line y, const FftTwiddles& twiddles) {
  int n = kN, s = 1;
  for (; n >= 4; n /= 4, s *= 4) {
    for (int p = 0; p < n / 4; ++p) {
      const auto w = [&](Complex v, int power) {
        const std::size_t k = static_cast<std::size_t>(power * p * s % kN);
        return times(v, static_cast<float>(twiddles.real[k]), static_cast<float>(twiddles.imaginary[k]));
      };
      for (int q = 0; q < s; ++q) {
        const Complex a = x.get(q + s * p), b = x.get(q + s * (p + n / 4));
        const Complex c = x.get(q + s * (p + n / 2)), e = x.get(q + s * (p + 3 * n / 4));
        const Complex sum = a + c, difference = a - c, others = b + e, turn = b - e;
        const Complex turned{hn::Neg(turn.i), turn.r};  // i · turn
        const int to = q + s * 4 * p;
        y.set(to, sum + others);
        if (p == 0) {
          y.set(to + s, difference - turned);
          y.set(to + 2 * s, sum - others);
          y.set(to + 3 * s, difference + turned);
        } else {
          y.set(to + s, w(difference - turned, 1));
          y.set(to + 2 * s, w(sum - others, 2));
          y.set(to + 3 * s, w(difference + turned, 3));
        }
      }
    }
    std::swap(x, y);
  }
  if (n == 2) {
    for (int q = 0; q < s; ++q) {
      const Complex a = x.get(q), b = x.get(q + s);
      y.set(q, a + b);
      y.set(q + s, a - b);
    }
    std::swap(x, y);
  }
  return x;
}

// A worker's scratch: the tile's frequencies, and two lines.
template <int kT>
struct Scratch {
  static constexpr int kHalf = kT / 2 + 1;
  float* real;  // [row][kHalf] vectors
  float* imaginary;
  Line a, b;
  explicit Scratch(float* p) : real(p), imaginary(real + kT * kHalf * kFloatLanes) {
    float* lines = imaginary + kT * kHalf * kFloatLanes;
    a = {lines, lines + kT * kFloatLanes};
    b = {lines + 2 * kT * kFloatLanes, lines + 3 * kT * kFloatLanes};
  }
};

// Row `row` of the tile, as kT vectors.
template <DType kType, int kT>
void read_row(const FftImage& image, i64 channel, i64 count, i64 row, i64 column, float* to) {
  const FloatTag d;
  std::fill_n(to, kT * kFloatLanes, 0.0f);
  if (row < 0 || row >= image.height) return;
  const i64 begin = std::max<i64>(0, -column), end = std::min<i64>(kT, image.width - column);
  const auto* data = static_cast<const Element<kType>*>(image.data);
  if (image.layout == Layout::nhwc) {
    for (i64 j = begin; j < end; ++j) {
      const auto* pixel = data + (row * image.width + column + j) * image.channels + channel;
      hn::StoreU(load_lanes<kType, true>(pixel, static_cast<std::size_t>(count)), d, to + j * kFloatLanes);
    }
    return;
  }
  for (i64 c = 0; c < count; ++c) {
    const auto* line = data + ((channel + c) * image.height + row) * image.width + column;
    for (i64 j = begin; j < end; ++j) to[j * kFloatLanes + c] = load_one<kType>(line + j);
  }
}

template <int kT>
void forward(const FftImage& image, i64 channel, i64 count, i64 row, i64 column, float* to, i64 f_stride,
             float* memory) {
  const FloatTag d;
  const Scratch<kT> s(memory);
  const FftTwiddles& twiddles = fft_twiddles(kT);
  constexpr int kHalf = Scratch<kT>::kHalf;
  const V half = hn::Set(d, 0.5f);
  // Two real rows are one complex one; their frequencies come apart by symmetry.
  for (int i = 0; i < kT; i += 2) {
    with_dtype(image.dtype, [&](auto type) {
      read_row<type, kT>(image, channel, count, row + i, column, s.a.real);
      read_row<type, kT>(image, channel, count, row + i + 1, column, s.a.imaginary);
    });
    const Line z = transform<kT>(s.a, s.b, twiddles);
    for (int k = 0; k < kHalf; ++k) {
      const Complex p = z.get(k), q = z.get((kT - k) % kT);
      const int first = (i * kHalf + k) * kFloatLanes, second = first + kHalf * kFloatLanes;
      hn::StoreU(hn::Mul(half, hn::Add(p.r, q.r)), d, s.real + first);
      hn::StoreU(hn::Mul(half, hn::Sub(p.i, q.i)), d, s.imaginary + first);
      hn::StoreU(hn::Mul(half, hn::Add(p.i, q.i)), d, s.real + second);
      hn::StoreU(hn::Mul(half, hn::Sub(q.r, p.r)), d, s.imaginary + second);
    }
  }
  const std::size_t lanes = static_cast<std::size_t>(count);
  for (int k = 0; k < kHalf; ++k) {
    for (int i = 0; i < kT; ++i) {
      const int at = (i * kHalf + k) * kFloatLanes;
      s.a.set(i, {hn::LoadU(d, s.real + at), hn::LoadU(d, s.imaginary + at)});
    }
    const Line z = transform<kT>(s.a, s.b, twiddles);
    for (int i = 0; i < kT; ++i) {
      const Complex v = z.get(i);
      float* f = to + (i * kHalf + k) * f_stride + channel;
      store_lanes<DType::f32, true>(v.r, f, lanes);
      store_lanes<DType::f32, true>(v.i, f + image.channels, lanes);
      store_lanes<DType::f32, true>(hn::Neg(v.i), f + 2 * image.channels, lanes);
    }
  }
}

// Vectors [0, columns) of a row of pixels, finished and stored.
template <DType kType>
void write_row(const float* from, const FftImage& image, i64 channel, i64 count, i64 row, i64 column,
               i64 columns, const FftEpilogue& e) {
  const FloatTag d;
  auto* data = static_cast<Element<kType>*>(image.data);
  const auto* bias = static_cast<const Element<kType>*>(e.bias);
  const auto* residual = static_cast<const Element<kType>*>(e.residual);
  const ActivationCall activation = activation_of(e.of);
  const auto finish = [&](V v, i64 at, std::size_t lanes, V a) {
    const V more = residual != nullptr ? load_lanes<kType, true>(residual + at, lanes) : hn::Zero(d);
    store_lanes<kType, true>(finished(e.of, v, more, a), data + at, lanes);
  };
  if (image.layout == Layout::nhwc) {
    const std::size_t lanes = static_cast<std::size_t>(count);
    const V a = a_of_channels(activation, e.slopes, channel, count);
    for (i64 j = 0; j < columns; ++j) {
      V v = hn::LoadU(d, from + j * kFloatLanes);
      if (bias != nullptr) v = hn::Add(v, load_lanes<kType, true>(bias + channel, lanes));
      finish(v, (row * image.width + column + j) * image.channels + channel, lanes, a);
    }
    return;
  }
  for (i64 c = 0; c < count; ++c) {
    const V a = a_of_channel(activation, e.slopes, channel + c);
    for (i64 first = 0; first < columns; first += kFloatLanes) {
      const i64 n = std::min<i64>(kFloatLanes, columns - first);
      HWY_ALIGN float values[kFloatLanes] = {};
      for (i64 j = 0; j < n; ++j) values[j] = from[(first + j) * kFloatLanes + c];
      V v = hn::Load(d, values);
      if (bias != nullptr) v = hn::Add(v, hn::Set(d, load_one<kType>(bias + channel + c)));
      finish(v, ((channel + c) * image.height + row) * image.width + column + first,
             static_cast<std::size_t>(n), a);
    }
  }
}

template <int kT>
void inverse(const float* from, i64 f_stride, const FftImage& image, i64 channel, i64 count, i64 row,
             i64 column, i64 rows, i64 columns, const FftEpilogue& epilogue, float* memory) {
  const FloatTag d;
  const Scratch<kT> s(memory);
  const FftTwiddles& twiddles = fft_twiddles(kT);
  constexpr int kHalf = Scratch<kT>::kHalf;
  const std::size_t lanes = static_cast<std::size_t>(count);
  // Real and imaginary parts change places on the way in and out of a transform, which makes it the inverse.
  for (int k = 0; k < kHalf; ++k) {
    for (int i = 0; i < kT; ++i) {
      const float* f = from + (i * kHalf + k) * f_stride + channel;
      s.a.set(i, {load_lanes<DType::f32, true>(f + image.channels, lanes),
                  load_lanes<DType::f32, true>(f, lanes)});
    }
    const Line z = transform<kT>(s.a, s.b, twiddles);
    for (int i = 0; i < rows; ++i) {
      const Complex v = z.get(i);
      const int at = (i * kHalf + k) * kFloatLanes;
      hn::StoreU(v.i, d, s.real + at);
      hn::StoreU(v.r, d, s.imaginary + at);
    }
  }
  for (int i = 0; i < rows; i += 2) {
    // Rows i and i + 1 as the real and imaginary parts of one: p + i q and, by symmetry, p* + i q*.
    const bool both = i + 1 < rows;
    for (int k = 0; k < kHalf; ++k) {
      const int first = (i * kHalf + k) * kFloatLanes, second = first + kHalf * kFloatLanes;
      const Complex p{hn::LoadU(d, s.real + first), hn::LoadU(d, s.imaginary + first)};
      const Complex q = both ? Complex{hn::LoadU(d, s.real + second), hn::LoadU(d, s.imaginary + second)}
                             : Complex{hn::Zero(d), hn::Zero(d)};
      s.a.set(k, {hn::Add(p.i, q.r), hn::Sub(p.r, q.i)});
      if (k > 0 && k < kT / 2) s.a.set(kT - k, {hn::Sub(q.r, p.i), hn::Add(p.r, q.i)});
    }
    const Line z = transform<kT>(s.a, s.b, twiddles);
    with_dtype(image.dtype, [&](auto type) {
      write_row<type>(z.imaginary, image, channel, count, row + i, column, columns, epilogue);
      if (both) write_row<type>(z.real, image, channel, count, row + i + 1, column, columns, epilogue);
    });
  }
}

}  // namespace

void FftForward(i64 tile, const FftImage& from, i64 channel, i64 count, i64 row, i64 column, float* to,
                i64 f_stride, float* scratch) {
  if (tile == 16) return forward<16>(from, channel, count, row, column, to, f_stride, scratch);
  if (tile == 32) return forward<32>(from, channel, count, row, column, to, f_stride, scratch);
  return forward<64>(from, channel, count, row, column, to, f_stride, scratch);
}

void FftInverse(i64 tile, const float* from, i64 f_stride, const FftImage& to, i64 channel, i64 count,
                i64 row, i64 column, i64 rows, i64 columns, const FftEpilogue& epilogue, float* scratch) {
  if (tile == 16) {
    return inverse<16>(from, f_stride, to, channel, count, row, column, rows, columns, epilogue, scratch);
  }
  if (tile == 32) {
    return inverse<32>(from, f_stride, to, channel, count, row, column, rows, columns, epilogue, scratch);
  }
  return inverse<64>(from, f_stride, to, channel, count, row, column, rows, columns, epilogue, scratch);
}

i64 FftLanes() { return kFloatLanes; }

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace faltung {

HWY_EXPORT(FftForward);
HWY_EXPORT(FftInverse);
HWY_EXPORT(FftLanes);

std::int64_t fft_channels() { return HWY_DYNAMIC_DISPATCH(FftLanes)(); }

std::size_t fft_scratch_floats(std::int64_t tile) {
  return static_cast<std::size_t>((2 * fft_frequencies(tile) + 4 * tile) * fft_channels());
}

void fft_forward(std::int64_t tile, const FftImage& from, std::int64_t channel, std::int64_t count,
                 std::int64_t row, std::int64_t column, float* to, std::int64_t f_stride, float* scratch) {
  HWY_DYNAMIC_DISPATCH(FftForward)(tile, from, channel, count, row, column, to, f_stride, scratch);
}

void fft_inverse(std::int64_t tile, const float* from, std::int64_t f_stride, const FftImage& to,
                 std::int64_t channel, std::int64_t count, std::int64_t row, std::int64_t column,
                 std::int64_t rows, std::int64_t columns, const FftEpilogue& epilogue, float* scratch) {
  HWY_DYNAMIC_DISPATCH(FftInverse)
  (tile, from, f_stride, to, channel, count, row, column, rows, columns, epilogue, scratch);
}

void fft_filter(std::int64_t tile, std::int64_t r, std::int64_t s, const double* taps, double* real,
                double* imaginary) {
  const FftTwiddles& w = fft_twiddles(static_cast<int>(tile));
  const std::int64_t half = tile / 2 + 1;
  const auto twiddle = [&](std::int64_t k) { return static_cast<std::size_t>(k % tile); };
  std::array<double, 64> row_real, row_imaginary;  // a column of the filter's rows, transformed
  for (std::int64_t kx = 0; kx < half; ++kx) {
    for (std::int64_t i = 0; i < r; ++i) {
      double re = 0, im = 0;
      for (std::int64_t j = 0; j < s; ++j) {
        const std::size_t t = twiddle(kx * j);
        re += taps[i * s + j] * w.real[t], im += taps[i * s + j] * w.imaginary[t];
      }
      row_real[static_cast<std::size_t>(i)] = re, row_imaginary[static_cast<std::size_t>(i)] = im;
    }
    for (std::int64_t ky = 0; ky < tile; ++ky) {
      double re = 0, im = 0;
      for (std::int64_t i = 0; i < r; ++i) {
        const std::size_t t = twiddle(ky * i), at = static_cast<std::size_t>(i);
        re += row_real[at] * w.real[t] - row_imaginary[at] * w.imaginary[t];
        im += row_real[at] * w.imaginary[t] + row_imaginary[at] * w.real[t];
      }
      const double scale = 1.0 / static_cast<double>(tile * tile);
      real[ky * half + kx] = re * scale;
      imaginary[ky * half + kx] = -im * scale;
    }
  }
}

}  // namespace faltung
#endif  // HWY_ONCE
