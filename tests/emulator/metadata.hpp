// What a code object says of its kernels: MessagePack in a note of its ELF file.
#ifndef FALTUNG_TESTS_EMULATOR_METADATA_HPP_
#define FALTUNG_TESTS_EMULATOR_METADATA_HPP_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/emulator/numbers.hpp"

namespace faltung::emulator {

// A value as MessagePack has it: a number, or text, or a list, or a map. What is none of these is a 0.
struct Value {
  i64 number = 0;
  std::string text;
  std::vector<Value> list;
  std::map<std::string, Value> map;

  // Of a map; an empty value where it has no such key.
  const Value& at(const std::string& key) const;
};

// Throws Error(bad_problem) where the bytes end within a value.
Value read_message_pack(std::string_view bytes);

}  // namespace faltung::emulator

#endif  // FALTUNG_TESTS_EMULATOR_METADATA_HPP_
