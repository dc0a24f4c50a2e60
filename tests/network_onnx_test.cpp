// Reading ONNX's files: what is in them, and one clear error for each way of being wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "src/network/operator.hpp"
#include "tests/onnx_writer.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

using network::Graph;
using network::Shape;
using onnx::ModelText;
using testing::HasSubstr;

constexpr const char* kData = "/usr/share/libonnx-testdata/data";

ModelText small() {
  ModelText model;
  model.add_input("x", {1, 2, -1, 4});
  model.add_constant(onnx::tensor("w", {2, 2, 1, 1}, {1, 2, 3, 4}));
  model.add(
      {"Conv", {"x", "w"}, {"y"}, {{"strides", onnx::Sizes{1, 1}}, {"auto_pad", std::string("VALID")}}, ""});
  model.add({"Relu", {"y"}, {"z"}, {}, ""});
  model.add_output("z");
  return model;
}

// The error that reading ends with; "" if there is none.
std::string onnx_error(const std::string& bytes) {
  try {
    onnx::read(bytes);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::bad_file) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
}

TEST(NetworkOnnx, ReadsNodesConstantsAndShapes) {
  const std::string bytes = small().bytes();
  const Graph g = onnx::read(bytes);
  EXPECT_EQ(g.opset, 17);
  ASSERT_EQ(g.nodes.size(), 2u);
  EXPECT_EQ(g.nodes[0].op, "Conv");
  EXPECT_EQ(g.nodes[0].integers("strides"), (Shape{1, 1}));
  EXPECT_EQ(g.nodes[0].text("auto_pad", ""), "VALID");
  EXPECT_EQ(g.nodes[0].title(), "Conv 'y'");
  ASSERT_EQ(g.inputs.size(), 1u);
  EXPECT_EQ(g.at(g.inputs[0]).shape, (Shape{1, 2, -1, 4}));
  EXPECT_EQ(g.at(g.inputs[0]).size_names[2], "open");
  const auto w = g.constant(g.nodes[0].inputs[1]);
  ASSERT_TRUE(w.has_value());
  EXPECT_EQ(w->shape, (Shape{2, 2, 1, 1}));
  EXPECT_EQ(w->data, (std::vector<double>{1, 2, 3, 4}));
}

TEST(NetworkOnnx, ConstantNodesAreConstants) {
  ModelText model;
  model.add({"Constant", {}, {"c"}, {{"value_floats", std::vector<float>{1, 2.5f}}}, ""});
  model.add({"Constant", {}, {"i"}, {{"value_int", std::int64_t{-3}}}, ""});
  model.add({"Add", {"c", "c"}, {"y"}, {}, ""});
  model.add_output("y");
  model.add_output("i");
  const std::string bytes = model.bytes();
  const Graph g = onnx::read(bytes);
  EXPECT_EQ(g.nodes.size(), 1u);
  EXPECT_EQ(g.constant(g.nodes[0].inputs[0])->data, (std::vector<double>{1, 2.5}));
  EXPECT_EQ(g.constant(g.outputs[1])->data, std::vector<double>{-3});
}

TEST(NetworkOnnx, EveryPrefixIsRefusedInALine) {
  const std::string bytes = small().bytes();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_NE(onnx_error(bytes.substr(0, length)), "") << length;
  }
}

TEST(NetworkOnnx, SaysWhatIsWrong) {
  EXPECT_THAT(onnx_error("certainly no model"), HasSubstr("not an ONNX file"));
  EXPECT_THAT(onnx_error(""), HasSubstr("no graph"));

  ModelText circle = small();
  circle.add({"Relu", {"b"}, {"a"}, {}, ""});
  circle.add({"Relu", {"a"}, {"b"}, {}, ""});
  EXPECT_THAT(onnx_error(circle.bytes()), HasSubstr("Relu 'a' reads 'b', which no earlier node"));

  ModelText twice = small();
  twice.add({"Relu", {"y"}, {"z"}, {}, ""});
  EXPECT_THAT(onnx_error(twice.bytes()), HasSubstr("'z' is given to two values"));

  ModelText missing = small();
  missing.add_output("nowhere");
  EXPECT_THAT(onnx_error(missing.bytes()), HasSubstr("no node makes the output 'nowhere'"));

  ModelText wrong = small();
  wrong.add_constant(onnx::tensor("v", {3, 1000000}, {1, 2}));
  EXPECT_THAT(onnx_error(wrong.bytes()), HasSubstr("takes 12000000 bytes, and the file has 8"));

  ModelText huge = small();
  huge.add_constant(onnx::tensor("v", {std::int64_t{1} << 40, std::int64_t{1} << 40}, {1, 2}));
  EXPECT_THAT(onnx_error(huge.bytes()), HasSubstr("more than 2^48 elements"));

  ModelText idle = small();
  idle.add({"Relu", {"y"}, {}, {}, ""});
  EXPECT_THAT(onnx_error(idle.bytes()), HasSubstr("Relu '' has no output"));

  ModelText named = small();
  named.add_output("two\nlines");
  EXPECT_THAT(onnx_error(named.bytes()), HasSubstr("two?lines"));
}

TEST(NetworkOnnx, AllUnknownOperatorsAreListedAtOnce) {
  ModelText model = small();
  model.add({"Frobnicate", {"z"}, {"f"}, {}, ""});
  model.add({"Conv", {"z"}, {"g"}, {}, "my.domain"});
  model.add_output("f");
  const std::string bytes = model.bytes();
  const Graph g = onnx::read(bytes);
  try {
    check_operators(g);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("2 nodes"));
    EXPECT_THAT(error.what(), HasSubstr("Frobnicate 'f', my.domain.Conv 'g'"));
  }
}

class ExternalData : public testing::Test {
 protected:
  // A model whose weights, 16 bytes, lie at this place.
  std::string model(const std::string& location, const std::string& offset, const std::string& length) {
    std::string tensor;
    {
      protozero::pbf_writer w(tensor);
      const onnx::Sizes sizes{2, 2};
      w.add_packed_int64(1, sizes.begin(), sizes.end());
      w.add_int64(2, 1);
      w.add_string(8, "w");
      w.add_int64(14, 1);
      for (const auto& [key, value] :
           {std::pair{"location", location}, {"offset", offset}, {"length", length}}) {
        protozero::pbf_writer entry(w, 13);
        entry.add_string(1, key);
        entry.add_string(2, value);
      }
    }
    ModelText text;
    text.add_input("x", {2, 2});
    text.add_constant(tensor);
    text.add({"Add", {"x", "w"}, {"y"}, {}, ""});
    text.add_output("y");
    const std::string path = folder_ + "/model/net.onnx";
    write(path, text.bytes());
    return path;
  }
  static void write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  static std::string onnx_error(const std::string& path) {
    try {
      network::read_onnx(path);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::bad_file);
      return error.what();
    }
  }
  void SetUp() override {
    std::filesystem::create_directories(folder_ + "/model");
    const float values[] = {9, 1, 2, 3, 4};
    write(folder_ + "/model/data.bin", {reinterpret_cast<const char*>(values), sizeof values});
    write(folder_ + "/outside.bin", {reinterpret_cast<const char*>(values), sizeof values});
  }

  Scratch scratch_;
  std::string folder_ = scratch_.path();
};

TEST_F(ExternalData, IsReadInsideOfTheFolder) {
  const Graph g = network::read_onnx(model("data.bin", "4", "16"));
  EXPECT_EQ(g.constant(g.nodes[0].inputs[1])->data, (std::vector<double>{1, 2, 3, 4}));
}

TEST_F(ExternalData, IsRefusedOutside) {
  EXPECT_THAT(onnx_error(model("../outside.bin", "4", "16")), HasSubstr("outside of the model's folder"));
  EXPECT_THAT(onnx_error(model(folder_ + "/outside.bin", "4", "16")), HasSubstr("no relative path"));
  std::filesystem::create_symlink(folder_ + "/outside.bin", folder_ + "/model/link.bin");
  EXPECT_THAT(onnx_error(model("link.bin", "4", "16")), HasSubstr("outside of the model's folder"));
  EXPECT_THAT(onnx_error(model("nowhere.bin", "4", "16")), HasSubstr("does not exist"));
  EXPECT_THAT(onnx_error(model(".", "0", "16")), HasSubstr("outside of the model's folder"));
  EXPECT_THAT(onnx_error(model("data.bin", "8", "16")), HasSubstr("which has 20"));
  EXPECT_THAT(onnx_error(model("data.bin", "4", "12")), HasSubstr("takes 16 bytes"));
  EXPECT_THAT(onnx_error(model("data.bin", "-4", "16")), HasSubstr("is no number"));
}

// Every model of the test data, most of which have operators that are not known.
TEST(NetworkOnnx, ReadsTheTestData) {
  if (!std::filesystem::exists(kData))
    GTEST_SKIP() << kData << " is missing; Debian has it in libonnx-testdata";
  int read = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kData)) {
    if (entry.path().filename() != "model.onnx") continue;
    EXPECT_NO_THROW(network::read_onnx(entry.path())) << entry.path();
    ++read;
  }
  EXPECT_GE(read, 900);
}

}  // namespace
}  // namespace faltung
