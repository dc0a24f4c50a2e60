// Of Linux: another system needs its counterparts of memfd_create, close_range, SOCK_CLOEXEC and MSG_NOSIGNAL
// here, and nowhere else.
#include "src/finder/trust/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include "faltung/faltung.hpp"
#include "src/backend/opencl_api.hpp"
#include "src/problem/text.hpp"
#include "src/store/files.hpp"

namespace faltung {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongestLine = std::size_t{1} << 24;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Between fork and exec: only what is safe in the child of a process with many threads.
[[noreturn]] void become(const std::vector<char*>& arguments, const std::vector<char*>& environment,
                         int socket, int errors, pid_t parent) {
  ::setpgid(0, 0);  // a terminal's Ctrl-C is the parent's to handle; a kill reaches what the child started
#if defined(__linux__)
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // elsewhere it ends when its socket does
#endif
  if (::getppid() != parent) ::_exit(126);  // it died before the line above
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::dup2(socket, STDIN_FILENO);
  ::dup2(socket, STDOUT_FILENO);
  ::dup2(errors, STDERR_FILENO);
  // Descriptors that the caller's program left inheritable are no business of the child's.
  constexpr unsigned kCloseOnExec = 4;
  ::syscall(SYS_close_range, 3u, ~0u, kCloseOnExec);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGPIPE, SIGCHLD, SIGINT, SIGTERM, SIGHUP}) ::signal(number, SIG_DFL);
  ::execve(arguments[0], arguments.data(), environment.data());
  ::_exit(127);
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// The caller's environment, with a list of drivers that was cut in place made whole again.
std::vector<std::string> whole_environment() {
  std::vector<std::string> all;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) all.emplace_back(*entry);
  if (const char* given = opencl::given_filenames()) {
    const std::string whole = std::string(opencl::kFilenames) + "=" + given;
    for (std::string& entry : all) {
      if (whole.starts_with(entry + ":")) entry = whole;
    }
  }
  return all;
}

}  // namespace

LineProcess::LineProcess(std::vector<std::string> command) {
  std::vector<std::string> variables = whole_environment();
  const std::vector<char*> arguments = pointers(command), environment = pointers(variables);
  int ends[2] = {-1, -1};
  errors_ = above_standard(
      static_cast<int>(::syscall(SYS_memfd_create, "faltung-worker-stderr", unsigned{MFD_CLOEXEC})));
  int error = errors_ < 0 || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0 ? errno : 0;
  for (int& descriptor : ends) {
    if (error == 0 && (descriptor = above_standard(descriptor)) < 0) error = errno;
  }
  socket_ = ends[0];
  if (error == 0) {
    ::fcntl(errors_, F_SETFL, O_APPEND);
    const auto started = std::make_shared<std::promise<int>>();
    try {
      keeper_ = std::thread(
          [&arguments, &environment, theirs = ends[1], started, this, released = release_.get_future()] {
            const pid_t parent = ::getpid(), child = ::fork();
            if (child == 0) become(arguments, environment, theirs, errors_, parent);
            pid_ = child;
            started->set_value(child < 0 ? errno : 0);
            released.wait();
          });
      error = started->get_future().get();
    } catch (const std::system_error& none) {  // the process may have no more threads
      error = none.code().value();
    }
  }
  if (ends[1] >= 0) ::close(ends[1]);
  if (error == 0) {
    ::setpgid(pid_, pid_);  // in case the child has not come to it yet
    return;
  }
  release_.set_value();
  if (keeper_.joinable()) keeper_.join();
  for (const int descriptor : {socket_, errors_}) {
    if (descriptor >= 0) ::close(descriptor);
  }
  throw Error(Status::device_error, command[0] + ": cannot be started: " + ::strerror(error));
}

LineProcess::~LineProcess() {
  end(0);
  ::close(socket_);
  ::close(errors_);
  release_.set_value();
  keeper_.join();
}

bool LineProcess::send(const std::string& line) {
  if (::ftruncate(errors_, 0) != 0) return false;
  const std::string text = line + "\n";
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t now = ::send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return false;
    sent += static_cast<std::size_t>(now);
  }
  return true;
}

// Of the process's threads, each that of the one with most. Zeros where the system does not say.
LineProcess::Times LineProcess::times() const {
  Times most;
  std::error_code gone;
  fs::directory_iterator task("/proc/" + std::to_string(pid_) + "/task", gone);
  for (; !gone && task != fs::directory_iterator(); task.increment(gone)) {
    double ran_ns = 0, waited_ns = 0;
    std::ifstream(task->path() / "schedstat") >> ran_ns >> waited_ns;
    most.ran_ms = std::max(most.ran_ms, ran_ns * 1e-6);
    most.waited_ms = std::max(most.waited_ms, waited_ns * 1e-6);
    std::string stat;
    std::getline(std::ifstream(task->path() / "stat"), stat);
    most.is_runnable = most.is_runnable || stat.find(") R ") != std::string::npos;
  }
  return most;
}

LineProcess::Got LineProcess::receive(std::string& line, double wait_ms) {
  constexpr double kMost = 20;  // times what was asked for, however busy the machine is
  const auto begin = Clock::now();
  const Times before = times();
  // On a machine that has more to do than it can, a process is late through no fault of its own.
  const auto left_ms = [&] {
    const double passed = ms_since(begin);
    if (passed < wait_ms || passed > kMost * wait_ms) return wait_ms - passed;
    const Times now = times();
    const double own = passed - std::max(0.0, now.waited_ms - before.waited_ms);
    // What it waits now is not yet among that.
    return wait_ms - (now.is_runnable ? std::min(own, std::max(0.0, now.ran_ms - before.ran_ms)) : own);
  };
  while (true) {
    if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
      line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return Got::line;
    }
    if (buffer_.size() > kLongestLine) return Got::end;  // it has lost its mind
    const double left = left_ms();
    if (left <= 0) return Got::nothing;
    pollfd wait{socket_, POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::min(left, 1e6)) + 1);
    if (ready < 0 && errno != EINTR) return Got::end;
    if (ready <= 0) continue;
    char bytes[4096];
    const ssize_t got = ::recv(socket_, bytes, sizeof bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Got::end;
    buffer_.append(bytes, static_cast<std::size_t>(got));
  }
}

bool LineProcess::reap(End& end) {
  int status = 0;
  const pid_t got = ::waitpid(pid_, &status, WNOHANG);
  if (got == 0) return false;
  reaped_ = true;
  // ECHILD: the caller's program reaps every child itself. How it ended is then unknown.
  if (got == pid_ && WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  if (got == pid_ && WIFEXITED(status)) end.code = WEXITSTATUS(status);
  return true;
}

LineProcess::End LineProcess::end(double grace_ms) {
  End end;
  if (reaped_) return end;
  const auto wait = [&](double ms) {
    const auto begin = Clock::now();
    while (true) {
      if (reap(end)) return true;
      if (ms_since(begin) >= ms) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  };
  const bool by_itself = wait(grace_ms);
  ::kill(-pid_, SIGKILL);  // what it may have started ends as well
  if (by_itself) return end;
  end.by_us = true;
  constexpr double kDriversPatience = 30e3;  // a driver may take its time to stop what runs
  end.gone = wait(kDriversPatience);
  return end;
}

std::string LineProcess::End::words() const {
  if (signal != 0) return "was ended by signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
  return "ended with exit code " + std::to_string(code);
}

std::string LineProcess::complaint() const {
  char text[2048];
  struct stat status {};
  if (::fstat(errors_, &status) != 0) return "";
  const off_t from = std::max<off_t>(0, status.st_size - static_cast<off_t>(sizeof text));
  const ssize_t got = ::pread(errors_, text, sizeof text, from);
  if (got <= 0) return "";
  std::string last;
  for (const std::string& line : split(std::string_view(text, static_cast<std::size_t>(got)), '\n')) {
    if (!trim(line).empty()) last = std::string(trim(line));
  }
  std::erase_if(last, [](char c) { return c < ' ' || c > '~'; });  // it may be anything; records are UTF-8
  constexpr std::size_t kLongest = 300;
  return last.substr(0, kLongest);
}

}  // namespace faltung
