// A pack gives back what went into it, opens without reading it, and is never read wrong where it was
// damaged.
#include "src/store/pack.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>

#include "src/finder/engine.hpp"
#include "src/store/hex.hpp"
#include "src/store/likeness.hpp"
#include "src/store/store.hpp"
#include "tests/error_message.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class PackTest : public testing::Test {
 protected:
  std::string file(const std::string& bytes) {
    const std::string path = scratch_.path() + "/" + std::to_string(files_++) + ".pack";
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  static std::vector<Record> records() {
    std::vector<Record> all;
    for (int i = 0; i < 40; ++i) {
      all.push_back({i % 2 == 0 ? "kernel" : "verified", "key\n" + std::to_string(i),
                     std::string(static_cast<std::size_t>(i) * 97, static_cast<char>('a' + i % 3)),
                     1000 + i});
    }
    return all;
  }
  // Of a pack that is whole.
  static std::vector<Record> all(const Pack& pack, const std::string& kind) {
    return pack.list(kind, [](const std::string& what) { ADD_FAILURE() << what; });
  }
  static bool same(const Record& a, const Record& b) {
    return a.kind == b.kind && a.key == b.key && a.payload == b.payload && a.modified_ms == b.modified_ms;
  }
  Scratch scratch_;
  int files_ = 0;
};

TEST_F(PackTest, GivesEveryRecordBackAndNoOther) {
  const Pack pack(file(Pack::encode(records())));
  for (const Record& record : records()) {
    const std::optional<Record> found = pack.get(record.kind, record.key);
    ASSERT_TRUE(found);
    EXPECT_TRUE(same(*found, record)) << record.key;
    EXPECT_FALSE(pack.get(record.kind, record.key + "x"));
    EXPECT_FALSE(pack.get("trials", record.key));
  }
  EXPECT_EQ(all(pack, "").size(), records().size());
  EXPECT_EQ(all(pack, "kernel").size(), 20u);
  EXPECT_TRUE(pack.holds("verified"));
  EXPECT_FALSE(pack.holds("quarantine"));
  EXPECT_TRUE(all(pack, "quarantine").empty());
  EXPECT_TRUE(all(Pack(file(Pack::encode({}))), "").empty());
}

TEST_F(PackTest, DamageIsAnErrorOrAnotherRecordsNeverWrongContent) {
  const std::string whole = Pack::encode(records());
  for (std::size_t at = 0; at < whole.size(); at += 7) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
    const std::string path = file(bytes);
    try {
      const Pack pack(path);
      for (const Record& record : records()) {
        try {
          const std::optional<Record> found = pack.get(record.kind, record.key);
          EXPECT_TRUE(!found || same(*found, record)) << "byte " << at;
        } catch (const Error& error) {
          EXPECT_EQ(error.status(), Status::bad_file);
        }
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::bad_file);
    }
    std::filesystem::remove(path);
  }
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{5}, std::size_t{16}, std::size_t{40}, whole.size() - 1}) {
    EXPECT_THROW(Pack(file(whole.substr(0, bytes))), Error) << bytes;
  }
  EXPECT_THROW(Pack(file(whole + "x")), Error);
  std::string later = whole;
  later[13] = '9';
  EXPECT_TRUE(Pack::is(file(later)));
  EXPECT_THROW(Pack(file(later)), Error);
}

// As text and as digits that stand for bytes, of even and odd number; of many that are alike, too.
TEST_F(PackTest, PayloadsComeBackAsTheyWere) {
  std::vector<Record> many;
  for (const char* payload :
       {"", "a", "ab", "abc", "abcg", "ABCD", "7f454c46 403.85", "7f454c4 1", "{\"a\":1}", "0\n", "00\n"})
    many.push_back({"verified", payload, payload, 7});
  for (int i = 0; i < 100; ++i) {
    std::string digits;
    for (int j = 0; j < 700; ++j) digits += kHexDigits[static_cast<std::size_t>(j * (j + i % 7) / 5 % 16)];
    many.push_back({"kernel", std::to_string(i), digits + std::to_string(i) + " 1.5", i});
  }
  const std::string bytes = Pack::encode(many);
  const Pack pack(file(bytes));
  EXPECT_EQ(all(pack, "").size(), many.size());
  for (const Record& record : many) EXPECT_TRUE(same(pack.get(record.kind, record.key).value(), record));
  EXPECT_LT(bytes.size(), many.size() * 200) << "of digits that are alike";
}

// What a plan asks of a pack first: no record of another kind is touched.
TEST_F(PackTest, ToLookForAKindReadsNoOther) {
  std::vector<Record> many = records();
  std::string bytes = Pack::encode(many);
  const std::size_t content = bytes.size() / 2;
  for (std::size_t at = content; at < bytes.size(); ++at) bytes[at] = 'x';
  const Pack pack(file(bytes));
  EXPECT_TRUE(all(pack, "quarantine").empty());
  EXPECT_TRUE(pack.holds("kernel"));
  int said = 0;
  pack.list("kernel", [&](const std::string&) { ++said; });
  EXPECT_GT(said, 0);
}

TEST_F(PackTest, AStoreReadsExportsAndImportsIt) {
  const std::string packed = file(Pack::encode(records()));
  const Store store(packed + ":readonly");
  EXPECT_EQ(store.get("kernel", "key\n2"), std::string(2 * 97, 'c'));
  EXPECT_EQ(store.list("verified").size(), 20u);
  EXPECT_TRUE(store.readonly());
  Store other(scratch_.path() + "/store");
  EXPECT_EQ(other.import_from(packed).added, 40);
  const std::string again = scratch_.path() + "/again.pack";
  EXPECT_EQ(other.export_to(again), 40);
  EXPECT_TRUE(Pack::is(again));
  EXPECT_EQ(Store(again).list().size(), 40u);
}

TEST_F(PackTest, WhatIsShippedIsFoundBehindAStoresOwn) {
  Store store(scratch_.path() + "/store");
  store.ship(std::make_shared<const Store>(file(Pack::encode(records()))), {"kernel"});
  EXPECT_EQ(store.get("kernel", "key\n2"), std::string(2 * 97, 'c'));
  EXPECT_FALSE(store.get("verified", "key\n3"));  // of another kind
  EXPECT_TRUE(store.put("kernel", "key\n2", "mine"));
  EXPECT_EQ(store.get("kernel", "key\n2"), "mine");
  EXPECT_EQ(store.list().size(), 1u);  // its own alone
}

TEST_F(PackTest, ADamagedOneIsOneWarningAndTheEngineWorks) {
  std::string bytes = Pack::encode(records());
  bytes.pop_back();
  const std::string path = file(bytes);
  ::setenv("FALTUNG_KNOWN_DEVICES", path.c_str(), 1);
  std::vector<std::string> said;
  Engine engine(scratch_.path() + "/store");
  ::unsetenv("FALTUNG_KNOWN_DEVICES");
  engine.on_warning([&](const std::string& line) { said.push_back(line); });
  EXPECT_FALSE(engine.plan(parse_problem("n1c4h5w5k4r3s3")).kernel().empty());
  EXPECT_THAT(said, ElementsAre(HasSubstr(path + ": is no")));
}

// Records that lie beside what was tampered with are missing, too; those of another block are there.
TEST_F(PackTest, WhatWasTamperedWithIsMissingWithOneWarning) {
  std::string bytes = Pack::encode(records());
  bytes.back() = static_cast<char>(bytes.back() ^ 1);  // of the last kind's block
  std::vector<std::string> said;
  const Store store(file(bytes), [&](const std::string& line) { said.push_back(line); });
  for (const Record& record : records())
    EXPECT_EQ(store.get(record.kind, record.key).has_value(), record.kind == "kernel") << record.key;
  EXPECT_THAT(said, ElementsAre(HasSubstr("a block of records is damaged; taken as missing")));
}

TEST_F(PackTest, WhatIsDamagedIsSaidOnceWithItsFile) {
  std::string bytes = Pack::encode(records());
  const std::string cut = file(bytes.substr(0, bytes.size() / 2));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  const std::string tampered = file(bytes);
  std::vector<std::string> said;
  Store store(scratch_.path() + "/store", [&](const std::string& line) { said.push_back(line); });
  EXPECT_EQ(store.import_from(tampered).added, 20);
  EXPECT_THAT(said, Each("store: " + tampered + ": a block of records is damaged; left out"));
  const auto not_whole = StartsWith(cut + ": is not whole: ");
  EXPECT_THAT(error_message([&] { store.import_from(cut); }), not_whole);
  EXPECT_THAT(error_message([&] { Store(cut + ":readonly"); }), not_whole);
}

// More than one block of a kind, and more than are kept: each record is found again, in any order.
TEST_F(PackTest, ManyBlocksAreReadInAnyOrder) {
  std::vector<Record> many;
  for (int i = 0; i < 24; ++i) {
    std::string payload(std::size_t{1} << 20, static_cast<char>('g' + i % 20));
    many.push_back({"kernel", "entry\n" + std::to_string(i), payload + std::to_string(i), i});
  }
  const Pack pack(file(Pack::encode(many)));
  for (int i = 0; i < 48; ++i) {
    const Record& record = many[static_cast<std::size_t>(i * 7 % 24)];
    EXPECT_TRUE(same(pack.get(record.kind, record.key).value(), record)) << record.key;
  }
  EXPECT_EQ(all(pack, "kernel").size(), 24u);
}

// Of three families, whose words lie at other places in each member.
TEST(Likeness, WhatSharesWordsLiesSideBySide) {
  constexpr std::size_t kFamilies = 3, kMembers = 8, kWords = 400;
  std::vector<std::string> texts(kFamilies * kMembers);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::size_t family = i % kFamilies, member = i / kFamilies;
    for (std::size_t j = 0; j < kWords; ++j) {
      const std::size_t word = (j + 37 * member) % kWords;
      std::string text =
          std::to_string(word % 10 == member ? 1000000 + i : 1000 * family + word) + "................";
      texts[i] += text.substr(0, 16);
    }
  }
  const std::vector<std::size_t> order = order_of_likeness(texts);
  ASSERT_EQ(order.size(), texts.size());
  int changes = 0;
  for (std::size_t i = 1; i < order.size(); ++i) changes += order[i] % kFamilies != order[i - 1] % kFamilies;
  EXPECT_EQ(changes, kFamilies - 1);
  EXPECT_EQ(std::set<std::size_t>(order.begin(), order.end()).size(), texts.size());
  EXPECT_EQ(order.front(), 0u);
  EXPECT_TRUE(order_of_likeness({}).empty());
  EXPECT_THAT(order_of_likeness({"", "a", ""}), ElementsAre(0u, 1u, 2u));
}

TEST_F(PackTest, OpeningOneReadsItsHeadAlone) {
  std::vector<Record> many;
  for (int i = 0; i < 2000; ++i) many.push_back({"kernel", std::to_string(i), std::to_string(i), 0});
  const std::string path = file(Pack::encode(many));
  double best = 1e9;
  for (int i = 0; i < 20; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const Pack pack(path);
    best = std::min(
        best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  EXPECT_LT(best, 1) << "milliseconds";
}

}  // namespace
}  // namespace faltung
