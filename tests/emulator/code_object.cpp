#include "tests/emulator/code_object.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include <fmt/core.h>

#include "faltung/faltung.hpp"
#include "tests/scratch.hpp"

namespace faltung::emulator {
namespace {

constexpr const char* kLinker = "ld.lld-19";
constexpr const char* kDisassembler = "llvm-objdump-19";
constexpr const char* kReader = "llvm-readelf-19";

std::string output_of(const std::string& command) {
  std::string text;
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) throw Error(Status::unsupported, "cannot run " + command);
  std::array<char, 4096> part;
  while (const std::size_t bytes = std::fread(part.data(), 1, part.size(), pipe))
    text.append(part.data(), bytes);
  if (pclose(pipe) != 0) {
    throw Error(Status::unsupported, "'" + command + "' failed: " + text.substr(0, 500) +
                                         "; on Debian: apt-get install llvm-19 lld-19");
  }
  return text;
}

std::string content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// "	v_mov_b32_e32 v0, 0     // 000000001900: 7E000280"
std::vector<Line> lines_of(const std::string& text) {
  std::vector<Line> lines;
  std::istringstream in(text);
  std::string line, function;
  while (std::getline(in, line)) {
    const std::size_t open = line.find('<'), comment = line.find("//");
    if (line.ends_with(">:") && open != std::string::npos) {
      function = line.substr(open + 1, line.size() - open - 3);
    } else if (line.starts_with('\t') && comment != std::string::npos) {
      std::string own = line.substr(1, comment - 1);
      while (!own.empty() && own.back() == ' ') own.pop_back();
      lines.push_back({std::strtoull(line.c_str() + comment + 2, nullptr, 16), own, function});
    }
  }
  return lines;
}

// The numbers and words of the kernel's metadata, which llvm-readelf writes as YAML.
struct Metadata {
  explicit Metadata(const std::string& notes, const std::string& kernel) {
    // The list of kernels: each begins with "  - ." of its first field.
    std::istringstream in(notes);
    std::string line;
    std::vector<std::string> own;
    bool mine = false, in_kernels = false;
    const auto close = [&] {
      if (mine) lines = own;
      own.clear(), mine = false;
    };
    while (std::getline(in, line)) {
      if (line.starts_with("amdhsa.kernels:")) {
        in_kernels = true;
        continue;
      }
      if (!in_kernels) continue;
      if (!line.starts_with(' ')) break;
      if (line.starts_with("  - ")) close();
      own.push_back(line);
      const std::size_t at = line.find(".name:");
      if (at == 4 && line.substr(line.find_first_not_of(' ', at + 6)) == kernel) mine = true;
    }
    close();
  }
  int number(const std::string& field) const {
    for (const std::string& line : lines) {
      const std::size_t at = line.find(field + ":");
      if (at == 4) return std::atoi(line.c_str() + at + field.size() + 1);
    }
    return 0;
  }
  std::vector<ArgumentPlace> arguments() const {
    std::vector<ArgumentPlace> all;
    bool in_arguments = false;  // the lines under .args
    for (const std::string& line : lines) {
      if (!line.starts_with("      ")) in_arguments = line.find(".args:") == 4;
      if (!in_arguments) continue;
      if (line.starts_with("      - ")) all.emplace_back();
      if (all.empty()) continue;
      const auto value = [&](const char* field) -> const char* {
        const std::size_t at = line.find(field);
        return at != 8 ? nullptr : line.c_str() + line.find_first_not_of(' ', at + std::strlen(field));
      };
      if (const char* v = value(".offset:")) all.back().offset = std::atoi(v);
      if (const char* v = value(".size:")) all.back().bytes = std::atoi(v);
      if (const char* v = value(".value_kind:")) all.back().kind = v;
    }
    return all;
  }
  std::vector<std::string> lines;
};

template <class T>
T at(const std::string& bytes, u64 offset) {
  T value{};
  if (offset + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// The loadable segments of an ELF file, as one image.
std::vector<u8> image_of(const std::string& elf) {
  std::vector<u8> image;
  const auto headers = at<u64>(elf, 32);
  const auto size = at<u16>(elf, 54), count = at<u16>(elf, 56);
  for (unsigned i = 0; i < count; ++i) {
    const u64 header = headers + u64{i} * size;
    constexpr u32 kLoad = 1;
    if (at<u32>(elf, header) != kLoad) continue;
    const auto offset = at<u64>(elf, header + 8), address = at<u64>(elf, header + 16);
    const auto bytes = at<u64>(elf, header + 32), extent = at<u64>(elf, header + 40);
    if (image.size() < address + extent) image.resize(address + extent);
    std::memcpy(image.data() + address, elf.data() + offset, bytes);
  }
  return image;
}

u64 symbol(const std::string& table, const std::string& name) {
  std::istringstream in(table);
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string number, value, last;
    words >> number >> value;
    for (std::string word; words >> word;) last = word;
    if (last == name) return std::strtoull(value.c_str(), nullptr, 16);
  }
  throw Error(Status::bad_problem, "the code object has no symbol " + name);
}

}  // namespace

std::vector<Line> disassembled(const std::string& elf, const std::string& chip) {
  const Scratch scratch;
  const std::string path = scratch.path() + "/code";
  std::ofstream(path, std::ios::binary) << elf;
  return lines_of(output_of(std::string(kDisassembler) + " -d --mcpu=" + chip + " " + path));
}

std::shared_ptr<CodeObject> load_code_object(const std::string& elf, const std::string& chip,
                                             const std::string& kernel) {
  const Scratch scratch;
  const std::string path = scratch.path() + "/kernel.o", linked_path = scratch.path() + "/kernel.so";
  std::ofstream(path, std::ios::binary) << elf;
  output_of(fmt::format("{} -shared --no-undefined -o {} {}", kLinker, linked_path, path));
  const std::string linked = content(linked_path);

  auto object = std::make_shared<CodeObject>();
  object->chip = chip, object->kernel = kernel;
  object->image = image_of(linked);
  object->base = reinterpret_cast<u64>(object->image.data());
  const std::string about = output_of(fmt::format("{} --notes --symbols -W {}", kReader, linked_path));
  const Metadata metadata(about, kernel);
  if (metadata.lines.empty()) throw Error(Status::bad_problem, "the code object has no kernel " + kernel);
  object->arguments = metadata.arguments();
  object->argument_bytes = metadata.number(".kernarg_segment_size");
  object->local_bytes = metadata.number(".group_segment_fixed_size");
  object->private_bytes = metadata.number(".private_segment_fixed_size");
  object->lanes = metadata.number(".wavefront_size");
  object->vector_registers = metadata.number(".vgpr_count");
  object->scalar_registers = metadata.number(".sgpr_count");
  object->spilled_registers = metadata.number(".vgpr_spill_count");

  if (object->private_bytes > 0) {
    throw Error(Status::unsupported,
                fmt::format("kernel {} for {} has {} bytes of private memory, which the emulator has not",
                            kernel, chip, object->private_bytes));
  }

  // The descriptor: 64 bytes, of which these say where the code begins and what is in registers then.
  const u64 descriptor = symbol(about, kernel + ".kd");
  const auto read = [&](u64 offset, auto value) {
    std::memcpy(&value, object->image.data() + descriptor + offset, sizeof value);
    return value;
  };
  const u64 entry = descriptor + static_cast<u64>(read(16, i64{}));
  object->resources2 = read(52, u32{});
  object->properties = read(56, u16{});

  std::set<std::string> unknown;
  for (const Line& line :
       lines_of(output_of(fmt::format("{} -d --mcpu={} {}", kDisassembler, chip, linked_path)))) {
    Instruction instruction;
    try {
      instruction = decode(line.text);
    } catch (const Error& error) {
      unknown.insert(error.what());
      continue;
    }
    instruction.address = object->base + line.address;
    if (instruction.second) instruction.second->address = instruction.address;
    object->places[instruction.address] = object->program.size();
    object->program.push_back(std::move(instruction));
  }
  if (!unknown.empty()) {
    std::string all;
    for (const std::string& each : unknown) all += "\n  " + each;
    throw Error(Status::unsupported, "kernel " + kernel + " for " + chip + ":" + all);
  }
  const auto found = object->places.find(object->base + entry);
  if (found == object->places.end())
    throw Error(Status::bad_problem, "no instruction where kernel " + kernel + " begins");
  object->entry = found->second;
  return object;
}

}  // namespace faltung::emulator
