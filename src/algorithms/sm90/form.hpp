// A kernel of Hopper's implicit GEMM for a problem: a tiling, and the form that the problem is brought into
// before it.
#ifndef FALTUNG_SRC_ALGORITHMS_SM90_FORM_HPP_
#define FALTUNG_SRC_ALGORITHMS_SM90_FORM_HPP_

#include <string>

#include "src/algorithms/sm90/chip.hpp"
#include "src/algorithms/sm90/tiling.hpp"
#include "src/plan/recipe.hpp"

namespace faltung::sm90 {

// How few channels become more before the kernel: by the rows of the filter's window, or by blocks of pixels;
// of x's gradient behind the kernel. thinned: x's gradient at the pixels that a 1x1 filter with strides
// takes, spread by a step behind the kernel.
enum class Form { plain, folded, deepened, thinned };

struct Formed {
  Form form = Form::plain;
  int merged = 1;  // groups that are one to the kernel: of so few channels each that a product wants more
  Tiling tiling;
  template <class Name>
  void spell(Name& name) {
    name.optional("gm", 1, merged);
    static constexpr NameWord<Form> kForms[] = {
        {Form::plain, ""}, {Form::folded, "fold"}, {Form::deepened, "s2d"}, {Form::thinned, "thin"}};
    name.word(form, kForms);
    tiling.spell(name);
  }
};

// Throws Error(bad_problem) for what is no name.
Formed parse_formed(const std::string& config);
// Throws Error(bad_problem) for a form that the problem, as it was asked for, cannot be brought into. Of a
// thinned one the tiling is for unspread(given).
void require_form(const Formed& formed, const Problem& given);

// What the kernel computes where the input is gathered, or thinned, before it, and groups merged.
Problem seen(const Problem& problem, Form form, int merged = 1);
// The same, of one kernel: fetching thins as it brings.
Problem seen(const Problem& problem, const Formed& formed);
// Whether the tiling takes NHWC, as gathered and thinned pixels are.
bool takes_nhwc(const Tiling& tiling);

// The input and, behind it, the result and the filter as the kernel has them, where steps turn them; asked:
// the problem as it was asked for.
struct Workspace {
  std::size_t result = 0, filter = 0, bytes = 0;  // where the result begins, and the filter; all of it
};
Workspace workspace_of(const Formed& formed, const Problem& seen, const Problem& asked);
// Of the weights, where a step makes them.
std::size_t packed_bytes(const Formed& formed, const Problem& seen, const Problem& asked);

// problem: as it was asked for; backward_data is computed as forward.
Recipe recipe(const Formed& formed, const Problem& problem, const DeviceInfo& device);

}  // namespace faltung::sm90

#endif  // FALTUNG_SRC_ALGORITHMS_SM90_FORM_HPP_
