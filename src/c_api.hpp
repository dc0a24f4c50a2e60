// What the functions of the C interface share: what its handles hold, and how arguments and errors cross.
#ifndef FALTUNG_SRC_C_API_HPP_
#define FALTUNG_SRC_C_API_HPP_

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "faltung/faltung.h"
#include "faltung/faltung.hpp"
#include "src/problem/float_mode.hpp"

struct faltung_problem {
  faltung::Problem problem;
  std::string text;
};
struct faltung_engine {
  faltung::Engine engine;
};
struct faltung_plan {
  faltung::Plan plan;
};
struct faltung_adopted {
  std::shared_ptr<void> buffer;
};
struct faltung_memory_pool {
  faltung::MemoryPool pool;
};
struct faltung_weights {
  std::shared_ptr<const faltung::PackedWeights> packed;
};
struct faltung_choice {
  faltung::Choice choice;
  std::string text;
};

namespace faltung::c_api {

// Keeps the message for faltung_last_error.
faltung_status fail(faltung_status status, const char* message) noexcept;

faltung::Request request_of(const faltung_request* given);

// The caller's struct as this version knows it: members that the caller's version has not are zero.
template <class T>
T known(const T& given, const char* what) {
  T out{};
  constexpr std::size_t kFewest = sizeof(std::size_t);
  if (given.size < kFewest || given.size > 16 * sizeof(T)) {
    throw faltung::Error(faltung::Status::bad_problem,
                         std::string(what) + ": its size is " + std::to_string(given.size) +
                             "; set it to sizeof the struct, as the *_default functions do");
  }
  std::memcpy(&out, &given, std::min(given.size, sizeof(T)));
  return out;
}

// As much of it as the caller's version has.
template <class T>
void give(T from, T* to, const char* what) {
  from.size = known(*to, what).size;
  std::memcpy(to, &from, std::min(from.size, sizeof(T)));
}

// Thrown by the progress of a find that the caller ends.
struct Cancelled {};

// Calls body, which may throw; no exception passes.
template <class Body>
faltung_status guarded(Body&& body) noexcept {
  const faltung::FloatMode mode;
  try {
    body();
    return FALTUNG_OK;
  } catch (const faltung::Error& error) {
    return fail(static_cast<faltung_status>(error.status()), error.what());
  } catch (const Cancelled&) {
    return fail(FALTUNG_CANCELLED,
                "the find was ended by its progress function; what was measured until then is kept");
  } catch (const std::bad_alloc&) {
    return fail(FALTUNG_OUT_OF_MEMORY, "out of memory on the host");
  } catch (const std::exception& error) {
    return fail(FALTUNG_INTERNAL, error.what());
  } catch (...) {
    return fail(FALTUNG_INTERNAL, "an exception of unknown type");
  }
}

// what: the function and its argument.
inline void need(const void* pointer, const char* what) {
  if (pointer == nullptr) throw faltung::Error(faltung::Status::bad_problem, std::string(what) + " is NULL");
}

}  // namespace faltung::c_api

#endif  // FALTUNG_SRC_C_API_HPP_
