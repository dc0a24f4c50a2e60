// How code objects are read: what their notes say, their code as text, and files that are none.
#include <gtest/gtest.h>

#include <cstring>

#include <elf.h>

#include "faltung/faltung.hpp"
#include "tests/emulator/code_object.hpp"
#include "tests/emulator/device.hpp"
#include "tests/emulator/disassembler.hpp"
#include "tests/emulator/metadata.hpp"

namespace faltung::emulator {
namespace {

using namespace std::string_literals;

TEST(EmulatorCodeObjects, MessagePack) {
  // {"a": [1, -2, 300, "x", true, nil], "b": {"c": 0x12345678, "d": int16 -5}, "e": array of 16 bits' length}
  const std::string bytes =
      "\x83\xa1"s
      "a\x96\x01\xfe\xcd\x01\x2c\xa1x\xc3\xc0"s
      "\xa1"s
      "b\xde\x00\x02\xa1"s
      "c\xce\x12\x34\x56\x78\xd9\x01"s
      "d\xd1\xff\xfb"s
      "\xa1"s
      "e\xdc\x00\x01\xcc\xff"s;
  const Value all = read_message_pack(bytes);
  ASSERT_EQ(all.at("a").list.size(), 6u);
  EXPECT_EQ(all.at("a").list[0].number, 1);
  EXPECT_EQ(all.at("a").list[1].number, -2);
  EXPECT_EQ(all.at("a").list[2].number, 300);
  EXPECT_EQ(all.at("a").list[3].text, "x");
  EXPECT_EQ(all.at("a").list[4].number, 1);
  EXPECT_EQ(all.at("b").at("c").number, 0x12345678);
  EXPECT_EQ(all.at("b").at("d").number, -5);
  EXPECT_EQ(all.at("e").list.at(0).number, 255);
  EXPECT_EQ(all.at("nothing").at("of it").number, 0);
  for (std::size_t end = 0; end < bytes.size(); ++end)
    EXPECT_THROW(read_message_pack(std::string_view(bytes).substr(0, end)), Error) << end;
}

TEST(EmulatorCodeObjects, CodeAsText) {
  // v_mov_b32 v0, 0; what is no instruction; s_endpgm
  const u32 words[] = {0x7e000280, 0xffffffff, 0xbf810000};
  std::vector<u8> code(sizeof words);
  std::memcpy(code.data(), words, sizeof words);
  std::vector<Line> lines;
  try {
    lines = disassembled(code, 4096, "gfx90a");
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].text, "v_mov_b32_e32 v0, 0");
  EXPECT_EQ(lines[0].address, 4096u);
  EXPECT_EQ(lines[1].text, "s_endpgm");
  EXPECT_EQ(lines[1].address, 4104u);
}

std::string refusal_of_file(const std::string& file) {
  try {
    load_code_object(file, "gfx90a", "a_kernel");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(EmulatorCodeObjects, FilesThatAreNone) {
  EXPECT_NE(refusal_of_file("").find("no ELF file"), std::string::npos);
  EXPECT_NE(refusal_of_file("MZ and what follows it, of whatever length it may be").find("no ELF file"),
            std::string::npos);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_type = ET_REL;
  std::string file(reinterpret_cast<const char*>(&header), sizeof header);
  EXPECT_NE(refusal_of_file(file).find("no kernel a_kernel"), std::string::npos);
  // Sections and notes that lie outside.
  header.e_shoff = ~u64{0} - 8, header.e_shnum = 3, header.e_shentsize = sizeof(Elf64_Shdr);
  file.assign(reinterpret_cast<const char*>(&header), sizeof header);
  EXPECT_NE(refusal_of_file(file).find("no kernel a_kernel"), std::string::npos);
}

// What a kernel has that the emulator knows nothing of: the instruction, the kernel and the line, in one
// line.
TEST(EmulatorCodeObjects, AnUnknownInstructionIsOneLine) {
  std::shared_ptr<EmulatedDevice> device;
  try {
    device = std::make_shared<EmulatedDevice>("clang:gfx90a");
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const std::string text =
      "kernel void add(global int* x) { int y; __asm volatile(\"v_sad_u8 %0, 1, 2, 3\" : \"=v\"(y)); *x = y; "
      "}";
  const KernelSource source{"add", text, "add", {}};
  const Binary code = device->compile(source);
  try {
    device->load(code, source);
    FAIL() << "it is taken";
  } catch (const Error& error) {
    const std::string said = error.what();
    EXPECT_EQ(said.find("kernel add for gfx90a: the emulator does not know v_sad_u8 ('v_sad_u8 v"), 0u)
        << said;
    EXPECT_EQ(said.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace faltung::emulator
