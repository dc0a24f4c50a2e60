// NKI kernels as text: the pieces of kernels/nki/ that a problem needs, with its sizes and its schedule's.
#ifndef FALTUNG_SRC_EMIT_NKI_SOURCE_HPP_
#define FALTUNG_SRC_EMIT_NKI_SOURCE_HPP_

#include <set>
#include <string>
#include <string_view>

#include "src/emit/nki_schedule.hpp"
#include "src/emit/nki_timeline.hpp"

namespace faltung::nki {

// A whole Python file: a docstring, the kernel `convolution`, and what calls it on arrays. kernel: its name.
std::string source(const Problem& problem, const Schedule& schedule, const NkiCore& core,
                   const std::string& kernel);

// The plain kernels beside: `add:<rows>x<columns>[:<dtype>]` adds two matrices,
// `transpose:<batch>x<rows>x<columns>[:<dtype>]` turns each of a batch (NCHW to NHWC: images x channels x
// pixels).
bool is_plain_kernel(std::string_view text);
// Throws Error(bad_problem) that says what it must look like.
std::string plain_source(std::string_view text, const NkiCore& core);

// The lines of a piece that hold under these words. A line may end in "  #? condition": words, each maybe
// after
// "!", joined by "&", and such conditions by "|"; it is then left out unless that is so. A loop's line may
// end in "  #: condition": where that is so the loop has one turn, and its body stands without it. The marks
// are cut off, and arguments that stand one in a line are put into as few lines as they fit.
std::string selected(std::string_view piece, const std::set<std::string>& words);

}  // namespace faltung::nki

#endif  // FALTUNG_SRC_EMIT_NKI_SOURCE_HPP_
