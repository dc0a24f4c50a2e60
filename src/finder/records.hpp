// What the finder remembers of a problem on a device: its trials; and of the device itself.
#ifndef FALTUNG_SRC_FINDER_RECORDS_HPP_
#define FALTUNG_SRC_FINDER_RECORDS_HPP_

#include <optional>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/store/store.hpp"

namespace faltung {

// The kinds of the records.
inline constexpr const char *kTrials = "trials", *kCeilings = "ceilings", *kRates = "rates";

// What such a record is of. Empty if the key is none.
struct TrialsKey {
  std::string problem, device;  // the device's key
  int threads;
};
std::optional<TrialsKey> parse_trials_key(const std::string& key);
// In the order of their time; empty if payload is none.
std::vector<Report> parse_trials(const std::string& payload);

// The kernels that were measured on one problem and device with one number of threads, in the order of their
// time. The store is asked once.
class Trials {
 public:
  Trials(Store& store, const Problem& problem, const DeviceInfo& device, int threads);
  const std::vector<Report>& all() const { return all_; }
  const Report* find(const std::string& kernel) const;
  // Replaces what was known of the kernel, and publishes the record, with what others have added since.
  void add(const Report& measured);

 private:
  void load();

  Store& store_;
  std::string key_;
  std::vector<Report> all_;
};

// The device's ceilings as last measured.
std::optional<Ceilings> load_ceilings(const Store& store, const DeviceInfo& device, int threads);
void save_ceilings(Store& store, const DeviceInfo& device, int threads, const Ceilings& ceilings);

// The CPU's rates, by which its cost models choose: taken from the store, else measured and put there.
void share_cpu_rates(Store& store, const DeviceInfo& cpu);

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_RECORDS_HPP_
