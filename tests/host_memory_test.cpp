// What the library keeps on the CPU: where it lies, and in which pages.
#include "src/backend/host_memory.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <new>
#include <sstream>
#include <string>
#include <vector>

namespace faltung {
namespace {

constexpr std::size_t kMega = std::size_t{1} << 20;

std::uintptr_t as_number(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

// Whether the kernel was asked for large pages there.
bool asks_for_large_pages(const void* at) {
  std::ifstream maps("/proc/self/smaps");
  bool is_there = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream words(line);
    if (words >> std::hex >> begin >> dash >> end && dash == '-')
      is_there = begin <= as_number(at) && as_number(at) < end;
    if (is_there && line.starts_with("VmFlags:")) return line.find(" hg") != std::string::npos;
  }
  return false;
}

TEST(HostMemory, LargePiecesAskForLargePages) {
  const auto large = host_memory(5 * kMega), small = host_memory(kMega);
  EXPECT_EQ(as_number(large.get()) % (2 * kMega), 0u);
  EXPECT_EQ(as_number(small.get()) % 64, 0u);
  std::memset(large.get(), 1, 5 * kMega);
#if defined(__linux__)
  if (std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) {
    EXPECT_TRUE(asks_for_large_pages(large.get()));
  }
#endif
}

TEST(HostMemory, APoolsPiecesLieTogetherAndApart) {
  std::vector<std::shared_ptr<std::byte[]>> pieces;
  const std::vector<std::size_t> sizes = {70000,     100,       700 * 1024, 64 * 1024, 3 * kMega,
                                          2 * kMega, 2 * kMega, 2 * kMega,  5,         0};
  {
    HostPool pool;
    for (const std::size_t size : sizes) pieces.push_back(pool.allocate(size));
  }  // they stay when it goes
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(as_number(pieces[i].get()) % 64, 0u);
    std::memset(pieces[i].get(), static_cast<int>(i), sizes[i]);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (const std::size_t at : {std::size_t{0}, sizes[i] / 2, sizes[i] - 1}) {
      if (sizes[i] > 0) {
        EXPECT_EQ(pieces[i][at], static_cast<std::byte>(i)) << "piece " << i;
      }
    }
  }
  EXPECT_EQ(pieces[2].get() - pieces[0].get(), 70016);
  EXPECT_EQ(pieces[3].get() - pieces[2].get(), 700 * 1024);
}

TEST(HostMemory, WhatNoMemoryHoldsIsRefused) {
  HostPool pool;
  EXPECT_THROW(host_memory(SIZE_MAX - 1), std::bad_alloc);
  EXPECT_THROW(pool.allocate(SIZE_MAX - 1), std::bad_alloc);
  EXPECT_NE(pool.allocate(1), nullptr);
}

}  // namespace
}  // namespace faltung
