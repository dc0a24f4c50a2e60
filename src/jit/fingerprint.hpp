// Which device code this library carries, for records that hold for it alone.
#ifndef FALTUNG_SRC_JIT_FINGERPRINT_HPP_
#define FALTUNG_SRC_JIT_FINGERPRINT_HPP_

#include <string>

namespace faltung::jit {

// A few digits that differ once any kernel's source does.
const std::string& fingerprint();

}  // namespace faltung::jit

#endif  // FALTUNG_SRC_JIT_FINGERPRINT_HPP_
