#include "src/store/pack.hpp"

#include <zstd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <utility>

#include "src/store/sha256.hpp"

namespace faltung {

static_assert(std::endian::native == std::endian::little, "a pack's numbers are read as they lie");

namespace {

constexpr std::string_view kName = "faltung-pack ", kHead{"faltung-pack 1\n\0", 16};
constexpr std::size_t kHash = 16, kHeadBytes = kHead.size() + 16, kEntryBytes = 2 * kHash + 16;
constexpr std::uint32_t kMostBytes = 1 << 28;  // of a record: a damaged size must not fill the memory
constexpr int kLevel = 19;

std::string hash(std::string_view bytes) {
  const std::string digits = sha256(bytes);
  std::string out;
  for (std::size_t i = 0; i < kHash; ++i) {
    unsigned value = 0;
    std::from_chars(digits.data() + 2 * i, digits.data() + 2 * i + 2, value, 16);
    out.push_back(static_cast<char>(value));
  }
  return out;
}

std::string name_hash(const std::string& kind, const std::string& key) { return hash(kind + "\n" + key); }

template <class Number>
void append(std::string& to, Number value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class Number>
Number number_at(std::span<const std::byte> bytes, std::size_t offset) {
  Number value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace

struct Pack::Entry {
  std::string_view name, content;  // hashes
  std::uint64_t offset;
  std::uint32_t packed, unpacked;
};

std::string Pack::encode(const std::vector<Record>& records) {
  std::vector<std::pair<std::string, std::string>> named;  // by hash: the record unpacked
  for (const Record& record : records) {
    named.emplace_back(
        name_hash(record.kind, record.key),
        record.kind + "\n" + record.key + '\0' + std::to_string(record.modified_ms) + "\n" + record.payload);
  }
  std::sort(named.begin(), named.end());
  std::string entries, content;
  for (const auto& [name, text] : named) {
    std::string packed(ZSTD_compressBound(text.size()), '\0');
    const std::size_t bytes = ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), kLevel);
    if (ZSTD_isError(bytes) || text.size() > kMostBytes)
      throw Error(Status::bad_file,
                  "a pack: a record of " + std::to_string(text.size()) + " bytes is too large");
    packed.resize(bytes);
    entries += name + hash(packed);
    append(entries, std::uint64_t{kHeadBytes + kEntryBytes * named.size() + content.size()});
    append(entries, static_cast<std::uint32_t>(packed.size()));
    append(entries, static_cast<std::uint32_t>(text.size()));
    content += packed;
  }
  std::string head(kHead);
  append(head, std::uint64_t{named.size()});
  append(head, std::uint64_t{kHeadBytes + entries.size() + content.size()});
  return head + entries + content;
}

bool Pack::is(const std::string& file) {
  std::string begin(kName.size(), '\0');
  return std::ifstream(file, std::ios::binary)
             .read(begin.data(), static_cast<std::streamsize>(begin.size())) &&
         begin == kName;
}

Pack::Pack(const std::string& file) : file_(file), map_(map_file(file)) {
  const std::span<const std::byte> all = map_.bytes;
  const bool known = all.size() >= kHeadBytes && std::memcmp(all.data(), kHead.data(), kHead.size()) == 0;
  if (!known) throw Error(Status::bad_file, file + ": is no pack of this version; make it again");
  const auto count = number_at<std::uint64_t>(all, kHead.size());
  const auto bytes = number_at<std::uint64_t>(all, kHead.size() + 8);
  if (bytes != all.size() || count > (all.size() - kHeadBytes) / kEntryBytes) {
    throw Error(Status::bad_file, file + ": is not whole: " + std::to_string(all.size()) + " bytes of " +
                                      std::to_string(bytes));
  }
  count_ = count;
}

Pack::Entry Pack::entry(std::size_t index) const {
  const std::size_t begin = kHeadBytes + index * kEntryBytes;
  const auto* text = reinterpret_cast<const char*>(map_.bytes.data()) + begin;
  return {{text, kHash},
          {text + kHash, kHash},
          number_at<std::uint64_t>(map_.bytes, begin + 2 * kHash),
          number_at<std::uint32_t>(map_.bytes, begin + 2 * kHash + 8),
          number_at<std::uint32_t>(map_.bytes, begin + 2 * kHash + 12)};
}

Record Pack::unpack(const Entry& e) const {
  const auto damaged = [&] { return Error(Status::bad_file, file_ + ": a record is damaged"); };
  if (e.offset > map_.bytes.size() || e.packed > map_.bytes.size() - e.offset || e.unpacked > kMostBytes)
    throw damaged();
  const std::string_view packed{reinterpret_cast<const char*>(map_.bytes.data()) + e.offset, e.packed};
  if (hash(packed) != e.content) throw damaged();
  std::string text(e.unpacked, '\0');
  if (ZSTD_decompress(text.data(), text.size(), packed.data(), packed.size()) != text.size()) throw damaged();
  const std::size_t line = text.find('\n'), zero = text.find('\0', line), end = text.find('\n', zero);
  if (line == std::string::npos || zero == std::string::npos || end == std::string::npos) throw damaged();
  Record record{text.substr(0, line), text.substr(line + 1, zero - line - 1), text.substr(end + 1), 0};
  std::from_chars(text.data() + zero + 1, text.data() + end, record.modified_ms);
  if (!is_kind(record.kind) || name_hash(record.kind, record.key) != e.name) throw damaged();
  return record;
}

std::optional<Record> Pack::get(const std::string& kind, const std::string& key) const {
  const std::string wanted = name_hash(kind, key);
  std::size_t low = 0, high = count_;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (entry(middle).name < wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == count_ || entry(low).name != wanted) return std::nullopt;
  return unpack(entry(low));
}

std::vector<Record> Pack::list() const {
  std::vector<Record> all;
  for (std::size_t i = 0; i < count_; ++i) all.push_back(unpack(entry(i)));
  return all;
}

}  // namespace faltung
