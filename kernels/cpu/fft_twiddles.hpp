// The roots of unity that FFTs multiply with.
#ifndef FALTUNG_KERNELS_CPU_FFT_TWIDDLES_HPP_
#define FALTUNG_KERNELS_CPU_FFT_TWIDDLES_HPP_

#include <array>
#include <bit>
#include <cmath>
#include <numbers>
#include <vector>

namespace faltung {

// e^(-2 pi i k / n) for k < n.
struct FftTwiddles {
  explicit FftTwiddles(int n) : real(static_cast<std::size_t>(n)), imaginary(static_cast<std::size_t>(n)) {
    for (int k = 0; k < n; ++k) {
      const double angle = -2 * std::numbers::pi * k / n;
      real[static_cast<std::size_t>(k)] = std::cos(angle);
      imaginary[static_cast<std::size_t>(k)] = std::sin(angle);
    }
  }
  std::vector<double> real, imaginary;
};

inline const FftTwiddles& fft_twiddles(int n) {
  static const std::array<FftTwiddles, 7> tables{FftTwiddles(1), FftTwiddles(2),  FftTwiddles(4),
                                                 FftTwiddles(8), FftTwiddles(16), FftTwiddles(32),
                                                 FftTwiddles(64)};
  return tables[static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(n)) - 1)];
}

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_FFT_TWIDDLES_HPP_
