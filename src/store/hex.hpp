// Bytes as hexadecimal digits: a record's payload is text, a kernel's code is not.
#ifndef FALTUNG_SRC_STORE_HEX_HPP_
#define FALTUNG_SRC_STORE_HEX_HPP_

#include <string>
#include <string_view>

namespace faltung {

inline constexpr std::string_view kHexDigits = "0123456789abcdef";

inline std::string to_hex(std::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) {
    text.push_back(kHexDigits[static_cast<unsigned char>(c) >> 4]);
    text.push_back(kHexDigits[static_cast<unsigned char>(c) & 15]);
  }
  return text;
}

// Of to_hex's digits, in pairs; one that is left over is ignored.
inline std::string from_hex(std::string_view text) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes(text.size() / 2, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(digit(text[2 * i]) * 16 + digit(text[2 * i + 1]));
  return bytes;
}

}  // namespace faltung

#endif  // FALTUNG_SRC_STORE_HEX_HPP_
