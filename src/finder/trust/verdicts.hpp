// What the store knows of kernels on a device: which were verified there, and which must not be used.
#ifndef FALTUNG_SRC_FINDER_TRUST_VERDICTS_HPP_
#define FALTUNG_SRC_FINDER_TRUST_VERDICTS_HPP_

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/algorithms/algorithm.hpp"
#include "src/store/store.hpp"

namespace faltung {

// The kinds of the records.
inline constexpr const char* kVerified = "verified";
inline constexpr const char* kQuarantine = "quarantine";

// The command line that shows the same again.
std::string reproduce(const Problem& problem, const std::string& kernel, const std::string& device,
                      int threads, std::uint64_t seed);

// A verdict as it is kept.
struct Verdict {
  Report report;
  std::string problem;              // that shows it
  std::string device, description;  // where: the id at the time, and what its maker calls it
  std::string driver;
  std::string reproduce;
};
std::string to_json(const Verdict& verdict);
// Empty if text is none.
std::optional<Verdict> parse_verdict(const std::string& text);

// What a verdict on the candidate is filed under: its name and the programs that its recipe launches (source,
// constants), the device, its driver and compiler, the version of faltung. A shape that is compiled into
// other programs is another kernel. The CPU's kernels are compiled with the library: theirs has the
// direction, dtype, layout and math.
std::string verdict_key(const Candidate& candidate, const Problem& problem, const DeviceInfo& device);

// What cannot be stored is remembered for the life of this object.
class Verdicts {
 public:
  // shipped: the verdicts that came with the package, for what the store says nothing of; may be null.
  explicit Verdicts(Store& store, const Store* shipped = nullptr) : store_(store), shipped_(shipped) {}

  std::optional<Verdict> quarantined(const std::string& key) const { return find(kQuarantine, key); }
  bool verified(const std::string& key) const { return find(kVerified, key).has_value(); }
  // The kernels that are in quarantine somewhere; others need not be asked for.
  std::vector<std::string> kernels_in_quarantine() const;

  // Files it under kVerified if its report says pass, else under kQuarantine.
  void file(const std::string& key, const Verdict& verdict);
  // For this process alone: what may be different another time.
  void note(const std::string& key, const Verdict& verdict);

 private:
  std::optional<Verdict> find(const char* kind, const std::string& key) const;

  Store& store_;
  const Store* shipped_;
  mutable std::once_flag shipped_read_;
  mutable std::vector<std::string> shipped_quarantine_;  // kernels
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Verdict> here_;  // by kind and key
};

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_TRUST_VERDICTS_HPP_
