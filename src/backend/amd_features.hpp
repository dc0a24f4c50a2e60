// What LLVM and an AMD chip offer, as DeviceInfo::features: for the driver's devices and for those that only
// compile.
#ifndef FALTUNG_SRC_BACKEND_AMD_FEATURES_HPP_
#define FALTUNG_SRC_BACKEND_AMD_FEATURES_HPP_

#include <string>
#include <vector>

namespace faltung {

// chip: gfx90a, gfx1100, ..., and what follows a colon.
//   mfma    matrix units as CDNA 2 and later have them
//   wmma    as RDNA 3 has them
//   wmma12  as RDNA 4 has them
//   dot2    none, but instructions that add two products of halves to a float: RDNA 2 and two chips before
// Where the compiler takes the builtins that reach them.
inline std::vector<std::string> amd_features(const std::string& chip) {
  const std::string name = chip.substr(0, chip.find(':'));
  if (name == "gfx90a" || name.starts_with("gfx94") || name.starts_with("gfx95")) return {"mfma"};
  if (name.starts_with("gfx11")) return {"wmma"};
  if (name.starts_with("gfx120")) return {"wmma12"};
  if (name == "gfx1011" || name == "gfx1012" || name.starts_with("gfx103")) return {"dot2"};
  return {};
}

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_AMD_FEATURES_HPP_
