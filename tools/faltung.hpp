// The faltung command as a function, for a program that is no more than a call of it.
#ifndef FALTUNG_TOOLS_FALTUNG_HPP_
#define FALTUNG_TOOLS_FALTUNG_HPP_

#include "faltung/faltung.hpp"

namespace faltung::tools {

// The exit code. Exported, because in the wheel the command is the library's.
FALTUNG_API int run_faltung(int argc, char** argv);

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_FALTUNG_HPP_
