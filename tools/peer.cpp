#include "tools/peer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "src/problem/environment.hpp"
#include "src/problem/problem.hpp"
#include "src/problem/text.hpp"

namespace faltung::tools {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> directories() {
  std::vector<fs::path> found;
  for (const std::string& part : split(environment("FALTUNG_PEER_PATH"), ':')) {
    if (!part.empty()) found.emplace_back(part);
  }
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (!error) {
    found.push_back(self);
    found.push_back(self.parent_path() / "bench" / "peers");      // the build tree
    found.push_back(self.parent_path() / "libexec" / "faltung");  // installed
  }
  for (const std::string& part : split(environment("PATH"), ':')) {
    if (!part.empty()) found.emplace_back(part);
  }
  return found;
}

constexpr std::string_view kPrefix = "faltung-peer-";

bool is_executable(const fs::path& path) {
  return access(path.c_str(), X_OK) == 0 && fs::is_regular_file(path);
}

std::string find_peer(const std::string& name) {
  std::vector<std::string> others;
  for (const fs::path& directory : directories()) {
    const fs::path path = directory / (std::string(kPrefix) + name);
    if (name.find('/') == std::string::npos && is_executable(path)) return path;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory, error)) {
      const std::string file = entry.path().filename();
      if (file.starts_with(kPrefix) && is_executable(entry.path()))
        others.push_back(file.substr(kPrefix.size()));
    }
  }
  throw Error(
      Status::bad_problem,
      fmt::format(
          "no peer '{}': faltung-peer-{} is not beside this command, in FALTUNG_PEER_PATH or in PATH; {}",
          name, name,
          others.empty() ? "no peer was built (oneDNN's needs libdnnl-dev)"
                         : "the nearest is " + nearest(name, others)));
}

}  // namespace

Peer::Peer(const std::string& name) : name_(name) {
  const std::string path = find_peer(name);
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) fail(std::strerror(errno));
  signal(SIGPIPE, SIG_IGN);  // a peer that died is told of by the next read
  const pid_t self = getpid();
  pid_ = fork();
  if (pid_ < 0) fail(std::strerror(errno));
  if (pid_ == 0) {
#if defined(__linux__)
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // stopped as it may be, it does not see its input end
#endif
    if (getppid() != self) _exit(126);  // ended before the line above
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    execl(path.c_str(), path.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  in_ = to[1];
  out_ = from[0];
  const std::string hello = read_line(60);  // peer 1 <name> <version>
  if (!hello.starts_with("peer 1 ")) fail("said '" + hello + "' in place of 'peer 1 <name and version>'");
  version_ = hello.substr(7);
  stop();
}

Peer::~Peer() {
  if (in_ >= 0) close(in_);
  if (out_ >= 0) close(out_);
  if (pid_ <= 0) return;
  kill(pid_, SIGCONT);
  using namespace std::chrono_literals;
  for (int i = 0; i < 200; ++i) {  // the end of its input asks it to leave
    if (waitpid(pid_, nullptr, WNOHANG) != 0) return;
    std::this_thread::sleep_for(5ms);
  }
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Peer::stop() const {
  kill(pid_, SIGSTOP);
  siginfo_t what;
  while (waitid(P_PID, static_cast<id_t>(pid_), &what, WSTOPPED | WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
}

void Peer::fail(const std::string& what) const {
  throw Error(Status::device_error, "peer " + name_ + ": " + what);
}

std::string Peer::read_line(double timeout_s) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  while (true) {
    if (const std::size_t end = buffered_.find('\n'); end != std::string::npos) {
      std::string line = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      return line;
    }
    const double left = std::chrono::duration<double>(deadline - std::chrono::steady_clock::now()).count();
    pollfd descriptor{out_, POLLIN, 0};
    const int ready = left > 0 ? poll(&descriptor, 1, static_cast<int>(left * 1000) + 1) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      kill(pid_, SIGKILL);
      fail(fmt::format("no answer in {:.0f} s; it was stopped", timeout_s));
    }
    char chunk[4096];
    const ssize_t bytes = read(out_, chunk, sizeof chunk);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) fail("it ended without an answer");
    buffered_.append(chunk, static_cast<std::size_t>(bytes));
  }
}

std::string Peer::ask(const std::string& line, double timeout_s) {
  const std::string text = line + "\n";
  kill(pid_, SIGCONT);
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t bytes = ::write(in_, text.data() + sent, text.size() - sent);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) fail("it is gone");
    sent += static_cast<std::size_t>(bytes);
  }
  std::string answer = read_line(timeout_s);
  stop();
  return answer;
}

Peer::Answer Peer::prepare(const Problem& problem, const std::string& device, int threads, int sets,
                           const std::string& data) {
  std::string line = fmt::format("prepare device={} threads={} sets={}", device, threads, sets);
  if (!data.empty()) line += " data=" + data;
  const std::string answer = ask(line + " " + to_string(problem), 300);
  if (answer.starts_with("ready ")) return {true, answer.substr(6)};
  if (answer.starts_with("declined ")) return {false, answer.substr(9)};
  fail("answered '" + answer + "' to prepare");
}

Peer::Answer Peer::prepare_network(const std::string& model, const std::vector<NetworkTensor>& inputs,
                                   const NetworkRequest& request, int threads) {
  std::string line = fmt::format("network threads={} device={} dtype={} math={} model={}", threads,
                                 request.request.device, faltung::name(request.dtype),
                                 faltung::name(request.math), std::filesystem::absolute(model).string());
  for (const NetworkTensor& input : inputs)
    line += fmt::format(" {}={}", input.name, fmt::join(input.sizes, "x"));
  constexpr double kMost = 1800;  // a compiler that tries everything takes minutes
  const std::string answer = ask(line, kMost);
  if (answer.starts_with("ready ")) return {true, answer.substr(6)};
  if (answer.starts_with("declined ")) return {false, answer.substr(9)};
  if (answer.starts_with("failed: unknown request"))
    return {false, "it runs no networks; faltung bench times single convolutions beside it"};
  fail("answered '" + answer + "' to network");
}

Peer::Answer Peer::result(const std::string& file) {
  const std::string answer = ask("result " + file, 300);
  return {answer == "done", answer};
}

Peer::Answer Peer::outputs(const std::string& folder) {
  const std::string answer = ask("outputs " + folder, 300);
  return {answer == "done", answer};
}

Block Peer::run(double ms) {
  const std::string answer = ask(fmt::format("run {:.6f}", ms / 1000), 120 + ms / 100);
  Block block{};
  if (std::sscanf(answer.c_str(), "ms %lf %lf %lf %d", &block.median, &block.min, &block.max, &block.runs) !=
      4) {
    fail("answered '" + answer + "' to run");
  }
  return block;
}

}  // namespace faltung::tools
