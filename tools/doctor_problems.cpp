#include "tools/doctor_problems.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace faltung::tools {

// Where the libraries of today have hung, crashed or been wrong: images of 42 to 44 pixels, sizes that no
// tile divides, few channels, filters of even size, strides, dilations, groups.
std::vector<Case> doctor_cases() {
  std::vector<std::vector<Case>> groups;
  const auto add = [&](const std::string& group, const std::vector<std::string>& problems) {
    std::vector<Case>& cases = groups.emplace_back();
    for (const std::string& text : problems) cases.push_back({group, parse_problem(text)});
  };
  std::vector<std::string> texts;
  for (const int size : {44, 32, 43, 42, 64, 128, 224, 256, 512}) {
    const int channels = size > 128 ? 16 : 32;
    texts.push_back(fmt::format("n1c{0}h{1}w{1}k{0}r3s3:pad1:bias:relu", channels, size));
  }
  add("sizes", texts);
  texts.clear();
  for (const auto& [c, k] : {std::pair{3, 64}, {64, 3}, {1, 1}, {16, 48}, {17, 31}, {64, 128}, {256, 64}}) {
    texts.push_back(fmt::format("n1c{}h44w44k{}r3s3:pad1", c, k));
  }
  add("channels", texts);
  texts.clear();
  for (const int filter : {1, 2, 3, 4, 5, 6, 7}) {
    texts.push_back(fmt::format("n1c16h42w42k32r{0}s{0}:pad{1}", filter, filter / 2));
  }
  add("filters", texts);
  texts.clear();
  for (const int batch : {2, 1, 3, 4, 8, 16}) texts.push_back(fmt::format("n{}c16h32w32k32r3s3:pad1", batch));
  add("batches", texts);
  add("strides", {"n1c16h44w44k32r3s3:st2:pad1", "n1c16h43w43k32r3s3:st3:pad1",
                  "n1c16h42w42k32r5s5:st2x1:pad2", "n1c16h44w44k32r1s1:st2"});
  add("dilations", {"n1c16h44w44k32r3s3:dil2:pad2", "n1c16h43w43k32r3s3:dil3:pad3"});
  add("groups", {"n1c32h44w44k32r3s3:pad1:g32", "n1c32h44w44k64r3s3:pad1:g2", "n1c32h43w43k32r3s3:pad1:g4",
                 "n1c32h42w42k64r5s5:pad2:g32"});
  texts.clear();
  for (const char* form : {"f32:nhwc", "f16:nchw", "f16:nhwc", "bf16:nchw", "bf16:nhwc"}) {
    texts.push_back(fmt::format("n1c32h44w44k32r3s3:pad1:{}", form));
  }
  add("types", texts);
  add("gradients", {"bwd_d:n1c32h44w44k32r3s3:pad1", "bwd_w:n1c32h44w44k32r3s3:pad1",
                    "bwd_d:n1c16h43w43k32r3s3:st2:pad1", "bwd_w:n2c16h43w43k32r3s3:st2:pad1",
                    "bwd_d:n1c32h44w44k32r3s3:pad1:f16:nhwc", "bwd_w:n1c32h44w44k32r3s3:pad1:f16:nhwc"});
  std::vector<Case> all;
  for (std::size_t i = 0;; ++i) {
    const std::size_t before = all.size();
    for (const std::vector<Case>& cases : groups) {
      if (i < cases.size()) all.push_back(cases[i]);
    }
    if (all.size() == before) return all;
  }
}

}  // namespace faltung::tools
