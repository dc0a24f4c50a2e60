// Kernels that are broken on purpose, to show that no caller ever meets them. Only the tests' own programs
// have them in their registry.
//
// FALTUNG_FAULT=<fault> says which one faulty_cpu and faulty_gpu offer; without it they decline. It always
// promises to be the fastest. FALTUNG_FAULT_LOG=<file> receives a line "<process id> <fault>" whenever a
// worker tries one.
#ifndef FALTUNG_TESTS_FAULTS_FAULTS_HPP_
#define FALTUNG_TESTS_FAULTS_FAULTS_HPP_

namespace faltung {

inline constexpr const char* kFaults[] = {
    "hang",                // spins far past every deadline; ends by itself after minutes
    "hang_above_42",       // the same, on images of more than 42 rows
    "crash",               // writes to an address that is no memory's
    "out_of_bounds",       // one element past the result
    "unwritten",           // leaves the result as it was
    "one_wrong",           // one element is off by one
    "one_wrong_in_5x5",    // the same, with filters of five rows
    "wrong_later",         // the same, from the 300th launch in a workspace on
    "too_much_memory",     // asks for a workspace of an exbibyte
    "too_much_above_n2",   // the same, for batches of more than two
    "does_not_compile",    // on a GPU
    "throws_when_listed",  //
    "throws_when_made",    //
};

// Adds faulty_cpu and faulty_gpu to this process's registry.
void register_faults();

}  // namespace faltung

#endif  // FALTUNG_TESTS_FAULTS_FAULTS_HPP_
