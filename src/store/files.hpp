// Files as the store needs them: read whole, replaced at once. Whatever lies at a path, nothing here waits
// for it, takes one of the standard descriptors, or lets a signal end the process.
#ifndef FALTUNG_SRC_STORE_FILES_HPP_
#define FALTUNG_SRC_STORE_FILES_HPP_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace faltung {

// The same file under a descriptor that is none of the standard ones: where a process has closed those, what
// it prints must not land in ours. -1 for one that is none, and where there are no more, with errno.
int above_standard(int descriptor);

struct FileContent {
  std::string bytes;
  std::int64_t modified_ms = 0;
};

// Empty if there is no such file. Throws Error(bad_file) if it is there and cannot be read, is no file, or is
// larger than a store's file can be.
std::optional<FileContent> read_file(const std::string& path);

// When a file that was replaced outlasts the machine's sudden end: at once; or after make_lasting, until when
// that may leave half of it behind.
enum class Lasting { at_once, later };

// Replaces path by content: whoever reads it sees the old file or the new one, whole. modified_ms: the file's
// time; 0 for now. Throws Error(bad_file).
void replace_file(const std::string& path, std::string_view content, std::int64_t modified_ms = 0,
                  Lasting lasting = Lasting::at_once);

// All that was written to the directory's file system. Throws Error(bad_file).
void make_lasting(const std::string& directory);

// For a path that a user gave: a link stays one and its file is replaced; what is there and is no file, such
// as a device, is written to as it is. Throws Error(bad_file).
void write_file(const std::string& path, std::string_view content);

// Whether name is what replace_file calls a file that is not finished.
bool is_temporary(std::string_view name);

// The names in a directory, sorted; empty if there is none. Throws Error(bad_file) if it cannot be read.
std::vector<std::string> names_in(const std::string& directory);

}  // namespace faltung

#endif  // FALTUNG_SRC_STORE_FILES_HPP_
