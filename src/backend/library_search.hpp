// Where shared libraries lie that are opened at run time, beyond the loader's own path.
#ifndef FALTUNG_SRC_BACKEND_LIBRARY_SEARCH_HPP_
#define FALTUNG_SRC_BACKEND_LIBRARY_SEARCH_HPP_

#include <optional>
#include <string>
#include <vector>

namespace faltung {

// The lib folders of toolkits whose place these environment variables say, and of the standard place.
std::vector<std::string> toolkit_folders(const std::vector<std::string>& variables,
                                         const std::string& standard);
// The folders of Python's packages (nvidia/cu13/lib, torch/lib) in site-packages beside every python3 on PATH
// and in the user's own.
std::vector<std::string> python_folders(const std::vector<std::string>& packages);

// The library that this environment variable names, if it names one. Null where that cannot be opened, and
// `missing` says why.
std::optional<void*> open_named(const char* variable, std::string& missing);

// Opens the first of these libraries that there is: on the loader's path, then in the folders. Null where
// there is none.
void* open_library(const std::vector<std::string>& names, const std::vector<std::string>& folders);

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_LIBRARY_SEARCH_HPP_
