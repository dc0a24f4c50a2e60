#include "src/backend/radv_compiler.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "src/backend/clspv.hpp"
#include "src/backend/compiler_log.hpp"
#include "src/backend/offline_device.hpp"
#include "src/backend/vulkan.hpp"
#include "src/backend/vulkan_kernel.hpp"

#include <sys/wait.h>
#include <unistd.h>

namespace faltung {
namespace {

namespace vk = vulkan;

// A variable of the environment for as long as this lives: RADV is told by these alone, and reads them where
// an instance is made and its devices are listed.
class EnvironmentValue {
 public:
  EnvironmentValue(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~EnvironmentValue() {
    if (before_) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  EnvironmentValue(const EnvironmentValue&) = delete;
  EnvironmentValue& operator=(const EnvironmentValue&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

// An instance of Vulkan with RADV's null device in it. It is kept: a tool makes a handful.
VkPhysicalDevice null_device(const std::string& family, bool by_llvm) {
  const EnvironmentValue chip("RADV_FORCE_FAMILY", family);
  const EnvironmentValue compiler("RADV_DEBUG", by_llvm ? "nocache,llvm" : "nocache");
  const VkInstance instance = vk::new_instance(vk::api()->CreateInstance);
  if (instance == VK_NULL_HANDLE) return VK_NULL_HANDLE;
  constexpr unsigned kMostDevices = 16;
  unsigned count = kMostDevices;
  std::vector<VkPhysicalDevice> all(count);
  if (vk::api()->EnumeratePhysicalDevices(instance, &count, all.data()) < 0) count = 0;
  all.resize(count);
  for (VkPhysicalDevice physical : all) {
    if (vk::Properties(physical).driver.driverID == VK_DRIVER_ID_MESA_RADV) return physical;
  }
  vk::api()->DestroyInstance(instance, nullptr);
  return VK_NULL_HANDLE;
}

// How a process ended, as waitpid has it, and what it wrote before.
struct Ended {
  int status = -1;
  std::string said;
};

// Runs `work` in a process of its own, for as many seconds at most: another thread of this one may have held
// a lock, and RADV ends the process for what it does not know. What work returns is written to this process.
template <class Work>
Ended in_another_process(unsigned seconds, const Work& work) {
  Ended ended;
  int ends[2];
  if (pipe(ends) != 0) return ended;
  const pid_t other = fork();
  if (other == 0) {
    alarm(seconds);
    close(ends[0]);
    const std::string said = work();
    std::size_t written = 0;
    while (written < said.size()) {
      const ssize_t more = write(ends[1], said.data() + written, said.size() - written);
      if (more <= 0) break;
      written += static_cast<std::size_t>(more);
    }
    _exit(written == said.size() ? 0 : 1);
  }
  close(ends[1]);
  char part[4096];
  ssize_t bytes = 0;
  while (other > 0 && ((bytes = read(ends[0], part, sizeof part)) > 0 || (bytes < 0 && errno == EINTR)))
    ended.said.append(part, static_cast<std::size_t>(std::max<ssize_t>(0, bytes)));
  close(ends[0]);
  while (other > 0 && waitpid(other, &ended.status, 0) < 0 && errno == EINTR) {
  }
  return ended;
}

bool knows(const std::string& family) {
  constexpr unsigned kPatience = 20;
  const Ended ended = in_another_process(
      kPatience, [&] { return std::string(null_device(family, false) == VK_NULL_HANDLE ? "" : "known"); });
  return ended.status == 0 && ended.said == "known";
}

// A line of the log, by which a statistic is found again.
std::string line_of(const std::string& statistic) { return "\nRADV's " + statistic + ": "; }

class RadvCompiler : public OfflineCompiler {
 public:
  RadvCompiler(const std::string& id, const std::string& family, bool by_llvm) : OfflineCompiler(id) {
    if (Clspv::get() == nullptr || vk::api() == nullptr) throw Error(Status::unsupported, vulkan_missing());
    VkPhysicalDevice physical = knows(family) ? null_device(family, by_llvm) : VK_NULL_HANDLE;
    if (physical == VK_NULL_HANDLE)
      throw Error(Status::unsupported,
                  id + " needs Mesa's RADV (Debian: mesa-vulkan-drivers), and one that knows the family " +
                      family + "; VK_ICD_FILENAMES may name a newer one");
    if (!vk::Features(physical).suffice() ||
        vk::Features(physical).tells_resources.pipelineExecutableInfo == 0)
      throw Error(Status::unsupported, id + ": this RADV does not tell what became of a kernel");
    const vk::Properties properties(physical);
    const VkPhysicalDeviceLimits& limits = properties.device.limits;
    push_constant_bytes_ = limits.maxPushConstantsSize;
    info_.units = 40;  // of a middling chip: the order of configs depends on it, their code does not
    info_.local_bytes = limits.maxComputeSharedMemorySize;
    info_.dialect = "opencl";
    info_.features = {"vulkan"};
    info_.unit = unit_limits(family);
    info_.driver = std::string(properties.driver.driverInfo) + (by_llvm ? ", LLVM: " : ", ACO: ") +
                   properties.device.deviceName + ", " + Clspv::get()->identity();
    queue_ = std::make_shared<vk::Queue>(physical, 0, id);
  }

  Binary compile(const KernelSource& source) override {
    Binary binary = Clspv::get()->compile(source, push_constant_bytes_);
    // LLVM ends the process over some kernels for some chips.
    constexpr unsigned kPatience = 300;
    const Ended ended = in_another_process(kPatience, [&] {
      const auto begin = std::chrono::steady_clock::now();
      std::string log;
      try {
        const vk::ComputeKernel kernel(queue_, binary, source.entry, push_constant_bytes_);
        for (const auto& [name, value] : kernel.statistics())
          log += line_of(name) + std::to_string(static_cast<std::int64_t>(value));
      } catch (const Error& error) {
        return kRefused + std::string(error.what());
      }
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
      return log + line_of(kMicroseconds) + std::to_string(std::lround(took.count()));
    });
    if (ended.said.starts_with(kRefused))
      throw Error(Status::device_error, ended.said.substr(std::string(kRefused).size()));
    if (ended.status != 0) {
      throw Error(Status::device_error,
                  info_.id + ": RADV's compiler ended its process over kernel " + source.name +
                      (WIFSIGNALED(ended.status) ? " by signal " + std::to_string(WTERMSIG(ended.status)) +
                                                       " (" + strsignal(WTERMSIG(ended.status)) + ")"
                                                 : ""));
    }
    binary.log += ended.said;
    binary.compile_ms = 1e-3 * static_cast<double>(number_after(binary.log, line_of(kMicroseconds)));
    binary.log += kCodeBytes + std::to_string(number_after(binary.log, line_of("Code size"))) + "\n";
    return binary;
  }

 private:
  // What the other process writes before a refusal's words, and a line of what it measured.
  static constexpr const char* kRefused = "refused: ";
  static constexpr const char* kMicroseconds = "microseconds";

  KernelResources read(const std::string& log, const KernelSource& source) const override {
    const auto number = [&](const char* name) { return number_after(log, line_of(name)); };
    KernelResources r;
    r.registers = static_cast<int>(number("VGPRs"));
    r.scalar_registers = static_cast<int>(number("SGPRs"));
    r.wave_threads = static_cast<int>(number("subgroup size"));
    r.local_bytes = number("LDS size");
    r.block_threads = source.block_threads;
    if (r.wave_threads <= 0) return r;
    r.spilled_bytes = number("Scratch size") / r.wave_threads;
    if (!info_.unit.known()) return r;
    // A wave of 64 has each register twice, on a chip whose waves may have 32.
    UnitLimits unit = info_.unit;
    const int halves = std::max(1, r.wave_threads / unit.wave_threads);
    unit.wave_threads = r.wave_threads;
    unit.scheduler_registers /= halves;
    unit.register_step = std::max(1, unit.register_step / halves);
    const Residence resident = unit.residence(r.block_threads, r.registers, static_cast<int>(r.local_bytes));
    r.blocks = resident.blocks;
    r.waves = resident.waves;
    r.occupancy = resident.occupancy;
    r.limited_by = resident.limited_by;
    return r;
  }

  unsigned push_constant_bytes_ = 0;
  std::shared_ptr<vk::Queue> queue_;
};

}  // namespace

std::shared_ptr<Device> make_radv_compiler(const std::string& id) {
  const std::size_t colon = id.find(':');
  return std::make_shared<RadvCompiler>(id, id.substr(colon + 1), id.starts_with("radv-llvm:"));
}

}  // namespace faltung
