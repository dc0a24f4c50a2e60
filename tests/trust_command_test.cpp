// The command with broken kernels in its registry: doctor, find, reproduction, quarantine and lock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/problem/text.hpp"
#include "tests/trust_helpers.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;
using testing::Not;
using Ended = TrustPrograms::Ended;

struct FaultyCommand : TrustPrograms {
  FaultyCommand() : TrustPrograms(FALTUNG_FAULTY_COMMAND) {}
};

const std::string kCommandProblem = "fwd:n1c8h9w10k16r3s3:pad1:f32:nchw";

// The words of a command line as a shell would have them; quotes are single here.
std::vector<std::string> words(const std::string& line) {
  std::vector<std::string> out;
  for (std::string word : split(line, ' ')) {
    std::erase(word, '\'');
    if (!word.empty()) out.push_back(word);
  }
  return out;
}

// What follows "reproduce: faltung" on the first such line.
std::vector<std::string> reproduction(const std::string& text) {
  const std::string mark = "reproduce: faltung ";
  const std::size_t begin = text.find(mark);
  if (begin == std::string::npos) return {};
  const std::size_t from = begin + mark.size();
  return words(text.substr(from, text.find('\n', from) - from));
}

TEST(TrustCommand, DoctorEndsWhateverTheKernelsDo) {
  FaultyCommand machine;
  machine.set("FALTUNG_FAULT", "hang");
  machine.set("FALTUNG_DEADLINE", "1");
  const Ended ended =
      machine.command({"doctor", "--device", "cpu", "--kernel", "faulty*", "--kernel", "direct_cpu",
                       "--threads", "1", "--budget", "12s", "--report", machine.path("report")});
  EXPECT_EQ(ended.exit, 1) << ended.err;
  EXPECT_LT(ended.seconds, 60);
  EXPECT_THAT(ended.out, HasSubstr("FALTUNG_SKIP='faulty_cpu'"));
  EXPECT_THAT(ended.out, HasSubstr("faulty_cpu/hang: hang on "));
  const auto json = nlohmann::json::parse(TrustPrograms::read(machine.path("report.json")));
  const auto& device = json["devices"].at(0);
  EXPECT_EQ(device["device"], "cpu");
  EXPECT_EQ(device["matrix"]["faulty_cpu"]["hang"], 2);
  EXPECT_GE(device["matrix"]["faulty_cpu"].value("skipped", 0), 1);
  EXPECT_GE(device["matrix"]["direct_cpu"].value("pass", 0), 3);
  EXPECT_EQ(device["skip"], "faulty_cpu");
  for (const auto& result : device["results"]) {
    if (result["kernel"].get<std::string>().find('/') == std::string::npos) continue;
    EXPECT_THAT(result["reproduce"].get<std::string>(),
                HasSubstr("faltung verify '" + result["problem"].get<std::string>()));
  }
  EXPECT_THAT(TrustPrograms::read(machine.path("report.txt")), HasSubstr("faulty_cpu"));
  EXPECT_EQ(machine.records(kQuarantine).size(), 1u);
  machine.expect_nothing_left_behind();
}

TEST(TrustCommand, DoctorFindsAHealthyDeviceHealthy) {
  FaultyCommand machine;
  const Ended ended = machine.command({"doctor", "--device", "cpu", "--kernel", "direct_cpu", "--threads",
                                       "1", "--budget", "2s", "--report", machine.path("report")});
  EXPECT_EQ(ended.exit, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("Settings: none are needed."));
  EXPECT_EQ(machine.command({"doctor", "--report", "/nowhere/report"}).exit, 2);
}

TEST(TrustCommand, TheWarningsLineShowsTheSameAgain) {
  for (const auto& [fault, verdict] : {std::pair{"wrong_later", "wrong"}, {"crash", "crash"}}) {
    FaultyCommand machine;
    machine.set("FALTUNG_FAULT", fault);
    const Ended found = machine.command({"find", kCommandProblem, "--budget", "50ms"});
    EXPECT_EQ(found.exit, 0) << found.err;
    const std::vector<std::string> again = reproduction(found.err);
    ASSERT_FALSE(again.empty()) << found.err;
    EXPECT_EQ(again.front(), "verify");
    const Ended repeated = machine.command(again);
    EXPECT_EQ(repeated.exit, 1);
    EXPECT_THAT(repeated.out, HasSubstr(verdict));
    EXPECT_EQ(reproduction(repeated.out), again);
    machine.expect_nothing_left_behind();
  }
}

TEST(TrustCommand, FindEndsAfterItsBudgetAndOneTrial) {
  FaultyCommand machine;
  const Ended ended = machine.command(
      {"find", "n1c64h56w56k64r3s3:pad1", "--budget", "500ms", "--threads", "1", "--csv", "-"});
  EXPECT_EQ(ended.exit, 0) << ended.err;
  EXPECT_LT(ended.seconds, 10);  // the ceilings' measurement is in it
  EXPECT_THAT(ended.out, HasSubstr("faltung verify 'fwd:n1c64h56w56k64r3s3:pad1:f32:nchw' --kernel "));
}

TEST(TrustCommand, FindThatIsKilledKeepsWhatItLearned) {
  for (const int signal : {SIGKILL, SIGINT}) {
    FaultyCommand machine;
    machine.set("FALTUNG_TRUST", "none");  // in a worker, which must not stay behind
    const pid_t find =
        machine.start({"find", "n4c64h56w56k64r3s3:pad1", "--budget", "60s", "--threads", "1"});
    const Store store(machine.store());
    int status = 0;
    pid_t ended = 0;  // by its budget, however long a loaded machine takes until a trial is there
    while (store.list("trials").empty() && (ended = ::waitpid(find, &status, WNOHANG)) == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ASSERT_EQ(ended, 0) << status;
    ::kill(find, signal);
    ::waitpid(find, &status, 0);
    EXPECT_TRUE(signal == SIGINT ? WEXITSTATUS(status) == 130 : WIFSIGNALED(status)) << status;
    EXPECT_FALSE(store.list("trials").empty());
    const Ended after = machine.command({"explain", "n4c64h56w56k64r3s3:pad1", "--threads", "1"});
    EXPECT_THAT(after.out, HasSubstr("from the store"));
    machine.expect_nothing_left_behind();
  }
}

TEST(TrustCommand, QuarantineIsListedSharedAndCleared) {
  FaultyCommand machine, other;
  machine.set("FALTUNG_FAULT", "one_wrong");
  other.set("FALTUNG_FAULT", "one_wrong");
  EXPECT_EQ(machine.command({"find", kCommandProblem, "--budget", "20ms"}).exit, 0);
  EXPECT_THAT(
      machine.command({"store", "list", "quarantine"}).out,
      testing::AllOf(HasSubstr("faulty_cpu/one_wrong on cpu"), HasSubstr("wrong on " + kCommandProblem)));
  EXPECT_THAT(machine.command({"explain", kCommandProblem}).out, HasSubstr("quarantined"));
  EXPECT_THAT(machine.command({"bench", kCommandProblem, "--kernel", "faulty_cpu/one_wrong"}).err,
              HasSubstr("quarantined"));
  machine.tried();

  const std::string file = machine.path("shared.json");
  EXPECT_EQ(machine.command({"store", "export", file, "--verdicts"}).exit, 0);
  const std::vector<Record> exported = Store(file).list();
  EXPECT_EQ(exported.size(), 1u);  // neither trials nor ceilings
  for (const Record& record : exported) EXPECT_EQ(record.kind, kQuarantine);
  EXPECT_EQ(other.command({"store", "import", file}).exit, 0);
  const Ended spared = other.command({"find", kCommandProblem, "--budget", "20ms"});
  EXPECT_EQ(spared.err, "");
  EXPECT_EQ(other.tried(), std::vector<std::string>{});

  EXPECT_THAT(machine.command({"store", "clear", "quarantine", "--kernel", "winograd*"}).out,
              HasSubstr(" 0 records"));
  EXPECT_THAT(machine.command({"store", "clear", "quarantine", "--kernel", "faulty*"}).out,
              HasSubstr(" 1 records"));
  const Ended again = machine.command({"find", "n1c8h9w11k16r3s3:pad1", "--budget", "20ms"});
  EXPECT_THAT(again.err, HasSubstr("is not used on cpu"));
}

TEST(TrustCommand, ALockKeepsTheKernelAndFailsInWords) {
  FaultyCommand machine;
  const std::string file = machine.path("team.lock"), other = "n1c8h9w10k16r5s5";
  EXPECT_THAT(machine.command({"store", "export", file, "--lock"}).err, HasSubstr("run `faltung find`"));
  // Two kernels, of which the lock names the slower one: it is the lock that decides.
  EXPECT_EQ(
      machine
          .command({"find", kCommandProblem, "--budget", "20ms", "--kernel", "direct_cpu", "--threads", "1"})
          .exit,
      0);
  EXPECT_THAT(machine.command({"store", "export", file, "--lock"}).out, HasSubstr("1 problems locked"));

  machine.set("FALTUNG_STORE", file + ":readonly");
  const Ended locked = machine.command({"explain", kCommandProblem, "--csv", "-"});
  EXPECT_THAT(locked.out, testing::AllOf(HasSubstr("chosen"), HasSubstr("direct_cpu/"), HasSubstr("lock")));
  EXPECT_THAT(locked.out, Not(HasSubstr("winograd_cpu")));
  const Ended bench =
      machine.command({"bench", kCommandProblem, "--min-time", "1ms", "--repeat", "1", "--csv", "-"});
  EXPECT_THAT(bench.out, HasSubstr("direct_cpu/"));
  for (const std::vector<std::string>& command : {std::vector<std::string>{"bench", other},
                                                  {"explain", other},
                                                  {"bench", kCommandProblem, "--skip", "direct*"},
                                                  {"find", kCommandProblem}}) {
    const Ended refused = machine.command(command);
    EXPECT_EQ(refused.exit, 2);
    EXPECT_THAT(refused.err, HasSubstr("lock")) << command[0];
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  }
  // A lock that was damaged is no licence to choose freely.
  std::ofstream(file, std::ios::app) << "x";
  EXPECT_EQ(machine.command({"explain", kCommandProblem}).exit, 2);
}

}  // namespace
}  // namespace faltung
