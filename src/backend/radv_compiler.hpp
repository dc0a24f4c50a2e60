// Mesa's RADV as a compiler for Radeons that are not here: its null device takes a chip's name and compiles
// for it, by ACO or by LLVM.
#ifndef FALTUNG_SRC_BACKEND_RADV_COMPILER_HPP_
#define FALTUNG_SRC_BACKEND_RADV_COMPILER_HPP_

#include <memory>
#include <string>

#include "src/backend/backend.hpp"

namespace faltung {

// id: radv:<family>, by ACO, or radv-llvm:<family>; RADV's names of families, e.g. navi21. What is timed is
// the driver's compiler, not clspv before it. Throws Error(unsupported) where clspv or RADV is not
// installed, or RADV does not know the family.
std::shared_ptr<Device> make_radv_compiler(const std::string& id);

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_RADV_COMPILER_HPP_
