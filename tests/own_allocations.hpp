// Counts what this thread allocates by new, drivers' threads left out. For one file of a program of its own.
#ifndef FALTUNG_TESTS_OWN_ALLOCATIONS_HPP_
#define FALTUNG_TESTS_OWN_ALLOCATIONS_HPP_

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {
thread_local long own_allocations = 0;
}

// GCC sees free() where it inlines delete, but not that new is ours.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(std::size_t bytes) {
  ++own_allocations;
  if (void* const memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

#endif  // FALTUNG_TESTS_OWN_ALLOCATIONS_HPP_
