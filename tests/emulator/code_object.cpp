#include "tests/emulator/code_object.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include <elf.h>
#include <fmt/core.h>

#include "faltung/faltung.hpp"
#include "tests/emulator/disassembler.hpp"
#include "tests/emulator/metadata.hpp"

namespace faltung::emulator {
namespace {

// A symbol, and where it lies in the image.
struct Symbol {
  std::string name;
  u64 address = 0, bytes = 0;
  bool is_function = false, is_defined = false;
};

// A code object's file: what clang left unlinked, as it would be linked alone, or a driver's that is.
class Elf {
 public:
  explicit Elf(const std::string& bytes) : bytes_(bytes), header_(at<Elf64_Ehdr>(0)) {
    if (std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0)
      throw Error(Status::bad_problem, "a code object that is no ELF file");
    for (unsigned i = 0; i < header_.e_shnum; ++i)
      sections_.push_back(at<Elf64_Shdr>(header_.e_shoff + u64{i} * header_.e_shentsize));
    header_.e_type == ET_REL ? lay_out() : load_segments();
  }

  std::vector<u8> image;

  // The image lies at `base`.
  void relocate(u64 base) {
    if (header_.e_type != ET_REL) return;
    for (const Elf64_Shdr& list : sections_) {
      if (list.sh_type != SHT_RELA || (sections_.at(list.sh_info).sh_flags & SHF_ALLOC) == 0) continue;
      const std::vector<Symbol> all = symbols(list.sh_link);
      for (u64 i = 0; i < list.sh_size; i += sizeof(Elf64_Rela)) {
        const auto entry = at<Elf64_Rela>(list.sh_offset + i);
        relocate(entry, sections_[list.sh_info].sh_addr + entry.r_offset, all.at(ELF64_R_SYM(entry.r_info)),
                 base);
      }
    }
  }

  std::vector<Symbol> symbols() const {
    for (std::size_t i = 0; i < sections_.size(); ++i)
      if (sections_[i].sh_type == SHT_SYMTAB) return symbols(i);
    for (std::size_t i = 0; i < sections_.size(); ++i)
      if (sections_[i].sh_type == SHT_DYNSYM) return symbols(i);
    return {};
  }

  // What the notes say of a kernel; empty where they name none such.
  Value metadata(const std::string& kernel) const {
    constexpr u32 kMetadata = 32;  // NT_AMDGPU_METADATA
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_NOTE) continue;
      const auto note = at<Elf64_Nhdr>(section.sh_offset);
      const u64 content = section.sh_offset + sizeof note + (note.n_namesz + 3u) / 4 * 4;
      if (note.n_type != kMetadata || content + note.n_descsz > bytes_.size()) continue;
      const Value all = read_message_pack(std::string_view(bytes_).substr(content, note.n_descsz));
      for (const Value& each : all.at("amdhsa.kernels").list)
        if (each.at(".name").text == kernel) return each;
    }
    return {};
  }

 private:
  template <class T>
  T at(u64 offset) const {
    T value{};
    if (offset <= bytes_.size() && sizeof value <= bytes_.size() - offset)
      std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  void put(u64 address, u64 offset, u64 bytes, u64 extent) {
    if (image.size() < address + extent) image.resize(address + extent);
    if (offset + bytes <= bytes_.size()) std::memcpy(image.data() + address, bytes_.data() + offset, bytes);
  }
  void load_segments() {
    for (unsigned i = 0; i < header_.e_phnum; ++i) {
      const auto segment = at<Elf64_Phdr>(header_.e_phoff + u64{i} * header_.e_phentsize);
      if (segment.p_type == PT_LOAD)
        put(segment.p_vaddr, segment.p_offset, segment.p_filesz, segment.p_memsz);
    }
  }
  // Unlinked sections have no addresses yet.
  void lay_out() {
    for (Elf64_Shdr& section : sections_) {
      if ((section.sh_flags & SHF_ALLOC) == 0) continue;
      const u64 align = std::max<u64>(16, section.sh_addralign);
      section.sh_addr = (image.size() + align - 1) / align * align;
      put(section.sh_addr, section.sh_offset, section.sh_type == SHT_NOBITS ? 0 : section.sh_size,
          section.sh_size);
    }
  }
  std::vector<Symbol> symbols(std::size_t table) const {
    const Elf64_Shdr& list = sections_.at(table);
    const u64 names = sections_.at(list.sh_link).sh_offset;
    std::vector<Symbol> all;
    for (u64 i = 0; i < list.sh_size; i += sizeof(Elf64_Sym)) {
      const auto entry = at<Elf64_Sym>(list.sh_offset + i);
      Symbol symbol{bytes_.c_str() + std::min<u64>(bytes_.size(), names + entry.st_name), entry.st_value,
                    entry.st_size, ELF64_ST_TYPE(entry.st_info) == STT_FUNC, entry.st_shndx != SHN_UNDEF};
      if (header_.e_type == ET_REL && entry.st_shndx < sections_.size())
        symbol.address += sections_[entry.st_shndx].sh_addr;
      all.push_back(std::move(symbol));
    }
    return all;
  }
  // By LLVM's "User Guide for AMDGPU Backend", relocation records.
  void relocate(const Elf64_Rela& entry, u64 place, const Symbol& symbol, u64 base) {
    enum { kLow = 1, kHigh, kAll, kRelative32, kRelative64, kAll32, kRelativeLow = 10, kRelativeHigh };
    const auto type = ELF64_R_TYPE(entry.r_info);
    if (!symbol.is_defined) throw Error(Status::bad_problem, "the code object wants a symbol " + symbol.name);
    const u64 value = symbol.address + static_cast<u64>(entry.r_addend);
    const bool is_relative = type == kRelative32 || type == kRelative64 || type >= kRelativeLow;
    const bool is_known = type >= kLow && (type <= kAll32 || type == kRelativeLow || type == kRelativeHigh);
    if (!is_known)
      throw Error(Status::unsupported, fmt::format("the emulator knows no relocation of type {}", type));
    const u64 whole = is_relative ? value - place : base + value;
    const u64 part = type == kHigh || type == kRelativeHigh ? whole >> 32 : whole;
    const std::size_t bytes = type == kAll || type == kRelative64 ? 8 : 4;
    if (place + bytes <= image.size()) std::memcpy(image.data() + place, &part, bytes);
  }

  const std::string& bytes_;
  const Elf64_Ehdr header_;
  std::vector<Elf64_Shdr> sections_;
};

std::vector<ArgumentPlace> arguments_of(const Value& kernel) {
  std::vector<ArgumentPlace> all;
  for (const Value& each : kernel.at(".args").list) {
    all.push_back({static_cast<int>(each.at(".offset").number), static_cast<int>(each.at(".size").number),
                   each.at(".value_kind").text});
  }
  return all;
}

void decode_function(const Symbol& function, CodeObject& object, std::set<std::string>& unknown) {
  if (function.address + function.bytes > object.image.size()) return;
  const std::span<const u8> code(object.image.data() + function.address, function.bytes);
  for (const Line& line : disassembled(code, object.base + function.address, object.chip)) {
    Instruction instruction;
    try {
      instruction = decode(line.text);
    } catch (const Error& error) {
      unknown.insert(error.what());
      continue;
    }
    instruction.address = line.address;
    if (instruction.second) instruction.second->address = line.address;
    object.places[line.address] = object.program.size();
    object.program.push_back(std::move(instruction));
  }
}

}  // namespace

std::shared_ptr<CodeObject> load_code_object(const std::string& file, const std::string& chip,
                                             const std::string& kernel) {
  Elf elf(file);
  auto object = std::make_shared<CodeObject>();
  object->chip = chip, object->kernel = kernel;
  const Value metadata = elf.metadata(kernel);
  if (metadata.map.empty()) throw Error(Status::bad_problem, "the code object has no kernel " + kernel);
  const auto number = [&](const char* field) { return static_cast<int>(metadata.at(field).number); };
  object->arguments = arguments_of(metadata);
  object->argument_bytes = number(".kernarg_segment_size");
  object->local_bytes = number(".group_segment_fixed_size");
  object->private_bytes = number(".private_segment_fixed_size");
  object->lanes = number(".wavefront_size");
  object->vector_registers = number(".vgpr_count");
  object->scalar_registers = number(".sgpr_count");
  object->spilled_registers = number(".vgpr_spill_count");

  object->base = reinterpret_cast<u64>(elf.image.data());
  elf.relocate(object->base);
  const std::vector<Symbol> symbols = elf.symbols();
  object->image = std::move(elf.image);

  // The descriptor: 64 bytes, of which these say where the code begins and what is in registers then.
  const auto descriptor =
      std::find_if(symbols.begin(), symbols.end(), [&](const Symbol& s) { return s.name == kernel + ".kd"; });
  if (descriptor == symbols.end() || descriptor->address + 64 > object->image.size())
    throw Error(Status::bad_problem, "the code object has no symbol " + kernel + ".kd");
  const auto read = [&](u64 offset, auto value) {
    std::memcpy(&value, object->image.data() + descriptor->address + offset, sizeof value);
    return value;
  };
  const u64 entry = descriptor->address + static_cast<u64>(read(16, i64{}));
  object->resources2 = read(52, u32{});
  object->properties = read(56, u16{});

  std::set<std::string> unknown;
  for (const Symbol& symbol : symbols)
    if (symbol.is_function && symbol.is_defined) decode_function(symbol, *object, unknown);
  if (!unknown.empty()) {
    std::string all;
    for (const std::string& each : unknown) all += (all.empty() ? ": " : "; ") + each;
    throw Error(Status::unsupported, "kernel " + kernel + " for " + chip + all);
  }
  const auto found = object->places.find(object->base + entry);
  if (found == object->places.end())
    throw Error(Status::bad_problem, "no instruction where kernel " + kernel + " begins");
  object->entry = found->second;
  return object;
}

}  // namespace faltung::emulator
