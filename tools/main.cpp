#include <cstdio>

#include "faltung/faltung.hpp"

int main(int argc, char** argv) {
  try {
    for (int i = 1; i < argc; ++i)
      std::printf("%s\n", faltung::to_string(faltung::parse_problem(argv[i])).c_str());
  } catch (const faltung::Error& error) {
    std::fprintf(stderr, "faltung: %s\n", error.what());
    return 2;
  }
}
