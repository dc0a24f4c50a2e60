// The emulator's loads and stores, of every memory, and what banks of local memory cost.
#include <gtest/gtest.h>

#include <random>

#include "tests/emulator/bench.hpp"

namespace faltung::emulator {
namespace {

// Loads and stores of every size, through global memory, buffers and local memory.
TEST(EmulatorMemory, Memory) {
  struct Row {
    const char *load, *store;  // global_ and buffer_ before them
    int bytes;
    u32 (*word)(u32 given);  // what a load of the first word gives
  };
  const auto whole = [](u32 v) { return v; };
  const Row rows[] = {
      {"load_dword", "store_dword", 4, whole},
      {"load_b64", "store_b64", 8, whole},
      {"load_dwordx3", "store_dwordx3", 12, whole},
      {"load_b128", "store_dwordx4", 16, whole},
      {"load_ushort", "store_short", 2, [](u32 v) { return v % 65536; }},
      {"load_i16", "store_b16", 2,
       [](u32 v) { return v % 65536 < 32768 ? v % 65536 : v % 65536 + 0xffff0000; }},
      {"load_u8", "store_b8", 1, [](u32 v) { return v % 256; }},
      {"load_sbyte", "store_byte", 1, [](u32 v) { return v % 256 < 128 ? v % 256 : v % 256 + 0xffffff00; }}};
  std::mt19937_64 random(3);
  for (const bool buffer : {false, true}) {
    for (const Row& row : rows) {
      Bench bench("gfx942");
      std::vector<u8> from(64 * 16), to(64 * 16);
      for (u8& byte : from) byte = static_cast<u8>(random());
      bench.memory.add(from.data(), from.size(), Memory::Content::defined, "from");
      bench.memory.add(to.data(), to.size(), Memory::Content::undefined, "to");
      for (int lane = 0; lane < 64; ++lane) bench.vector(0, lane, static_cast<u64>(lane * 16), 1);
      const std::string registers = "v[4:" + std::to_string(3 + (row.bytes + 3) / 4) + "]";
      bench.scalar(0, reinterpret_cast<u64>(from.data())), bench.scalar(4, reinterpret_cast<u64>(to.data()));
      bench.scalar(2, from.size()), bench.scalar(6, to.size());
      const std::string prefix = buffer ? "buffer_" : "global_";
      bench.run(prefix + row.load + " " + registers + (buffer ? ", v0, s[0:3], 0 offen" : ", v0, s[0:1]"));
      for (int lane = 0; lane < 64; ++lane) {
        u32 word = 0;
        std::memcpy(&word, from.data() + lane * 16, 4);
        // What is loaded is there once it was waited for.
        if (lane == 0) bench.run("s_waitcnt vmcnt(0)");
        ASSERT_EQ(bench.wave.vector[4][lane], row.word(word)) << row.load;
      }
      bench.run(prefix + row.store +
                (buffer ? " " + registers + ", v0, s[4:7], 0 offen" : " v0, " + registers + ", s[4:5]"));
      for (int lane = 0; lane < 64; ++lane) {
        ASSERT_EQ(
            std::memcmp(to.data() + lane * 16, from.data() + lane * 16, static_cast<std::size_t>(row.bytes)),
            0)
            << row.store;
      }
    }
  }
}

TEST(EmulatorMemory, BuffersReadZeroBeyondTheirEnd) {
  Bench bench("gfx1100", 32);
  std::vector<u32> data(8, 5);
  bench.memory.add(data.data(), 32, Memory::Content::defined, "data");
  bench.scalar(0, reinterpret_cast<u64>(data.data())), bench.scalar(2, 32);
  for (int lane = 0; lane < 32; ++lane)
    bench.vector(0, lane, lane < 8 ? static_cast<u64>(lane * 4) : lane < 16 ? 0xfffffff0u : 29u, 1);
  bench.run("buffer_load_b32 v1, v0, s[0:3], 0 offen");
  for (int lane = 0; lane < 32; ++lane) EXPECT_EQ(bench.wave.vector[1][lane], lane < 8 ? 5u : 0u);
}

// Each lane has its own, by the instructions for it and by a buffer that adds lanes.
TEST(EmulatorMemory, PrivateMemory) {
  for (const bool buffer : {false, true}) {
    Bench bench(buffer ? "gfx90a" : "gfx942");
    constexpr int kBytes = 20;
    std::vector<u8> data(64 * kBytes);
    bench.memory.add(data.data(), data.size(), Memory::Content::undefined, "private memory");
    bench.block.private_memory = reinterpret_cast<u64>(data.data()), bench.block.private_bytes = kBytes;
    bench.scalar(0, bench.block.private_memory), bench.scalar(2, ~u32{0} | u64{kAddsLanes} << 32);
    for (int lane = 0; lane < 64; ++lane) {
      bench.vector(0, lane, static_cast<u64>(lane % 2 * 4), 1);
      for (int r = 0; r < 2; ++r) bench.vector(4 + r, lane, static_cast<u64>(lane * 10 + r), 1);
    }
    bench.run(buffer ? "buffer_store_dwordx2 v[4:5], off, s[0:3], 0 offset:8"
                     : "scratch_store_dwordx2 off, v[4:5], off offset:8");
    bench.run(buffer ? "buffer_load_dword v6, v0, s[0:3], 0 offen offset:8"
                     : "scratch_load_dword v6, v0, off offset:8");
    bench.run(buffer ? "buffer_load_dword v7, off, s[0:3], 0 offset:16"
                     : "scratch_load_dword v7, off, off offset:16");
    bench.run("s_waitcnt vmcnt(0)");
    for (u32 lane = 0; lane < 64; ++lane) EXPECT_EQ(bench.wave.vector[6][lane], lane * 10 + lane % 2);
    EXPECT_EQ(bench.wave.undefined[6][0], 0u);
    EXPECT_EQ(bench.wave.undefined[7][0], ~u64{0});  // nobody wrote there
  }
}

TEST(EmulatorMemory, LocalMemory) {
  Bench bench("gfx90a");
  for (int lane = 0; lane < 64; ++lane) {
    bench.vector(0, lane, static_cast<u64>(lane * 16), 1);
    for (int r = 0; r < 4; ++r) bench.vector(4 + r, lane, static_cast<u64>(lane * 10 + r), 1);
  }
  bench.run("ds_write_b128 v0, v[4:7]");
  bench.run("ds_read2_b32 v[10:11], v0 offset0:1 offset1:3");
  bench.run("ds_read_b64 v[12:13], v0 offset:8");
  bench.run("ds_read_u16 v14, v0");
  bench.run("ds_read2st64_b32 v[16:17], v0 offset1:1");  // 64 words on: lane + 16
  bench.run("s_waitcnt lgkmcnt(0)");
  for (u32 lane = 0; lane < 48; ++lane) {
    EXPECT_EQ(bench.wave.vector[10][lane], lane * 10 + 1);
    EXPECT_EQ(bench.wave.vector[11][lane], lane * 10 + 3);
    EXPECT_EQ(bench.wave.vector[12][lane], lane * 10 + 2);
    EXPECT_EQ(bench.wave.vector[14][lane], lane * 10);
    EXPECT_EQ(bench.wave.vector[17][lane], (lane + 16) * 10);
  }
}

// Rows of 16 bytes have no conflicts; a column of words 32 apart asks one bank 32 times.
TEST(EmulatorMemory, BankConflictsAreCounted) {
  u32 rows[64], column[32], same[64] = {};
  for (u32 i = 0; i < 64; ++i) rows[i] = i * 16;
  for (u32 i = 0; i < 32; ++i) column[i] = i * 128;
  EXPECT_EQ(local_cost(rows, 16).cycles, 8);
  EXPECT_EQ(local_cost(rows, 16).least, 8);
  EXPECT_EQ(local_cost(column, 4).cycles, 32);
  EXPECT_EQ(local_cost(column, 4).least, 1);
  EXPECT_EQ(local_cost(same, 4).cycles, 2);
}

}  // namespace
}  // namespace faltung::emulator
