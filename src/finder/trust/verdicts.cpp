#include "src/finder/trust/verdicts.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "src/finder/report.hpp"
#include "src/problem/problem.hpp"
#include "src/store/json_room.hpp"
#include "src/store/sha256.hpp"

namespace faltung {
namespace {

using Json = nlohmann::ordered_json;

const char* kind_of(const Verdict& verdict) { return passed(verdict.report) ? kVerified : kQuarantine; }

// What is compiled: for the CPU, with the library.
std::string programs_of(const Candidate& candidate, const Problem& p, const DeviceInfo& device) {
  if (device.kind == "cpu") {
    return fmt::format("{}:{}:{}:{}", name(p.direction), name(p.dtype), name(p.layout), name(p.math));
  }
  std::string all;
  for (const std::string& digest : candidate.recipe.program_digests()) all += digest + "\n";
  return sha256(all);
}

}  // namespace

std::string verdict_key(const Candidate& candidate, const Problem& problem, const DeviceInfo& device) {
  return fmt::format("{} {} on {}, {} faltung={}", candidate.kernel(),
                     programs_of(candidate, problem, device), device.key, device.driver, version());
}

std::string reproduce(const Problem& problem, const std::string& kernel, const std::string& device,
                      int threads, std::uint64_t seed) {
  return fmt::format("faltung verify '{}' --kernel {} --device {} --threads {} --seed {}", to_string(problem),
                     kernel, device, threads, seed);
}

std::string to_json(const Verdict& v) {
  ask_room_for_json(1024);
  Json json = to_json(v.report);
  json["problem"] = v.problem;
  json["device"] = v.device;
  json["description"] = v.description;
  json["driver"] = v.driver;
  json["reproduce"] = v.reproduce;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Verdict> parse_verdict(const std::string& text) {
  ask_room_for_json(text.size());
  try {
    const Json json = Json::parse(text);
    Verdict v;
    v.report = report_from(json);
    json.at("problem").get_to(v.problem);
    json.at("device").get_to(v.device);
    json.at("description").get_to(v.description);
    json.at("driver").get_to(v.driver);
    json.at("reproduce").get_to(v.reproduce);
    return v;
  } catch (const Json::exception&) {
    return std::nullopt;  // the envelope was whole, so this is a record of another version: a miss
  }
}

std::optional<Verdict> Verdicts::find(const char* kind, const std::string& key) const {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = here_.find({kind, key}); found != here_.end()) return found->second;
  }
  std::optional<std::string> text = store_.get(kind, key);
  // What was seen here counts for more than what came with the package.
  const char* other = std::string_view(kind) == kVerified ? kQuarantine : kVerified;
  if (!text && shipped_ != nullptr && !store_.get(other, key)) text = shipped_->get(kind, key);
  return text ? parse_verdict(*text) : std::nullopt;
}

namespace {

std::vector<std::string> quarantined_in(const Store& store) {
  std::vector<std::string> kernels;
  for (const Record& record : store.list(kQuarantine)) {
    if (const std::optional<Verdict> verdict = parse_verdict(record.payload))
      kernels.push_back(verdict->report.kernel);
  }
  return kernels;
}

}  // namespace

std::vector<std::string> Verdicts::kernels_in_quarantine() const {
  std::vector<std::string> kernels = quarantined_in(store_);
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [where, verdict] : here_) {
      if (where.first == kQuarantine) kernels.push_back(verdict.report.kernel);
    }
  }
  if (shipped_ != nullptr) {
    // It does not change, and to list it is to unpack all that it has.
    std::call_once(shipped_read_, [this] { shipped_quarantine_ = quarantined_in(*shipped_); });
    kernels.insert(kernels.end(), shipped_quarantine_.begin(), shipped_quarantine_.end());
  }
  return kernels;
}

void Verdicts::file(const std::string& key, const Verdict& verdict) {
  if (store_.put(kind_of(verdict), key, to_json(verdict))) return;
  note(key, verdict);
}

void Verdicts::note(const std::string& key, const Verdict& verdict) {
  const std::lock_guard lock(mutex_);
  here_[{kind_of(verdict), key}] = verdict;
}

}  // namespace faltung
