#include "src/finder/lock.hpp"

#include <map>
#include <nlohmann/json.hpp>

#include "src/finder/records.hpp"
#include "src/finder/report.hpp"
#include "src/finder/trust/verdicts.hpp"
#include "src/store/json_room.hpp"

namespace faltung {
namespace {

std::string key_of(const std::string& problem, const std::string& device_key) {
  return problem + " on " + device_key;
}

}  // namespace

bool is_lock(const Store& store) { return store.readonly() && store.holds(kLock); }

std::string locked_kernel(const Store& store, const Problem& problem, const DeviceInfo& device) {
  if (const auto payload = store.get(kLock, key_of(to_string(problem), device.key))) {
    ask_room_for_json(payload->size());
    const nlohmann::json json = nlohmann::json::parse(*payload, nullptr, false);
    if (json.is_object() && json.contains("kernel") && json["kernel"].is_string()) return json["kernel"];
  }
  throw Error(Status::unsupported,
              store.directory() + " is a lock and names no kernel for " + to_string(problem) + " on " +
                  device.id + " (" + device.key +
                  "): with a store that can be written, run `faltung find` for it on such a device and "
                  "`faltung store export --lock` again");
}

std::vector<Record> lock_records(const Store& store, Repeatable admitted) {
  struct Chosen {
    int threads;
    Record record;
  };
  std::map<std::string, Chosen> chosen;  // by key
  for (const Record& record : store.list(kTrials)) {
    const std::optional<TrialsKey> key = parse_trials_key(record.key);
    if (!key) continue;
    for (const Report& m : parse_trials(record.payload)) {  // the fastest first
      if (!is_right(m) || (admitted == Repeatable::same_bits && !m.deterministic)) continue;
      const std::string lock_key = key_of(key->problem, key->device);
      const auto found = chosen.find(lock_key);
      // Measured with several numbers of threads: the largest is the usual one.
      if (found != chosen.end() && found->second.threads >= key->threads) break;
      const nlohmann::json payload = {
          {"kernel", m.kernel}, {"problem", key->problem}, {"device", key->device}, {"ms", m.ms}};
      chosen[lock_key] = {key->threads, {kLock, lock_key, payload.dump(), record.modified_ms}};
      break;
    }
  }
  std::vector<Record> records = store.list(kLock);
  for (const auto& [key, entry] : chosen) records.push_back(entry.record);
  for (const char* kind : {kVerified, kQuarantine}) {
    for (Record& record : store.list(kind)) records.push_back(std::move(record));
  }
  return records;
}

}  // namespace faltung
