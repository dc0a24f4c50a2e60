#include "src/store/sha256.hpp"

#include <array>
#include <bit>
#include <cstdint>

#include "src/store/hex.hpp"

namespace faltung {
namespace {

using Words = std::array<std::uint32_t, 8>;

// The first 32 bits of the fractional part of x: the integer square or cube root of prime · 2^64 or 2^96 by
// bisection, so that the constants are computed rather than listed.
constexpr std::uint32_t root_fraction(std::uint64_t prime, int power) {
  std::uint64_t low = 0, high = std::uint64_t{1} << 36;  // of the root times 2^32
  while (high - low > 1) {
    const std::uint64_t middle = (low + high) / 2;
    __extension__ using Wide = unsigned __int128;
    // middle^power <= prime * 2^(32 * power), compared without overflow.
    const Wide square = Wide{middle} * middle;
    const bool below = power == 2 ? square <= (Wide{prime} << 64)
                                  : (square >> 32) * middle + (((square & 0xffffffffu) * middle) >> 32) <
                                        (Wide{prime} << 64);
    (below ? low : high) = middle;
  }
  return static_cast<std::uint32_t>(low);
}

constexpr std::array<std::uint64_t, 64> kPrimes = [] {
  std::array<std::uint64_t, 64> primes{};
  std::size_t count = 0;
  for (std::uint64_t n = 2; count < primes.size(); ++n) {
    bool is_prime = true;
    for (std::uint64_t d = 2; d * d <= n; ++d) is_prime = is_prime && n % d != 0;
    if (is_prime) primes[count++] = n;
  }
  return primes;
}();

constexpr std::array<std::uint32_t, 64> kRounds = [] {
  std::array<std::uint32_t, 64> k{};
  for (std::size_t i = 0; i < k.size(); ++i) k[i] = root_fraction(kPrimes[i], 3);
  return k;
}();

constexpr Words kStart = [] {
  Words h{};
  for (std::size_t i = 0; i < h.size(); ++i) h[i] = root_fraction(kPrimes[i], 2);
  return h;
}();

void add_block(Words& hash, const unsigned char* block) {
  std::uint32_t w[64];
  for (int i = 0; i < 16; ++i) {
    w[i] = static_cast<std::uint32_t>(block[4 * i]) << 24 |
           static_cast<std::uint32_t>(block[4 * i + 1]) << 16 |
           static_cast<std::uint32_t>(block[4 * i + 2]) << 8 | block[4 * i + 3];
  }
  for (int i = 16; i < 64; ++i) {
    const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = hash;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRounds[i] + w[i];
    const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const Words add = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) hash[i] += add[i];
}

}  // namespace

std::string sha256(std::string_view data) {
  std::string padded(data.substr(data.size() / 64 * 64));
  padded += '\x80';
  while (padded.size() % 64 != 56) padded += '\0';
  for (int shift = 56; shift >= 0; shift -= 8) {
    padded += static_cast<char>((static_cast<std::uint64_t>(data.size()) * 8) >> shift);
  }
  Words hash = kStart;
  for (std::size_t i = 0; i + 64 <= data.size(); i += 64) {
    add_block(hash, reinterpret_cast<const unsigned char*>(data.data()) + i);
  }
  for (std::size_t i = 0; i < padded.size(); i += 64) {
    add_block(hash, reinterpret_cast<const unsigned char*>(padded.data()) + i);
  }
  std::string hex;
  for (const std::uint32_t word : hash) {
    for (int shift = 28; shift >= 0; shift -= 4) hex += kHexDigits[(word >> shift) & 15];
  }
  return hex;
}

}  // namespace faltung
