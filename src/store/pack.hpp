// Records in one binary file that is read in place: what a package ships for the devices that it was made on.
// Opening one reads its head alone; a record is found by the hashes of its kind and key, and unpacked when it
// is asked for. Records of a kind lie together, so that those of another are not looked at.
//
//   head        "faltung-pack 2\n", a zero; records, and bytes of the whole file (two 64-bit numbers)
//   entries     the dictionary's, then the records' in the order of their names: 24 bytes of name, 16 of the
//               packed bytes' hash; where these lie (64 bits), how many they are packed and unpacked (32
//               bits each)
//   dictionary  a frame of zstd: what the records have in common (kernels of a family are much alike); may be
//               empty
//   records     each a frame of zstd by that dictionary: kind, a line end, key, a zero, milliseconds since
//               1970 as digits, a line end; then the payload, whose hexadecimal digits at its begin are
//               stored as the bytes that they stand for: how many bytes (32 bits), these, the rest
//
// A name is 8 bytes of the kind's hash and 16 of the key's, the dictionary's is zeros. Numbers are
// little-endian; hashes are the first bytes of SHA-256.
#ifndef FALTUNG_SRC_STORE_PACK_HPP_
#define FALTUNG_SRC_STORE_PACK_HPP_

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/store/mapped_file.hpp"
#include "src/store/record.hpp"

struct ZSTD_DDict_s;  // a dictionary of zstd

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
  struct Entry;
  std::string_view whole() const;
  Entry entry_at(std::size_t place) const;
  Entry record_entry(std::size_t index) const;
  // The first record whose name is not before this one.
  std::size_t lower_bound(std::string_view name) const;
  // The packed bytes. what: that an error names, as do damaged's.
  std::string_view content(const Entry& entry, const char* what) const;
  Record unpack(const Entry& entry) const;
  std::shared_ptr<const ZSTD_DDict_s> dictionary() const;
  Error damaged(const char* what) const;

  std::string file_;
  MappedFile map_;
  std::size_t count_ = 0;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const ZSTD_DDict_s> dictionary_;  // null until a record is read
};

}  // namespace faltung

#endif  // FALTUNG_SRC_STORE_PACK_HPP_
