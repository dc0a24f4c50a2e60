// What holds of every backend that compiles kernels: the tests of CUDA's and of OpenCL's have it in common.
#ifndef FALTUNG_TESTS_BACKEND_CHECKS_HPP_
#define FALTUNG_TESTS_BACKEND_CHECKS_HPP_

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/jit/jit.hpp"
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

inline void expect_compiled_once(Device& device, KernelSource source) {
  const Scratch store;
  setenv("FALTUNG_STORE", store.path().c_str(), 1);
  source.options.push_back("-DUNIQUE_TO_THIS_TEST");
  EXPECT_GT(jit::build(device, source).compile_ms, 0);
  EXPECT_EQ(jit::build(device, source).compile_ms, 0);
  EXPECT_FALSE(std::filesystem::is_empty(store.path()));
  unsetenv("FALTUNG_STORE");
}

// source: of a kernel that wants a constant FACTOR. parts: that the message has beside the kernel and its
// constants.
inline void expect_compile_error_in_words(Device& device, KernelSource source,
                                          std::initializer_list<std::string> parts) {
  source.name = "direct_gpu/k4";
  source.options = {"-DFACTOR=undeclared_name"};
  try {
    device.compile(source);
    FAIL() << "it compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::device_error);
    std::vector<std::string> all{"direct_gpu/k4", "options ", "-DFACTOR=undeclared_name"};
    all.insert(all.end(), parts);
    for (const std::string& part : all) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << " in " << error.what();
    }
  }
}

inline void expect_damaged_code_is_an_error(Device& device, const KernelSource& source) {
  EXPECT_THROW(device.load({"", "", 0}, source.entry), Error);
  EXPECT_THROW(device.load({"what is this", "", 0}, source.entry), Error);
  EXPECT_THROW(device.load(device.compile(source), "no_such_kernel"), Error);
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
