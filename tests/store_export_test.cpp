// What one store exports, another imports, or reads as it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/store/record.hpp"
#include "tests/store_fixture.hpp"

namespace faltung {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class StoreExport : public StoreFixture {};

TEST_F(StoreExport, ExportAndImport) {
  Store store = open("/a");
  store.put("choice", "one", R"({"ms":1})");
  store.put("choice", "two", "2");
  store.put("timing", "one", "text");
  const std::string file = directory_ + "/export.json";
  EXPECT_EQ(store.export_to(file), 3);
  const std::string exported = read(file);
  EXPECT_EQ(store.export_to(file), 3);
  EXPECT_EQ(read(file), exported);

  Store other = open("/b");
  Store::Imported done = other.import_from(file);
  EXPECT_EQ(done.added, 3);
  EXPECT_EQ(done.unchanged + done.replaced + done.damaged, 0);
  const std::string again = directory_ + "/again.json";
  other.export_to(again);
  EXPECT_EQ(read(again), exported);  // the times, too

  done = other.import_from(file);
  EXPECT_EQ(done.unchanged, 3);
}

TEST_F(StoreExport, ImportKeepsWhatIsNewer) {
  Store old = open("/old"), middle = open("/middle"), mine = open("/mine");
  const std::string file = directory_ + "/export.json";
  old.put("choice", "key", "1");
  old.export_to(file);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  mine.put("choice", "key", "2");
  Store::Imported done = mine.import_from(file);
  EXPECT_EQ(done.unchanged, 1);
  EXPECT_EQ(mine.get("choice", "key"), "2");

  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  middle.put("choice", "key", "3");
  middle.export_to(file);
  done = mine.import_from(file);
  EXPECT_EQ(done.replaced, 1);
  EXPECT_EQ(mine.get("choice", "key"), "3");

  // A damaged record of ours is replaced whatever its age.
  write(mine.list().empty() ? "" : directory_ + "/mine/choice/" + record_file("choice", "key"), "{");
  done = mine.import_from(file);
  EXPECT_EQ(done.added, 1);
  EXPECT_EQ(mine.get("choice", "key"), "3");
}

TEST_F(StoreExport, ImportOfDamagedFiles) {
  Store store = open("/a");
  store.put("choice", "one", "1");
  store.put("choice", "two", "2");
  const std::string file = directory_ + "/export.json";
  store.export_to(file);
  std::string text = read(file);
  text.replace(text.find("\"payload\": 1"), 12, "\"payload\": 7");
  write(file, text);
  Store other = open("/b");
  const Store::Imported done = other.import_from(file);
  EXPECT_EQ(done.damaged, 1);
  EXPECT_EQ(done.added, 1);
  EXPECT_EQ(other.get("choice", "one"), std::nullopt);
  EXPECT_EQ(other.get("choice", "two"), "2");
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("record 1: damaged record"));

  for (const std::string& bad :
       {std::string(), text.substr(0, 100), std::string("{}"), encode_record({"choice", "k", "1", 0})}) {
    write(file, bad);
    EXPECT_THROW(other.import_from(file), Error);
  }
  EXPECT_THROW(other.import_from(directory_ + "/none"), Error);
  EXPECT_THROW(store.export_to(directory_ + "/none/x"), Error);
}

TEST_F(StoreExport, AnExportedFileIsAStoreToRead) {
  Store store = open("/a");
  store.put("choice", "one", R"({"ms":1})");
  store.put("timing", "two", "text");
  const std::string file = directory_ + "/export.json";
  store.export_to(file);
  for (const std::string suffix : {"", ":readonly"}) {
    Store exported = open("/export.json" + suffix);
    EXPECT_TRUE(exported.readonly());
    EXPECT_EQ(exported.get("choice", "one"), R"({"ms":1})");
    EXPECT_EQ(exported.get("timing", "two"), "text");
    EXPECT_EQ(exported.get("timing", "one"), std::nullopt);
    EXPECT_EQ(exported.get("a", "b"), std::nullopt);
    EXPECT_FALSE(exported.put("choice", "three", "3"));
    EXPECT_EQ(exported.clear(), 0);
    EXPECT_EQ(exported.list().size(), 2u);
    EXPECT_EQ(exported.list("timing").size(), 1u);
  }
  const std::string text = read(file);
  for (const std::string& bad : {std::string(), text.substr(0, text.size() / 2), std::string("{}")}) {
    write(file, bad);
    EXPECT_THROW(open("/export.json:readonly"), Error);
    EXPECT_FALSE(open("/export.json").put("choice", "one", "1"));
    EXPECT_EQ(read(file), bad);
    EXPECT_EQ(warnings_.size(), 1u);
    warnings_.clear();
  }
  EXPECT_THAT(warnings_, ElementsAre());
}

}  // namespace
}  // namespace faltung
