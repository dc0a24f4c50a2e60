// Room for JSON values, asked for before there are any.
#ifndef FALTUNG_SRC_STORE_JSON_ROOM_HPP_
#define FALTUNG_SRC_STORE_JSON_ROOM_HPP_

#include <cstddef>
#include <new>

namespace faltung {

// nlohmann's values take memory to be destroyed, too, and where there is none then, the process ends: no
// caller can be told any more. So that much as the values of a text take is asked for before they are made:
// throws std::bad_alloc where a process has it not.
inline void ask_room_for_json(std::size_t text_bytes) {
  // A value of two characters takes 16 bytes, thrice while its array grows, and once more at the end.
  // Of a large text nearly all is in strings.
  constexpr std::size_t kOfACharacter = 32, kOfAStrings = 2, kAtLeast = 4096, kLarge = 1 << 20;
  const std::size_t large = text_bytes > kLarge ? text_bytes - kLarge : 0;
  ::operator delete(::operator new(kAtLeast + kOfACharacter * (text_bytes - large) + kOfAStrings * large));
}

}  // namespace faltung

#endif  // FALTUNG_SRC_STORE_JSON_ROOM_HPP_
