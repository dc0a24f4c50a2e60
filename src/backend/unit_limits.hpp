// What one compute unit of a GPU has room for, by the chip's name: what cost models need to tell how many
// blocks work side by side.
#ifndef FALTUNG_SRC_BACKEND_UNIT_LIMITS_HPP_
#define FALTUNG_SRC_BACKEND_UNIT_LIMITS_HPP_

#include <string>

namespace faltung {

// What is resident of a kernel on one unit.
struct Residence {
  int blocks = 0;
  int waves = 0;           // of a scheduler, at most
  double occupancy = 0;    // waves over the most that there can be
  std::string limited_by;  // what allows no more: registers, local memory, blocks, driver; or nothing
};

// Of an AMD chip from RDNA on, the unit is a pair of compute units that share their local memory.
struct UnitLimits {
  int wave_threads = 0;         // that run in step; 0 where the chip is not known
  int schedulers = 0;           // each has registers and waves of its own
  int scheduler_waves = 0;      // at most resident
  int scheduler_registers = 0;  // 32-bit vector registers of each lane, for all resident waves
  int register_step = 1;        // a wave gets a multiple of so many
  int thread_registers = 0;     // at most of one thread
  int local_bytes = 0;          // of all resident blocks together
  bool is_amd = false;
  int unit_blocks = 1 << 30;  // at most resident
  int block_reserved = 0;     // bytes of local memory that a block takes beside its own

  bool known() const { return wave_threads > 0; }
  // How many blocks with so many threads, registers a thread and bytes of local memory are resident; 0 if one
  // has no room.
  int blocks(int threads, int registers, int block_local_bytes) const;
  // How many waves each scheduler then has, on average.
  double waves(int threads, int registers, int block_local_bytes) const;
  // The same, and what the limit is; of as many blocks as the driver says, unless that is negative. The chip
  // must be known.
  Residence residence(int threads, int registers, int block_local_bytes, int blocks_told = -1) const;
};

// chip: sm_80, sm_90a, gfx1030, gfx90a, ..., anywhere in the text, or a Radeon's code name (navi10, NAVI22)
// as OpenCL drivers tell it.
UnitLimits unit_limits(const std::string& chip);

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_UNIT_LIMITS_HPP_
