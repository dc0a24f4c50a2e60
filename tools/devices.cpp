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

std::vector<std::string> device_columns() {
  std::vector<std::string> all = {"device",       "kind",        "description", "units",  "threads",
                                  "memory_bytes", "cache_bytes", "features",    "driver", "key"};
  for (const NamedRate& rate : kCeilingRates) all.push_back(rate.gflops_name());
  all.push_back("copy_gbps");
  for (const NamedRate& rate : kCeilingRates) all.push_back(rate.mhz_name());
  return all;
}

std::vector<Cell> device_row(const DeviceInfo& info, int threads, const Ceilings& c) {
  std::vector<Cell> cells = {info.id,
                             info.kind,
                             info.description,
                             std::int64_t(info.units),
                             std::int64_t(threads),
                             static_cast<std::int64_t>(info.memory_bytes),
                             static_cast<std::int64_t>(info.cache_bytes),
                             joined(info.features),
                             info.driver,
                             info.key};
  for (const NamedRate& rate : kCeilingRates) cells.push_back((c.*rate.rate).gflops);
  cells.push_back(c.copy_gbps);
  for (const NamedRate& rate : kCeilingRates) cells.push_back((c.*rate.rate).mhz);
  return cells;
}

std::string show_rates(const Ceilings& c) {
  std::string text;
  for (const auto& [name, member] : kCeilingRates) {
    const Rate& rate = c.*member;
    text += fmt::format("{}{} {:.0f} GFLOP/s", text.empty() ? "" : ", ", name, rate.gflops);
    if (rate.mhz > 0) text += fmt::format(" at {:.0f} MHz", rate.mhz);
  }
  return text;
}

int run(DevicesOptions& options) {
  const int given = options.threads.empty() ? available_processors() : parse_threads(options.threads);
  Machine& machine = options.machine;
  machine.open(device_columns());
  Engine engine;
  print_warnings(engine);
  for (const std::shared_ptr<Device>& device : list_devices()) {
    const DeviceInfo& info = device->info();
    const int threads = info.kind == "cpu" ? given : 1;
    const Ceilings c = Internals::impl(engine).measure_ceilings(*device, threads);
    machine.row(device_row(info, threads, c));
    if (!machine.for_people()) continue;
    fmt::print("{}  {}\n", info.id, info.description);
    fmt::print("  {} {}, {} memory, {} last-level cache; {}\n", info.units,
               info.kind == "cpu" ? "processors" : "units", show_bytes(info.memory_bytes),
               show_bytes(info.cache_bytes), info.driver);
    fmt::print("  features: {}\n", info.features.empty() ? "none" : joined(info.features));
    fmt::print("  measured with {} threads: {}; copy {:.1f} GB/s\n", threads, show_rates(c), c.copy_gbps);
  }
  // Never here: kernels are emitted for them.
  for (const NkiCore& core : nki_cores()) {
    const std::shared_ptr<Device> device = make_nki_device(core.id);
    const DeviceInfo& info = device->info();
    const Ceilings c = stated_ceilings(core);
    machine.row(device_row(info, 1, c));
    if (!machine.for_people()) continue;
    fmt::print("{}  {}, offline: faltung emit nki\n", info.id, info.description);
    fmt::print("  {} partitions of {} SBUF for a kernel, {} banks of {} B PSUM; products of {} x {} x {}\n",
               NkiCore::kPartitions, show_bytes(static_cast<std::size_t>(core.sbuf_bytes)), NkiCore::kBanks,
               NkiCore::kBankBytes, NkiCore::kPartitions, NkiCore::kStationary, NkiCore::kMoving);
    fmt::print("  stated: f32 {:.0f}, f16 and bf16 {:.0f} GFLOP/s; copy {:.1f} GB/s\n", c.f32.gflops,
               c.f16.gflops, c.copy_gbps);
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
