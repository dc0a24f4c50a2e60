#include "src/backend/nki.hpp"

#include "src/backend/offline_device.hpp"
#include "src/problem/text.hpp"

namespace faltung {
namespace {

// Of SBUF's partitions, the compiler keeps some: so many bytes are left to it.
constexpr int kReserved = 16 << 10;

class NkiDevice : public IdleDevice {
 public:
  explicit NkiDevice(const NkiCore& core)
      : IdleDevice(
            core.id,
            " runs nothing here: faltung emit nki writes its kernels, which AWS's Neuron SDK compiles") {
    info_.kind = info_.dialect = "nki";
    info_.description = core.words;
    info_.driver = "none: kernels are emitted, and times predicted";
    info_.units = 1;
    info_.memory_bytes = core.memory_bytes;
    info_.cache_bytes = static_cast<std::size_t>(core.sbuf_bytes) * NkiCore::kPartitions;
    info_.features = {core.chip};
  }
  Binary compile(const KernelSource&) override { no(); }
  std::shared_ptr<Kernel> load(const Binary&, const KernelSource&) override { no(); }
};

}  // namespace

const std::vector<NkiCore>& nki_cores() {
  static const std::vector<NkiCore> cores = {
      {"nki:trn2", "trn2", "Trainium2, one NeuronCore-v3", (224 << 10) - kReserved, 2.4, 0.96, 1.2, 1.2, 79,
       20, 23, 2900.0 / 8, 2, 2, std::size_t(96 / 8) << 30},
      {"nki:trn1", "trn1", "Trainium, one NeuronCore-v2", (192 << 10) - kReserved, 2.8, 1.12, 1.4, 1.4, 92,
       23, 17, 820.0 / 2, 1, 1, std::size_t(32 / 2) << 30},
  };
  return cores;
}

const NkiCore& nki_core(const std::string& id) {
  std::vector<std::string> ids;
  for (const NkiCore& core : nki_cores()) {
    if (id == core.id) return core;
    ids.emplace_back(core.id);
  }
  throw Error(Status::bad_problem, "no target '" + id + "'; there is " + join_or(ids));
}

std::shared_ptr<Device> make_nki_device(const std::string& id) {
  return std::make_shared<NkiDevice>(nki_core(id));
}

Ceilings stated_ceilings(const NkiCore& core) {
  Ceilings c;
  c.f32.gflops = c.tf32.gflops = 1e3 * core.f32_tflops;
  c.f16.gflops = c.bf16.gflops = 1e3 * core.f16_tflops;
  c.copy_gbps = std::min(core.hbm_gbps, NkiCore::kDmaEngines * core.dma_gbps);
  return c;
}

}  // namespace faltung
