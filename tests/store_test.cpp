// The store: what is put is got, whatever happens to the disk, the process or the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <thread>
#include <utility>

#include "src/store/files.hpp"
#include "src/store/record.hpp"
#include "src/store/sha256.hpp"
#include "src/store/store.hpp"
#include "tests/store_fixture.hpp"

namespace faltung {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Sha256, PublishedVectors) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

class StoreTest : public StoreFixture {};

TEST_F(StoreTest, PutGetEraseListClear) {
  Store store = open("/made/when/needed");
  EXPECT_EQ(store.get("choice", "a"), std::nullopt);
  EXPECT_TRUE(store.put("choice", "a", R"({"kernel":"direct_cpu/x","ms":0.1})"));
  EXPECT_TRUE(store.put("choice", "b", "any text\n\"quoted\" \xc3\xa4"));
  EXPECT_TRUE(store.put("timing", "a", ""));
  EXPECT_TRUE(store.put("choice", "a", R"({"kernel":"direct_cpu/y","ms":0.25})"));
  EXPECT_EQ(store.get("choice", "a"), R"({"kernel":"direct_cpu/y","ms":0.25})");
  EXPECT_EQ(store.get("choice", "b"), "any text\n\"quoted\" \xc3\xa4");
  EXPECT_EQ(store.get("timing", "a"), "");
  EXPECT_EQ(store.get("timing", "b"), std::nullopt);

  std::vector<std::string> all;
  for (const Record& r : store.list()) all.push_back(r.kind + "/" + r.key);
  EXPECT_THAT(all, ElementsAre("choice/a", "choice/b", "timing/a"));
  EXPECT_EQ(store.list("choice").size(), 2u);
  EXPECT_GT(store.list("choice")[0].modified_ms, 1600000000000);

  EXPECT_TRUE(store.erase("choice", "b"));
  EXPECT_FALSE(store.erase("choice", "b"));
  EXPECT_EQ(store.clear("timing"), 1);
  EXPECT_EQ(store.clear(), 1);
  EXPECT_TRUE(store.list().empty());
  EXPECT_THROW(store.clear("../.."), Error);
  EXPECT_THAT(warnings_, ElementsAre());
}

TEST_F(StoreTest, BytesDependOnContentAlone) {
  const std::string text = encode_record({"choice", "key", R"({"b":[1,2.5],"c":"x"})", 17});
  EXPECT_EQ(
      text,
      "{\n \"format\": \"faltung-record\",\n \"version\": 1,\n \"kind\": \"choice\",\n \"key\": \"key\",\n"
      " \"payload\": {\n  \"b\": [\n   1,\n   2.5\n  ],\n  \"c\": \"x\"\n },\n \"checksum\": \"" +
          sha256("1\nchoice\n3\nkey"
                 R"({"b":[1,2.5],"c":"x"})") +
          "\"\n}\n");
  Store store = open();
  store.put("choice", "key", R"({"b":[1,2.5],"c":"x"})");
  ASSERT_EQ(files().size(), 1u);
  EXPECT_EQ(read(files()[0]), text);
}

TEST_F(StoreTest, PayloadsComeBackToTheByte) {
  for (const std::string payload :
       {"", "{}", "{ }", "1e2", "100.0", "\"\\u00e4\"", "[1,[2,[3]]]", "{\"b\":1,\"a\":2}",
        "{\"a\":1,\"a\":2}", "nul", "null", "0.1", "-0.0", "12345678901234567890123", "{\"text\":\"x\"}"}) {
    EXPECT_EQ(decode_record(encode_record({"k", "key", payload, 0})).payload, payload);
  }
  const std::string deep(200000, '[');
  EXPECT_EQ(decode_record(encode_record({"k", "key", deep, 0})).payload, deep);
  EXPECT_THROW(encode_record({"k", "key", "\xff\xfe", 0}), Error);
  EXPECT_THROW(encode_record({"K", "key", "", 0}), Error);
}

TEST_F(StoreTest, DamagedRecordsAreMissesWithOneWarning) {
  Store store = open();
  store.put("choice", "key", R"({"ms":1})");
  const std::string file = files().at(0), good = read(file);
  std::string foreign = good, wrong_key = encode_record({"choice", "another", R"({"ms":1})", 0});
  foreign.replace(foreign.find("\"version\": 1"), 12, "\"version\": 9");
  std::string changed = good;
  changed.replace(changed.find("\"ms\": 1"), 7, "\"ms\": 2");
  std::vector<std::string> bad = {"",
                                  "{",
                                  "null",
                                  "[]",
                                  "{}",
                                  foreign,
                                  wrong_key,
                                  changed,
                                  std::string(5000, '['),
                                  std::string("\0\xff", 2)};
  for (std::size_t cut = 1; cut + 2 < good.size(); cut += 7) bad.push_back(good.substr(0, cut));
  for (const std::string& content : bad) {
    write(file, content);
    Store fresh = open();
    warnings_.clear();
    EXPECT_EQ(fresh.get("choice", "key"), std::nullopt) << content;
    EXPECT_EQ(fresh.get("choice", "key"), std::nullopt);
    EXPECT_TRUE(fresh.list().empty());
    ASSERT_EQ(warnings_.size(), 1u) << content;
    EXPECT_THAT(warnings_[0], HasSubstr(file));
    EXPECT_EQ(warnings_[0].find('\n'), std::string::npos);
  }
  EXPECT_TRUE(store.put("choice", "key", "2"));
  EXPECT_EQ(store.get("choice", "key"), "2");
}

TEST_F(StoreTest, EveryChangedByteIsNoticedOrHarmless) {
  Store store = open();
  store.put("choice", "key", R"({"ms":1.5})");
  const std::string file = files().at(0), good = read(file);
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const char flip : {'\x01', '\x20', '\x80'}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      write(file, bad);
      const auto got = open().get("choice", "key");
      EXPECT_EQ(got.value_or(R"({"ms":1.5})"), R"({"ms":1.5})") << i;
    }
  }
}

TEST_F(StoreTest, WorksWithoutADirectoryToWrite) {
  if (::geteuid() != 0) {
    fs::permissions(directory_, fs::perms::owner_read | fs::perms::owner_exec);
    Store store = open();
    EXPECT_FALSE(store.put("choice", "key", "1"));
    EXPECT_FALSE(store.put("choice", "other", "1"));
    EXPECT_EQ(store.get("choice", "key"), std::nullopt);
    EXPECT_EQ(warnings_.size(), 1u);
  }
  write(directory_ + "/file", "x");
  warnings_.clear();
  Store below_a_file = open("/file/store");
  EXPECT_FALSE(below_a_file.put("choice", "key", "1"));
  EXPECT_FALSE(below_a_file.put("choice", "key", "1"));
  EXPECT_EQ(below_a_file.get("choice", "key"), std::nullopt);
  EXPECT_TRUE(below_a_file.list().empty());
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("nothing is stored"));
}

TEST_F(StoreTest, FullDisk) {
  // Writes to a file beyond the process's limit fail as on a full disk, after a part was written.
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{64, 64};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    int warnings = 0;
    Store store(directory_, [&](const std::string&) { ++warnings; });
    const bool stored = store.put("choice", "key", "1") || store.put("choice", "other", "1");
    ::_exit(!stored && warnings == 1 && !store.get("choice", "key") ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(files(), ElementsAre());
}

// The same on a file system of 16 KiB, where the system lets a process mount one of its own.
TEST_F(StoreTest, FullFileSystem) {
  constexpr int kNoMount = 77;
  std::filesystem::create_directory(directory_);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool mounted = (::unshare(CLONE_NEWNS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
                         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         ::mount("faltung", directory_.c_str(), "tmpfs", 0, "size=16k") == 0 &&
                         std::ofstream(directory_ + "/mine").put('1') &&
                         ::unlink((directory_ + "/mine").c_str()) == 0;
    if (!mounted) ::_exit(kNoMount);
    int warnings = 0;
    Store store(directory_, [&](const std::string&) { ++warnings; });
    int stored = 0;
    while (stored < 100 && store.put("choice", std::to_string(stored), "1")) ++stored;
    bool right = stored > 0 && stored < 100 && warnings == 1;
    right = right && !store.put("choice", "0", std::string(1 << 15, 'x')) && warnings == 1;
    for (int i = 0; i <= stored; ++i) {
      right = right && store.get("choice", std::to_string(i)).has_value() == (i < stored);
    }
    right = right && static_cast<int>(store.list().size()) == stored && warnings == 1;
    for (const auto& entry : std::filesystem::directory_iterator(directory_ + "/choice")) {
      right = right && !entry.path().filename().string().starts_with(".tmp");
    }
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == kNoMount) GTEST_SKIP() << "no file system may be mounted here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(StoreTest, Readonly) {
  open().put("choice", "key", "1");
  Store store = open(":readonly");
  EXPECT_TRUE(store.readonly());
  EXPECT_EQ(store.directory(), directory_);
  EXPECT_EQ(store.get("choice", "key"), "1");
  EXPECT_FALSE(store.put("choice", "key", "2"));
  EXPECT_FALSE(store.erase("choice", "key"));
  EXPECT_EQ(store.clear(), 0);
  EXPECT_EQ(store.get("choice", "key"), "1");
  EXPECT_THAT(warnings_, ElementsAre());
}

TEST_F(StoreTest, DirectoryFromTheEnvironment) {
  const auto directory_with = [](const char* store, const char* cache, const char* home) {
    const auto set = [](const char* name, const char* value) {
      if (value != nullptr) {
        ::setenv(name, value, 1);
      } else {
        ::unsetenv(name);
      }
    };
    set("FALTUNG_STORE", store), set("XDG_CACHE_HOME", cache), set("HOME", home);
    return Store().directory();
  };
  EXPECT_EQ(directory_with("/s", "/c", "/h"), "/s");
  EXPECT_EQ(directory_with("/:readonly", "/c", "/h"), "/");
  EXPECT_EQ(directory_with("", "/c", "/h"), "/c/faltung");
  EXPECT_EQ(directory_with(nullptr, "relative", "/h"), "/h/.cache/faltung");
  EXPECT_EQ(directory_with(nullptr, nullptr, "/h"), "/h/.cache/faltung");
  EXPECT_EQ(directory_with(nullptr, nullptr, nullptr), "");
  Store nowhere("", [this](const std::string& message) { warnings_.push_back(message); });
  EXPECT_FALSE(nowhere.put("choice", "key", "1"));
  EXPECT_EQ(nowhere.get("choice", "key"), std::nullopt);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("set FALTUNG_STORE"));
}

TEST_F(StoreTest, TruncatedAtEveryByte) {
  open().put("quarantine", "key", R"({"kernel":"x/y","verdict":"hang"})");
  const std::string file = files().at(0), good = read(file);
  for (std::size_t size = 0; size < good.size(); ++size) {
    write(file, good.substr(0, size));
    warnings_.clear();
    const auto got = open().get("quarantine", "key");
    if (size + 1 == good.size()) {  // the line's end alone is missing
      EXPECT_TRUE(got);
      continue;
    }
    EXPECT_FALSE(got) << size;
    EXPECT_EQ(warnings_.size(), 1u) << size;
  }
}

// Reads the record with nothing free, with a KiB, with two, ...: the process may grow no further.
[[noreturn]] void read_with_little_memory(const std::string& text) {
  struct Piece {
    Piece* next;
  };
  Piece* taken = nullptr;
  const auto take = [&](void* memory) { taken = new (memory) Piece{taken}; };
  const auto give = [&] { std::free(std::exchange(taken, taken->next)); };
  constexpr int kPieces = 1024, kBytes = 1024;
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  for (int i = 0; i < kPieces; ++i) take(std::malloc(kBytes));
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_DATA, &none);
  int read = 0, refused = 0;
  for (int left = 0; left < kPieces / 2; ++left) {
    while (void* memory = std::malloc(kBytes)) take(memory);
    for (int i = 0; i < left; ++i) give();
    try {
      decode_record(text);
      ++read;
    } catch (const std::bad_alloc&) {
      ++refused;
    }
  }
  ::_exit(read > 0 && refused > 0 ? 0 : 1);
}

TEST(StoreRecord, IsReadOrRefusedWhateverMemoryThereIs) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's memory has another limit";
#endif
  std::string numbers = "[";
  for (int i = 0; i < 400; ++i) numbers += std::to_string(i) + ".25,";
  const std::string text = encode_record({"rates", "a processor", numbers + "1]", 0});
  EXPECT_EXIT(read_with_little_memory(text), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace faltung
