// Linked with the faltung command: the same command with broken kernels in its registry.
#include "tests/faults/faults.hpp"

namespace {

[[gnu::constructor]] void register_at_start() { faltung::register_faults(); }

}  // namespace
