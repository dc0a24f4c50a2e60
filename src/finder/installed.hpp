// Files of this package, as they lie on the machine.
#ifndef FALTUNG_SRC_FINDER_INSTALLED_HPP_
#define FALTUNG_SRC_FINDER_INSTALLED_HPP_

#include <initializer_list>
#include <string>

namespace faltung {

// The first of these paths that is a file, relative to the folder of the library, then of the program. Empty
// if there is none.
std::string installed_file(std::initializer_list<const char*> places);

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_INSTALLED_HPP_
