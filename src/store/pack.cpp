#include "src/store/pack.hpp"

#include <zstd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <map>
#include <tuple>
#include <utility>

#include "src/store/hex.hpp"
#include "src/store/likeness.hpp"
#include "src/store/sha256.hpp"

namespace faltung {

static_assert(std::endian::native == std::endian::little, "a pack's numbers are read as they lie");

namespace {

constexpr std::string_view kPackName = "faltung-pack ", kHead{"faltung-pack 3\n\0", 16};
constexpr std::size_t kKindHash = 8, kHash = 16, kName = kKindHash + kHash, kHeadBytes = kHead.size() + 24,
                      kBlockBytes = kHash + 16, kEntryBytes = kName + 12;
constexpr std::uint32_t kMostBytes = 1 << 28;  // of a block: a damaged size must not fill the memory
constexpr int kLevel = 19;
// A block has as many records as come to so many bytes: 729 kernels of 23.3 MB take 2.28 MB each for itself
// with a common dictionary, in the order of their size 1.76 MB in blocks of 1 MB, 1.49 of 2, 1.30 of 4. That
// order beside one of likeness: 3.21 and 2.42 MB of 1,671 kernels. Reading one takes as many milliseconds as
// its block has megabytes, or fewer.
constexpr std::size_t kBlock = 4 << 20;
constexpr std::size_t kKept = 4;  // blocks
std::string hash(std::string_view bytes, std::size_t length = kHash) {
  return from_hex(sha256(bytes).substr(0, 2 * length));
}

std::string kind_hash(const std::string& kind) { return hash(kind, kKindHash); }
std::string name_hash(const std::string& kind, const std::string& key) { return kind_hash(kind) + hash(key); }

template <class Number>
void append(std::string& to, Number value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class Number>
Number number_at(std::string_view bytes, std::size_t offset) {
  Number value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// What a payload's hexadecimal digits at its begin stand for, and the rest.
struct Content {
  std::string bytes, rest;
};
Content content_of(const Record& record) {
  const std::string& payload = record.payload;
  const std::size_t digits = std::min(payload.find_first_not_of(kHexDigits), payload.size()) / 2 * 2;
  return {from_hex(std::string_view(payload).substr(0, digits)), payload.substr(digits)};
}

std::string text_of(const Record& record) {
  const auto [bytes, rest] = content_of(record);
  std::string text = record.kind + "\n" + record.key + '\0' + std::to_string(record.modified_ms) + "\n";
  append(text, static_cast<std::uint32_t>(bytes.size()));
  append(text, static_cast<std::uint32_t>(rest.size()));
  return text + bytes + rest;
}

std::string packed(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  const std::size_t bytes = ZSTD_compress(out.data(), out.size(), text.data(), text.size(), kLevel);
  if (ZSTD_isError(bytes) || text.size() > kMostBytes)
    throw Error(Status::bad_file,
                "a pack: a record of " + std::to_string(text.size()) + " bytes is too large");
  out.resize(bytes);
  return out;
}

// Those of a kind side by side, in it those whose code is alike; what has none by its key.
std::vector<const Record*> alike(const std::vector<Record>& records) {
  std::map<std::string_view, std::vector<const Record*>> kinds;
  for (const Record& record : records) kinds[record.kind].push_back(&record);
  std::vector<const Record*> order;
  for (auto& [kind, all] : kinds) {
    const auto what = [](const Record* r) { return std::tie(r->key, r->payload); };
    std::sort(all.begin(), all.end(), [&](const Record* a, const Record* b) { return what(a) < what(b); });
    std::vector<std::string> code;
    for (const Record* record : all) code.push_back(content_of(*record).bytes);
    for (const std::size_t i : order_of_likeness(code)) order.push_back(all[i]);
  }
  return order;
}

}  // namespace

struct Pack::Block {
  std::string_view hash;
  std::uint64_t offset;
  std::uint32_t packed, unpacked;
};

struct Pack::Entry {
  std::string_view name;
  std::uint32_t block, offset, bytes;
};

std::string Pack::encode(const std::vector<Record>& records) {
  std::vector<std::string> blocks, entries;
  std::string_view kind;
  for (const Record* record : alike(records)) {
    const std::string text = text_of(*record);
    if (record->kind != kind || blocks.back().size() + text.size() > kBlock) blocks.emplace_back();
    kind = record->kind;
    entries.push_back(name_hash(record->kind, record->key));
    append(entries.back(), static_cast<std::uint32_t>(blocks.size() - 1));
    append(entries.back(), static_cast<std::uint32_t>(blocks.back().size()));
    append(entries.back(), static_cast<std::uint32_t>(text.size()));
    blocks.back() += text;
  }
  std::sort(entries.begin(), entries.end());
  const std::size_t begin = kHeadBytes + kBlockBytes * blocks.size() + kEntryBytes * entries.size();
  std::string table, content;
  for (const std::string& block : blocks) {
    const std::string bytes = packed(block);
    table += hash(bytes);
    append(table, std::uint64_t{begin + content.size()});
    append(table, static_cast<std::uint32_t>(bytes.size()));
    append(table, static_cast<std::uint32_t>(block.size()));
    content += bytes;
  }
  for (const std::string& entry : entries) table += entry;
  std::string head(kHead);
  for (const std::size_t number : {entries.size(), blocks.size(), begin + content.size()})
    append(head, std::uint64_t{number});
  return head + table + content;
}

bool Pack::is(const std::string& file) {
  std::string begin(kPackName.size(), '\0');
  return std::ifstream(file, std::ios::binary)
             .read(begin.data(), static_cast<std::streamsize>(begin.size())) &&
         begin == kPackName;
}

Pack::Pack(const std::string& file) : file_(file), map_(map_file(file)) {
  const std::string_view all = whole();
  if (all.size() < kHeadBytes || !all.starts_with(kHead))
    throw Error(Status::bad_file, file + ": is no pack of this version; make it again");
  const auto count = number_at<std::uint64_t>(all, kHead.size());
  const auto blocks = number_at<std::uint64_t>(all, kHead.size() + 8);
  const auto bytes = number_at<std::uint64_t>(all, kHead.size() + 16);
  const std::size_t room = all.size() - kHeadBytes;
  if (bytes != all.size() || blocks > room / kBlockBytes ||
      count > (room - blocks * kBlockBytes) / kEntryBytes) {
    throw Error(Status::bad_file, file + ": is not whole: " + std::to_string(all.size()) + " bytes of " +
                                      std::to_string(bytes));
  }
  count_ = count, blocks_ = blocks;
}

std::string_view Pack::whole() const {
  return {reinterpret_cast<const char*>(map_.bytes.data()), map_.bytes.size()};
}

Error Pack::damaged(const char* what) const {
  return Error(Status::bad_file, file_ + ": " + what + " is damaged");
}

Pack::Block Pack::block_at(std::size_t index) const {
  const std::string_view text = whole().substr(kHeadBytes + index * kBlockBytes, kBlockBytes);
  return {text.substr(0, kHash), number_at<std::uint64_t>(text, kHash),
          number_at<std::uint32_t>(text, kHash + 8), number_at<std::uint32_t>(text, kHash + 12)};
}

Pack::Entry Pack::entry_at(std::size_t index) const {
  const std::string_view text =
      whole().substr(kHeadBytes + blocks_ * kBlockBytes + index * kEntryBytes, kEntryBytes);
  return {text.substr(0, kName), number_at<std::uint32_t>(text, kName),
          number_at<std::uint32_t>(text, kName + 4), number_at<std::uint32_t>(text, kName + 8)};
}

std::shared_ptr<const std::string> Pack::unpacked(std::uint32_t index) const {
  const char* what = "a block of records";
  if (index >= blocks_) throw damaged("an entry");
  const std::lock_guard lock(mutex_);  // whoever else wants this block waits for it
  const auto found =
      std::find_if(kept_.begin(), kept_.end(), [&](const auto& kept) { return kept.first == index; });
  if (found != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, found);
    return kept_.front().second;
  }
  const Block block = block_at(index);
  const std::string_view all = whole();
  if (block.offset > all.size() || block.packed > all.size() - block.offset || block.unpacked > kMostBytes)
    throw damaged(what);
  const std::string_view bytes = all.substr(block.offset, block.packed);
  if (hash(bytes) != block.hash) throw damaged(what);
  auto text = std::make_shared<std::string>(block.unpacked, '\0');
  if (ZSTD_decompress(text->data(), text->size(), bytes.data(), bytes.size()) != text->size())
    throw damaged(what);
  kept_.emplace_front(index, text);
  if (kept_.size() > kKept) kept_.pop_back();
  return text;
}

Record Pack::record_of(const Entry& e) const {
  const char* what = "a record";
  const std::shared_ptr<const std::string> block = unpacked(e.block);
  if (e.offset > block->size() || e.bytes > block->size() - e.offset) throw damaged(what);
  const std::string_view text = std::string_view(*block).substr(e.offset, e.bytes);
  const std::size_t line = text.find('\n'), zero = text.find('\0', line), end = text.find('\n', zero);
  if (line == text.npos || zero == text.npos || end == text.npos) throw damaged(what);
  const std::string_view payload = text.substr(end + 1);
  constexpr std::size_t kCounts = 2 * sizeof(std::uint32_t);
  if (payload.size() < kCounts) throw damaged(what);
  const std::size_t bytes = number_at<std::uint32_t>(payload, 0);
  if (payload.size() != kCounts + bytes + number_at<std::uint32_t>(payload, 4)) throw damaged(what);
  Record record{std::string(text.substr(0, line)), std::string(text.substr(line + 1, zero - line - 1)),
                to_hex(payload.substr(kCounts, bytes)).append(payload.substr(kCounts + bytes)), 0};
  std::from_chars(text.data() + zero + 1, text.data() + end, record.modified_ms);
  if (!is_kind(record.kind) || name_hash(record.kind, record.key) != e.name) throw damaged(what);
  return record;
}

std::size_t Pack::lower_bound(std::string_view name) const {
  std::size_t low = 0, high = count_;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (entry_at(middle).name < name) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

std::optional<Record> Pack::get(const std::string& kind, const std::string& key) const {
  const std::string wanted = name_hash(kind, key);
  const std::size_t found = lower_bound(wanted);
  if (found == count_ || entry_at(found).name != wanted) return std::nullopt;
  return record_of(entry_at(found));
}

bool Pack::holds(const std::string& kind) const {
  const std::string begin = kind_hash(kind);
  const std::size_t found = lower_bound(begin);
  return found < count_ && entry_at(found).name.starts_with(begin);
}

std::vector<Record> Pack::list(const std::string& kind,
                               const std::function<void(const std::string&)>& damaged) const {
  std::vector<Record> all;
  const std::string begin = kind.empty() ? "" : kind_hash(kind);
  for (std::size_t i = lower_bound(begin); i < count_ && entry_at(i).name.starts_with(begin); ++i) {
    try {
      all.push_back(record_of(entry_at(i)));
    } catch (const Error& error) {
      damaged(error.what());
    }
  }
  return all;
}

}  // namespace faltung
