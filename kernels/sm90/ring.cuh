// A ring of buffers in shared memory that a producer fills and consumers empty.
#pragma once

// A place in a ring, and the parity of its barriers' current phase.
template <int kSize>
struct Ring {
  int place = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void advance(int by = 1) {
    place += by;
    if (place >= kSize) {
      const int laps = by == 1 ? 1 : place / kSize;
      place -= laps * kSize;
      parity ^= laps & 1;
    }
  }
};
