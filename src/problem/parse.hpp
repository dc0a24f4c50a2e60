// Reading problems from text: what problem.hpp does not declare.
//
// The canonical string is fields separated by colons, each at most once, in any order but the epilogue's;
// docs/problem.md has the whole grammar:
//   fwd | bwd_d | bwd_w             direction; fwd if there is none
//   n1c64h56w56k64r3s3              the sizes; n8c64w16000k128s9 of one dimension, of three with d and t
//   transposed, outpad1             the transpose of a convolution, and its output padding
//   st2 | st2x1                     stride, or one a dimension, the outermost first
//   pad1 | pad1x2 | pad0.1.0.1      padding on every side, one a dimension, or before.after of each
//   dil2 | dil2x1, g32              dilation, groups
//   f32 | f16 | bf16, nchw | nhwc   dtype and layout; f32 and nchw if there is none
//   math=tf32                       math class, where it is not the dtype's own: f32 tf32 f16 bf16 fast
//   affine | affine_relu            what is done to x as it is read
//   stats, drelu, dbias             what training has around it
//   bias, then residual             epilogue, in the order it is applied; then one of
//   relu relu6 leaky_relu(0.01) sigmoid silu gelu gelu_tanh hardswish hardsigmoid(0.2) clip(-1,6) prelu, then
//   maxpool3s2p1 | avgpool2         size, stride (the size's if there is none), padding; each as above
#ifndef FALTUNG_SRC_PROBLEM_PARSE_HPP_
#define FALTUNG_SRC_PROBLEM_PARSE_HPP_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "faltung/faltung.hpp"

namespace faltung {

// As parse_problem, for text that may mean several: a MIOpenDriver line runs every direction that -F names,
// all three without it. Never empty.
std::vector<Problem> parse_problems(std::string_view text);

// A word as it stands in the canonical string. Each throws Error(bad_problem) that names the nearest.
Direction parse_direction(std::string_view text);  // fwd, bwd_d, bwd_w, or the direction's long name
DType parse_dtype(std::string_view text);
Layout parse_layout(std::string_view text);
Math parse_math(std::string_view text);
Training parse_training(std::string_view text);
Affine parse_affine(std::string_view text);
// e.g. "bias:residual:relu:maxpool2"; empty or "none" for no epilogue. A pool of one dimension has a width
// alone.
Epilogue parse_epilogue(std::string_view text, int dimensions = 2);

// One row of a list in workloads/.
struct Workload {
  std::string name;
  Problem problem;
  std::int64_t count;  // how often it occurs in one pass
};

// A CSV file (RFC 4180) whose first line names the columns, in any order: docs/problem.md lists them. Either
// each size has a column, or a column `problem` holds any problem's text and others are not read, as in what
// `faltung bench --csv` writes. Blank lines and lines that start with # are skipped.
// Throws Error(bad_file) that names the file, the line and the column.
std::vector<Workload> read_workloads(const std::string& path);
// The same from the file's text; file is for messages.
std::vector<Workload> parse_workloads(std::string_view text, const std::string& file);

}  // namespace faltung

#endif  // FALTUNG_SRC_PROBLEM_PARSE_HPP_
