// NumPy's .npy files: formats 1.0 to 3.0, little-endian, C order.
//
// f32 is '<f4', f16 '<f2'. NumPy has no bfloat16: bf16 is written as '<V2', as the ml_dtypes package does
// (np.load gives raw pairs of bytes: view them as ml_dtypes.bfloat16, or as uint16 bits). '<V2' and '<u2' are
// read as bf16.
#ifndef FALTUNG_SRC_PROBLEM_NPY_HPP_
#define FALTUNG_SRC_PROBLEM_NPY_HPP_

#include <cstddef>
#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "faltung/faltung.hpp"

namespace faltung {

struct NpyArray {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;
};

// Throws Error(bad_file) that names the file, and what would be right.
NpyArray read_npy(const std::string& path);
// From a stream of known size; file is for messages.
NpyArray read_npy(std::istream& in, std::int64_t size, const std::string& file);

// The file at path is replaced once all is written. Throws Error(bad_file).
void write_npy(const std::string& path, DType dtype, const std::vector<std::int64_t>& shape,
               const void* data);
// The bytes of a file before its data.
std::string npy_header(DType dtype, const std::vector<std::int64_t>& shape);

// Throws Error(bad_file) unless array, read from file, is what tensor (its name, for the message) must be.
void check_npy(const NpyArray& array, const std::string& file, const std::string& tensor, DType dtype,
               const std::vector<std::int64_t>& shape);

}  // namespace faltung

#endif  // FALTUNG_SRC_PROBLEM_NPY_HPP_
