// AWS's Trainium, for which kernels are written here and run elsewhere: what one NeuronCore has room for, and
// what the public guides say of its rates. docs/trainium.md names the source of each figure.
#ifndef FALTUNG_SRC_BACKEND_NKI_HPP_
#define FALTUNG_SRC_BACKEND_NKI_HPP_

#include <memory>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"

namespace faltung {

// One NeuronCore. Rates are 10^9 cycles or bytes a second, times microseconds.
struct NkiCore {
  const char* id;     // nki:trn2
  const char* chip;   // trn2: what the Neuron SDK calls it
  const char* words;  // the chip and the core, as their maker calls them
  int sbuf_bytes;     // of a partition, that a kernel may use
  double tensor_ghz, vector_ghz, scalar_ghz, gpsimd_ghz;
  double f16_tflops, f32_tflops;  // as stated; f16's are bf16's
  double dma_gbps;                // of one of the DMA engines
  double hbm_gbps;                // a core's share of the chip's
  // How many times the guide's rate the vector engine has where all is 16-bit: of two inputs in SBUF; of a
  // copy out of PSUM.
  int vector_16bit, copy_16bit;
  std::size_t memory_bytes;  // a core's share

  static constexpr int kPartitions = 128, kBanks = 8, kBankBytes = 2048;
  static constexpr int kMoving = 512, kStationary = 128;  // free elements of a product's operands, at most
  static constexpr int kDmaEngines = 16;
  static constexpr double kDmaLatencyUs = 1.3;  // from a trigger to the first byte
  // A run of so many bytes that lie together moves at half the rate.
  static constexpr double kDmaRunBytes = 256;
  static constexpr int kDmaWanted = 4096;   // bytes of a partition that lie together
  static constexpr int kLeastColumns = 64;  // cycles that a product takes at least
  static constexpr int kF32Passes = 4, kF32TurnPasses = 2;
  // Of loading a stationary operand of float32, which is not hidden; one of 16 bits is, behind the product
  // before.
  static constexpr int kF32LoadCycles = 4 * 128;
  static constexpr int kAccessCycles =
      60;  // that begin an instruction of the vector, scalar or GpSimd engine
  static constexpr double kSemaphoreUs = 0.1;  // from an engine's end to another's beginning
};

// trn2, trn1.
const std::vector<NkiCore>& nki_cores();
// Of a device's id. Throws Error(bad_problem) that names those there are.
const NkiCore& nki_core(const std::string& id);

// A device that nothing can be run on: kind nki, dialect nki. Its own throw Error(unsupported). Throws as
// nki_core does.
std::shared_ptr<Device> make_nki_device(const std::string& id);
// The rates of a core as they are stated, for what is measured on others.
Ceilings stated_ceilings(const NkiCore& core);

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_NKI_HPP_
