// What a GPU launches for the work of a network's steps: the kernels of kernels/gpu for everything that is no
// convolution.
#ifndef FALTUNG_SRC_NETWORK_DEVICE_STEPS_HPP_
#define FALTUNG_SRC_NETWORK_DEVICE_STEPS_HPP_

#include <string>
#include <vector>

#include "src/algorithms/gpu.hpp"
#include "src/network/step.hpp"

namespace faltung::network {

// What kernels read beside the network's own values, as it will lie in one buffer of the device.
class DeviceConstants {
 public:
  Slot add(const void* data, std::size_t bytes);
  template <class T>
  Slot add(const std::vector<T>& values) {
    return add(values.data(), values.size() * sizeof(T));
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Where a step's memory is.
struct DeviceSlots {
  std::vector<Slot> reads;
  Slot write;
  Slot workspace;
};

// In the order in which they are launched. Throws Error(unsupported) for what no kernel takes.
std::vector<faltung::Step> device_steps(const Work& work, const DeviceSlots& slots,
                                        DeviceConstants& constants, const DeviceInfo& device);
// Which of its kernels no GPU of the kind has run in a test yet, in words; empty where all have. Drivers for
// the CPU run them all.
std::string unproven(const Work& work, const DeviceInfo& device);
// Bytes that those want beside what they read and write.
std::size_t device_workspace(const Work& work, const DeviceInfo& device);
// Milliseconds by the bytes that are moved, at a rate that is usual.
double device_cost_ms(const Work& work, const DeviceInfo& device);
double moving_cost_ms(double bytes, const DeviceInfo& device);

// ---- by kernel: src/network/device_<family>.cpp

// Blocks of so many threads; elements by V neighbours.
inline constexpr int kDeviceThreads = 256;
const char* name(MapElement element);
// Whether positions in a tensor, or in several together, need 64 bits.
inline bool is_wide(std::int64_t elements) { return elements >= std::int64_t{1} << 30; }
// The widest of 8, 4, 2 and 1 that divides it: 8 where halves are moved, else 4 at most.
int neighbours(std::int64_t count, bool halves);

// An instruction of a chain on these registers, as kernels/gpu/chain.h has its words; and what the kernels
// ask of a whole one: CHAIN, from the floats v0, v1, ... to RESULT, and whether that will have 16 bits.
std::string instruction_text(const MapInstruction& in, const std::string& x, const std::string& y,
                             const std::string& z);
gpu::Constants chain_constants(std::size_t inputs, const std::vector<MapInstruction>& program, MapElement to);

// The members of the kernels' structs, which are index_t all of them.
StepArgument numbers(const std::vector<std::int64_t>& values, bool wide);
// A Divisor (kernels/gpu/digits.h).
void append_divisor(std::vector<std::int64_t>& values, std::int64_t size);
// How many of the units a thread is to have on their way at once, a power of two up to `most`: as long as all
// fit on the device at once, rather than block after block.
std::int64_t together_of(std::int64_t count, std::int64_t most, const DeviceInfo& device);
std::int64_t elements_of(const MapCall& call);
inline std::size_t last_of(const MapCall& call) { return static_cast<std::size_t>(call.rank) - 1; }
// The least power of two that is not below the value; 1 of less.
std::int64_t power_from(std::int64_t value);
bool needs_wide_indices(const MapCall& call);

std::vector<faltung::Step> pick_steps(PickCall call, const DeviceSlots& slots, DeviceConstants& constants,
                                      const DeviceInfo& device);
// A dimension along which the input's elements follow each other and the result's do not; -1 where none is,
// or too little of it for tiles. And its step.
int turned_dimension(const MapCall& call);
std::vector<faltung::Step> turn_steps(const MapCall& call, int turned, const DeviceSlots& slots,
                                      const DeviceInfo& device);
std::vector<faltung::Step> map_steps(const MapCall& call, const DeviceSlots& slots, const DeviceInfo& device);
std::vector<faltung::Step> rows_steps(const RowsCall& call, const DeviceSlots& slots,
                                      const DeviceInfo& device);
std::vector<faltung::Step> gate_steps(const GateCall& call, const DeviceSlots& slots,
                                      const DeviceInfo& device);
std::vector<faltung::Step> layer_steps(const LayerCall& call, const DeviceSlots& slots,
                                       const DeviceInfo& device);
std::vector<faltung::Step> attention_steps(const AttentionCall& call, const DeviceSlots& slots,
                                           const DeviceInfo& device);
std::vector<faltung::Step> moments_steps(const MomentsCall& call, const DeviceSlots& slots,
                                         const DeviceInfo& device);
std::size_t moments_workspace(const MomentsCall& call, const DeviceInfo& device);
// Rows that registers hold, with the chain behind them; or rows alone.
bool holds(const NormalizeCall& call, const DeviceInfo& device);
bool holds(const RowsCall& call, const DeviceInfo& device);
std::vector<faltung::Step> normalize_steps(const NormalizeCall& call, const DeviceSlots& slots,
                                           const DeviceInfo& device);
faltung::Step whole_rows_step(const RowsCall& call, const char* op, float scale, Slot from, Slot to,
                              const DeviceInfo& device);
std::size_t rows_workspace(const RowsCall& call, const DeviceInfo& device);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_DEVICE_STEPS_HPP_
