// What every fuzzer holds its parser to: it answers, or throws an Error of one line and of the right status.
#ifndef FALTUNG_TESTS_FUZZ_FUZZ_HPP_
#define FALTUNG_TESTS_FUZZ_FUZZ_HPP_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "faltung/faltung.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace faltung {

// assert, but in release builds too.
inline void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "fuzzer: %s\n", what.c_str());
  std::abort();
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// How often a parser took what it was given, for replay.cpp: seeds that never pass the first check test
// little.
inline long accepted = 0;

// Whether parse returned; every other exception than an Error of this status ends the fuzzer.
template <class Parse>
bool parses(Status status, const Parse& parse) {
  try {
    parse();
    ++accepted;
    return true;
  } catch (const Error& error) {
    require(error.status() == status, std::string("an Error of another status: ") + error.what());
    require(std::strpbrk(error.what(), "\r\n") == nullptr,
            std::string("a message of several lines: ") + error.what());
    require(error.what()[0] != '\0', "an empty message");
    return false;
  }
}

}  // namespace faltung

#endif  // FALTUNG_TESTS_FUZZ_FUZZ_HPP_
