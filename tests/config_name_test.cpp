// The one grammar of config names: what is spelled parses back, everything else is refused, and the page that
// lists it lists just that.
#include "src/algorithms/config_name.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "src/algorithms/algorithm.hpp"
#include "tests/fake_device.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

enum class Way { plain, wide, amx };

struct Spelled {
  Way way = Way::plain;
  int rows = 1, columns = 1, depth = 1, splits = 1;
  bool operator==(const Spelled&) const = default;
  template <class Name>
  void spell(Name& name) {
    constexpr NameWord<Way> kWays[] = {{Way::plain, ""}, {Way::wide, "wide"}, {Way::amx, "amx"}};
    name.word(way, kWays);
    name.key("bt", rows, columns);
    name.key("k", depth);
    name.optional("sk", 1, splits);
  }
};

TEST(ConfigName, PrintsAndParsesBack) {
  for (const Way way : {Way::plain, Way::wide, Way::amx}) {
    for (const int rows : {1, 64, 9999}) {
      for (const int splits : {1, 2, 10}) {
        const Spelled choice{way, rows, 7, 16, splits};
        Spelled parsed{Way::amx, 3, 3, 3, 3};
        ASSERT_TRUE(parse_config(config_name(choice), parsed)) << config_name(choice);
        EXPECT_EQ(parsed, choice) << config_name(choice);
      }
    }
  }
  EXPECT_EQ(config_name(Spelled{Way::plain, 64, 32, 8, 1}), "bt64x32_k8");
  EXPECT_EQ(config_name(Spelled{Way::wide, 64, 32, 8, 4}), "wide_bt64x32_k8_sk4");
}

TEST(ConfigName, RefusesEverythingElse) {
  Spelled choice;
  for (const char* text : {"",
                           "_",
                           "plain",
                           "bt64x32",
                           "k8_bt64x32",
                           "bt64x32_k8_wide",
                           "sk4_bt64x32_k8",  // what, and in which order
                           "bt64x32_k08",
                           "bt064x32_k8",
                           "bt64x32_k0",
                           "bt0x32_k8",
                           "bt64x32_k8_sk1",  // numbers
                           "bt64x32_k12345",
                           "bt64x32_k-8",
                           "bt64x32_k+8",
                           "bt64x32_k 8",
                           "bt64x32_k8.0",
                           "bt64x32_k",
                           "bt64_k8",
                           "bt64x_k8",
                           "btx32_k8",
                           "bt64x32x1_k8",
                           "bt64X32_k8",
                           "bt64x32_k8_sk4_sk4",
                           "bt64x32_k8_",
                           "_bt64x32_k8",
                           "bt64x32__k8",
                           "wide_wide_bt64x32_k8",  // parts
                           "bt64x32_k8_x",
                           "bt64x32_k8 ",
                           " bt64x32_k8",
                           "BT64x32_k8",
                           "narrow_bt64x32_k8",
                           "wid_bt64x32_k8",
                           "bt64x32_k8_sk4x4",
                           "tt64x32_k8",
                           "b64x32_k8"}) {
    EXPECT_FALSE(parse_config(text, choice)) << text;
  }
  EXPECT_TRUE(parse_config("bt64x32_k8", choice));
}

struct Tile {
  int rows, columns;
  template <class Name>
  void spell(Name& name) {
    name.key("bt", rows, columns);
  }
};
constexpr Tile kTiles[] = {{128, 64}, {64, 64}, {32, 8}};

TEST(ConfigName, TablesTakeTheirTilesAndSplits) {
  constexpr TileTable<Tile> whole("x_gpu", kTiles), split("y_gpu", kTiles, 8);
  EXPECT_EQ(whole.parse("bt64x64").tile, &kTiles[1]);
  EXPECT_EQ(split.parse("bt32x8").splits, 1);
  for (int splits = 2; splits <= 8; ++splits) {
    const std::string name = "bt32x8_sk" + std::to_string(splits);
    const TileChoice<Tile> choice = split.parse(name);
    EXPECT_EQ(choice.tile, &kTiles[2]);
    EXPECT_EQ(choice.splits, splits);
    EXPECT_EQ(choice.name(), name);
  }
  const auto message = [](const auto& table, const char* text) -> std::string {
    try {
      table.parse(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::bad_problem);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(whole, "bt128x65"), "x_gpu has no config 'bt128x65'; the nearest is bt128x64");
  EXPECT_EQ(message(split, "bt64x65"),
            "y_gpu has no config 'bt64x65'; the nearest is bt64x64, and _sk2 to _sk8 after it split the sum");
  for (const char* text : {"", "bt128x64_sk2", "bt128x64_", "bt16x16"}) EXPECT_NE(message(whole, text), "");
  for (const char* text : {"bt64x64_sk1", "bt64x64_sk9", "bt64x64_sk0", "bt64x64_sk02", "sk2_bt64x64"})
    EXPECT_NE(message(split, text), "") << text;
}

std::set<std::string> rows_of(const std::string& page, const std::string& title) {
  std::set<std::string> rows;
  const std::size_t from = page.find("\n## " + title + "\n");
  EXPECT_NE(from, std::string::npos) << title;
  if (from == std::string::npos) return rows;
  std::istringstream in(page.substr(from + 5, page.find("\n## ", from + 5) - from - 5));
  const std::regex row("\\| `(\\w+)` \\| (.*) \\|");
  std::smatch match;
  for (std::string line; std::getline(in, line);) {
    if (std::regex_match(line, match, row)) rows.insert(match[1].str() + ": " + match[2].str());
  }
  return rows;
}

template <std::size_t kCount>
std::set<std::string> entries_of(const NameEntry (&entries)[kCount]) {
  std::set<std::string> all;
  for (const NameEntry& entry : entries)
    EXPECT_TRUE(all.insert(std::string(entry.text) + ": " + std::string(entry.meaning)).second) << entry.text;
  return all;
}

TEST(ConfigName, ThePageListsTheKeysAndTheWords) {
  std::ifstream in(FALTUNG_SOURCE_DIR "/docs/kernel_names.md");
  std::stringstream page;
  page << in.rdbuf();
  EXPECT_EQ(rows_of(page.str(), "Keys"), entries_of(kNameKeys));
  EXPECT_EQ(rows_of(page.str(), "Words"), entries_of(kNameWords));
}

// Of every algorithm's names on devices of each kind every part is a word or a key of the lists.
TEST(ConfigName, EveryAlgorithmSpeaksIt) {
  std::set<std::string> words, keys;
  for (const NameEntry& entry : kNameWords) words.insert(std::string(entry.text));
  for (const NameEntry& entry : kNameKeys) keys.insert(std::string(entry.text));
  const FakeDevice amd("fake:amd", "gfx942"), hopper("fake:hopper", "sm_90a");
  const std::shared_ptr<Device> trn2 = find_device("nki:trn2");
  const DeviceInfo* const devices[] = {&find_device("cpu")->info(), &amd.info(), &hopper.info(),
                                       &trn2->info()};
  const std::regex part("([a-z]+)[1-9][0-9]{0,3}(x[1-9][0-9]{0,3})*");
  std::set<std::string> used;
  for (const char* text :
       {"fwd:n2c64h56w56k64r3s3:pad1:f16:nhwc", "fwd:n2c64h56w56k64r3s3:pad1:f16:nchw:bias:relu:maxpool2",
        "fwd:n2c64h56w56k64r1s1:f16:nchw", "fwd:n2c3h224w224k64r7s7:st2:pad3:bf16:nhwc",
        "fwd:n2c32h56w56k32r3s3:pad1:g32:f32:nchw", "fwd:n2c32h56w56k32r3s3:pad1:g32:f16:nhwc",
        "fwd:n2c32h56w56k32r3s3:pad1:g32:f16:nchw", "bwd_d:n2c64h56w56k64r1s1:st2:f16:nchw",
        "fwd:n2c64h56w56k64r3s3:pad1:f32:nchw:math=tf32", "fwd:n2c16h40w36k8r9s9:pad4:f32:nchw:math=fast",
        "bwd_w:n2c64h56w56k64r3s3:pad1:f16:nchw", "bwd_d:n2c64h56w56k64r3s3:st2:pad1:bf16:nhwc",
        "fwd:n2c64h56w56k64r3s3:pad1:g16:bf16:nhwc"}) {
    const Problem p = parse_problem(text);
    for (const DeviceInfo* device : devices) {
      for (const auto& algorithm : registry()) {
        const Target target{*device, device->kind == "cpu" ? 2 : 1};
        if (algorithm->device_kind() != device->kind || !algorithm->supports(p, target).yes) continue;
        for (const Candidate& candidate : algorithm->candidates(p, target)) {
          used.insert(std::string(algorithm->name()));
          for (const std::string& piece : split(candidate.config, '_')) {
            std::smatch match;
            const bool known = words.contains(piece) ||
                               (std::regex_match(piece, match, part) && keys.contains(match[1].str()));
            EXPECT_TRUE(known) << piece << " in " << candidate.kernel();
          }
        }
      }
    }
  }
  EXPECT_EQ(used.size(), registry().size()) << testing::PrintToString(used);
}

}  // namespace
}  // namespace faltung
