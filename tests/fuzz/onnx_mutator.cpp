// How libFuzzer varies ONNX files: half of the variations are of bytes anywhere, which mostly leave no
// protobuf message; the others change one field, at any depth, and write the lengths around it anew.
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct Field {
  std::uint64_t tag;
  std::string_view payload;  // of a varint its own bytes
  std::uint64_t type() const { return tag & 7; }
};

bool take_varint(std::string_view& in, std::uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<std::uint8_t>(in.front());
    in.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 127) << shift;
    if (byte < 128) return true;
  }
  return false;
}

// Nothing where it is no message.
std::vector<Field> fields_of(std::string_view message) {
  std::vector<Field> fields;
  while (!message.empty()) {
    Field field{};
    std::uint64_t size = 0;
    if (!take_varint(message, field.tag) || field.tag < 8) return {};
    const std::string_view before = message;
    if (field.type() == kVarint) {
      if (!take_varint(message, size)) return {};
      field.payload = before.substr(0, before.size() - message.size());
    } else {
      if (field.type() == kBytes && !take_varint(message, size)) return {};
      if (field.type() == kFixed64) size = 8;
      if (field.type() == kFixed32) size = 4;
      if (size > message.size() || (field.type() != kBytes && size == 0)) return {};
      field.payload = message.substr(0, size);
      message.remove_prefix(size);
    }
    fields.push_back(field);
  }
  return fields;
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value > 127; value >>= 7) out.push_back(static_cast<char>(value | 128));
  out.push_back(static_cast<char>(value));
}

void put(std::string& out, std::uint64_t tag, std::string_view payload) {
  put_varint(out, tag);
  if ((tag & 7) == kBytes) put_varint(out, payload.size());
  out += payload;
}

class Variation {
 public:
  Variation(unsigned seed, std::size_t max_size) : random_(seed), max_size_(max_size) {}

  std::string of(std::string_view message) {
    collect(message, 0);
    return vary(message, 0);
  }

 private:
  static constexpr int kDeepest = 7;  // a model's graph's node's attribute's tensor's dimension, say

  std::size_t below(std::size_t limit) { return random_() % limit; }

  // Payloads of the whole file, so that a name, an operator or a tensor can become another one's.
  void collect(std::string_view message, int depth) {
    for (const Field& field : fields_of(message)) {
      all_.push_back({field, depth});
      if (field.type() == kBytes && depth < kDeepest) collect(field.payload, depth + 1);
    }
  }

  std::string bytes(std::string_view text) {
    std::string varied(text);
    varied.resize(std::min(max_size_, text.size() + 16));
    varied.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(varied.data()),
                                   std::min(text.size(), varied.size()), varied.size()));
    return varied;
  }

  std::string number(std::string_view now) {
    static constexpr std::uint64_t kNumbers[] = {0,   1,        2,        3,     4,     7,         8,
                                                 255, 1u << 16, 1u << 31, ~0ull, ~1ull, ~0ull >> 1};
    std::uint64_t value = 0;
    take_varint(now, value);
    const std::uint64_t varied[] = {
        value + 1, value - 1, 2 * value, ~value, kNumbers[below(std::size(kNumbers))], below(32)};
    std::string out;
    put_varint(out, varied[below(std::size(varied))]);
    return out;
  }

  std::string vary_payload(const Field& field, int depth) {
    if (below(4) == 0) {  // another one of its kind
      std::vector<std::string_view> alike;
      for (const auto& [other, at] : all_) {
        if (at == depth && other.tag == field.tag) alike.push_back(other.payload);
      }
      return std::string(alike[below(alike.size())]);
    }
    if (field.type() == kVarint) return number(field.payload);
    if (field.type() != kBytes) {
      std::string varied = bytes(field.payload);
      varied.resize(field.payload.size());
      return varied;
    }
    return depth < kDeepest && below(8) != 0 ? vary(field.payload, depth + 1) : bytes(field.payload);
  }

  std::string vary(std::string_view message, int depth) {
    std::vector<Field> fields = fields_of(message);
    if (fields.empty()) return bytes(message);
    const std::size_t at = below(fields.size()), action = below(16);
    std::string varied;
    if (action == 0) {
      fields.erase(fields.begin() + static_cast<std::ptrdiff_t>(at));
    } else if (action == 1) {
      const Field twice = fields[at];
      fields.insert(fields.begin() + static_cast<std::ptrdiff_t>(below(fields.size() + 1)), twice);
    } else if (action == 2) {
      std::swap(fields[at], fields[below(fields.size())]);
    } else {
      varied = vary_payload(fields[at], depth);
      fields[at].payload = varied;
    }
    std::string out;
    for (const Field& field : fields) put(out, field.tag, field.payload);
    return out;
  }

  std::minstd_rand random_;
  std::size_t max_size_;
  std::vector<std::pair<Field, int>> all_;
};

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  if (seed % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  Variation variation(seed / 2, max_size);
  const std::string varied = variation.of({reinterpret_cast<const char*>(data), size});
  if (varied.size() > max_size || varied.empty()) return LLVMFuzzerMutate(data, size, max_size);
  std::copy(varied.begin(), varied.end(), data);
  return varied.size();
}
