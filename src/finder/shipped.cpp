#include "src/finder/shipped.hpp"

#include "src/finder/records.hpp"
#include "src/finder/settings.hpp"
#include "src/jit/session.hpp"

namespace faltung {

std::shared_ptr<const Store> open_shipped(const Store::Warn& warn) {
  const KnownDevices known = known_devices();
  if (known.file.empty()) return nullptr;
  try {
    return std::make_shared<const Store>(known.file + ":readonly", warn);
  } catch (const Error& error) {
    if (known.asked_for && !Pack::is(known.file)) throw;
    warn(std::string(error.what()) + "; nothing is known of devices");
    return nullptr;
  }
}

void ship(Store& store, const std::shared_ptr<const Store>& shipped) {
  if (shipped != nullptr) store.ship(shipped, {jit::kCode, kCeilings, kTrials});
}

}  // namespace faltung
