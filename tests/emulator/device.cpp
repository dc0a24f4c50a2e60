#include "tests/emulator/device.hpp"

#include <atomic>
#include <cstring>
#include <vector>

namespace faltung::emulator {

EmulatedDevice::EmulatedDevice(const std::string& compiler, u64 seed)
    : chip_(compiler.substr(compiler.find(':') + 1)),
      compiler_(make_offline_compiler(compiler)),
      info_(compiler_->info()),
      machine_(std::make_shared<Machine>(seed)) {
  // Each is a device of its own: what one changes in its kernels no other sees.
  static std::atomic<int> number = 0;
  info_.key = "emulated:" + compiler;
  info_.id = info_.key + ":" + std::to_string(number++);
  info_.description = chip_ + ", emulated";
  info_.memory_bytes = std::size_t{1} << 32;
}

std::shared_ptr<Kernel> EmulatedDevice::load(const Binary& binary, const KernelSource& source) {
  auto kernel = std::make_shared<EmulatedKernel>();
  kernel->compiled = compiler_->load(binary, source);
  kernel->elf = binary.code, kernel->entry = source.entry;
  const std::shared_ptr<CodeObject> code = load_code_object(binary.code, chip_, source.entry);
  if (change) change(*code);
  for (const Instruction& i : code->program) {
    for (const Instruction* each : {&i, static_cast<const Instruction*>(i.second.get())}) {
      if (each != nullptr && (each->vector != nullptr || each->scalar != nullptr))
        executed.emplace(each->mnemonic, source.entry);
    }
  }
  kernel->code = code;
  return kernel;
}

KernelResources EmulatedDevice::resources(const Kernel& kernel, const KernelSource& source) const {
  return compiler_->resources(*static_cast<const EmulatedKernel&>(kernel).compiled, source);
}

// OpenCL's kernels take an address as a buffer and the bytes to skip in it.
void EmulatedDevice::launch(const Kernel& kernel, const LaunchShape& shape,
                            std::span<const Argument> arguments, const Stream&) {
  const auto& emulated = static_cast<const EmulatedKernel&>(kernel);
  static const u64 kSkip = 0;
  std::vector<Argument> all;
  for (const Argument& argument : arguments) {
    all.push_back(argument);
    if (argument.is_address && info_.dialect == "opencl") all.emplace_back(&kSkip, sizeof kSkip, false);
  }
  Counts& total = counts[emulated.entry];
  const Counts own = machine_->run(*emulated.code, shape, all);
  total = own;
}

double EmulatedDevice::time_ms(const Stream&, const std::function<void()>& work) {
  work();
  return 1;
}

Buffer EmulatedDevice::allocate(std::size_t bytes) {
  // Nothing lies right behind another: each is memory of its own.
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 511) / 256 * 256));
  std::memset(memory, 0xff, bytes);
  machine_->memory().add(memory, bytes, Memory::Content::undefined,
                         "a buffer of " + std::to_string(bytes) + " bytes");
  std::shared_ptr<void> owner(memory, [machine = machine_](void* pointer) {
    machine->memory().remove(pointer);
    std::free(pointer);
  });
  return {owner, memory, bytes};
}

void EmulatedDevice::copy_in(const Buffer& to, const void* from, std::size_t bytes) {
  std::memcpy(to.pointer, from, bytes);
  machine_->memory().define(to.pointer, bytes);
}

void EmulatedDevice::copy_out(void* to, const Buffer& from, std::size_t bytes) {
  std::memcpy(to, from.pointer, bytes);
}

}  // namespace faltung::emulator
