#include "src/backend/spirv_arguments.hpp"

#include <cstring>
#include <map>
#include <span>

#include "faltung/faltung.hpp"

namespace faltung {
namespace spirv {
namespace {

using Word = std::uint32_t;

// Opcodes of SPIR-V, and instructions of the set NonSemantic.ClspvReflection.
constexpr Word kMagic = 0x07230203, kString = 7, kExtInstImport = 11, kExtInst = 12, kConstant = 43;
constexpr Word kKernel = 1, kArgumentInfo = 2, kArgumentStorageBuffer = 3, kArgumentPodPushConstant = 7,
               kArgumentWorkgroup = 11, kPropertyRequiredWorkgroupSize = 24,
               kArgumentPointerPushConstant = 26, kArgumentPointerUniform = 27, kImageInfo = 30,
               kUniformTexelBuffer = 35, kWorkgroupVariableSize = 42;

// Whether the note is of one kernel, which its first operand names. All others are of the module: sizes that
// a launch would have to tell (offsets, regions, subgroups), constants and variables in buffers, printf.
bool is_of_a_kernel(Word what) {
  return (what >= kArgumentInfo && what <= kArgumentWorkgroup) || what == kPropertyRequiredWorkgroupSize ||
         what == kArgumentPointerPushConstant || what == kArgumentPointerUniform ||
         (what >= kImageInfo && what <= kUniformTexelBuffer);
}

std::string literal(std::span<const Word> words) {
  const auto* const text = reinterpret_cast<const char*>(words.data());
  return {text, strnlen(text, words.size_bytes())};
}

// The words of a module, an instruction after the other.
class Module {
 public:
  explicit Module(const std::string& code) : words_(code.size() / sizeof(Word)) {
    std::memcpy(words_.data(), code.data(), words_.size() * sizeof(Word));
    constexpr std::size_t kHeader = 5;
    if (words_.size() < kHeader || code.size() % sizeof(Word) != 0 || words_[0] != kMagic) damaged();
    for (std::size_t at = kHeader; at < words_.size();) {
      const std::size_t count = words_[at] >> 16;
      if (count == 0 || count > words_.size() - at) damaged();
      instructions_.emplace_back(words_.data() + at, count);
      at += count;
    }
  }
  const std::vector<std::span<const Word>>& instructions() const { return instructions_; }
  [[noreturn]] static void damaged() { throw Error(Status::bad_file, "stored code is no whole SPIR-V"); }

 private:
  std::vector<Word> words_;
  std::vector<std::span<const Word>> instructions_;
};

}  // namespace
}  // namespace spirv

std::vector<SpirvArgument> spirv_arguments(const std::string& code, const std::string& entry) {
  using namespace spirv;
  const Module module(code);
  std::map<Word, std::string> strings;
  std::map<Word, Word> constants;
  Word notes = 0, kernel = 0;
  std::vector<SpirvArgument> found;
  for (const std::span<const Word> i : module.instructions()) {
    const Word opcode = i[0] & 0xffff;
    if (opcode == kString && i.size() > 2) strings[i[1]] = literal(i.subspan(2));
    if (opcode == kConstant && i.size() == 4) constants[i[2]] = i[3];
    if (opcode == kExtInstImport && i.size() > 2 &&
        literal(i.subspan(2)).starts_with("NonSemantic.ClspvReflection"))
      notes = i[1];
    if (opcode != kExtInst || i.size() < 6 || i[3] != notes || notes == 0) continue;
    const Word what = i[4];
    if (what == kKernel && i.size() > 6 && strings[i[6]] == entry) kernel = i[2];
    if (what == kKernel || what == kArgumentInfo || what == kWorkgroupVariableSize) continue;
    if (!is_of_a_kernel(what))
      throw Error(Status::unsupported, "kernel " + entry +
                                           " wants what no launch gives: sizes, constants or variables of "
                                           "the module (ClspvReflection " +
                                           std::to_string(what) + ")");
    if (i[5] != kernel || kernel == 0) continue;
    if (what == kArgumentStorageBuffer && i.size() >= 9 && constants[i[7]] == 0) {
      found.push_back({SpirvArgument::Kind::storage_buffer, constants[i[6]], constants[i[8]], 0});
    } else if (what == kArgumentPodPushConstant && i.size() >= 9) {
      found.push_back(
          {SpirvArgument::Kind::push_constant, constants[i[6]], constants[i[7]], constants[i[8]]});
    } else if (what != kPropertyRequiredWorkgroupSize) {
      throw Error(Status::unsupported, "kernel " + entry +
                                           " wants arguments elsewhere than in storage buffers and push "
                                           "constants (ClspvReflection " +
                                           std::to_string(what) + ")");
    }
  }
  if (kernel == 0)
    throw Error(Status::bad_file, "the SPIR-V has no kernel " + entry + " of which clspv left notes");
  return found;
}

}  // namespace faltung
