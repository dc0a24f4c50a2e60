// The faltung command in a folder and with a store of a test's own.
#ifndef FALTUNG_TESTS_COMMAND_FIXTURE_HPP_
#define FALTUNG_TESTS_COMMAND_FIXTURE_HPP_

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "src/problem/npy.hpp"
#include "src/problem/text.hpp"
#include "tests/scratch.hpp"

namespace faltung {

class CommandFixture : public testing::Test {
 protected:
  using Words = std::vector<std::string>;
  struct Result {
    int exit = -1;  // the exit code; -1 if it was killed
    std::string out, err;
  };

  pid_t start(const Words& words, const std::string& tag) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    for (const auto& [descriptor, name] : {std::pair{1, "out"}, std::pair{2, "err"}}) {
      const std::string file = path(tag + "." + name);
      dup2(open(file.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600), descriptor);
    }
    setenv("FALTUNG_STORE", store_.c_str(), 1);
    for (const auto& [name, value] : environment_) setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> arguments{const_cast<char*>(FALTUNG_COMMAND)};
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execv(FALTUNG_COMMAND, arguments.data());
    _exit(99);
  }

  Result wait(pid_t pid, const std::string& tag) {
    int status = 0;
    waitpid(pid, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(path(tag + ".out")), read(path(tag + ".err"))};
  }

  Result run(const Words& words) { return wait(start(words, "run"), "run"); }

  // One clear line on stderr that contains `message`, nothing on stdout, exit code 2.
  void expect_refused(const Words& words, const std::string& message) {
    std::string line;
    for (const std::string& word : words) line += " " + word;
    SCOPED_TRACE("faltung" + line);
    const Result result = run(words);
    EXPECT_EQ(result.exit, 2);
    EXPECT_THAT(result.err, testing::StartsWith("faltung: "));
    EXPECT_THAT(result.err, testing::HasSubstr(message));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_THAT(result.out, testing::IsEmpty());
  }

  std::string path(const std::string& name) const { return scratch_.path() + "/" + name; }

  void save(const std::string& name, const std::vector<std::int64_t>& shape) {
    std::int64_t elements = 1;
    for (const std::int64_t size : shape) elements *= size;
    std::vector<float> data(static_cast<std::size_t>(elements));
    std::mt19937 random(7);
    for (float& value : data) value = std::uniform_real_distribution<float>(-1, 1)(random);
    write_npy(path(name), DType::f32, shape, data.data());
  }

  static std::string read(const std::string& file) {
    std::ifstream in(file);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }

  static void write(const std::string& file, const std::string& text) { std::ofstream(file) << text; }

  // The rows of a CSV by column name. Fields here hold no commas but in a quoted note at the end.
  static std::vector<std::map<std::string, std::string>> rows(const std::string& csv) {
    std::istringstream in(csv);
    std::string line;
    std::getline(in, line);
    const Words columns = split(line, ',');
    std::vector<std::map<std::string, std::string>> out;
    while (std::getline(in, line)) {
      const Words fields = split(line, ',');
      auto& row = out.emplace_back();
      for (std::size_t i = 0; i < std::min(columns.size(), fields.size()); ++i) row[columns[i]] = fields[i];
    }
    return out;
  }

  const std::string kSmall = "n2c16h14w15k32r3s3:pad1";
  Scratch scratch_;
  std::string store_ = scratch_.path() + "/store";
  std::map<std::string, std::string> environment_;
};

}  // namespace faltung

#endif  // FALTUNG_TESTS_COMMAND_FIXTURE_HPP_
