// A folder of a test's own, gone with it.
#ifndef FALTUNG_TESTS_SCRATCH_HPP_
#define FALTUNG_TESTS_SCRATCH_HPP_

#include "src/problem/temporary_folder.hpp"

namespace faltung {

using Scratch = TemporaryFolder;

}  // namespace faltung

#endif  // FALTUNG_TESTS_SCRATCH_HPP_
