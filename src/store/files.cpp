#include "src/store/files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "faltung/faltung.hpp"

namespace faltung {
namespace {

constexpr std::size_t kLargest = std::size_t{1} << 28;
constexpr std::string_view kTemporary = ".tmp-";

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw Error(Status::bad_file, path + ": " + what + ": " + std::strerror(error));
}

// While it lives, a file that may grow no further (RLIMIT_FSIZE) is an error of write's and no signal.
class NoSizeSignal {
 public:
  NoSizeSignal() {
    sigset_t pending;
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    was_pending_ = ::sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
    ::pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~NoSizeSignal() {
    const int error = errno;
    const timespec now{0, 0};
    if (!was_pending_) ::sigtimedwait(&signal_, nullptr, &now);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  NoSizeSignal(const NoSizeSignal&) = delete;
  NoSizeSignal& operator=(const NoSizeSignal&) = delete;

 private:
  sigset_t signal_, before_;
  bool was_pending_;
};

class File {
 public:
  File(const std::string& path, int flags)
      : path_(path), fd_(above_standard(::open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY, 0666))) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }

  void write(std::string_view content) {
    const NoSizeSignal no_signal;
    while (!content.empty()) {
      const ssize_t written = ::write(fd_, content.data(), content.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(path_, "cannot be written", errno);
      content.remove_prefix(static_cast<std::size_t>(written));
    }
  }

  // On NFS a write's error may come as late as here.
  void finish(Lasting lasting) {
    if (lasting == Lasting::at_once && ::fsync(fd_) != 0) fail(path_, "cannot be written", errno);
    const int fd = std::exchange(fd_, -1);
    if (::close(fd) != 0) fail(path_, "cannot be written", errno);
  }

 private:
  std::string path_;
  int fd_;
};

// Unique among the threads, processes and hosts that write to the same directory.
std::string temporary_name() {
  static const std::uint64_t seed = (std::uint64_t{std::random_device{}()} << 32) | std::random_device{}();
  static std::atomic<std::uint64_t> counter{0};
  return std::string(kTemporary) + std::to_string(::getpid()) + "-" + std::to_string(seed) + "-" +
         std::to_string(counter++);
}

}  // namespace

int above_standard(int descriptor) {
  if (descriptor < 0 || descriptor > STDERR_FILENO) return descriptor;
  const int above = ::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(descriptor);
  errno = error;
  return above;
}

std::optional<FileContent> read_file(const std::string& path) {
  for (int attempt = 0;; ++attempt) {
    const File file(path, O_RDONLY | O_NONBLOCK);  // a pipe that nobody writes to would be waited for
    if (!file.is_open()) {
      if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
      fail(path, "cannot be read", errno);
    }
    struct stat status;
    if (::fstat(file.fd(), &status) != 0) fail(path, "cannot be read", errno);
    if (!S_ISREG(status.st_mode)) throw Error(Status::bad_file, path + ": is not a file");
    FileContent content;
    content.modified_ms = std::int64_t{status.st_mtim.tv_sec} * 1000 + status.st_mtim.tv_nsec / 1000000;
    char buffer[1 << 16];
    ssize_t got;
    while ((got = ::read(file.fd(), buffer, sizeof buffer)) > 0 || (got < 0 && errno == EINTR)) {
      if (got > 0) content.bytes.append(buffer, static_cast<std::size_t>(got));
      if (content.bytes.size() > kLargest) throw Error(Status::bad_file, path + ": is larger than 256 MiB");
    }
    if (got == 0) return content;
    // On NFS a file that was replaced while we read it goes stale; the new one is there.
    if (errno != ESTALE || attempt == 2) fail(path, "cannot be read", errno);
  }
}

void replace_file(const std::string& path, std::string_view content, std::int64_t modified_ms,
                  Lasting lasting) {
  const std::filesystem::path target(path);
  const std::string temporary = (target.parent_path() / temporary_name()).string();
  try {
    File file(temporary, O_WRONLY | O_CREAT | O_EXCL);
    if (!file.is_open()) fail(path, "cannot be written", errno);
    file.write(content);
    if (modified_ms != 0) {
      const timespec time{modified_ms / 1000, modified_ms % 1000 * 1000000};
      const timespec times[2] = {time, time};
      if (::futimens(file.fd(), times) != 0) fail(path, "cannot be written", errno);
    }
    file.finish(lasting);
    if (::rename(temporary.c_str(), path.c_str()) != 0) {
      const int error = errno;
      // On NFS a rename whose answer was lost is sent again, and then finds nothing to rename.
      const bool done = error == ENOENT && read_file(path).value_or(FileContent{}).bytes == content;
      if (!done) fail(path, "cannot be written", error);
    }
  } catch (const Error&) {
    ::unlink(temporary.c_str());
    throw;
  }
  if (lasting == Lasting::later) return;
  // Makes the name last, too. Not every file system can.
  const File directory(target.has_parent_path() ? target.parent_path().string() : ".",
                       O_RDONLY | O_DIRECTORY);
  if (directory.is_open()) ::fsync(directory.fd());
}

void make_lasting(const std::string& directory) {
  const File file(directory, O_RDONLY | O_DIRECTORY);
  if (!file.is_open()) fail(directory, "cannot be written", errno);
#ifdef __linux__
  if (::syncfs(file.fd()) != 0) fail(directory, "cannot be written", errno);
#else
  ::sync();
#endif
}

void write_file(const std::string& path, std::string_view content) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (const fs::file_status there = fs::status(path, error);
      fs::exists(there) && !fs::is_regular_file(there)) {
    File file(path, O_WRONLY);
    if (!file.is_open()) fail(path, "cannot be written", errno);
    return file.write(content);
  }
  fs::path target(path);
  constexpr int kMostLinks = 40;  // as the system follows
  for (int links = 0; fs::is_symlink(fs::symlink_status(target, error)); ++links) {
    if (links == kMostLinks) fail(path, "cannot be written", ELOOP);
    target = target.parent_path() / fs::read_symlink(target, error);  // an absolute one replaces the path
  }
  replace_file(target.string(), content);
}

bool is_temporary(std::string_view name) { return name.starts_with(kTemporary); }

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  DIR* dir = ::opendir(directory.c_str());
  if (dir == nullptr) {
    if (errno == ENOENT || errno == ENOTDIR) return names;
    fail(directory, "cannot be read", errno);
  }
  while (const dirent* entry = ::readdir(dir)) names.emplace_back(entry->d_name);
  ::closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace faltung
