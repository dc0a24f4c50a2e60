// Stores and locks whose checksums are right and whose content is not: an answer or an error, and never a
// wrong result. And three processes on one store, ended now and then: what they leave is whole.
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "src/algorithms/algorithm.hpp"
#include "src/finder/lock.hpp"
#include "src/finder/oracle.hpp"
#include "src/finder/records.hpp"
#include "src/finder/trust/verdicts.hpp"
#include "src/store/store.hpp"
#include "tests/hostile/guarded.hpp"
#include "tests/hostile/hostile.hpp"
#include "tests/hostile/processes.hpp"

namespace faltung::hostile {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

const char* const kProblems[] = {"fwd:n1c16h9w8k24r3s3:pad1:f32:nchw", "fwd:n1c16h9w8k24r1s1:f32:nhwc",
                                 "bwd_w:n1c16h9w8k24r3s3:pad1:f32:nchw"};

// A kernel's name: a real one, of this problem or another, or one that is none.
std::string any_kernel(Dice& dice) {
  std::vector<std::string> names = {"",
                                    "/",
                                    "gone_cpu/plain",
                                    "direct_cpu/",
                                    "direct_cpu/rows/rows",
                                    std::string(5000, 'a') + "/b",
                                    "winograd_cpu/f4x4_all",
                                    "depthwise_cpu/rows"};
  const Problem p = parse_problem(kProblems[dice.between(0, 2)]);
  for (const auto& algorithm : registry()) {
    names.push_back(std::string(algorithm->name()) + "/plain");
    const Target target{find_device("cpu")->info(), dice.between(1, 64)};
    if (algorithm->device_kind() != "cpu" || !algorithm->supports(p, target).yes) continue;
    for (const Candidate& c : algorithm->candidates(p, target)) names.push_back(c.kernel());
  }
  return names[dice.bits() % names.size()];
}

Json any_value(Dice& dice) {
  return dice.one_of<Json>({nullptr, true, -1, 0, 1e308, -1e308, 1e-320, std::string("\xc3\xa4\x1b[2J"),
                            "pass", "NaN", Json::array(), Json::object(),
                            Json::array({1, "a", Json::object()}), std::uint64_t{1} << 63, any_kernel(dice)});
}

// Some value somewhere in it is another.
void forge(Dice& dice, Json& json) {
  if (json.is_structured() && !json.empty() && dice.chance(90)) {
    auto item = json.begin();
    std::advance(item, dice.between(0, static_cast<int>(json.size()) - 1));
    if (dice.chance(5)) {
      json.erase(item);
    } else {
      forge(dice, *item);
    }
    return;
  }
  json = json.is_string() && dice.chance(60) ? Json(any_kernel(dice)) : any_value(dice);
}

Record altered(Dice& dice, Record record) {
  Json json = Json::parse(record.payload, nullptr, false);
  for (int i = dice.between(1, 4); i > 0; --i) forge(dice, json);
  record.payload = dice.chance(5) ? "no JSON" : json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return record;
}

// What the engine computes with what it is told, between guard pages.
std::string wrong_result(faltung_engine* engine, const char* text, const Parallel& parallel) {
  const ProblemHandle problem = problem_of(text);
  faltung_request request = faltung_request_default();
  request.threads = 2;
  const PlanHandle plan =
      made<PlanHandle>([&](auto** p) { return faltung_plan_create(engine, problem.get(), &request, p); });
  if (!plan)
    return std::strchr(faltung_last_error(), '\0') == faltung_last_error() ? "no reason was given" : "";
  const Problem p = parse_problem(text);
  const Oracle oracle(p, Data::random, 1);
  Guarded result(static_cast<std::size_t>(oracle.result_bytes()), Side::ends_at_guard);
  Guarded workspace(faltung_plan_workspace_bytes(plan.get(), 0), Side::ends_at_guard);
  std::memset(result.data(), 0xff, result.bytes());
  Tensors tensors = oracle.tensors();
  (p.direction == Direction::forward ? tensors.y : tensors.w) = result.data();
  const faltung_tensors pointers{sizeof pointers, tensors.x, tensors.w, tensors.y, nullptr, nullptr,
                                 nullptr,         nullptr,   nullptr,   nullptr,   nullptr};
  faltung_run_options options{};
  options.size = sizeof options;
  options.workspace = workspace.data();
  if (faltung_run(plan.get(), &pointers, &options) != FALTUNG_OK) return faltung_last_error();
  const Finding finding = oracle.check(
      result.data(),
      find_candidate(faltung_plan_kernel(plan.get()), p, {find_device("cpu")->info(), 2}).accuracy, parallel);
  return finding.right() ? "" : std::string(faltung_plan_kernel(plan.get())) + " is wrong: " + finding.worst;
}

// True records to begin with.
std::vector<Record> true_records(const std::string& directory) {
  const EngineHandle engine = engine_of(directory);
  for (const char* text : kProblems) {
    faltung_request request = faltung_request_default();
    request.threads = 2;
    request.budget_ms = 50;
    faltung_find(engine.get(), problem_of(text).get(), &request, nullptr);
  }
  return lock_records(Store(directory));
}

}  // namespace

bool forged(const Setting& setting) {
  const Parallel parallel(2);
  const std::string honest = setting.directory + "/honest";
  std::vector<Record> locked = true_records(honest);
  const std::vector<Record> trials = Store(honest).list();
  // A verdict as it would be on a kernel of the CPU, to be forged.
  Verdict verdict;
  verdict.report.outcome = Outcome::wrong;
  verdict.report.kernel = "direct_cpu/rows";
  locked.push_back({kQuarantine, "x", to_json(verdict), 1});
  Clock clock(setting);
  int wrong = 0;
  while (wrong < 5 && clock.goes_on()) {
    Dice dice(clock.turn());
    ::alarm(120);
    std::string store = setting.directory + "/forged";
    if (dice.chance(50)) {
      store += ".lock";
      std::vector<Record> records = locked;
      for (Record& record : records) {
        if (dice.chance(70)) record = altered(dice, record);
      }
      Store::export_records(store, records);
    } else {
      Store there(store);
      for (const Record& record : trials) {
        const Record other = altered(dice, record);
        there.put(other.kind, other.key, other.payload);
      }
    }
    const EngineHandle engine = engine_of(store);
    for (const char* text : kProblems) {
      const std::string what = engine ? wrong_result(engine.get(), text, parallel) : "";
      if (what.empty()) continue;
      ++wrong;
      std::fprintf(stderr, "forged: %s for %s: hostile forged --turn %llu\n", what.c_str(), text,
                   static_cast<unsigned long long>(clock.turn()));
    }
    if (engine && dice.chance(10)) {
      const ChoiceHandle choice = made<ChoiceHandle>([&](auto** c) {
        return faltung_explain(engine.get(), problem_of(kProblems[0]).get(), nullptr, c);
      });
    }
  }
  ::alarm(0);
  std::printf("forged: %d stores and locks, %d wrong\n", clock.turns(), wrong);
  return wrong == 0;
}

bool writers(const Setting& setting) {
  const std::string directory = setting.directory + "/store", exported = setting.directory + "/exported";
  const auto write = [&](std::uint64_t seed) {
    Dice dice(seed);
    while (true) {
      Store store(directory, [](const std::string& line) {
        // A record that another has just erased is no damage.
        std::fprintf(stderr, "writers: %s\n", line.c_str());
        ::_exit(1);
      });
      for (int i = 0; i < 20; ++i) {
        const std::string key = std::to_string(dice.between(0, 9));
        const std::string payload =
            "{\"key\":" + key + ",\"fill\":\"" + std::string(dice.between(0, 20000), 'x') + "\"}";
        const int what = dice.between(1, 100);
        if (what <= 60) store.put(kTrials, key, payload);
        if (what > 60 && what <= 90) {
          const auto got = store.get(kTrials, key);
          if (got && !got->starts_with("{\"fill\"") && !got->starts_with("{\"key\":" + key)) ::_exit(2);
        }
        if (what > 90 && what <= 94) store.export_to(exported);
        if (what > 94 && what <= 97 && fs::exists(exported)) store.import_from(exported);
        if (what == 98) store.clear(kTrials);
        if (what > 98) store.list();
      }
    }
  };
  Clock clock(setting);
  Dice dice(setting.seed);
  int wrong = 0, refused = 0;
  std::vector<pid_t> children(3, 0);
  for (std::uint64_t next = setting.seed * 1000; clock.goes_on();) {
    pid_t& child = children[static_cast<std::size_t>(dice.between(0, 2))];
    if (child > 0) {
      ::kill(child, SIGKILL);
      if (WIFEXITED(end_of(child))) ++wrong;  // by itself
    }
    child = forked([&]() -> int { return write(next + 1), 0; });
    refused += child == kRefused;
    ++next;
    ::usleep(static_cast<useconds_t>(dice.between(1, 100)) * 1000);
  }
  for (const pid_t child : children) {
    if (child > 0) ::kill(child, SIGKILL), end_of(child);
  }
  int warnings = 0;
  Store store(directory, [&](const std::string& line) {
    ++warnings;
    std::fprintf(stderr, "writers: %s\n", line.c_str());
  });
  const std::size_t records = store.list().size();
  store.sweep(std::chrono::seconds(0));
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(directory))
    files += entry.is_regular_file() ? 1 : 0;
  std::printf("writers: %d processes ended (%d refused), %zu records whole, %zu files, %d wrong\n",
              clock.turns() - refused, refused, records, files, wrong + warnings);
  return wrong == 0 && warnings == 0 && files == records;
}

}  // namespace faltung::hostile
