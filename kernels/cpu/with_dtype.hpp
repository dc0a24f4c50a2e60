// From a dtype at run time to one that the compiler knows.
#ifndef FALTUNG_KERNELS_CPU_WITH_DTYPE_HPP_
#define FALTUNG_KERNELS_CPU_WITH_DTYPE_HPP_

#include <type_traits>

#include "src/problem/dtype.hpp"

namespace faltung {

// function(std::integral_constant<DType, dtype>()), which is a template's argument as it is.
template <class Function>
decltype(auto) with_dtype(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::f16:
      return function(std::integral_constant<DType, DType::f16>());
    case DType::bf16:
      return function(std::integral_constant<DType, DType::bf16>());
    case DType::f32:
      break;
  }
  return function(std::integral_constant<DType, DType::f32>());
}

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_WITH_DTYPE_HPP_
