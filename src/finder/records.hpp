// What the finder remembers of a problem on a device: its trials.
#ifndef FALTUNG_SRC_FINDER_RECORDS_HPP_
#define FALTUNG_SRC_FINDER_RECORDS_HPP_

#include <optional>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/store/store.hpp"

namespace faltung {

// A kernel that was measured.
struct Measured {
  std::string kernel;
  std::string verdict;  // pass, wrong, out_of_memory, ...: as in Verdict
  double ms = 0, ms_min = 0, ms_max = 0;
  double error_over_bound = -1;
  std::size_t workspace_bytes = 0;
};

// The kind of the records.
inline constexpr const char* kTrials = "trials";

// What such a record is of. Empty if the key is none.
struct TrialsKey {
  std::string problem, device;  // the device's key
  int threads;
};
std::optional<TrialsKey> parse_trials_key(const std::string& key);
// In the order of their time; empty if payload is none.
std::vector<Measured> parse_trials(const std::string& payload);

// The trials of one problem on one device with one number of threads, in the order of their time.
class Trials {
 public:
  Trials(Store& store, const Problem& problem, const DeviceInfo& device, int threads);
  const std::vector<Measured>& all() const { return all_; }
  const Measured* find(const std::string& kernel) const;
  // Replaces what was known of the kernel, and publishes the record, with what others have added since.
  void add(const Measured& measured);

 private:
  void load();

  Store& store_;
  std::string key_;
  std::vector<Measured> all_;
};

// The device's ceilings as last measured.
std::optional<Ceilings> load_ceilings(Store& store, const DeviceInfo& device, int threads);
void save_ceilings(Store& store, const DeviceInfo& device, int threads, const Ceilings& ceilings);

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_RECORDS_HPP_
