// x's gradient by the kernel of another backward_data, with steps around it: of the pixels that a 1x1 filter
// with strides takes (Form::thinned), or of blocks of pixels as the channels of one (Form::deepened).
#ifndef FALTUNG_SRC_ALGORITHMS_SM90_AROUND_HPP_
#define FALTUNG_SRC_ALGORITHMS_SM90_AROUND_HPP_

#include "src/algorithms/candidate.hpp"
#include "src/algorithms/sm90/form.hpp"

namespace faltung::sm90 {

// Whether the form makes another backward_data of the problem.
bool goes_around(Form form, const Problem& given);
// Whether the kernel inside stores every second pixel, and the zeros between.
bool stores_apart(const Formed& formed, const Problem& given);
// That one, and the kernel of it: as it is.
Problem inside(Form form, const Problem& given);
Formed inside(Formed formed);

// The inner problem's candidate with what the steps around it cost and hold.
Candidate with_steps_around(const Formed& formed, const Problem& given, Candidate inner, const Chip& chip);
// What they take.
double steps_around_ms(const Formed& formed, const Problem& given, const Chip& chip);
// Its recipe with the steps.
Recipe recipe_around(const Formed& formed, const Problem& given, const DeviceInfo& device);

}  // namespace faltung::sm90

#endif  // FALTUNG_SRC_ALGORITHMS_SM90_AROUND_HPP_
