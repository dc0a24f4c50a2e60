#include "src/store/record.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "src/store/json_room.hpp"
#include "src/store/sha256.hpp"

namespace faltung {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kRecordFormat = "faltung-record";
constexpr const char* kExportFormat = "faltung-store";
constexpr int kVersion = 1;
constexpr std::int64_t kLatest = std::int64_t{1} << 43;  // milliseconds: the year 2248
constexpr int kDeepest = 64;                             // nesting, so that no text can exhaust the stack

[[noreturn]] void bad(const std::string& message) { throw Error(Status::bad_file, message); }

// What JSON's parser and printer do with their own exceptions, said in ours.
template <class Body>
auto checked(const char* what, const Body& body) {
  try {
    return body();
  } catch (const Json::exception& error) {
    bad(std::string(what) + ": " + error.what());
  }
}

template <class J>
J parse(std::string_view text) {
  const auto shallow = [](int depth, typename J::parse_event_t, J&) {
    if (depth > kDeepest) bad("nested too deeply");
    return true;
  };
  ask_room_for_json(text.size());
  return checked("not JSON", [&] { return J::parse(text, shallow); });
}

// A payload that is JSON as nlohmann prints it stands as it is; other text as {"text": ...}.
Json wrap(const std::string& payload) {
  try {
    nlohmann::json value = parse<nlohmann::json>(payload);
    if (value.dump() == payload) return {{"payload", Json(value)}};
  } catch (const Error&) {
  } catch (const Json::exception&) {
  }
  return {{"text", payload}};
}

std::string unwrap(const Json& record) {
  if (record.contains("text")) return record.at("text").get<std::string>();
  return nlohmann::json(record.at("payload")).dump();
}

std::string checksum(const Record& r) {
  return sha256(std::to_string(kVersion) + "\n" + r.kind + "\n" + std::to_string(r.key.size()) + "\n" +
                r.key + r.payload);
}

Json to_json(const Record& r) {
  if (!is_kind(r.kind))
    throw Error(Status::internal, "store: '" + r.kind + "' is no kind of record; use a-z 0-9 _");
  Json out = {{"kind", r.kind}, {"key", r.key}};
  out.update(wrap(r.payload));
  out["checksum"] = checksum(r);
  return out;
}

Record from_json(const Json& j) {
  return checked("damaged record", [&] {
    Record r{j.at("kind").get<std::string>(), j.at("key").get<std::string>(), unwrap(j), 0};
    if (!is_kind(r.kind)) bad("damaged record: its kind is none");
    if (j.at("checksum").get<std::string>() != checksum(r))
      bad("damaged record: its checksum does not match");
    return r;
  });
}

void check_format(const Json& j, const char* format) {
  checked("not a file of the store", [&] {
    const std::string found = j.at("format").get<std::string>();
    if (found != format) bad("its format is '" + found + "', expected '" + format + "'");
    const int version = j.at("version").get<int>();
    if (version != kVersion) {
      bad("its version is " + std::to_string(version) + ", this faltung reads " + std::to_string(kVersion));
    }
  });
}

std::string print(const Json& j) {
  try {
    return j.dump(1) + "\n";
  } catch (const Json::exception&) {
    throw Error(Status::internal, "store: keys and payloads must be UTF-8 text");
  }
}

}  // namespace

std::int64_t record_time(std::int64_t modified_ms) {
  return std::clamp<std::int64_t>(modified_ms, 1, kLatest);
}

bool is_kind(std::string_view kind) {
  return !kind.empty() && kind.size() <= 32 &&
         kind.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

std::string record_file(std::string_view kind, std::string_view key) {
  return sha256(std::string(kind) + "\n" + std::string(key)).substr(0, 32) + ".json";
}

bool is_record_file(std::string_view name) {
  return name.size() == 37 && name.ends_with(".json") && name.find_first_not_of("0123456789abcdef") == 32;
}

std::string encode_record(const Record& record) {
  ask_room_for_json(2 * record.payload.size() + record.key.size());
  Json out = {{"format", kRecordFormat}, {"version", kVersion}};
  out.update(to_json(record));
  return print(out);
}

Record decode_record(std::string_view text) {
  const Json j = parse<Json>(text);
  check_format(j, kRecordFormat);
  return from_json(j);
}

std::string encode_export(std::vector<Record> records) {
  std::sort(records.begin(), records.end(), [](const Record& a, const Record& b) {
    return std::tie(a.kind, a.key) < std::tie(b.kind, b.key);
  });
  Json out = {{"format", kExportFormat}, {"version", kVersion}, {"records", Json::array()}};
  for (const Record& record : records) {
    Json j = to_json(record);
    j["modified_ms"] = record.modified_ms;
    out["records"].push_back(std::move(j));
  }
  return print(out);
}

std::vector<Record> decode_export(std::string_view text,
                                  const std::function<void(const std::string&)>& damaged) {
  const Json j = parse<Json>(text);
  check_format(j, kExportFormat);
  if (!j.contains("records") || !j["records"].is_array()) bad("it has no records");
  std::vector<Record> out;
  for (std::size_t i = 0; i < j["records"].size(); ++i) {
    try {
      const Json& item = j["records"][i];
      Record record = from_json(item);
      record.modified_ms =
          checked("damaged record", [&] { return item.at("modified_ms").get<std::int64_t>(); });
      if (record.modified_ms < 0 || record.modified_ms > kLatest) bad("damaged record: its time is none");
      out.push_back(std::move(record));
    } catch (const Error& error) {
      damaged("record " + std::to_string(i + 1) + ": " + error.what());
    }
  }
  return out;
}

}  // namespace faltung
