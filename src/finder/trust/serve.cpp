// The worker's side: a loop over requests.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <thread>

#include "src/finder/trust/protocol.hpp"
#include "src/finder/trust/worker.hpp"

namespace faltung {
namespace {

using Clock = std::chrono::steady_clock;

// Ends the process as soon as the caller is gone, whatever a kernel is doing.
void end_with_caller() {
  struct stat status {};
  if (::fstat(STDIN_FILENO, &status) != 0 || !S_ISSOCK(status.st_mode)) return;  // typed in, or from a file
  std::thread([] {
    while (true) {
      pollfd caller{STDIN_FILENO, 0, 0};
      if (::poll(&caller, 1, -1) > 0 && (caller.revents & (POLLHUP | POLLERR)) != 0) ::_exit(0);
    }
  }).detach();
}

// Drivers print to standard output as they like: the protocol gets a descriptor of its own.
int claim_output() {
  const int own = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  return own;
}

class Output {
 public:
  explicit Output(int descriptor) : descriptor_(descriptor) {}
  void line(const std::string& text) {
    const std::string whole = text + "\n";
    for (std::size_t sent = 0; sent < whole.size();) {
      const ssize_t now = ::write(descriptor_, whole.data() + sent, whole.size() - sent);
      if (now < 0 && errno == EINTR) continue;
      if (now <= 0) ::_exit(0);
      sent += static_cast<std::size_t>(now);
    }
  }
  // The same phase again is worth a line now and then: the deadline starts anew with it.
  void phase(Phase next) {
    constexpr auto kOften = std::chrono::milliseconds(50);
    const auto now = Clock::now();
    if (said_ && last_ == next && now - when_ < kOften) return;
    said_ = true, last_ = next, when_ = now;
    line(protocol::phase(next));
  }
  void start() { said_ = false; }

 private:
  int descriptor_;
  bool said_ = false;
  Phase last_ = Phase::open;
  Clock::time_point when_;
};

// Ends the requests once there was none for so long: what a driver holds of a device's memory for a process
// that waits is hundreds of megabytes. What was sent by then is read yet; later ones fail, and start another.
void await_input(int idle_ms) {
  pollfd caller{STDIN_FILENO, POLLIN, 0};
  if (::poll(&caller, 1, idle_ms) == 0) ::shutdown(STDIN_FILENO, SHUT_RD);
}

bool read_line(std::string& buffer, std::string& line, int idle_ms) {
  while (true) {
    if (const std::size_t end = buffer.find('\n'); end != std::string::npos) {
      line = buffer.substr(0, end);
      buffer.erase(0, end + 1);
      return true;
    }
    await_input(idle_ms);
    char bytes[4096];
    const ssize_t got = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    buffer.append(bytes, static_cast<std::size_t>(got));
  }
}

}  // namespace

int serve_worker(int idle_ms) {
  Output out(claim_output());
  end_with_caller();
  // Where memory runs out, this process is the one to go; Linux alone has the file.
  std::ofstream("/proc/self/oom_score_adj") << 1000;
  out.line(protocol::hello());
  Examiner examiner;
  std::string buffer, line;
  while (read_line(buffer, line, idle_ms)) {
    out.start();
    try {
      const protocol::Request request = protocol::read_request(line);
      const Watch watch = [&](Phase phase) { out.phase(phase); };
      Report report = report_of(Outcome::pass, "");
      if (request.task) {
        report = examiner.examine(*request.task, watch);
      } else if (!request.compile.empty()) {
        examiner.compile_ahead(request.compile, watch);
      } else if (request.probe) {
        examiner.probe(*request.probe);
      }
      out.line(protocol::answer(report));
    } catch (const std::exception& error) {
      out.line(protocol::error(error.what()));
    }
  }
  // Drivers may not end well, above all after what they were put through; nothing here needs them to.
  ::_exit(0);
}

}  // namespace faltung
