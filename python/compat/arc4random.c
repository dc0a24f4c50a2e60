/* libstdc++'s std::random_device asks glibc 2.36 for arc4random where it was built against that; older ones,
 * which the wheel is for, have getrandom. Inside the library, and seen by nobody else. */
#include <stdlib.h>
#include <sys/random.h>

__attribute__((visibility("hidden"))) unsigned arc4random(void) {
  unsigned value;
  if (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value)
    abort(); /* so few bytes never come short */
  return value;
}
