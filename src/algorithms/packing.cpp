#include "src/algorithms/packing.hpp"

#include <fmt/core.h>

namespace faltung {

std::string packing_of(const Problem& p) {
  return fmt::format("{} k{} c{} r{} s{} g{} {} {} math={}", name(p.direction), p.k, p.c, p.r, p.s, p.groups,
                     name(p.dtype), name(p.layout), name(p.math));
}

}  // namespace faltung
