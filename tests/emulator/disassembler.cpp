#include "tests/emulator/disassembler.hpp"

#include <map>
#include <mutex>

#include <dlfcn.h>

#include "faltung/faltung.hpp"

namespace faltung::emulator {
namespace {

// What is used of LLVM's C interface (llvm-c/Disassembler.h).
struct Llvm {
  void* (*create)(const char* triple, const char* chip, void* info, int tag, void* operand, void* symbol);
  std::size_t (*instruction)(void* disassembler, u8* bytes, u64 count, u64 address, char* text,
                             std::size_t room);

  Llvm() {
    void* library = nullptr;
    for (const char* name : {"libLLVM.so.19.1", "libLLVM-19.so.1", "libLLVM-19.so"}) {
      if (library == nullptr) library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    }
    if (library == nullptr)
      throw Error(Status::unsupported,
                  "the emulator needs libLLVM.so.19.1; on Debian: apt-get install libllvm19");
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr) throw Error(Status::unsupported, std::string("LLVM has no ") + name);
    };
    for (const char* part : {"LLVMInitializeAMDGPUTargetInfo", "LLVMInitializeAMDGPUTargetMC",
                             "LLVMInitializeAMDGPUDisassembler"}) {
      void (*initialize)() = nullptr;
      find(initialize, part);
      initialize();
    }
    find(create, "LLVMCreateDisasmCPU");
    find(instruction, "LLVMDisasmInstruction");
  }
};

}  // namespace

std::vector<Line> disassembled(std::span<const u8> code, u64 address, const std::string& chip) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static const Llvm llvm;
  static std::map<std::string, void*> of_chip;
  void*& disassembler = of_chip[chip];
  if (disassembler == nullptr)
    disassembler = llvm.create("amdgcn-amd-amdhsa", chip.c_str(), nullptr, 0, nullptr, nullptr);
  if (disassembler == nullptr) throw Error(Status::unsupported, "LLVM 19 disassembles no " + chip);
  std::vector<Line> lines;
  std::vector<u8> bytes(code.begin(), code.end());  // which LLVM takes as if it changed them
  constexpr std::size_t kWord = 4;
  for (std::size_t at = 0; at + kWord <= bytes.size();) {
    char text[512];
    const std::size_t length =
        llvm.instruction(disassembler, bytes.data() + at, bytes.size() - at, address + at, text, sizeof text);
    if (length > 0) lines.push_back({address + at, text + (text[0] == '\t')});
    at += length > 0 ? length : kWord;
  }
  return lines;
}

}  // namespace faltung::emulator
