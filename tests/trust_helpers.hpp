// Running tests/faults/program.cpp, and looking for what it leaves behind.
#ifndef FALTUNG_TESTS_TRUST_HELPERS_HPP_
#define FALTUNG_TESTS_TRUST_HELPERS_HPP_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "src/finder/trust/verdicts.hpp"
#include "tests/scratch.hpp"

namespace faltung {

// A machine of its own: a store, a folder for temporary files, an environment.
class TrustPrograms {
 public:
  using Json = nlohmann::json;

  // The program that is run, and that is its worker.
  explicit TrustPrograms(std::string program = FALTUNG_TRUST_PROGRAM) : program_(std::move(program)) {
    std::filesystem::create_directory(temporary());
    environment_ = {{"FALTUNG_STORE", store()},        {"FALTUNG_WORKER", program_},
                    {"FALTUNG_FAULT_LOG", log()},      {"TMPDIR", temporary()},
                    {"FALTUNG_TEST_MARK", mark_},      {"POCL_CACHE_DIR", FALTUNG_BINARY_DIR "/test_pocl"},
                    {"FALTUNG_KNOWN_DEVICES", "none"}, {"FALTUNG_DEADLINE", "20"}};
  }

  std::string store() const { return scratch_.path() + "/store"; }
  std::string temporary() const { return scratch_.path() + "/tmp"; }
  std::string log() const { return scratch_.path() + "/log"; }
  void set(const std::string& name, const std::string& value) { environment_[name] = value; }

  pid_t start(const std::vector<std::string>& words) {
    std::filesystem::remove(output());
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::dup2(::open(output().c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600), 1);
    if (!errors_to_terminal_) ::dup2(::open(errors().c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600), 2);
    for (const auto& [name, value] : environment_) ::setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> arguments{program_.data()};
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execv(program_.c_str(), arguments.data());
    ::_exit(99);
  }

  // What it prints, and "seconds". Empty, with a failure, if it did not end well.
  Json run(const std::vector<std::string>& words) {
    const auto begin = std::chrono::steady_clock::now();
    int status = 0;
    ::waitpid(start(words), &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    Json out = Json::parse(read(output()), nullptr, false);
    EXPECT_TRUE(out.is_object()) << read(output());
    if (!out.is_object()) return Json::object();
    out["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return out;
  }

  // A command's exit code (-1 if a signal ended it), what it prints, and seconds.
  struct Ended {
    int exit;
    std::string out, err;
    double seconds;
  };
  Ended command(const std::vector<std::string>& words) {
    errors_to_terminal_ = false;
    const auto begin = std::chrono::steady_clock::now();
    int status = 0;
    ::waitpid(start(words), &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(output()), read(errors()),
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
  }

  // The kernels of the log, as "pid fault", since the last call.
  std::vector<std::string> tried() {
    std::vector<std::string> lines;
    std::ifstream in(log());
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    std::filesystem::remove(log());
    return lines;
  }

  std::vector<Verdict> records(const char* kind) const {
    std::vector<Verdict> all;
    for (const Record& record : Store(store()).list(kind)) {
      if (const auto verdict = parse_verdict(record.payload)) all.push_back(*verdict);
    }
    return all;
  }

  // Processes that carry this machine's environment, except those that end within a moment.
  std::vector<std::string> left_behind() const {
    std::vector<std::string> found;
    for (int attempt = 0; attempt < 100; ++attempt) {
      found.clear();
      for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        const std::string pid = entry.path().filename().string();
        if (pid.find_first_not_of("0123456789") != std::string::npos || pid == std::to_string(::getpid()))
          continue;
        if (read(entry.path().string() + "/environ").find("FALTUNG_TEST_MARK=" + mark_) != std::string::npos)
          found.push_back(pid + " " + read(entry.path().string() + "/cmdline"));
      }
      if (found.empty()) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return found;
  }

  // Nothing runs, nothing waits to be reaped, no temporary file is there.
  void expect_nothing_left_behind() const {
    EXPECT_EQ(left_behind(), std::vector<std::string>{});
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child was not reaped";
    for (const std::string& folder : {temporary(), store()}) {
      if (!std::filesystem::exists(folder)) continue;
      for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
        const std::string name = entry.path().filename().string();
        EXPECT_FALSE(entry.is_regular_file() && (folder == temporary() || name.starts_with(".tmp")))
            << entry.path();
      }
    }
  }

  static std::string read(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  std::string output() const { return scratch_.path() + "/out"; }
  std::string errors() const { return scratch_.path() + "/err"; }
  std::string path(const std::string& name) const { return scratch_.path() + "/" + name; }

 private:
  Scratch scratch_;
  std::string program_;
  std::string mark_ = scratch_.path();
  std::map<std::string, std::string> environment_;
  bool errors_to_terminal_ = true;
};

// What the caller of a faulty kernel sees on a device: the right answer in bounded time and one warning, in
// this call; a verdict in the store; and a second process that does not try the kernel.
inline void expect_caught(TrustPrograms& programs, const std::string& device, const std::string& fault,
                          Outcome outcome, double most_seconds) {
  SCOPED_TRACE(device + " " + fault);
  const std::string kernel = (device == "cpu" ? "faulty_cpu/" : "faulty_gpu/") + fault;
  const std::string problem = "fwd:n1c8h9w10k16r3s3:pad1";
  programs.set("FALTUNG_FAULT", fault);
  const nlohmann::json first = programs.run({"plan", device, problem});
  EXPECT_TRUE(first.value("right", false)) << first;
  EXPECT_NE(first.value("kernel", kernel), kernel);
  EXPECT_LT(first.value("seconds", 1e9), most_seconds);
  ASSERT_EQ(first.at("warnings").size(), 1u) << first;
  const std::string warning = first["warnings"][0];
  EXPECT_NE(warning.find(kernel + " is not used on " + device + ": " + name(outcome)), std::string::npos)
      << warning;
  EXPECT_NE(warning.find("reproduce: faltung verify 'fwd:"), std::string::npos) << warning;
  EXPECT_NE(warning.find("--kernel " + kernel + " --device " + device), std::string::npos) << warning;
  EXPECT_GE(programs.tried().size(), 1u);

  bool recorded = false;
  for (const Verdict& verdict : programs.records(kQuarantine)) {
    if (verdict.report.kernel != kernel) continue;
    recorded = true;
    EXPECT_EQ(verdict.report.outcome, outcome) << name(verdict.report.outcome);
    EXPECT_FALSE(verdict.report.why.empty());
    EXPECT_EQ(verdict.device, device);
    EXPECT_FALSE(verdict.driver.empty());
    EXPECT_NE(verdict.problem.find("fwd:n1c8"), std::string::npos) << verdict.problem;
  }
  EXPECT_TRUE(recorded);

  const nlohmann::json second = programs.run({"plan", device, problem});
  EXPECT_TRUE(second.value("right", false)) << second;
  EXPECT_NE(second.value("kernel", kernel), kernel);
  EXPECT_EQ(second.at("warnings").size(), 0u) << second;
  EXPECT_EQ(programs.tried(), std::vector<std::string>{});
  EXPECT_EQ(second.value("compile_ms", -1.0), 0);
  programs.expect_nothing_left_behind();
}

}  // namespace faltung

#endif  // FALTUNG_TESTS_TRUST_HELPERS_HPP_
