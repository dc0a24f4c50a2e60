// The memory pool: what it hands out, keeps, gives back and counts; on a device that counts, on the CPU and
// on every GPU there is.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "src/backend/memory_pool.hpp"

namespace faltung {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Host memory, counted, of which there may be little.
class CountingDevice : public Device {
 public:
  explicit CountingDevice(std::size_t memory) : memory_(memory) { info_.id = "null"; }
  const DeviceInfo& info() const override { return info_; }
  Binary compile(const KernelSource&) override { return {}; }
  std::shared_ptr<Kernel> load(const Binary&, const KernelSource&) override { return nullptr; }
  void launch(const Kernel&, const LaunchShape&, std::span<const Argument>, const Stream&) override {}
  double time_ms(const Stream&, const std::function<void()>&) override { return 0; }
  void synchronize(const Stream&) override {}
  Buffer allocate(std::size_t bytes) override {
    if (bytes > memory_ - taken) throw Error(Status::out_of_memory, "the device is full");
    taken += bytes;
    void* const pointer = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    return {std::shared_ptr<void>(pointer,
                                  [this, bytes](void* p) {
                                    std::free(p);
                                    taken -= bytes;
                                  }),
            pointer, bytes};
  }
  void copy_in(const Buffer& to, const void* from, std::size_t bytes) override {
    std::memcpy(to.pointer, from, bytes);
  }
  void copy_out(void* to, const Buffer& from, std::size_t bytes) override {
    std::memcpy(to, from.pointer, bytes);
  }

  std::atomic<std::size_t> taken{0};

 private:
  DeviceInfo info_;
  std::size_t memory_;
};

class MemoryPoolTest : public testing::Test {
 protected:
  std::shared_ptr<CountingDevice> device_ = std::make_shared<CountingDevice>(256 * kMiB);
};

void expect_out_of_memory(MemoryPoolImpl& pool, std::size_t bytes, const std::string& part) {
  try {
    pool.allocate(bytes);
    FAIL() << bytes << " bytes were allocated";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::out_of_memory);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST_F(MemoryPoolTest, CountsExactly) {
  MemoryPoolImpl pool(device_, kMiB * 100);
  void* const a = pool.allocate(1);
  void* const b = pool.allocate(1000);
  void* const c = pool.allocate(3 * kMiB + kMiB / 2);
  MemoryStats s = pool.stats();
  EXPECT_EQ(s.in_use, 256 + 1024 + 4 * kMiB);  // a rest under a MiB stays with a large block
  EXPECT_EQ(s.reserved, 4 * kMiB + 4 * kMiB);
  EXPECT_EQ(s.reserved, device_->taken);
  EXPECT_EQ(s.blocks, 3u);
  EXPECT_EQ(s.allocations, 3u);
  EXPECT_EQ(s.device_allocations, 2u);
  pool.free(a);
  pool.free(b);
  pool.free(c);
  pool.free(nullptr);
  s = pool.stats();
  EXPECT_EQ(s.in_use, 0u);
  EXPECT_EQ(s.blocks, 0u);
  EXPECT_EQ(s.reserved, 8 * kMiB);
  EXPECT_EQ(s.peak_in_use, 1280 + 4 * kMiB);
  EXPECT_EQ(s.peak_reserved, 8 * kMiB);
  EXPECT_EQ(s.allocations, 3u);
}

TEST_F(MemoryPoolTest, WhatIsFreedIsHandedOutAgain) {
  MemoryPoolImpl pool(device_, kMiB * 100);
  void* const first = pool.allocate(10 * kMiB);
  pool.free(first);
  EXPECT_EQ(pool.allocate(9 * kMiB), first);
  EXPECT_EQ(pool.stats().device_allocations, 1u);
}

TEST_F(MemoryPoolTest, NeighboursBecomeOneAgain) {
  MemoryPoolImpl pool(device_, kMiB * 100);
  std::vector<void*> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(pool.allocate(kMiB / 4));
  EXPECT_EQ(pool.stats().device_allocations, 1u);  // a piece of 4 MiB holds them
  for (const int i : {1, 3, 2, 0, 15, 13, 14}) pool.free(blocks[static_cast<std::size_t>(i)]);
  EXPECT_EQ(pool.allocate(kMiB), blocks[0]);  // four neighbours, freed in any order
  EXPECT_EQ(pool.stats().device_allocations, 1u);
  pool.allocate(kMiB);  // three are left: too few
  EXPECT_EQ(pool.stats().device_allocations, 2u);
}

TEST_F(MemoryPoolTest, TheLimitIsKeptInWords) {
  MemoryPoolImpl pool(device_, 8 * kMiB);
  void* const a = pool.allocate(4 * kMiB);
  void* const b = pool.allocate(4 * kMiB);
  expect_out_of_memory(pool, 1, "the limit is 8388608");
  expect_out_of_memory(pool, 9 * kMiB, "no 9437184 bytes");
  expect_out_of_memory(pool, static_cast<std::size_t>(-1), "8388608 bytes are in use in 2 blocks");
  pool.free(a);
  EXPECT_NO_THROW(pool.allocate(1));  // what is kept is given back for it
  EXPECT_LE(device_->taken, 8 * kMiB);
  pool.free(b);
  EXPECT_EQ(pool.stats().allocations, 3u);
}

TEST_F(MemoryPoolTest, ASmallLimitTakesNoMoreThanItMay) {
  MemoryPoolImpl pool(device_, 1024);
  void* const a = pool.allocate(1000);
  EXPECT_EQ(device_->taken, 1024u);
  expect_out_of_memory(pool, 1, "limit");
  pool.free(a);
  EXPECT_EQ(pool.allocate(1024), a);
}

TEST_F(MemoryPoolTest, HolesAreSaid) {
  MemoryPoolImpl pool(device_, 4 * kMiB);
  std::vector<void*> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(pool.allocate(kMiB / 4));
  for (std::size_t i = 0; i < 16; i += 2) pool.free(blocks[i]);
  // Half of it is free, and nowhere half a MiB in one place.
  expect_out_of_memory(pool, kMiB / 2, "2097152 are kept between them");
  EXPECT_EQ(pool.trim(), 0u);
}

TEST_F(MemoryPoolTest, TrimGivesBackWhatNothingIsIn) {
  MemoryPoolImpl pool(device_, 100 * kMiB);
  void* const small = pool.allocate(100);
  void* const large = pool.allocate(20 * kMiB);
  void* const other = pool.allocate(10 * kMiB);
  pool.free(large);
  EXPECT_EQ(pool.trim(), 20 * kMiB);
  EXPECT_EQ(device_->taken, 14 * kMiB);
  EXPECT_EQ(pool.stats().reserved, 14 * kMiB);
  EXPECT_EQ(pool.trim(), 0u);
  pool.free(small);
  pool.free(other);
  EXPECT_EQ(pool.trim(), 14 * kMiB);
  EXPECT_EQ(device_->taken, 0u);
  EXPECT_EQ(pool.stats().reserved, 0u);
  EXPECT_NO_THROW(pool.allocate(1));
}

TEST_F(MemoryPoolTest, SizesThatCannotBeRoundedUp) {
  MemoryPoolImpl pool(device_, static_cast<std::size_t>(-1));
  for (const std::size_t less : {0, 1, 255, 4096}) {
    expect_out_of_memory(pool, static_cast<std::size_t>(-1) - less, "no device has so many");
  }
  EXPECT_EQ(pool.stats().blocks, 0u);
}

TEST_F(MemoryPoolTest, AFullDeviceGetsBackWhatIsKept) {
  MemoryPoolImpl pool(device_, static_cast<std::size_t>(-1));
  pool.free(pool.allocate(200 * kMiB));
  void* const a = pool.allocate(240 * kMiB);
  EXPECT_EQ(device_->taken, 240 * kMiB);
  expect_out_of_memory(pool, 100 * kMiB, "the device is full");
  pool.free(a);
}

TEST_F(MemoryPoolTest, ForeignPointersAreRefused) {
  MemoryPoolImpl pool(device_, 100 * kMiB);
  auto* const a = static_cast<char*>(pool.allocate(1000));
  char host[8] = {};
  EXPECT_THROW(pool.free(host), Error);
  EXPECT_THROW(pool.free(a + 256), Error);
  EXPECT_NO_THROW(pool.copy_in(a + 1000, host, 8));
  EXPECT_THROW(pool.copy_in(a + 1020, host, 8), Error);  // past the block's end
  EXPECT_THROW(pool.copy_out(host, host, 8), Error);
  pool.free(a);
  EXPECT_THROW(pool.free(a), Error);
  EXPECT_THROW(pool.copy_out(host, a, 8), Error);
  EXPECT_EQ(pool.stats().in_use, 0u);
}

TEST_F(MemoryPoolTest, ItsEndIsThatOfAllItsMemory) {
  {
    MemoryPoolImpl pool(device_, 100 * kMiB);
    pool.allocate(kMiB);
  }
  EXPECT_EQ(device_->taken, 0u);
}

// Each thread writes its blocks, and finds them as it wrote them.
TEST_F(MemoryPoolTest, ManyThreadsShareIt) {
  MemoryPoolImpl pool(device_, 200 * kMiB);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, &wrong, t] {
      std::mt19937 random(t);
      struct Mine {
        unsigned char* pointer;
        std::size_t bytes;
        unsigned char mark;
      };
      std::vector<Mine> mine;
      for (int i = 0; i < 2000; ++i) {
        if (mine.size() < 20 && random() % 3 != 0) {
          const std::size_t bytes = random() % 8 == 0 ? kMiB + random() % kMiB : 1 + random() % 5000;
          const auto mark = static_cast<unsigned char>(random());
          auto* const pointer = static_cast<unsigned char*>(pool.allocate(bytes));
          pointer[0] = pointer[bytes - 1] = mark;
          mine.push_back({pointer, bytes, mark});
        } else if (!mine.empty()) {
          const std::size_t at = random() % mine.size();
          const Mine gone = mine[at];
          wrong += gone.pointer[0] != gone.mark || gone.pointer[gone.bytes - 1] != gone.mark;
          pool.free(gone.pointer);
          mine.erase(mine.begin() + static_cast<std::ptrdiff_t>(at));
          if (i % 64 == 0) pool.trim();
        }
      }
      for (const Mine& m : mine) pool.free(m.pointer);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(pool.stats().in_use, 0u);
  EXPECT_EQ(pool.stats().reserved, device_->taken);
  pool.trim();
  EXPECT_EQ(device_->taken, 0u);
}

// Through the public interface, on every device.
TEST(MemoryPool, WorksOnEveryDevice) {
  for (const auto& device : list_devices()) {
    const std::string& id = device->info().id;
    SCOPED_TRACE(id);
    MemoryPool pool(id, 64 * kMiB);
    std::vector<float> values(1000);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    auto* const block = static_cast<float*>(pool.allocate(4000));
    pool.free(pool.allocate(100));
    pool.copy_in(block, values.data(), 4000);
    std::vector<float> back(990);
    pool.copy_out(back.data(), block + 10, 990 * 4);
    EXPECT_EQ(back.front(), 10.0f);
    EXPECT_EQ(back.back(), 999.0f);
    EXPECT_EQ(pool.stats().in_use, 4096u);
    pool.free(block);
    EXPECT_EQ(pool.trim(), 4 * kMiB);
  }
  EXPECT_THROW(MemoryPool("no such device"), Error);
}

}  // namespace
}  // namespace faltung
