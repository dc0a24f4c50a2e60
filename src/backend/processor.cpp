#include "src/backend/processor.hpp"

#if defined(__linux__)
#include <sched.h>
#else
#include <thread>
#endif

namespace faltung {

#if defined(__linux__)

int allowed_processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int this_processor() { return sched_getcpu(); }

void leave_processor(int processor) {
  cpu_set_t allowed;
  if (processor < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  cpu_set_t others = allowed;
  CPU_CLR(static_cast<unsigned>(processor), &others);
  // The first call moves the thread, the second lets the system move it again.
  if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
    sched_setaffinity(0, sizeof allowed, &allowed);
}

#else

int allowed_processors() { return static_cast<int>(std::thread::hardware_concurrency()); }
int this_processor() { return -1; }
void leave_processor(int) {}

#endif

}  // namespace faltung
