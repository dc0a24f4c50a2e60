#include "src/backend/offline_compiler.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "src/backend/amd_assembly.hpp"
#include "src/backend/amd_features.hpp"
#include "src/backend/compiler_log.hpp"
#include "src/backend/cuda_tensor_map.hpp"
#include "src/backend/nvidia_features.hpp"
#include "src/backend/nvrtc.hpp"
#include "src/backend/offline_device.hpp"
#include "src/backend/radv_compiler.hpp"
#include "src/problem/environment.hpp"
#include "src/problem/temporary_folder.hpp"

namespace faltung {
namespace {

namespace fs = std::filesystem;

class NvrtcCompiler : public OfflineCompiler {
 public:
  explicit NvrtcCompiler(const std::string& architecture)
      : OfflineCompiler("nvrtc:" + architecture), architecture_(architecture) {
    if (Nvrtc::get() == nullptr) throw Error(Status::unsupported, Nvrtc::missing());
    Nvrtc::get()->check(architecture);
    info_.units = 132;
    info_.local_bytes = 48 << 10;
    info_.dialect = "cuda";
    info_.features = nvidia_features(architecture);
    info_.features.push_back("nvrtc");
    info_.unit = unit_limits(architecture);
    info_.driver = "NVRTC " + Nvrtc::get()->version();
    info_.code_key = Nvrtc::get()->code_key(architecture);
  }
  Binary compile(const KernelSource& source) override { return Nvrtc::get()->compile(source, architecture_); }
  // A shape that the GPU's copy engine refuses is refused here, too.
  TensorMap encode(const MapShape& shape, const void* address) const override {
    if (!info_.has("sm_90a")) return Device::encode(shape, address);
    cuda::check_limits(shape, address);
    return {};
  }

 private:
  KernelResources read(const std::string& log, const KernelSource& source) const override {
    KernelResources r;
    read_ptxas_log(log, source, info_.unit, r);
    return r;
  }
  std::string architecture_;
};

// A compiler's files, for as long as this lives.
class CompilerFolder : public TemporaryFolder {
 public:
  void write(const std::string& name, const std::string& text) const {
    errno = 0;
    std::ofstream file(path() + name, std::ios::binary);
    file << text << std::flush;
    if (!file) fail(path() + name, errno);
  }
  std::string content(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(path() + name, std::ios::binary).rdbuf();
    return text.str();
  }
  // Throws where what a compiler said of its failure is that a file could not be written whole, which is no
  // fault of the kernel's.
  void check_room(const std::string& said) const {
    for (const int error : {ENOSPC, EDQUOT, EFBIG}) {
      if (said.find(std::strerror(error)) != std::string::npos) fail(path(), error);
    }
    // A shell's words for a command that ended by RLIMIT_FSIZE.
    if (said.find(::strsignal(SIGXFSZ)) != std::string::npos) fail(path(), EFBIG);
  }

 private:
  [[noreturn]] static void fail(const std::string& path, int error) {
    throw Error(Status::bad_file, "cannot write " + path + ": " + std::strerror(error) +
                                      "; TMPDIR may name a folder with room for a compiler's files");
  }
};

struct CommandResult {
  int status = 0;
  std::string said;  // on both of its outputs
};

// By a pipe: a file might not take what is said of a full disk.
CommandResult run_command(const std::string& command) {
  CommandResult result;
  FILE* const pipe = ::popen(("exec 2>&1; " + command).c_str(), "re");
  if (pipe == nullptr)
    throw Error(Status::device_error, std::string("no command can be started: ") + std::strerror(errno));
  std::array<char, 4096> part;
  while (const std::size_t bytes = std::fread(part.data(), 1, part.size(), pipe))
    result.said.append(part.data(), bytes);
  result.status = ::pclose(pipe);
  return result;
}

bool is_command(const std::string& name) {
  return std::system(("command -v " + name + " >/dev/null 2>&1").c_str()) == 0;
}
// Empty where there is none.
std::string known_clang() {
  const std::string named = environment("FALTUNG_CLANG");
  for (const std::string& name : {named.empty() ? "clang-19" : named, std::string("clang")}) {
    if (is_command(name)) return name;
  }
  return "";
}

enum class AmdLanguage { opencl, hip };

// The kernel.o that the command makes in the folder, with its log: what it says, and what is read of its
// other files.
template <class Read>
Binary made_by(const std::string& command, const CompilerFolder& temporary, const std::string& failure,
               Read read) {
  const auto begin = std::chrono::steady_clock::now();
  const CommandResult result = run_command(command);
  Binary binary;
  binary.compile_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  binary.log = result.said + read();
  binary.code = temporary.content("/kernel.o");
  if (result.status != 0) {
    temporary.check_room(result.said);
    throw Error(Status::device_error, failure + ": " + binary.log);
  }
  return binary;
}

// Clang's remarks on what a kernel uses, with ROCm's device library for OpenCL's and C's functions.
class AmdCompiler : public OfflineCompiler {
 public:
  AmdCompiler(const std::string& id, const std::string& chip, AmdLanguage language, CompilerOutput output)
      : OfflineCompiler(id),
        chip_(chip),
        language_(language),
        // Of HIP clang makes a bundle, where it is not asked for assembly.
        code_alone_(output == CompilerOutput::code && language == AmdLanguage::opencl) {
    info_.units = 40;
    info_.local_bytes = 64 << 10;
    info_.features = amd_features(chip);
    if (language_ == AmdLanguage::opencl) {
      info_.dialect = "opencl";
      info_.features.insert(info_.features.end(), {"opencl", "fp16"});
    } else {
      info_.dialect = "hip";
      info_.features.emplace_back("hiprtc");
    }
    info_.unit = unit_limits(chip);
    clang_ = known_clang();
    const std::string library = std::string(kBitcode) + "/opencl.bc";
    if (clang_.empty() || !fs::exists(library)) {
      throw Error(Status::unsupported, id + " needs clang-19 (or FALTUNG_CLANG) and " + library +
                                           "; on Debian: apt-get install clang-19 rocm-device-libs");
    }
    const std::string tried =
        clang_ + kTarget + " -mcpu=" + chip + " -nogpulib -x cl -fsyntax-only /dev/null";
    if (std::system((tried + " 2>/dev/null").c_str()) != 0) {
      throw Error(Status::unsupported,
                  clang_ + " knows no chip " + chip + "; FALTUNG_CLANG may name a newer clang that does");
    }
    info_.driver = clang_;
  }

  Binary compile(const KernelSource& source) override {
    const Binary binary = compile_once(source, "");
    if (!has_accumulators() || !has_private_memory(binary.code)) return binary;
    // LLVM 19 forgets a part of what it spills to accumulators and to private memory both.
    return compile_once(source, " -mllvm -amdgpu-spill-vgpr-to-agpr=0");
  }

 private:
  bool has_accumulators() const {
    return chip_ == "gfx90a" || chip_.starts_with("gfx94") || chip_.starts_with("gfx95");
  }
  // Of a code object: its notes name the bytes, as MessagePack has small numbers.
  static bool has_private_memory(const std::string& code) {
    const std::string name = ".private_segment_fixed_size";
    const std::size_t at = code.find(name);
    return at != std::string::npos && code[at + name.size()] != 0;
  }

  Binary compile_once(const KernelSource& source, const std::string& more) {
    const CompilerFolder temporary;
    const std::string& folder = temporary.path();
    const bool is_hip = language_ == AmdLanguage::hip;
    const std::string name = is_hip ? "/kernel.hip" : "/kernel.cl";
    temporary.write(name, source.text);
    std::string options = more;
    for (const std::string& option : source.options) options += " '" + option + "'";
    const std::string clang = clang_ + kTarget + kVersion + " -mcpu=" + chip_;
    const std::string compile =
        is_hip
            ? clang_ + kVersion + " -x hip --cuda-device-only --offload-arch=" + chip_ +
                  " -nogpuinc -std=c++17"
            : clang + " -x cl -cl-std=CL1.2 -D__OPENCL_VERSION__=120 -Xclang -mlink-bitcode-file -Xclang " +
                  kBitcode + "/opencl.bc";
    const std::string whole = compile + options + " -O3" + library(temporary, clang) + " " + folder + name;
    const std::string command = code_alone_ ? whole + " -c -o " + folder + "/kernel.o"
                                            : whole + " -Rpass-analysis=kernel-resource-usage -S -o " +
                                                  folder + "/kernel.s && " + clang + " -c " + folder +
                                                  "/kernel.s -o " + folder + "/kernel.o";
    return made_by(command, temporary, clang_ + " cannot compile kernel " + source.name + " for " + chip_,
                   [&] {
                     if (code_alone_) return std::string();
                     const std::string assembly = temporary.content("/kernel.s");
                     return to_log(read_amd_assembly(assembly, chip_)) + kCodeBytes +
                            std::to_string(number_after(assembly, "; codeLenInByte = ")) + "\n";
                   });
  }

  static constexpr const char* kBitcode = "/usr/lib/x86_64-linux-gnu/amdgcn/bitcode";
  static constexpr const char* kTarget = " -target amdgcn-amd-amdhsa";
  // The library's, and clang 19's own: newer ones take the next.
  static constexpr const char* kVersion = " -mcode-object-version=5";

  std::string isa_bitcode() const {
    return std::string(kBitcode) + "/oclc_isa_version_" + chip_.substr(3) + ".bc";
  }
  // The library knows each chip by a file of its own: of one that is newer than it that file is made, once.
  void write_isa_bitcode(const CompilerFolder& temporary, const std::string& clang) {
    const std::lock_guard lock(mutex_);
    if (isa_.empty()) {
      temporary.write("/isa.cl",
                      "__constant int __oclc_ISA_version = " + std::to_string(isa_version()) + ";\n");
      const std::string& folder = temporary.path();
      const CommandResult made = run_command(clang + " -x cl -nogpulib -emit-llvm -c " + folder +
                                             "/isa.cl -o " + folder + "/isa.bc");
      if (made.status != 0) temporary.check_room(made.said);
      isa_ = temporary.content("/isa.bc");
    } else {
      temporary.write("/isa.bc", isa_);
    }
  }
  // The options that link the library.
  std::string library(const CompilerFolder& temporary, const std::string& clang) {
    const bool known = fs::exists(isa_bitcode());
    if (known && language_ == AmdLanguage::opencl) return std::string(" --rocm-device-lib-path=") + kBitcode;
    std::string all = " -nogpulib";
    for (const char* part :
         {"ocml", "ockl", "oclc_daz_opt_off", "oclc_unsafe_math_off", "oclc_finite_only_off",
          "oclc_correctly_rounded_sqrt_on",
          info_.unit.wave_threads == 64 ? "oclc_wavefrontsize64_on" : "oclc_wavefrontsize64_off",
          "oclc_abi_version_500"}) {
      all.append(" -Xclang -mlink-builtin-bitcode -Xclang ")
          .append(kBitcode)
          .append("/")
          .append(part)
          .append(".bc");
    }
    if (!known) write_isa_bitcode(temporary, clang);
    return all + " -Xclang -mlink-builtin-bitcode -Xclang " +
           (known ? isa_bitcode() : temporary.path() + "/isa.bc");
  }

  // gfx1151 is 11.5.1, which the device library writes as 11501; the last digit is hexadecimal.
  int isa_version() const {
    const std::string version = chip_.substr(3);
    const std::size_t last = version.size() - 1;
    return std::atoi(version.substr(0, last - 1).c_str()) * 1000 + (version[last - 1] - '0') * 100 +
           static_cast<int>(std::strtol(version.substr(last).c_str(), nullptr, 16));
  }

  KernelResources read(const std::string& log, const KernelSource&) const override {
    KernelResources r;
    // Accumulation registers lie behind the others in one file.
    r.registers = static_cast<int>(number_after(log, " VGPRs: "));
    if (const auto more = static_cast<int>(number_after(log, " AGPRs: ")); more > 0)
      r.registers = (r.registers + 3) / 4 * 4 + more;
    r.scalar_registers = static_cast<int>(number_after(log, " SGPRs: "));
    r.spilled_bytes = number_after(log, "ScratchSize [bytes/lane]: ");
    r.local_bytes = number_after(log, "LDS Size [bytes/block]: ");
    r.waves = static_cast<int>(number_after(log, "Occupancy [waves/SIMD]: "));
    // What the chip would hold without the other limits.
    const UnitLimits& unit = info_.unit;
    const int most = unit.scheduler_waves, step = unit.register_step;
    const int by_registers =
        std::min(most, unit.scheduler_registers / (std::max(1, (r.registers + step - 1) / step) * step));
    if (r.waves >= 0 && unit.known()) {
      r.wave_threads = unit.wave_threads;
      r.occupancy = static_cast<double>(r.waves) / most;
      r.limited_by = r.waves >= most           ? "nothing"
                     : by_registers <= r.waves ? "registers"
                     : r.local_bytes > 0       ? "local memory"
                                               : "blocks";
    }
    return r;
  }

  std::string chip_, clang_;
  AmdLanguage language_;
  bool code_alone_;
  std::mutex mutex_;
  std::string isa_;
};

// What NVIDIA's OpenCL compiler is given, by clang, whose PTX ptxas assembles.
class NvptxCompiler : public OfflineCompiler {
 public:
  NvptxCompiler(const std::string& id, const std::string& chip) : OfflineCompiler(id), chip_(chip) {
    info_.units = 132;
    info_.local_bytes = 48 << 10;
    info_.dialect = "opencl";
    info_.features = {"opencl", "fp16", "large_registers"};
    if (has_mma_sync(chip)) info_.features.emplace_back("mma_ptx");
    info_.unit = unit_limits(chip);
    clang_ = known_clang();
    if (clang_.empty() || !fs::exists(kLibrary) || !is_command("ptxas")) {
      throw Error(Status::unsupported,
                  id + " needs clang-19 (or FALTUNG_CLANG), " + kLibrary +
                      " (on Debian: apt-get install clang-19 libclc-15) and CUDA's ptxas");
    }
    info_.driver = clang_;
  }

  Binary compile(const KernelSource& source) override {
    const CompilerFolder temporary;
    const std::string& folder = temporary.path();
    temporary.write("/kernel.cl", source.text);
    std::string options;
    for (const std::string& option : source.options) options += " '" + option + "'";
    const std::string command =
        clang_ + " -target nvptx64-nvidia-cuda -Xclang -target-cpu -Xclang " + chip_ +
        " -Xclang -target-feature -Xclang +ptx78 -x cl -cl-std=CL1.2 -D__OPENCL_VERSION__=120"
        " -D__NV_CL_C_VERSION=120 -Xclang -mlink-builtin-bitcode -Xclang " +
        kLibrary + options + " -O3 -S -o " + folder + "/kernel.ptx " + folder +
        "/kernel.cl && ptxas -arch=" + chip_ + " -v -o " + folder + "/kernel.o " + folder + "/kernel.ptx";
    return made_by(command, temporary, clang_ + " cannot compile kernel " + source.name + " for " + chip_,
                   [] { return std::string(); });
  }

 private:
  static constexpr const char* kLibrary = "/usr/lib/clc/nvptx64--nvidiacl.bc";
  KernelResources read(const std::string& log, const KernelSource& source) const override {
    KernelResources r;
    read_ptxas_log(log, source, info_.unit, r);
    return r;
  }
  std::string chip_, clang_;
};

}  // namespace

std::shared_ptr<Device> make_offline_compiler(const std::string& id, CompilerOutput output) {
  if (id.starts_with("nvrtc:sm_")) return std::make_shared<NvrtcCompiler>(id.substr(6));
  if (id.starts_with("clang:gfx"))
    return std::make_shared<AmdCompiler>(id, id.substr(6), AmdLanguage::opencl, output);
  if (id.starts_with("clang:sm_")) return std::make_shared<NvptxCompiler>(id, id.substr(6));
  if (id.starts_with("clang-hip:gfx"))
    return std::make_shared<AmdCompiler>(id, id.substr(10), AmdLanguage::hip, output);
  if (id.starts_with("radv:") || id.starts_with("radv-llvm:")) return make_radv_compiler(id);
  throw Error(Status::bad_problem, "'" + id +
                                       "' is no compiler; one is nvrtc:sm_80, clang:sm_80, clang:gfx1030, "
                                       "clang-hip:gfx1030, radv:navi21 or radv-llvm:navi21");
}

std::string offline_compiler_of(const std::string& code_key) {
  const Nvrtc* const nvrtc = Nvrtc::get();
  const std::string before = "cuda-", after = "-nvrtc";
  const std::size_t end = code_key.find(after);
  if (nvrtc == nullptr || !code_key.starts_with(before) || end == std::string::npos) return "";
  const std::string architecture = code_key.substr(before.size(), end - before.size());
  return nvrtc->code_key(architecture) == code_key ? "nvrtc:" + architecture : "";
}

std::int64_t code_bytes(const Kernel& kernel) {
  const auto* const compiled = dynamic_cast<const OfflineKernel*>(&kernel);
  return compiled == nullptr ? -1 : number_after(compiled->log, kCodeBytes);
}

std::optional<AssemblyCounts> code_counts(const Kernel& kernel) {
  const auto* const compiled = dynamic_cast<const OfflineKernel*>(&kernel);
  return compiled == nullptr ? std::nullopt : from_log(compiled->log);
}

}  // namespace faltung
