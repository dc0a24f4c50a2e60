// faltung devices: what is here and what it reaches.
#include <fmt/format.h>

#include "src/backend/nki.hpp"
#include "src/problem/text.hpp"
#include "tools/arguments.hpp"
#include "tools/command.hpp"
#include "tools/measure.hpp"
#include "tools/report.hpp"
#include "tools/units.hpp"

namespace faltung::tools {
namespace {

struct DevicesOptions {
  Machine machine;
  std::string threads;
};

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

std::string show_rate(double gflops, double mhz) {
  const std::string rate = fmt::format("{:.0f} GFLOP/s", gflops);
  return mhz > 0 ? fmt::format("{} at {:.0f} MHz", rate, mhz) : rate;
}

int run(DevicesOptions& options) {
  int given = 0;
  if (!options.threads.empty()) given = static_cast<int>(parse_count("--threads", options.threads, 1));
  Machine& machine = options.machine;
  machine.open({"device", "kind", "description", "units", "threads", "memory_bytes", "cache_bytes",
                "features", "driver", "key", "f32_gflops", "tf32_gflops", "f16_gflops", "bf16_gflops",
                "copy_gbps", "f32_mhz", "tf32_mhz", "f16_mhz", "bf16_mhz"});
  Engine engine;
  print_warnings(engine);
  for (const std::shared_ptr<Device>& device : list_devices()) {
    const DeviceInfo& info = device->info();
    const int threads = info.kind != "cpu" ? 1 : given > 0 ? given : available_processors();
    const Ceilings c = Internals::impl(engine).measure_ceilings(*device, threads);
    machine.row({info.id, info.kind, info.description, std::int64_t(info.units), std::int64_t(threads),
                 static_cast<std::int64_t>(info.memory_bytes), static_cast<std::int64_t>(info.cache_bytes),
                 joined(info.features), info.driver, info.key, c.f32_gflops, c.tf32_gflops, c.f16_gflops,
                 c.bf16_gflops, c.copy_gbps, c.f32_mhz, c.tf32_mhz, c.f16_mhz, c.bf16_mhz});
    if (!machine.for_people()) continue;
    fmt::print("{}  {}\n", info.id, info.description);
    fmt::print("  {} {}, {} memory, {} last-level cache; {}\n", info.units,
               info.kind == "cpu" ? "processors" : "units", show_bytes(info.memory_bytes),
               show_bytes(info.cache_bytes), info.driver);
    fmt::print("  features: {}\n", info.features.empty() ? "none" : joined(info.features));
    fmt::print("  measured with {} threads: f32 {}, tf32 {}, f16 {}, bf16 {}; copy {:.1f} GB/s\n", threads,
               show_rate(c.f32_gflops, c.f32_mhz), show_rate(c.tf32_gflops, c.tf32_mhz),
               show_rate(c.f16_gflops, c.f16_mhz), show_rate(c.bf16_gflops, c.bf16_mhz), c.copy_gbps);
  }
  // Never here: kernels are emitted for them.
  for (const NkiCore& core : nki_cores()) {
    const std::shared_ptr<Device> device = make_nki_device(core.id);
    const DeviceInfo& info = device->info();
    const Ceilings c = stated_ceilings(core);
    machine.row({info.id, info.kind, info.description, std::int64_t(info.units), std::int64_t(1),
                 static_cast<std::int64_t>(info.memory_bytes), static_cast<std::int64_t>(info.cache_bytes),
                 joined(info.features), info.driver, info.key, c.f32_gflops, c.tf32_gflops, c.f16_gflops,
                 c.bf16_gflops, c.copy_gbps, c.f32_mhz, c.tf32_mhz, c.f16_mhz, c.bf16_mhz});
    if (!machine.for_people()) continue;
    fmt::print("{}  {}, offline: faltung emit nki\n", info.id, info.description);
    fmt::print("  {} partitions of {} SBUF for a kernel, {} banks of {} B PSUM; products of {} x {} x {}\n",
               NkiCore::kPartitions, show_bytes(static_cast<std::size_t>(core.sbuf_bytes)), NkiCore::kBanks,
               NkiCore::kBankBytes, NkiCore::kPartitions, NkiCore::kStationary, NkiCore::kMoving);
    fmt::print("  stated: f32 {:.0f}, f16 and bf16 {:.0f} GFLOP/s; copy {:.1f} GB/s\n", c.f32_gflops,
               c.f16_gflops, c.copy_gbps);
  }
  machine.close();
  return 0;
}

void declare_devices(const Command& command) {
  const auto options = std::make_shared<DevicesOptions>();
  command.option("--threads", options->threads, "CPU threads; every processor unless given").type("N");
  options->machine.add_options(command);
  command.runs([options] { return run(*options); });
}

const Subcommand kDevices("devices", "What is here, and the ceilings it reaches", declare_devices);

}  // namespace
}  // namespace faltung::tools
