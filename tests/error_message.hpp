// What an error says.
#ifndef FALTUNG_TESTS_ERROR_MESSAGE_HPP_
#define FALTUNG_TESTS_ERROR_MESSAGE_HPP_

#include <string>

#include "faltung/faltung.hpp"

namespace faltung {

template <class Work>
std::string error_message(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace faltung

#endif  // FALTUNG_TESTS_ERROR_MESSAGE_HPP_
