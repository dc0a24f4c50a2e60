// A file's bytes, mapped into memory and only read.
#ifndef FALTUNG_SRC_STORE_MAPPED_FILE_HPP_
#define FALTUNG_SRC_STORE_MAPPED_FILE_HPP_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace faltung {

struct MappedFile {
  std::shared_ptr<const void> owner;  // unmaps it
  std::span<const std::byte> bytes;
};

// Throws Error(bad_file) for what cannot be read or is no regular file. A program that writes to the file
// while it is mapped changes the bytes, and one that cuts it short ends this process: replace files by
// renaming.
MappedFile map_file(const std::string& path);

// Of bytes that will not be read soon, whole pages become the system's again; who reads them has them brought
// back. Nothing happens to memory that no mapped file owns.
void give_back_pages(const std::shared_ptr<const void>& owner, std::span<const std::byte> bytes);

}  // namespace faltung

#endif  // FALTUNG_SRC_STORE_MAPPED_FILE_HPP_
