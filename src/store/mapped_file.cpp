#include "src/store/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "faltung/faltung.hpp"

namespace faltung {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw Error(Status::bad_file, path + ": cannot be read: " + why);
}

struct Unmap {
  std::size_t size;
  void operator()(const void* address) const { ::munmap(const_cast<void*>(address), size); }
};

struct Descriptor {
  int number;
  ~Descriptor() { ::close(number); }
};

}  // namespace

MappedFile map_file(const std::string& path) {
  const int number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not block
  if (number < 0) fail(path, std::strerror(errno));
  const Descriptor file{number};
  struct stat status;
  if (::fstat(file.number, &status) != 0) fail(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail(path, "it is no regular file");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return {nullptr, {}};
  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number, 0);
  if (address == MAP_FAILED) fail(path, std::strerror(errno));
  return {std::shared_ptr<const void>(address, Unmap{size}), {static_cast<const std::byte*>(address), size}};
}

void give_back_pages(const std::shared_ptr<const void>& owner, std::span<const std::byte> bytes) {
  if (std::get_deleter<Unmap>(owner) == nullptr) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t first = (begin + page - 1) / page * page, last = (begin + bytes.size()) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace faltung
