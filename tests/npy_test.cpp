// .npy files: bytes as NumPy writes them, and what other bytes are answered with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "src/problem/npy.hpp"

namespace faltung {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

NpyArray parse(const std::string& bytes) {
  std::istringstream in(bytes);
  return read_npy(in, static_cast<std::int64_t>(bytes.size()), "a.npy");
}

std::string npy_error(const std::string& bytes) {
  try {
    parse(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::bad_file);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "(no error)";
}

// A file of format major.0 with this header.
std::string file_of(const std::string& header, const std::string& data, int major = 1) {
  std::string out = "\x93NUMPY";
  out += static_cast<char>(major);
  out += '\0';
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) out += static_cast<char>((header.size() >> (8 * i)) & 0xff);
  return out + header + data;
}

std::string dict(const std::string& descr, const std::string& shape, const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

TEST(Npy, TheBytesNumpyWrites) {
  // numpy.save of numpy.zeros((2, 3), numpy.float32)
  const std::string header("\x93NUMPY\x01\0v\0", 10);
  const std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  EXPECT_EQ(npy_header(DType::f32, {2, 3}), header + text + std::string(117 - text.size(), ' ') + "\n");
  EXPECT_THAT(npy_header(DType::f16, {7}), HasSubstr("'<f2', 'fortran_order': False, 'shape': (7,), }"));
  EXPECT_THAT(npy_header(DType::bf16, {}), HasSubstr("'<V2', 'fortran_order': False, 'shape': (), }"));
  for (int axes = 0; axes < 12; ++axes) {
    const std::string h =
        npy_header(DType::f32, std::vector<std::int64_t>(static_cast<std::size_t>(axes), 1234567));
    EXPECT_EQ(h.size() % 64, 0u);
    EXPECT_EQ(h.back(), '\n');
  }
}

TEST(Npy, WrittenAndReadBack) {
  const std::string path = testing::TempDir() + "faltung_npy_test.npy";
  const std::vector<std::uint16_t> values = {1, 2, 3, 0xffff, 5, 6};
  for (const DType dtype : {DType::f16, DType::bf16}) {
    write_npy(path, dtype, {1, 2, 3}, values.data());
    const NpyArray a = read_npy(path);
    EXPECT_EQ(a.dtype, dtype);
    EXPECT_THAT(a.shape, ElementsAre(1, 2, 3));
    ASSERT_EQ(a.data.size(), 12u);
    EXPECT_EQ(std::memcmp(a.data.data(), values.data(), 12), 0);
  }
  write_npy(path, DType::f32, {0, 4}, nullptr);
  EXPECT_TRUE(read_npy(path).data.empty());
  EXPECT_FALSE(std::filesystem::exists(path + ".unfinished"));
  std::filesystem::remove(path);
  write_npy("/dev/null", DType::f32, {1}, values.data());
}

TEST(Npy, ForeignButRight) {
  EXPECT_THAT(parse(file_of(dict("<f4", "(1, 2)"), std::string(8, 'x'))).shape, ElementsAre(1, 2));
  EXPECT_THAT(parse(file_of(dict("<f4", "(2,)"), std::string(8, 'x'), 2)).shape, ElementsAre(2));
  EXPECT_THAT(parse(file_of(dict("<f4", "()"), std::string(4, 'x'), 3)).shape, ElementsAre());
  EXPECT_THAT(parse(file_of(dict("<f4", "(2,)", "True"), std::string(8, 'x'))).shape, ElementsAre(2));
  EXPECT_EQ(parse(file_of("{\"shape\":(1,),\"fortran_order\":False,\"descr\":\"<u2\"}", "ab")).dtype,
            DType::bf16);
  EXPECT_EQ(parse(file_of(dict("|V2", "(1,)"), "ab")).dtype, DType::bf16);
}

TEST(Npy, BadFiles) {
  const std::string good = file_of(dict("<f4", "(2, 3)"), std::string(24, 'x'));
  EXPECT_EQ(npy_error(good), "(no error)");
  for (std::size_t cut = 0; cut < good.size(); ++cut) {
    EXPECT_THAT(npy_error(good.substr(0, cut)),
                testing::AnyOf(HasSubstr("truncated"), HasSubstr("no .npy file")))
        << cut;
  }
  EXPECT_THAT(npy_error(good.substr(0, good.size() - 1)),
              HasSubstr("a.npy: is truncated: shape (2, 3) of f32 takes 24 bytes, 23 are there"));
  EXPECT_THAT(npy_error(good + "x"), HasSubstr("longer than its header says"));
  EXPECT_THAT(npy_error("PK\3\4 a zip file"), HasSubstr("does not start with"));
  EXPECT_THAT(npy_error(file_of(dict("<f4", "(1,)"), "abcd", 4)), HasSubstr("format 4.0"));
  EXPECT_THAT(npy_error(file_of(dict("<f8", "(1,)"), "abcdefgh")),
              HasSubstr("float64 (<f8); save a.astype(numpy.float32)"));
  EXPECT_THAT(npy_error(file_of(dict(">f4", "(1,)"), "abcd")), HasSubstr("big-endian >f4"));
  EXPECT_THAT(npy_error(file_of(dict("<i8", "(1,)"), "abcdefgh")),
              HasSubstr("holds '<i8'; faltung reads <f4"));
  EXPECT_THAT(npy_error(file_of(dict("<f4", "(1, 1)", "True"), "abcd")), HasSubstr("Fortran order"));
  EXPECT_THAT(npy_error(file_of(dict("<f4", "(9999999999, 9999999999)"), "abcd")),
              HasSubstr("more elements than memory"));
  EXPECT_THAT(npy_error(file_of(dict("<f4", "(1, -1)"), "abcd")), HasSubstr("no tuple of sizes"));
  EXPECT_THAT(npy_error(file_of(dict("<f4", "(x)"), "abcd")), HasSubstr("no tuple of sizes"));
  EXPECT_THAT(npy_error(file_of(dict("<f4", "(1"), "abcd")), HasSubstr("no tuple of sizes"));
  EXPECT_THAT(npy_error(file_of(dict("<f4", "(1 1)"), "abcd")), HasSubstr("no ')'"));
  EXPECT_THAT(npy_error(file_of(dict("<f4", "(1,)", "Maybe"), "abcd")), HasSubstr("neither True nor False"));
  EXPECT_THAT(npy_error(file_of("{'descr': '<f4', 'shape': (1,)}", "abcd")),
              HasSubstr("lacks descr, fortran_order or shape"));
  EXPECT_THAT(npy_error(file_of("{'descr': '<f4', 'descr': '<f4'}", "abcd")),
              HasSubstr("the key 'descr' unexpectedly"));
  EXPECT_THAT(npy_error(file_of("{'descr': [('a', '<f4')]}", "abcd")), HasSubstr("no '\"'"));
  EXPECT_THAT(npy_error(file_of("", "abcd")), HasSubstr("no '{'"));
  EXPECT_THAT(npy_error(file_of(dict("<f4", "(1,)") + "x", "abcd")),
              HasSubstr("does not end after its dictionary"));
  EXPECT_THROW(read_npy("/nonexistent.npy"), Error);
  EXPECT_THROW(read_npy("/tmp"), Error);
  EXPECT_THROW(write_npy("/dev/null/a.npy", DType::f32, {1}, "abcd"), Error);
}

TEST(Npy, FullDiskKeepsTheOldFile) {
  const std::string path = testing::TempDir() + "faltung_npy_full.npy";
  const std::vector<float> values(10000);
  write_npy(path, DType::f32, {1}, values.data());
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit fails as on a full disk
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_npy(path, DType::f32, {10000}, values.data());
    } catch (const Error& error) {
      ::_exit(std::string(error.what()).find("cannot be written; 40128 bytes are needed") ==
              std::string::npos);
    }
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(read_npy(path).shape, ElementsAre(1));
  EXPECT_FALSE(std::filesystem::exists(path + ".unfinished"));
  std::filesystem::remove(path);
}

TEST(Npy, CheckNamesBoth) {
  const NpyArray a = parse(file_of(dict("<f4", "(2, 3)"), std::string(24, 'x')));
  check_npy(a, "a.npy", "x", DType::f32, {2, 3});
  try {
    check_npy(a, "a.npy", "x", DType::f16, {3, 2});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a.npy: holds f32 of shape (2, 3); x must be f16 of shape (3, 2)");
  }
}

}  // namespace
}  // namespace faltung
