// Processes of the hostile suite's own, on a machine that may have no room for them.
#ifndef FALTUNG_TESTS_HOSTILE_PROCESSES_HPP_
#define FALTUNG_TESTS_HOSTILE_PROCESSES_HPP_

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace faltung::hostile {

constexpr pid_t kRefused = -1;

// A process that ends with what body returns. kRefused, a moment later, if the system has none to give (whose
// pids or memory others have taken): no fault of ours, and no pid to wait for.
template <class Body>
pid_t forked(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  if (child == kRefused) ::usleep(50'000);
  return child;
}

// How it ended, as waitpid tells it. -1 if there is no such process.
inline int end_of(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return status;
}

}  // namespace faltung::hostile

#endif  // FALTUNG_TESTS_HOSTILE_PROCESSES_HPP_
