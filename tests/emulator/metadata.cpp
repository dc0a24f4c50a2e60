#include "tests/emulator/metadata.hpp"

#include "faltung/faltung.hpp"

namespace faltung::emulator {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  Value value() {
    Value v;
    const auto tag = static_cast<unsigned>(big_endian(1));
    if (tag < 0x80) return v.number = static_cast<i64>(tag), v;
    if (tag >= 0xe0) return v.number = static_cast<i64>(tag) - 0x100, v;
    if (tag < 0x90) return fill_map(v, tag & 15), v;
    if (tag < 0xa0) return fill_list(v, tag & 15), v;
    if (tag < 0xc0) return v.text = text(tag & 31), v;
    const unsigned power = tag & 3;  // of the bytes of most numbers and lengths
    switch (tag) {
      case 0xc3:
        return v.number = 1, v;
      case 0xcc:
      case 0xcd:
      case 0xce:
      case 0xcf:
        return v.number = static_cast<i64>(big_endian(1u << power)), v;
      case 0xd0:
      case 0xd1:
      case 0xd2:
      case 0xd3: {
        const unsigned unused = 64 - (8u << power);
        return v.number = static_cast<i64>(big_endian(1u << power) << unused) >> unused, v;
      }
      case 0xd9:
      case 0xda:
      case 0xdb:
        return v.text = text(big_endian(1u << (tag - 0xd9))), v;
      case 0xdc:
      case 0xdd:
        return fill_list(v, big_endian(2u << (tag - 0xdc))), v;
      case 0xde:
      case 0xdf:
        return fill_map(v, big_endian(2u << (tag - 0xde))), v;
      default:
        return v;
    }
  }

 private:
  u64 big_endian(unsigned bytes) {
    u64 number = 0;
    for (const char c : take(bytes)) number = number << 8 | static_cast<u8>(c);
    return number;
  }
  std::string text(u64 bytes) { return std::string(take(bytes)); }
  void fill_list(Value& v, u64 count) {
    for (; count > 0; --count) v.list.push_back(value());
  }
  void fill_map(Value& v, u64 count) {
    for (; count > 0; --count) {
      const std::string key = value().text;
      v.map[key] = value();
    }
  }
  std::string_view take(u64 bytes) {
    if (bytes > left_.size()) throw Error(Status::bad_problem, "a code object's metadata end within a value");
    const std::string_view taken = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return taken;
  }
  std::string_view left_;
};

}  // namespace

const Value& Value::at(const std::string& key) const {
  static const Value kNone;
  const auto found = map.find(key);
  return found == map.end() ? kNone : found->second;
}

Value read_message_pack(std::string_view bytes) { return Reader(bytes).value(); }

}  // namespace faltung::emulator
