// A record of the store as text: what is in one file, and what export and import exchange.
#ifndef FALTUNG_SRC_STORE_RECORD_HPP_
#define FALTUNG_SRC_STORE_RECORD_HPP_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "faltung/faltung.hpp"

namespace faltung {

struct Record {
  std::string kind;     // of a-z 0-9 _, at most 32 characters: the directory it lies in
  std::string key;      // UTF-8
  std::string payload;  // UTF-8; JSON is stored so that people can read it
  // When it was written, in milliseconds since 1970: the file's time, no part of its bytes.
  std::int64_t modified_ms = 0;
};

// A file's time as a record can have it: whatever its clock said.
std::int64_t record_time(std::int64_t modified_ms);

// The name of the record's file, without its directory: a hash of kind and key.
std::string record_file(std::string_view kind, std::string_view key);
bool is_record_file(std::string_view name);
bool is_kind(std::string_view kind);

// The same bytes for the same kind, key and payload. Throws Error(internal) for text that is not UTF-8 or a
// kind that cannot be one.
std::string encode_record(const Record& record);
// Throws Error(bad_file) for text that is damaged or of another version.
Record decode_record(std::string_view text);

// Records in the order of kind and key.
std::string encode_export(std::vector<Record> records);
// damaged: called with what is wrong with each record that is left out. Throws Error(bad_file) if the whole
// is no export of this version.
std::vector<Record> decode_export(std::string_view text,
                                  const std::function<void(const std::string&)>& damaged);

}  // namespace faltung

#endif  // FALTUNG_SRC_STORE_RECORD_HPP_
