// What the store knows of kernels on a device: which were verified there, and which must not be used.
#ifndef FALTUNG_SRC_FINDER_QUARANTINE_HPP_
#define FALTUNG_SRC_FINDER_QUARANTINE_HPP_

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "src/backend/backend.hpp"
#include "src/store/store.hpp"

namespace faltung {

// The kinds of the records.
inline constexpr const char* kVerified = "verified";
inline constexpr const char* kQuarantine = "quarantine";

// What a kernel is compiled for beside sizes: direction, dtype, layout and math, e.g. "fwd:f32:nchw". A
// verdict is on a kernel in one form; in another it is another program.
std::string form_of(const Problem& problem);

// The command line that shows the same again.
std::string reproduce(const Problem& problem, const std::string& kernel, const std::string& device,
                      int threads, std::uint64_t seed);

// A verdict as it is kept.
struct KernelRecord {
  std::string kernel, form;
  std::string verdict, what;        // as in Verdict
  std::string problem;              // that shows it
  std::string device, description;  // where: the id at the time, and what its maker calls it
  std::string driver;
  std::string reproduce;
};

// A kernel's verdict holds for a microarchitecture, a driver, a compiler, a version of faltung and a GPU's
// for the device code in it: with a new one of them it is tried again. What cannot be stored is remembered
// for the life of this object.
class Quarantine {
 public:
  // shipped: the verdicts that came with the package, for what the store says nothing of; may be null.
  explicit Quarantine(Store& store, const Store* shipped = nullptr) : store_(store), shipped_(shipped) {}

  std::optional<KernelRecord> quarantined(const std::string& kernel, const Problem& problem,
                                          const DeviceInfo& device) const;
  bool verified(const std::string& kernel, const Problem& problem, const DeviceInfo& device) const;

  // Files the record under kVerified if its verdict is pass, else under kQuarantine.
  void file(const KernelRecord& record, const DeviceInfo& device);
  // For this process alone: what may be different another time.
  void note(const KernelRecord& record, const DeviceInfo& device);

 private:
  std::optional<KernelRecord> find(const char* kind, const std::string& kernel, const Problem& problem,
                                   const DeviceInfo& device) const;

  Store& store_;
  const Store* shipped_;
  mutable std::mutex mutex_;
  std::map<std::string, KernelRecord> here_;  // by kind and key
};

std::string to_json(const KernelRecord& record);
// Empty if text is none.
std::optional<KernelRecord> kernel_record(const std::string& text);

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_QUARANTINE_HPP_
