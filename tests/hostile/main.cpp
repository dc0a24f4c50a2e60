// hostile PART [--seconds N] [--seed N] [--device ID] [--values KIND] [--turn N]: one part of the hostile
// suite; `all` for those of the CPU, the seconds shared among them. --turn repeats what a message names.
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "tests/hostile/hostile.hpp"
#include "tests/scratch.hpp"

namespace faltung::hostile {
namespace {

int run(int argc, char** argv) {
  const std::map<std::string, bool (*)(const Setting&)> parts = {{"differential", differential},
                                                                 {"threads", threads},
                                                                 {"limits", limits},
                                                                 {"forged", forged},
                                                                 {"writers", writers}};
  const std::string name = argc > 1 ? argv[1] : "";
  Setting setting;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--seconds") setting.seconds = std::strtod(argv[i + 1], nullptr);
    if (option == "--seed") setting.seed = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--device") setting.device = argv[i + 1];
    if (option == "--values") setting.values = argv[i + 1];
    if (option == "--turn") setting.only_turn = std::strtoull(argv[i + 1], nullptr, 10);
  }
  if (name != "all" && parts.count(name) == 0) {
    std::fprintf(stderr, "hostile: no part '%s'; there is all", name.c_str());
    for (const auto& part : parts) std::fprintf(stderr, ", %s", part.first.c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  bool well = true;
  std::printf("seed %llu\n", static_cast<unsigned long long>(setting.seed));
  for (const auto& [part, test] : parts) {
    if (name != "all" && name != part) continue;
    const Scratch scratch;
    Setting own = setting;
    own.directory = scratch.path();
    if (name == "all") own.seconds = setting.seconds / static_cast<double>(parts.size());
    well = test(own) && well;
    std::fflush(stdout);
  }
  return well ? 0 : 1;
}

}  // namespace
}  // namespace faltung::hostile

int main(int argc, char** argv) { return faltung::hostile::run(argc, argv); }
