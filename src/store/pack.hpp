// Records in one binary file that is read in place: what a package ships for the devices that it was made on.
// Opening one reads its head alone; a record is found by the hashes of its kind and key, and its block
// unpacked when it is asked for. Records of a kind lie together, so that those of another are not looked at.
//
//   head     "faltung-pack 3\n", a zero; records, blocks, and bytes of the whole file (64 bits each)
//   blocks   32 bytes each: 16 of the packed bytes' hash; where these lie (64 bits), how many they are packed
//            and unpacked (32 bits each)
//   records  36 bytes each, in the order of their names: 24 of name; which block, where in it, how many bytes
//            (32 bits each)
//   content  the blocks, each a frame of zstd of records of one kind that are alike: kernels of a family
//            share most of their code. A record is its kind, a line end, key, a zero, milliseconds since 1970
//            as digits, a line end; then the payload, whose hexadecimal digits at its begin are stored as the
//            bytes that they stand for: how many these are and the rest (32 bits each), these, the rest
//
// A name is 8 bytes of the kind's hash and 16 of the key's. Numbers are little-endian; hashes are the first
// bytes of SHA-256.
#ifndef FALTUNG_SRC_STORE_PACK_HPP_
#define FALTUNG_SRC_STORE_PACK_HPP_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/store/mapped_file.hpp"
#include "src/store/record.hpp"

namespace faltung {

class Pack {
 public:
  static std::string encode(const std::vector<Record>& records);
  // Whether the file begins as a pack does, of any version.
  static bool is(const std::string& file);

  // Throws Error(bad_file) for a file of another version, or one that is not whole.
  explicit Pack(const std::string& file);

  // Throws Error(bad_file) for a record that is damaged.
  std::optional<Record> get(const std::string& kind, const std::string& key) const;
  // Whether there are records of this kind, whole or damaged. Unpacks nothing.
  bool holds(const std::string& kind) const;
  // Of one kind, or all if it is empty. damaged: called with what is wrong with each that is left out.
  std::vector<Record> list(const std::string& kind,
                           const std::function<void(const std::string&)>& damaged) const;

 private:
  struct Block;
  struct Entry;
  std::string_view whole() const;
  Block block_at(std::size_t index) const;
  Entry entry_at(std::size_t index) const;
  // The first record whose name is not before this one.
  std::size_t lower_bound(std::string_view name) const;
  std::shared_ptr<const std::string> unpacked(std::uint32_t block) const;
  Record record_of(const Entry& entry) const;
  Error damaged(const char* what) const;

  std::string file_;
  MappedFile map_;
  std::size_t count_ = 0, blocks_ = 0;
  mutable std::mutex mutex_;
  // Those that were asked for last, the latest first.
  mutable std::list<std::pair<std::uint32_t, std::shared_ptr<const std::string>>> kept_;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_STORE_PACK_HPP_
