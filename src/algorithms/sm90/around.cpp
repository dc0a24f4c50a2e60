#include "src/algorithms/sm90/around.hpp"

#include <optional>

#include "src/algorithms/packing.hpp"
#include "src/algorithms/sm90/copies.hpp"
#include "src/algorithms/sm90/cost.hpp"
#include "src/algorithms/sm90/list.hpp"
#include "src/algorithms/sm90/phases.hpp"
#include "src/algorithms/sm90/rewrites.hpp"
#include "src/problem/dtype.hpp"

namespace faltung::sm90 {
namespace {

std::size_t bytes_of_operand(const Problem& p, Operand operand) {
  return static_cast<std::size_t>(bytes_of(p, operand_shape(p, operand)));
}

// Where the inner problem's tensors lie: behind what its own kernel holds.
struct Held {
  std::size_t x = 0, y = 0, workspace_bytes = 0;
  std::size_t w = 0, packed_bytes = 0;
};
Held held(Form form, const Problem& given, std::size_t workspace_bytes, std::size_t packed_bytes) {
  const Problem inner = inside(form, given);
  Held h;
  h.packed_bytes = packed_bytes;
  h.x = faltung::aligned(workspace_bytes);
  h.workspace_bytes = h.x + bytes_of_operand(inner, Operand::x);
  if (form == Form::thinned) return h;
  h.w = faltung::aligned(packed_bytes);
  h.packed_bytes = h.w + bytes_of_operand(inner, Operand::w);
  if (given.layout == Layout::nhwc) return h;
  h.y = faltung::aligned(h.workspace_bytes);
  h.workspace_bytes = h.y + bytes_of_operand(inner, Operand::y);
  return h;
}

// What follows takes the tensor there.
void move(std::vector<Step>& steps, Place place, Slot to) {
  for (Step& step : steps) step.rewire(place, to);
}

bool applies(Form form, const Problem& given) {
  return form == Form::thinned ? spreads(given) : form == Form::deepened && deepens_gradient(given);
}
Problem made(Form form, const Problem& given) {
  return form == Form::thinned ? unspread(given) : deepened_gradient(given).inner;
}

// What a form makes of a problem, if it applies.
struct Answer {
  Form form = Form::plain;
  Problem of;
  std::optional<Problem> inner;
};
// Each tiling asks for it: the last answer is kept.
const Answer& answer(Form form, const Problem& given) {
  thread_local Answer last;
  if (last.form != form || last.of != given) {
    last = {form, given, std::nullopt};
    if (applies(form, given)) last.inner = made(form, given);
  }
  return last;
}

// x's gradient to NCHW, without the pixels of the first and the last block that padding has: an image each.
void leave_out_ends(const Problem& given, const Problem& inner, Slot from, std::vector<Step>& steps) {
  const std::int64_t pixels = inner.w * given.stride_w, image = given.c * size_of(given.dtype);
  for (std::int64_t n = 0; n < given.n; ++n) {
    const auto begin = static_cast<std::size_t>((n * pixels + given.pad_left) * image);
    const auto result = static_cast<std::size_t>(n * given.w * image);
    steps.push_back(to_planes("x's gradient to NCHW", given.dtype, 1, given.c, given.w,
                              {from.place, from.offset + begin}, {Place::x, result}));
  }
}

}  // namespace

bool goes_around(Form form, const Problem& given) {
  if (form == Form::plain || form == Form::folded) return false;
  return answer(form, given).inner.has_value();
}

bool stores_apart(const Formed& formed, const Problem& given) {
  const bool alike = given.stride_h == 2 && given.stride_w == 2 && given.h % 2 == 0 && given.w % 2 == 0;
  if (formed.form != Form::thinned || !alike || !goes_around(formed.form, given)) return false;
  const Problem p = engine_problem(inside(formed.form, given));
  return unfit(formed.tiling, p).empty();
}

Problem inside(Form form, const Problem& given) {
  const Answer& known = answer(form, given);
  return known.inner ? *known.inner : made(form, given);  // that throws, with the reason
}

Formed inside(Formed formed) {
  formed.form = Form::plain;
  return formed;
}

double steps_around_ms(const Formed& formed, const Problem& given, const Chip& chip) {
  const Form form = formed.form;
  if (formed.tiling.apart > 1) {
    const std::size_t zeros =
        bytes_of_operand(given, Operand::x) - bytes_of_operand(inside(form, given), Operand::x);
    return zeros_ms(static_cast<double>(zeros), chip);
  }
  const double written = spread_ms(static_cast<double>(bytes_of_operand(given, Operand::x)), chip);
  if (form != Form::deepened) return written;
  const Problem inner = inside(form, given);
  return written + packing_ms(static_cast<double>(bytes_of_operand(inner, Operand::w)), chip) +
         (given.layout == Layout::nchw ? turning_ms(engine_problem(inner), chip) : 0);
}

Candidate with_steps_around(const Formed& formed, const Problem& given, Candidate c, const Chip& chip) {
  const Form form = formed.form;
  c.cost.ms += steps_around_ms(formed, given, chip);
  if (formed.tiling.apart > 1) return c;
  const Held h = held(form, given, c.workspace_bytes, c.packed_bytes);
  if (form == Form::deepened) {
    c.accuracy.filter_unit_h = static_cast<int>(given.stride_h);
    c.accuracy.filter_unit_w = static_cast<int>(given.stride_w);
  }
  c.workspace_bytes = h.workspace_bytes, c.packed_bytes = h.packed_bytes;
  return c;
}

Recipe recipe_around(const Formed& formed, const Problem& given, const DeviceInfo& device) {
  const Problem inner = inside(formed.form, given);
  Recipe all = recipe(inside(formed), inner, device);
  if (formed.tiling.apart > 1) return all;  // x's gradient, with its zeros
  const Held h = held(formed.form, given, all.workspace_bytes, all.packed_bytes);
  all.workspace_bytes = h.workspace_bytes, all.packed_bytes = h.packed_bytes;
  const Slot x{Place::workspace, h.x}, y{Place::workspace, h.y}, w{Place::packed, h.w};
  move(all.steps, Place::x, x);
  if (formed.form == Form::thinned) {
    all.steps.push_back(spread("x's gradient spread", given, x, Place::x));
    return all;
  }
  const Rewrite rewrite = deepened_gradient(given);
  const bool joins = joins_columns(given);
  all.packing = packing_of(given) + " as " + std::to_string(inner.r) + "x" + std::to_string(inner.s);
  move(all.pack, Place::w, w);
  move(all.steps, Place::w, w);
  all.pack.insert(
      all.pack.begin(),
      copy_step(joins ? "weights to NHWC" : "space to depth of weights",
                pixels_of(given, joins ? unchanged(given) : rewrite, Operand::w), Place::w, w, device));
  if (given.layout == Layout::nchw) {
    move(all.steps, Place::y, y);
    all.steps.insert(
        all.steps.begin(),
        copy_step("y's gradient to NHWC", gather_of(given, rewrite, Operand::y), Place::y, y, device));
  }
  if (joins) {
    leave_out_ends(given, inner, x, all.steps);
  } else {
    all.steps.push_back(
        depth_to_space("depth to space of x's gradient", scatter_of(given, rewrite), x, Place::x, device));
  }
  return all;
}

}  // namespace faltung::sm90
