#include "src/store/pack.hpp"

#include <zstd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <utility>

#include "src/store/hex.hpp"
#include "src/store/sha256.hpp"

namespace faltung {

static_assert(std::endian::native == std::endian::little, "a pack's numbers are read as they lie");

namespace {

constexpr std::string_view kPackName = "faltung-pack ", kHead{"faltung-pack 2\n\0", 16};
constexpr std::size_t kKindHash = 8, kHash = 16, kName = kKindHash + kHash, kHeadBytes = kHead.size() + 16,
                      kEntryBytes = kName + kHash + 16;
constexpr std::uint32_t kMostBytes = 1 << 28;  // of a record: a damaged size must not fill the memory
constexpr int kLevel = 19;
// Some of the records: one in so many, of all sizes, some such number of bytes. What was shipped in format 1
// took 1.58 MB, and takes 0.65 MB by such a dictionary. Reading any record reads it.
constexpr std::size_t kOneIn = 8, kDictionary = 768 << 10;

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

std::string text_of(const Record& record) {
  const std::string& payload = record.payload;
  const std::size_t digits = std::min(payload.find_first_not_of(kHexDigits), payload.size()) / 2 * 2;
  std::string text = record.kind + "\n" + record.key + '\0' + std::to_string(record.modified_ms) + "\n";
  append(text, static_cast<std::uint32_t>(digits / 2));
  return text + from_hex(std::string_view(payload).substr(0, digits)) + payload.substr(digits);
}

// Empty where the texts are few.
std::string dictionary_of(const std::vector<std::pair<std::string, std::string>>& named) {
  std::vector<const std::string*> texts;
  std::size_t all = 0;
  for (const auto& [name, text] : named) {
    texts.push_back(&text);
    all += text.size();
  }
  std::stable_sort(texts.begin(), texts.end(),
                   [](const std::string* a, const std::string* b) { return a->size() < b->size(); });
  const std::size_t step = std::max(kOneIn, (all + kDictionary - 1) / kDictionary);
  std::string dictionary;
  for (std::size_t i = step / 2; i < texts.size(); i += step) dictionary += *texts[i];
  return dictionary;
}

class Compressor {
 public:
  explicit Compressor(const std::string& dictionary) : context_(ZSTD_createCCtx(), ZSTD_freeCCtx) {
    if (dictionary.empty()) return;  // its tables are large, whatever its size
    dictionary_.reset(ZSTD_createCDict(dictionary.data(), dictionary.size(), kLevel), ZSTD_freeCDict);
  }

  std::string operator()(const std::string& text) {
    std::string packed(ZSTD_compressBound(text.size()), '\0');
    const std::size_t bytes = dictionary_ == nullptr
                                  ? ZSTD_compressCCtx(context_.get(), packed.data(), packed.size(),
                                                      text.data(), text.size(), kLevel)
                                  : ZSTD_compress_usingCDict(context_.get(), packed.data(), packed.size(),
                                                             text.data(), text.size(), dictionary_.get());
    if (ZSTD_isError(bytes) || text.size() > kMostBytes)
      throw Error(Status::bad_file,
                  "a pack: a record of " + std::to_string(text.size()) + " bytes is too large");
    packed.resize(bytes);
    return packed;
  }

 private:
  std::shared_ptr<ZSTD_CCtx> context_;
  std::shared_ptr<ZSTD_CDict> dictionary_;  // null where it is empty
};

}  // namespace

struct Pack::Entry {
  std::string_view name, content;  // hashes
  std::uint64_t offset;
  std::uint32_t packed, unpacked;
};

std::string Pack::encode(const std::vector<Record>& records) {
  std::vector<std::pair<std::string, std::string>> named;
  for (const Record& record : records)
    named.emplace_back(name_hash(record.kind, record.key), text_of(record));
  std::sort(named.begin(), named.end());
  const std::string dictionary = dictionary_of(named);
  std::string entries, content;
  const auto add = [&](const std::string& name, const std::string& packed, std::size_t unpacked) {
    entries += name + hash(packed);
    append(entries, std::uint64_t{kHeadBytes + kEntryBytes * (1 + named.size()) + content.size()});
    append(entries, static_cast<std::uint32_t>(packed.size()));
    append(entries, static_cast<std::uint32_t>(unpacked));
    content += packed;
  };
  add(std::string(kName, '\0'), Compressor("")(dictionary), dictionary.size());
  Compressor compress(dictionary);
  for (const auto& [name, text] : named) add(name, compress(text), text.size());
  std::string head(kHead);
  append(head, std::uint64_t{named.size()});
  append(head, std::uint64_t{kHeadBytes + entries.size() + content.size()});
  return head + entries + content;
}

bool Pack::is(const std::string& file) {
  std::string begin(kPackName.size(), '\0');
  return std::ifstream(file, std::ios::binary)
             .read(begin.data(), static_cast<std::streamsize>(begin.size())) &&
         begin == kPackName;
}

Pack::Pack(const std::string& file) : file_(file), map_(map_file(file)) {
  const std::string_view all = whole();
  if (all.size() < kHeadBytes + kEntryBytes || !all.starts_with(kHead))
    throw Error(Status::bad_file, file + ": is no pack of this version; make it again");
  const auto count = number_at<std::uint64_t>(all, kHead.size());
  const auto bytes = number_at<std::uint64_t>(all, kHead.size() + 8);
  if (bytes != all.size() || count > (all.size() - kHeadBytes) / kEntryBytes - 1) {
    throw Error(Status::bad_file, file + ": is not whole: " + std::to_string(all.size()) + " bytes of " +
                                      std::to_string(bytes));
  }
  count_ = count;
}

std::string_view Pack::whole() const {
  return {reinterpret_cast<const char*>(map_.bytes.data()), map_.bytes.size()};
}

Error Pack::damaged(const char* what) const {
  return Error(Status::bad_file, file_ + ": " + what + " is damaged");
}

Pack::Entry Pack::entry_at(std::size_t place) const {
  const std::string_view text = whole().substr(kHeadBytes + place * kEntryBytes, kEntryBytes);
  return {text.substr(0, kName), text.substr(kName, kHash), number_at<std::uint64_t>(text, kName + kHash),
          number_at<std::uint32_t>(text, kName + kHash + 8),
          number_at<std::uint32_t>(text, kName + kHash + 12)};
}

Pack::Entry Pack::record_entry(std::size_t index) const { return entry_at(1 + index); }

std::string_view Pack::content(const Entry& e, const char* what) const {
  const std::string_view all = whole();
  if (e.offset > all.size() || e.packed > all.size() - e.offset || e.unpacked > kMostBytes)
    throw damaged(what);
  const std::string_view packed = all.substr(e.offset, e.packed);
  if (hash(packed) != e.content) throw damaged(what);
  return packed;
}

std::shared_ptr<const ZSTD_DDict> Pack::dictionary() const {
  const std::lock_guard lock(mutex_);
  if (dictionary_ == nullptr) {
    const char* what = "its dictionary";
    const Entry e = entry_at(0);
    const std::string_view packed = content(e, what);
    std::string bytes(e.unpacked, '\0');
    if (ZSTD_decompress(bytes.data(), bytes.size(), packed.data(), packed.size()) != bytes.size())
      throw damaged(what);
    dictionary_ = std::shared_ptr<ZSTD_DDict>(ZSTD_createDDict(bytes.data(), bytes.size()), ZSTD_freeDDict);
  }
  return dictionary_;
}

Record Pack::unpack(const Entry& e) const {
  const char* what = "a record";
  const std::string_view packed = content(e, what);
  std::string text(e.unpacked, '\0');
  const std::shared_ptr<ZSTD_DCtx> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  if (ZSTD_decompress_usingDDict(context.get(), text.data(), text.size(), packed.data(), packed.size(),
                                 dictionary().get()) != text.size())
    throw damaged(what);
  const std::size_t line = text.find('\n'), zero = text.find('\0', line), end = text.find('\n', zero);
  if (line == std::string::npos || zero == std::string::npos || end == std::string::npos) throw damaged(what);
  const std::string_view payload = std::string_view(text).substr(end + 1);
  constexpr std::size_t kCount = sizeof(std::uint32_t);
  if (payload.size() < kCount || number_at<std::uint32_t>(payload, 0) > payload.size() - kCount)
    throw damaged(what);
  const std::size_t bytes = number_at<std::uint32_t>(payload, 0);
  Record record{text.substr(0, line), text.substr(line + 1, zero - line - 1),
                to_hex(payload.substr(kCount, bytes)).append(payload.substr(kCount + bytes)), 0};
  std::from_chars(text.data() + zero + 1, text.data() + end, record.modified_ms);
  if (!is_kind(record.kind) || name_hash(record.kind, record.key) != e.name) throw damaged(what);
  return record;
}

std::size_t Pack::lower_bound(std::string_view name) const {
  std::size_t low = 0, high = count_;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (record_entry(middle).name < name) {
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
  if (found == count_ || record_entry(found).name != wanted) return std::nullopt;
  return unpack(record_entry(found));
}

bool Pack::holds(const std::string& kind) const {
  const std::string begin = kind_hash(kind);
  const std::size_t found = lower_bound(begin);
  return found < count_ && record_entry(found).name.starts_with(begin);
}

std::vector<Record> Pack::list(const std::string& kind,
                               const std::function<void(const std::string&)>& damaged) const {
  std::vector<Record> all;
  const std::string begin = kind.empty() ? "" : kind_hash(kind);
  for (std::size_t i = lower_bound(begin); i < count_ && record_entry(i).name.starts_with(begin); ++i) {
    try {
      all.push_back(unpack(record_entry(i)));
    } catch (const Error& error) {
      damaged(error.what());
    }
  }
  return all;
}

}  // namespace faltung
