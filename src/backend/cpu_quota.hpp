// How many processors' time the control groups that this process is in leave it.
#ifndef FALTUNG_SRC_BACKEND_CPU_QUOTA_HPP_
#define FALTUNG_SRC_BACKEND_CPU_QUOTA_HPP_

#include <string>

namespace faltung {

// Rounded up; INT_MAX where nothing limits it. Asks versions 1 and 2 of control groups, below root.
int cpu_quota(const std::string& root = "");

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_CPU_QUOTA_HPP_
