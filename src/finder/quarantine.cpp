#include "src/finder/quarantine.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "src/jit/fingerprint.hpp"
#include "src/problem/problem.hpp"

namespace faltung {
namespace {

using Json = nlohmann::json;

std::string key_of(const std::string& kernel, const std::string& form, const DeviceInfo& device) {
  // The device code is part of a GPU's: a kernel that was changed is another one.
  return kernel + " " + form + " on " + device.key + ", " + device.driver + " faltung=" + version() +
         (device.kind == "cpu" ? "" : "-" + jit::fingerprint());
}

}  // namespace

std::string form_of(const Problem& p) {
  std::string form = std::string(name(p.direction)) + ":" + name(p.dtype) + ":" + name(p.layout);
  if (p.math != default_math(p.dtype)) form += std::string(":math=") + name(p.math);
  return form;
}

std::string reproduce(const Problem& problem, const std::string& kernel, const std::string& device,
                      int threads, std::uint64_t seed) {
  return fmt::format("faltung verify '{}' --kernel {} --device {} --threads {} --seed {}", to_string(problem),
                     kernel, device, threads, seed);
}

std::string to_json(const KernelRecord& r) {
  const Json json = {
      {"kernel", r.kernel},      {"form", r.form},     {"verdict", r.verdict},         {"what", r.what},
      {"problem", r.problem},    {"device", r.device}, {"description", r.description}, {"driver", r.driver},
      {"reproduce", r.reproduce}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<KernelRecord> kernel_record(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    KernelRecord r;
    for (const auto& [field, to] : {std::pair{"kernel", &r.kernel},
                                    {"form", &r.form},
                                    {"verdict", &r.verdict},
                                    {"what", &r.what},
                                    {"problem", &r.problem},
                                    {"device", &r.device},
                                    {"description", &r.description},
                                    {"driver", &r.driver},
                                    {"reproduce", &r.reproduce}}) {
      json.at(field).get_to(*to);
    }
    return r;
  } catch (const Json::exception&) {
    return std::nullopt;  // the envelope was whole, so this is a record of another version: a miss
  }
}

std::optional<KernelRecord> Quarantine::find(const char* kind, const std::string& kernel,
                                             const Problem& problem, const DeviceInfo& device) const {
  const std::string key = key_of(kernel, form_of(problem), device);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = here_.find(kind + key); found != here_.end()) return found->second;
  }
  std::optional<std::string> text = store_.get(kind, key);
  // What was seen here counts for more than what came with the package.
  const char* other = std::string_view(kind) == kVerified ? kQuarantine : kVerified;
  if (!text && shipped_ != nullptr && !store_.get(other, key)) text = shipped_->get(kind, key);
  return text ? kernel_record(*text) : std::nullopt;
}

std::optional<KernelRecord> Quarantine::quarantined(const std::string& kernel, const Problem& problem,
                                                    const DeviceInfo& device) const {
  return find(kQuarantine, kernel, problem, device);
}

bool Quarantine::verified(const std::string& kernel, const Problem& problem, const DeviceInfo& device) const {
  return find(kVerified, kernel, problem, device).has_value();
}

void Quarantine::file(const KernelRecord& record, const DeviceInfo& device) {
  const char* kind = record.verdict == "pass" ? kVerified : kQuarantine;
  const std::string key = key_of(record.kernel, record.form, device);
  if (store_.put(kind, key, to_json(record))) return;
  note(record, device);
}

void Quarantine::note(const KernelRecord& record, const DeviceInfo& device) {
  const char* kind = record.verdict == "pass" ? kVerified : kQuarantine;
  const std::lock_guard lock(mutex_);
  here_[kind + key_of(record.kernel, record.form, device)] = record;
}

}  // namespace faltung
