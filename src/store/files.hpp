// Files as the store needs them: read whole, replaced at once.
#ifndef FALTUNG_SRC_STORE_FILES_HPP_
#define FALTUNG_SRC_STORE_FILES_HPP_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace faltung {

struct FileContent {
  std::string bytes;
  std::int64_t modified_ms = 0;
};

// Empty if there is no such file. Throws Error(bad_file) if it is there and cannot be read, or is larger than
// a store's file can be.
std::optional<FileContent> read_file(const std::string& path);

// Replaces path by content: whoever reads it sees the old file or the new one, whole. modified_ms: the file's
// time; 0 for now. Throws Error(bad_file).
void replace_file(const std::string& path, std::string_view content, std::int64_t modified_ms = 0);

// Whether name is what replace_file calls a file that is not finished.
bool is_temporary(std::string_view name);

// The names in a directory, sorted; empty if there is none or it cannot be read.
std::vector<std::string> names_in(const std::string& directory);

}  // namespace faltung

#endif  // FALTUNG_SRC_STORE_FILES_HPP_
