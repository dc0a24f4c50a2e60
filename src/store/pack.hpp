// Records in one binary file that is read in place: what a package ships for the devices that it was made on.
// Opening one reads its head alone; a record is found by the hash of its kind and key, and unpacked when it
// is asked for.
//
//   head      "faltung-pack 1\n", a zero; records, and bytes of the whole file (two 64-bit numbers)
//   entries   in the order of the hashes: 16 bytes of the hash, 16 of the packed record's; where it lies (64
//   bits), its
//             packed and its unpacked bytes (32 bits each)
//   records   each a frame of zstd: kind, a line end, key, a zero, milliseconds since 1970 as digits, a line
//   end, payload
//
// Numbers are little-endian; hashes are the first bytes of SHA-256.
#ifndef FALTUNG_SRC_STORE_PACK_HPP_
#define FALTUNG_SRC_STORE_PACK_HPP_

#include <optional>
#include <string>
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
  std::vector<Record> list() const;

 private:
  struct Entry;
  Entry entry(std::size_t index) const;
  Record unpack(const Entry& entry) const;

  std::string file_;
  MappedFile map_;
  std::size_t count_ = 0;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_STORE_PACK_HPP_
