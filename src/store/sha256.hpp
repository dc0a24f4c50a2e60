// SHA-256 (FIPS 180-4): names and checksums of records.
#ifndef FALTUNG_SRC_STORE_SHA256_HPP_
#define FALTUNG_SRC_STORE_SHA256_HPP_

#include <string>
#include <string_view>

namespace faltung {

// 64 hexadecimal digits.
std::string sha256(std::string_view data);

}  // namespace faltung

#endif  // FALTUNG_SRC_STORE_SHA256_HPP_
