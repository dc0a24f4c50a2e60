// Forward convolution on Hopper's matrix units; the kernels are kernels/sm90/implicit_gemm.cu, whose input
// is NHWC with pixels of a multiple of 16 bytes (what comes otherwise is brought into that form by a step
// before it), and shift_gemm.cu, which takes 16-bit NCHW as it is.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "src/algorithms/registry.hpp"
#include "src/algorithms/shortlist.hpp"
#include "src/algorithms/sm90/around.hpp"
#include "src/algorithms/sm90/bring.hpp"
#include "src/algorithms/sm90/channel_sums.hpp"
#include "src/algorithms/sm90/cost.hpp"
#include "src/algorithms/sm90/form.hpp"
#include "src/algorithms/sm90/list.hpp"
#include "src/algorithms/sm90/phases.hpp"
#include "src/algorithms/sm90/rewrites.hpp"
#include "src/algorithms/training.hpp"
#include "src/problem/rewrite.hpp"
#include "src/problem/rewrite_plain.hpp"

namespace faltung {
namespace {

using sm90::Bring;
using sm90::Chip;
using sm90::Form;
using sm90::Formed;
using sm90::Tiling;
using std::int64_t;

class ImplicitGemmSm90 : public Algorithm {
 public:
  ImplicitGemmSm90()
      : Algorithm(
            {"implicit_gemm_sm90",
             "implicit GEMM on Hopper's matrix units, forward and backward_data; fp32 by three tf32 products",
             "gpu"}) {}

  Support accepts(const Problem& given, const Target& target) const override {
    const Support as_it_is = accepts_as_it_is(given, target);
    if (as_it_is.yes || !sm90::deepens_gradient(given) || is_too_short(given)) return as_it_is;
    return accepts_as_it_is(sm90::inside(Form::deepened, given), target);
  }

  static Support accepts_as_it_is(const Problem& given, const Target& target) {
    const Problem p = sm90::as_asked(given).problem;
    if (!target.device.has("sm_90a")) return Support::declined("needs a Hopper GPU (compute capability 9.0)");
    if (!target.device.has("nvrtc")) return Support::declined("needs NVRTC to compile its kernels");
    if (p.groups > 1 && p.c == p.groups && p.k == p.groups)
      return Support::declined("no groups of one channel; depthwise_gpu has them");
    if (p.direction == Direction::backward_weights)
      return Support::declined("forward and backward_data; weights_gradient_sm90 has backward_weights");
    if (const std::string why = not_as_forward(p); !why.empty()) return Support::declined(why);
    return serves(p, Chip::of(target.device));
  }

  // Three products of rounded parts leave out up to 2^-21 of each term, eight times fp32's rounding unit; the
  // matrix units cut, not round, each partial sum. A chain of this many fp32 multiply-adds may be as far off.
  static constexpr int64_t kShortest = 48;
  static bool is_too_short(const Problem& asked) {
    const Problem p = sm90::engine_problem(asked);
    // Of strides the shortest sums are of one tap.
    const int64_t terms = sm90::has_phases(asked) ? p.c : reduction_length(p);
    return p.dtype == DType::f32 && p.math == Math::f32 && terms < kShortest;
  }

  // Why the engine, which knows forward, does not compute this backward_data; empty if it does.
  static std::string not_as_forward(const Problem& p) {
    if (p.direction != Direction::backward_data) return "";
    if (sm90::has_phases(p)) return sm90::without_phases(p);
    return sm90::reads_whole_gradient(p) ? "" : "in backward_data no padding beyond the filter";
  }

  static Support serves(const Problem& asked, const Chip& chip) {
    const Problem p = sm90::engine_problem(convolution(asked));
    if (p.dtype != DType::f32 && p.math == Math::f32)
      return Support::declined("16-bit tensors in f16 or bf16 math only");
    if (is_too_short(convolution(asked)))
      return Support::declined("in three tf32 products a sum of fewer than " + std::to_string(kShortest) +
                               " terms is not as good as fp32");
    constexpr int64_t kMost = std::numeric_limits<int>::max();
    if (sm90::output_planes(p) * p.p() * p.q() > kMost / 2 || p.n > kMost || p.k > kMost / 2)
      return Support::declined("more than 2^30 output pixels or channels");
    for (const int merged : sm90::merges(p)) {
      if (sm90::has_tilings(asked, merge_groups(unchanged(p), merged).inner, chip))
        return Support::supported();
    }
    const std::string why = sm90::unfit(smallest(p), p);
    return Support::declined(why.empty() ? "no tiling fits" : why);
  }

 private:
  // A transposed convolution as phases, with its epilogue, where results are stored by the copy engine.
  // Planes are turned before and after; without an epilogue the backward_data that it is has better ways.
  static bool upsamples(const Problem& p) {
    const bool epilogue = !p.epilogue.residual && p.epilogue.pool.kind == PoolKind::none;
    const bool planes = p.layout == Layout::nchw && p.epilogue.empty();
    if (p.dimensions != 2 || p.direction != Direction::forward || !epilogue || planes) return false;
    const Problem asked = sm90::as_asked(p).problem;
    return sm90::without_phases(asked).empty() && !sm90::plain_stores(sm90::engine_problem(asked));
  }

  // Volumes that the copy engine reaches, but for those that are images as they lie, and those of few
  // channels: their taps in depth make more of them.
  bool is_native(const Problem& given) const override {
    if (is_transposed(given)) return upsamples(given);
    const Problem p = sm90::as_asked(given).problem;
    constexpr int64_t kFew = 8;
    if (p.dimensions != 3 || p.groups != 1) return false;
    const bool images =
        p.layout == Layout::nhwc && p.t == 1 && p.stride_d == 1 && p.pad_front == 0 && p.pad_back == 0;
    if (images || has_planes_of_one_tap(p)) return false;
    if (p.direction == Direction::forward)
      return p.c > kFew ? sm90::im2col::unfit({}, p).empty() : sm90::deepens(p);
    if (p.direction == Direction::backward_weights || p.k <= kFew || !not_as_forward(p).empty()) return false;
    return sm90::has_phases(p) || sm90::im2col::unfit({}, sm90::engine_problem(p)).empty();
  }

  // What a problem that nothing fits is told about.
  static Tiling smallest(const Problem& p) {
    Tiling t;
    t.height = 8;
    if (!sm90::strides(p)) return t;
    t.bring = Bring::im2col;
    t.width = 64, t.height = 1;
    t.pixel_slots = t.weight_slots = 2;
    return t;
  }

  static Problem convolution(Problem p) {
    p.epilogue.pool = Pool{};
    return p;
  }

  // As they are: not where the input is gathered or thinned before.
  bool takes_pitch(const Problem& p, const Target&) const override {
    return p.layout == Layout::nhwc && (p.x_pitch == 0 || !sm90::thins(p));
  }

  // A window of 2x2 lies in one thread's sums, one of 3x3 in a tile that overlaps its neighbours. Others are
  // pooled by a step of their own.
  bool fuses(const Problem& p, const Target&) const override {
    const Pool& pool = p.epilogue.pool;
    if (p.epilogue.residual) return false;
    if (pool == Pool{pool.kind, 2, 2, 2, 2, 0, 0, 0, 0}) return true;
    const bool three = pool.size_h == 3 && pool.size_w == 3 && pool.stride_h == 2 && pool.stride_w == 2;
    return three && pool.pad_top == pool.pad_left && p.dtype != DType::f32;
  }

  // The ReLU's gradient where there are no phases, whose results come in parts. Sums of what is not pooled:
  // a tiling whose kernel does not take them has a step for them (candidate_of).
  bool fuses_training(const Problem& p, const Target&) const override {
    if (!is_plain(p)) return false;
    if (p.training == Training::stats) return p.epilogue.pool.kind == PoolKind::none;
    return p.training == Training::drelu && !sm90::has_phases(sm90::as_asked(p).problem);
  }
  bool reads_affine(const Problem& p, const Target&) const override { return sm90::reads_affine(p); }
  // Whether sums are a step behind a kernel of the tiling: it cannot take them, or has no room for them.
  static bool sums_apart(const Formed& formed, const Problem& given) {
    return given.training == Training::stats &&
           (!sm90::sums_channels(formed.tiling, view_of(formed, given).inner) ||
            !misfit(formed, given).empty());
  }

  std::vector<Candidate> list(const Problem& asked, const Target& target) const override {
    std::vector<Candidate> all;
    for (const Formed& formed : forms(asked, target)) all.push_back(candidate_of(formed, asked, target));
    return all;
  }

  Shortlist shortlist(const Problem& asked, const Target& target) const override {
    // Without the step that adds up channels apart.
    const auto price = [&](const Formed& formed) {
      const Problem given = sums_apart(formed, asked) ? without_training(asked) : asked;
      if (!sm90::goes_around(formed.form, given)) return cost_of_kernel(formed, given, target).ms;
      return cost_of_kernel(sm90::inside(formed), sm90::inside(formed.form, given), target).ms +
             sm90::steps_around_ms(formed, given, Chip::of(target, given));
    };
    return nearest_of(forms(asked, target), price,
                      [&](const Formed& formed) { return candidate_of(formed, asked, target); });
  }

  // With a pool, those that are tiled for it.
  static std::vector<Formed> forms(const Problem& given, const Target& target) {
    const Problem asked = sm90::as_asked(given).problem;
    const Chip chip = Chip::of(target.device);
    const Problem p = sm90::engine_problem(asked);
    std::vector<Formed> all;
    for (const Form form : {Form::plain, Form::folded, Form::deepened}) {
      if (form != Form::plain &&
          (asked.direction != Direction::forward || p.groups > 1 || asked.x_pitch != 0))
        continue;
      if ((form == Form::folded && !sm90::folds(p)) || (form == Form::deepened && !sm90::deepens(p)))
        continue;
      const bool prepared = form != Form::plain || sm90::thins(p);
      for (const int merged : sm90::merges(p)) {
        const Problem inner = sm90::seen(p, form, merged);
        for (const Tiling& t : sm90::tilings(asked, inner, chip)) {
          // Alternating channels have an order of their own in the filter, which merging does not make.
          if (merged > 1 && sm90::alternates(t, inner)) continue;
          if (!prepared || sm90::takes_nhwc(t)) all.push_back({form, merged, t});
        }
      }
    }
    // Gathering takes of a plane the pixels that the strides do.
    if (sm90::thins(p)) {
      for (const Tiling& t : sm90::fetch::tilings(p, chip)) all.push_back({Form::plain, 1, t});
    }
    for (const Form around : {Form::thinned, Form::deepened}) {
      if (!sm90::goes_around(around, given)) continue;
      for (Formed formed : forms(sm90::inside(around, given), target)) {
        formed.form = around;
        all.push_back(formed);
        formed.tiling.apart = 2;
        if (sm90::stores_apart(formed, given)) all.push_back(formed);
      }
    }
    return all;
  }

  Maker parse(const std::string& config, Direction) const override {
    return maker(sm90::parse_formed(config));
  }

  static Maker maker(const Formed& formed) {
    return [formed](const Problem& given, const Target& target) -> std::optional<Candidate> {
      sm90::require_form(formed, given);
      // Refuses what it cannot.
      if (sm90::goes_around(formed.form, given)) {
        Formed kernel = sm90::inside(formed);
        kernel.tiling.apart = 1;
        maker(kernel)(sm90::inside(formed.form, given), target);
      }
      const bool apart = sums_apart(formed, given);
      if (const std::string why = misfit(formed, apart ? without_training(given) : given); !why.empty()) {
        if (given.epilogue.pool.kind != PoolKind::none) return std::nullopt;
        throw Error(Status::bad_problem, "implicit_gemm_sm90/" + config_name(formed) + " cannot compute " +
                                             to_string(given) + ": " + why);
      }
      return candidate_of(formed, given, target);
    };
  }

  // Why there is no room for the problem, its pool among it; of one with steps around it its maker asks.
  static std::string misfit(const Formed& formed, const Problem& given) {
    if (sm90::goes_around(formed.form, given)) return "";
    const Problem asked = sm90::as_asked(given).problem;
    return sm90::unfit(formed.tiling, asked, sm90::seen(sm90::engine_problem(asked), formed));
  }

  // What kernels of a form see of a problem, whatever their tilings.
  struct View {
    Problem given;
    Form form;
    int merged;
    bool fetches;
    Problem asked, engine, inner, whole;  // whole: of all phases, with its groups merged
  };
  // Each tiling asks for it: the last answer is kept.
  static const View& view_of(const Formed& formed, const Problem& given) {
    thread_local std::optional<View> last;
    const bool fetches = formed.tiling.bring == Bring::fetch;
    if (last && last->form == formed.form && last->merged == formed.merged && last->fetches == fetches &&
        last->given == given)
      return *last;
    View view{given, formed.form, formed.merged, fetches, sm90::as_asked(given).problem, {}, {}, {}};
    view.engine = sm90::engine_problem(view.asked);
    view.inner = sm90::seen(view.engine, formed);
    view.whole = merge_groups(unchanged(view.asked), formed.merged).inner;
    return last.emplace(std::move(view));
  }

  static Candidate candidate_of(const Formed& formed, const Problem& given, const Target& target) {
    if (sums_apart(formed, given))
      return with_training_step(candidate_of(formed, without_training(given), target), given, target);
    if (!sm90::goes_around(formed.form, given)) return candidate_of_kernel(formed, given, target);
    const Problem inner = sm90::inside(formed.form, given);
    Candidate c = sm90::with_steps_around(
        formed, given, candidate_of_kernel(sm90::inside(formed), inner, target), Chip::of(target, given));
    c.config = config_name(formed);
    c.recipe = [formed, given, &device = target.device] { return sm90::recipe(formed, given, device); };
    c.maker = maker(formed);
    return c;
  }

  static Cost cost_of_kernel(const Formed& formed, const Problem& given, const Target& target) {
    const Tiling& t = formed.tiling;
    const View& view = view_of(formed, given);
    const Problem &asked = view.asked, &p = view.engine, &inner = view.inner;
    const bool gathers = formed.form != Form::plain;
    Problem counted = inner;  // a step that gathers is counted apart
    if (gathers && inner.layout == Layout::nhwc) counted.c = sm90::padded_channels(inner);
    const Chip chip = Chip::of(target, given);
    const sm90::Estimate e =
        t.phased() ? sm90::estimate_phases(t, view.whole, chip) : sm90::estimate(t, counted, chip);
    // The filter of a backward_data changes with every run.
    const bool changes = asked.direction == Direction::backward_data;
    const double packed = changes ? static_cast<double>(sm90::packed_bytes(formed, inner, asked)) : 0;
    const std::size_t brought = sm90::workspace_of(formed, inner, asked).bytes;
    return {e.ms + before_ms(formed, p, inner, brought, chip) + sm90::packing_ms(packed, chip), e.bound};
  }

  static Candidate candidate_of_kernel(const Formed& formed, const Problem& given, const Target& target) {
    const Tiling& t = formed.tiling;
    const View& view = view_of(formed, given);
    const Problem &asked = view.asked, &p = view.engine, &inner = view.inner;
    Candidate c;
    c.config = config_name(formed);
    c.cost = cost_of_kernel(formed, given, target);
    const std::size_t brought = sm90::workspace_of(formed, inner, asked).bytes;
    c.workspace_bytes = sm90::channel_sums(t, inner, brought, Chip::of(target.device)).workspace_bytes;
    c.packed_bytes = sm90::packed_bytes(formed, inner, asked);
    c.accuracy = accuracy(p, formed);
    c.recipe = [formed, given, &device = target.device] { return sm90::recipe(formed, given, device); };
    c.maker = maker(formed);
    return c;
  }

  // Of the step that brings the input into the kernel's form, beyond what the estimate counts of turning it.
  static double before_ms(const Formed& formed, const Problem& p, const Problem& inner, std::size_t bytes,
                          const Chip& chip) {
    const auto written = static_cast<double>(bytes);
    if (formed.form != Form::plain) {
      const double lines = static_cast<double>(p.n * p.h);
      return (inner.layout == Layout::nchw ? 0 : sm90::gather_step_ms(written, chip)) +
             (formed.form == Form::folded ? sm90::few_lines_ms(written, lines, chip) : 0);
    }
    if (formed.tiling.bring == Bring::fetch || !sm90::thins(p)) return 0;
    // Thinning also reads what lies beside the pixels that it takes.
    return sm90::skipped_ms(static_cast<double>(bytes_of(inner, x_shape(inner)) * (p.stride_w - 1)), chip);
  }

  // Where less than tf32 is allowed its two rounded operands come on top.
  static Accuracy accuracy(const Problem& p, const Formed& formed) {
    constexpr double kRounded = 0x1p14 + 4;  // 2 2^-11 + 2^-22 in units of 2^-24
    const bool rounds = p.dtype == DType::f32 && p.math == Math::fast;
    Accuracy a{dot_product_growth(p) + (rounds ? kRounded : 0), 0, 0};
    a.factors = sm90::factors(p);
    a.groups_as_one = formed.merged;
    if (formed.form == Form::deepened) {
      a.filter_unit_h = static_cast<int>(p.stride_h);
      a.filter_unit_w = static_cast<int>(p.stride_w);
    }
    return a;
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_implicit_gemm_sm90() { return std::make_unique<ImplicitGemmSm90>(); }

}  // namespace faltung
