#include "tests/emulator/device.hpp"

#include <atomic>
#include <cstring>
#include <vector>

namespace faltung::emulator {

EmulatedDevice::EmulatedDevice(const std::string& compiler, u64 seed)
    : chip_(compiler.substr(compiler.find(':') + 1)),
      compiler_(make_offline_compiler(compiler, CompilerOutput::code)),
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
  kernel->file = binary.code, kernel->entry = source.entry;
  const std::shared_ptr<const CodeObject> code = decoded(*kernel);
  kernel->resources.registers = code->vector_registers;
  kernel->resources.scalar_registers = code->scalar_registers;
  kernel->resources.local_bytes = code->local_bytes;
  kernel->resources.spilled_bytes = code->private_bytes;
  for (const Instruction& i : code->program) {
    for (const Instruction* each : {&i, static_cast<const Instruction*>(i.second.get())}) {
      if (each != nullptr && (each->vector != nullptr || each->scalar != nullptr))
        executed.emplace(each->mnemonic, source.entry);
    }
  }
  return kernel;
}

std::shared_ptr<const CodeObject> EmulatedDevice::decoded(const EmulatedKernel& kernel) {
  if (std::shared_ptr<const CodeObject> code = kernel.code.lock()) return code;
  const std::shared_ptr<CodeObject> code = load_code_object(kernel.file, chip_, kernel.entry);
  if (change) change(*code);
  constexpr std::size_t kKept = 32;
  if (kept_.size() == kKept) kept_.pop_front();
  kernel.code = kept_.emplace_back(code);
  return code;
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
  const Counts own = machine_->run(*decoded(emulated), shape, all);
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
