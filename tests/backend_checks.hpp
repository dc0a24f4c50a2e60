// What holds of every backend that compiles kernels: the tests of the backends have it in common.
#ifndef FALTUNG_TESTS_BACKEND_CHECKS_HPP_
#define FALTUNG_TESTS_BACKEND_CHECKS_HPP_

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/jit/session.hpp"
#include "tests/scratch.hpp"

namespace faltung {

// For kernels of blocks of 16 threads.
inline LaunchShape blocks_of_16(unsigned threads) {
  LaunchShape shape;
  shape.grid[0] = threads / 16;
  shape.block[0] = 16;
  return shape;
}

inline std::vector<float> read_floats(Device& device, const Buffer& buffer, std::size_t count) {
  std::vector<float> values(count);
  device.copy_out(values.data(), buffer, count * sizeof(float));
  return values;
}

// add: of (x, y, a, count), y[i] = x[i] + 2 a for i < count. The addresses given lie within two buffers, and
// nothing around them changes. Returns what the device's clock says, in milliseconds.
inline double expect_run_in_the_middle_of_buffers(Device& device, const Kernel& add) {
  constexpr int kCount = 64, kFrom = 3, kTo = 5, kAdded = 10;
  const Buffer x = device.allocate(kCount * 4), y = device.allocate(kCount * 4);
  std::vector<float> values(kCount);
  for (int i = 0; i < kCount; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(i);
  device.copy_in(x, values.data(), kCount * 4);
  device.copy_in(y, values.data(), kCount * 4);
  const auto* from = static_cast<const float*>(x.pointer) + kFrom;
  auto* to = static_cast<float*>(y.pointer) + kTo;
  const double ms = device.time_ms({}, [&] {
    device.launch(add, blocks_of_16(16), {from, to, 0.5f, kAdded}, {});
  });
  device.synchronize({});
  const std::vector<float> result = read_floats(device, y, kCount);
  for (int i = 0; i < kCount; ++i) {
    const bool added = i >= kTo && i < kTo + kAdded;
    const int expected = added ? i - kTo + kFrom + 1 : i;
    EXPECT_EQ(result[static_cast<std::size_t>(i)], static_cast<float>(expected)) << i;
  }
  return ms;
}

// The driver's own copy, from within a buffer to within another, around which nothing changes; and its time.
inline void expect_driver_copies(Device& device) {
  constexpr std::size_t kCount = 64, kFrom = 3, kTo = 5, kCopied = 10;
  const Buffer x = device.allocate(kCount * 4), y = device.allocate(kCount * 4);
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i);
  device.copy_in(x, values.data(), kCount * 4);
  device.copy_in(y, values.data(), kCount * 4);
  const double ms = device.time_ms({}, [&] {
    EXPECT_TRUE(device.copy_within(static_cast<float*>(y.pointer) + kTo,
                                   static_cast<float*>(x.pointer) + kFrom, kCopied * 4, {}));
  });
  EXPECT_GT(ms, 0);
  const std::vector<float> result = read_floats(device, y, kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    const bool copied = i >= kTo && i < kTo + kCopied;
    EXPECT_EQ(result[i], static_cast<float>(copied ? i - kTo + kFrom : i)) << i;
  }
}

// By this process, whatever the store. What it was compiled for is in the session's store and nowhere else.
inline void expect_compiled_once(Device& device, const KernelSource& source) {
  const Scratch scratch, other;
  Store store(scratch.path()), elsewhere(other.path());
  jit::Source unique{source.name, source.text, source.entry, source.options};
  unique.options.push_back("-DUNIQUE_TO_THIS_TEST");
  const jit::Program first = jit::Session(device, store).build(unique);
  EXPECT_GT(first.compile_ms, 0);
  EXPECT_EQ(first.compiled_before_ms, -1);
  const jit::Program again = jit::Session(device, elsewhere).build(unique);
  EXPECT_EQ(again.compile_ms, 0);
  EXPECT_EQ(again.compiled_before_ms, first.compile_ms);
  EXPECT_EQ(again.kernel, first.kernel);
  EXPECT_EQ(store.list("kernel").size(), 1u);
  EXPECT_EQ(elsewhere.list().size(), 0u);
}

// source: of a kernel that wants a constant FACTOR. parts: that the message has beside the kernel and its
// constants.
inline void expect_compile_error_in_words(Device& device, KernelSource source,
                                          std::initializer_list<std::string> parts) {
  source.name = "direct_gpu/tt4";
  source.options = {"-DFACTOR=undeclared_name"};
  try {
    device.compile(source);
    FAIL() << "it compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::device_error);
    std::vector<std::string> all{"direct_gpu/tt4", "options ", "-DFACTOR=undeclared_name"};
    all.insert(all.end(), parts);
    for (const std::string& part : all) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << " in " << error.what();
    }
  }
}

inline void expect_damaged_code_is_an_error(Device& device, const KernelSource& source) {
  EXPECT_THROW(device.load({"", "", 0}, source), Error);
  EXPECT_THROW(device.load({"what is this", "", 0}, source), Error);
  KernelSource other = source;
  other.entry = "no_such_kernel";
  EXPECT_THROW(device.load(device.compile(source), other), Error);
}

inline void expect_too_much_memory_is_an_error(Device& device) {
  try {
    device.allocate(std::size_t{1} << 50);
    FAIL() << "allocated";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::out_of_memory);
  }
  EXPECT_NE(device.allocate(64).pointer, nullptr);  // it still works
}

}  // namespace faltung

#endif  // FALTUNG_TESTS_BACKEND_CHECKS_HPP_
