// What NVIDIA's assembler says of a kernel in a compiler's log.
#ifndef FALTUNG_SRC_BACKEND_COMPILER_LOG_HPP_
#define FALTUNG_SRC_BACKEND_COMPILER_LOG_HPP_

#include <cstdint>
#include <string>

#include "src/backend/backend.hpp"

namespace faltung {

// The number after a word of a log, or before it; -1 where the word is not there.
std::int64_t number_after(const std::string& log, const std::string& word);
std::int64_t number_before(const std::string& log, const std::string& word);

// Adds to `resources` what `ptxas -v` wrote to a log, and what follows of it on a chip that is known; nothing
// where the log holds no such lines.
void read_ptxas_log(const std::string& log, const KernelSource& source, const UnitLimits& unit,
                    KernelResources& resources);

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_COMPILER_LOG_HPP_
