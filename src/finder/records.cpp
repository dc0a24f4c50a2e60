#include "src/finder/records.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "src/algorithms/cpu_rates.hpp"
#include "src/finder/report.hpp"
#include "src/problem/problem.hpp"
#include "src/store/json_room.hpp"

namespace faltung {
namespace {

using Json = nlohmann::ordered_json;

std::string device_key(const DeviceInfo& device, int threads) {
  return device.key + " threads=" + std::to_string(threads) + " faltung=" + version();
}

// Of a record of ceilings.
constexpr const char* kCopy = "copy_gbps";

void sort(std::vector<Report>& all) {
  std::stable_sort(all.begin(), all.end(), [](const Report& a, const Report& b) { return a.ms < b.ms; });
}

}  // namespace

Trials::Trials(Store& store, const Problem& problem, const DeviceInfo& device, int threads)
    : store_(store), key_(to_string(problem) + " on " + device_key(device, threads)) {
  load();
}

std::optional<TrialsKey> parse_trials_key(const std::string& key) {
  const std::size_t on = key.find(" on "), threads = key.rfind(" threads=");
  if (on == std::string::npos || threads == std::string::npos || threads < on + 4) return std::nullopt;
  return TrialsKey{key.substr(0, on), key.substr(on + 4, threads - on - 4),
                   std::atoi(key.c_str() + threads + std::strlen(" threads="))};
}

std::vector<Report> parse_trials(const std::string& payload) {
  std::vector<Report> all;
  ask_room_for_json(payload.size());
  try {
    for (const Json& json : Json::parse(payload)) all.push_back(report_from(json));
  } catch (const Json::exception&) {
    return {};  // the envelope was whole, so this is a record of another version: a miss
  }
  sort(all);
  return all;
}

void Trials::load() {
  const std::optional<std::string> payload = store_.get(kTrials, key_);
  if (!payload) return;
  std::vector<Report> stored = parse_trials(*payload);
  for (const Report& m : all_) {  // what could not be stored
    if (std::none_of(stored.begin(), stored.end(), [&](const auto& s) { return s.kernel == m.kernel; }))
      stored.push_back(m);
  }
  sort(stored);
  all_ = std::move(stored);
}

const Report* Trials::find(const std::string& kernel) const {
  const auto found =
      std::find_if(all_.begin(), all_.end(), [&](const Report& m) { return m.kernel == kernel; });
  return found == all_.end() ? nullptr : &*found;
}

void Trials::add(const Report& measured) {
  load();
  std::erase_if(all_, [&](const Report& m) { return m.kernel == measured.kernel; });
  all_.push_back(measured);
  sort(all_);
  constexpr std::size_t kOfAReport = 1024;
  ask_room_for_json(kOfAReport * all_.size());
  Json payload = Json::array();
  for (const Report& m : all_) payload.push_back(to_json(m));
  store_.put(kTrials, key_, payload.dump());
}

std::optional<Ceilings> load_ceilings(const Store& store, const DeviceInfo& device, int threads) {
  const std::optional<std::string> payload = store.get(kCeilings, device_key(device, threads));
  if (!payload) return std::nullopt;
  ask_room_for_json(payload->size());
  try {
    const Json json = Json::parse(*payload);
    Ceilings c;
    for (const NamedRate& rate : kCeilingRates)
      c.*rate.rate = {json.at(rate.gflops_name()), json.value(rate.mhz_name(), 0.0)};
    c.copy_gbps = json.at(kCopy);
    return c;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

void save_ceilings(Store& store, const DeviceInfo& device, int threads, const Ceilings& c) {
  Json json = {{kCopy, c.copy_gbps}};
  for (const NamedRate& rate : kCeilingRates) {
    json[rate.gflops_name()] = (c.*rate.rate).gflops;
    json[rate.mhz_name()] = (c.*rate.rate).mhz;
  }
  store.put(kCeilings, device_key(device, threads), json.dump());
}

void share_cpu_rates(Store& store, const DeviceInfo& cpu) {
  const std::string key = device_key(cpu, 1);
  if (const std::optional<std::string> payload = store.get(kRates, key)) {
    ask_room_for_json(payload->size());
    try {
      if (adopt_cpu_rates(Json::parse(*payload).get<std::vector<double>>()) == KeptRates::whole) return;
    } catch (const Json::exception&) {
    }
  }
  const std::vector<double> rates = cpu_rates();
  constexpr std::size_t kOfANumber = 24;
  ask_room_for_json(kOfANumber * rates.size());
  store.put(kRates, key, Json(rates).dump());
}

}  // namespace faltung
