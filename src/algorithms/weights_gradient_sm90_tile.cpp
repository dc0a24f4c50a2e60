// What follows from a tile of the weights' gradient on Hopper: its name, what it is for a problem, its
// limits.
#include <algorithm>

#include "src/algorithms/config_name.hpp"
#include "src/algorithms/weights_gradient_sm90.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::weights_gradient_sm90 {
namespace {

using i64 = std::int64_t;

constexpr NameWord<Form> kForms[] = {{Form::plain, ""},
                                     {Form::deepened, "s2d"},
                                     {Form::thinned, "thin"},
                                     {Form::widened, "wide"},
                                     {Form::runs, "runs"}};
constexpr NameWord<Kind> kKinds[] = {
    {Kind::patch, "patch"}, {Kind::planes, "planes"}, {Kind::fetch, "fetch"}, {Kind::lines, "lines"}};
constexpr NameWord<Pair> kPairs[] = {{Pair::neither, ""}, {Pair::x, "mx"}, {Pair::dy, "my"}};
constexpr int kMostBox = 256;  // pixels of a box of the copy engine, in each direction

bool is_16_bits(const Problem& p) { return p.dtype != DType::f32; }
// Pixels of a 1x1 filter that takes all of them need no image.
bool is_flat(const Problem& p) {
  return p.r == 1 && p.s == 1 && p.stride_h == 1 && p.stride_w == 1 && p.pad_top == 0 && p.pad_left == 0 &&
         p.p() == p.h && p.q() == p.w;
}
i64 chunk(const Problem& p) { return 16 / size_of(p.dtype); }
// NCHW as the copy engine takes it.
bool has_aligned_rows(const Problem& p) {
  return p.layout == Layout::nchw && p.w % chunk(p) == 0 && p.q() % chunk(p) == 0;
}
// Whose gradient alone has no such rows.
std::string not_widened(const Problem& p) {
  if (p.layout != Layout::nchw || p.stride_w != 1 || p.w % chunk(p) != 0 || p.q() % chunk(p) == 0)
    return "rows are widened of NCHW whose output alone has rows of no multiple of 16 bytes, without a "
           "stride";
  return "";
}
// As runs of planes, whose rows are taken by words of 4 bytes; channels whose planes are 16 bytes together
// come together.
std::string not_in_runs(const Problem& p) {
  if (const std::string why = not_widened(p); !why.empty()) return why;
  const i64 element = size_of(p.dtype);
  if (p.q() * element % 4 != 0) return "runs are of rows of a multiple of 4 bytes";
  if (p.k * p.p() * p.q() * element % 16 != 0) return "an image's planes in runs are a multiple of 16 bytes";
  if (p.p() * p.q() * element < 16) return "planes in runs are of 16 bytes or more";  // else channels 0 apart
  return "";
}
Problem widened(Problem p) {
  p.pad_right += round_up(p.q(), chunk(p)) - p.q();
  return p;
}

// Of r taps, those that a block takes: so many at most, alike.
int taps_of(i64 r, int most) { return narrow(ceil_div(r, ceil_div(r, most))); }

// Groups whose output channels a block has, so many that the next ones begin at a multiple of 16 bytes, as
// the copy engine takes it; 0: it would not.
int merged_groups(const Tile& t, const Problem& p) {
  const i64 k = p.k / p.groups, c = p.c / p.groups;
  for (i64 m = std::max<i64>(1, t.k / k); m >= 1; --m) {
    if (m >= p.groups) return narrow(p.groups);
    if (m * k % chunk(p) == 0 && m * c % chunk(p) == 0) return narrow(m);
  }
  return 0;
}

std::string unfit_groups(const Tile& t, const Problem& problem) {
  if (problem.groups == 1 || merged_groups(t, inner_of(t, problem)) > 0) return "";
  return "the copy engine takes groups, or as many as a block has channels, of a multiple of 16 bytes";
}

std::string unfit_pair(const Tile& t, const Problem& p, const Config& c) {
  if (t.pair == Pair::neither) return "";
  if (t.cluster != 1) return "a cluster's blocks add up their sums, or bring operands for each other";
  const bool flat = t.kind == Kind::planes || (t.kind == Kind::patch && p.h == 1 && c.r * c.s == 1);
  if (!flat || t.height != 1 || t.width % 64 != 0)
    return "blocks bring rows of 64 pixels for each other, or planes";
  const Counts n = counts(t, p, c);
  if ((t.pair == Pair::x ? n.k : n.c) % 2 != 0) return "an even number of blocks' channels comes in pairs";
  const int blocks = t.pair == Pair::x ? c.c_blocks : c.k_blocks;
  if (t.kind == Kind::patch && blocks > 1 && blocks % 2 != 0)
    return "of a pair each brings half of the blocks of 64 channels that both need";
  return "";
}

std::string unfit_sums(const Config& c) {
  if (columns(c) > 256) return "an instruction has at most 256 columns";
  const int most = consumers(c) > 3 ? 64 : consumers(c) == 3 ? 96 : 128;
  if (consumers(c) > 4 || sums(c) > most) return "its sums need more registers than there are";
  return "";
}

std::string unfit_planes(const Tile& t, const Problem& p, const Config& c) {
  if (!is_16_bits(p) || p.layout != Layout::nchw || !is_flat(p) || p.q() % chunk(p) != 0)
    return "planes serve 16-bit NCHW, 1x1 filters of stride 1, planes of a multiple of 8 pixels";
  if (t.k % 64 != 0 || t.k > 256 || t.c % 64 != 0 || t.c > 256)
    return "a block has 64 to 256 channels, by 64";
  if (t.width % 64 != 0 || t.height != 1 || t.images != 1) return "planes are summed by 64 pixels";
  return unfit_sums(c);
}

// The cache that threads' loads go through is what shared memory leaves.
constexpr int kFetchShared = 160 * 1024;
constexpr int kFetchSums = 128;  // of two warpgroups', or of one

std::string unfit_fetch(const Tile& t, const Problem& problem, const Config& c) {
  if (!is_16_bits(problem) || problem.layout != Layout::nchw || t.form != Form::plain || problem.groups > 1 ||
      !is_flat(problem) || problem.h * problem.w % 4 != 0)
    return "warps fetch 16-bit NCHW, 1x1 filters of stride 1 without groups, planes of a multiple of 4 "
           "pixels";
  if (t.k % 64 != 0 || t.k > 128 || t.c % 64 != 0 || t.c > 256 || consumers(c) * sums(c) > kFetchSums)
    return "a block has 64 or 128 output channels, and up to 16384 weights";
  if ((t.width != 64 && t.width != 128) || t.height != 1 || t.images != 1)
    return "planes are fetched by 64 or 128 pixels";
  if (!has_room(c))
    return "it needs " + std::to_string(shared_bytes(c)) +
           " bytes of shared memory, and leaves too few for its loads";
  return unfit_sums(c);
}

std::string unfit_patch(const Tile& t, const Problem& p, const Config& c) {
  if (!is_16_bits(p))
    return "the matrix units take 32-bit elements only if a channel's pixels lie side by side";
  if (t.k % 64 != 0 || t.k > 256) return "a block has 64 to 256 output channels, by 64";
  if (t.c != 16 && t.c != 32 && (t.c % 64 != 0 || t.c > 256))
    return "a block has 16, 32 or 64 to 256 input channels, by 64";
  if (t.width * together(c) % 8 != 0 || pixels(c) % 16 != 0)
    return "pixels are summed by 16, and lie in a row by 8, with those of all images or without";
  if (together(c) > 1 && phases(c) > 1) return "images lie side by side where a row's pixels do";
  if (p.stride_w > 8 || (c.tap_rows == 1 && p.stride_h > 8)) return "the copy engine strides by 8 at most";
  const i64 width = (patch_width(c) - 1) * p.stride_w + 1,
            height = c.tap_rows > 1 ? patch_height(c) : (t.height - 1) * p.stride_h + 1;
  if (width > kMostBox || height > kMostBox || t.images > kMostBox)
    return "a box is at most 256 pixels wide and high";
  return unfit_sums(c);
}

std::string unfit_lines(const Tile& t, const Problem& p, const Config& c) {
  if (is_16_bits(p) && !has_aligned_rows(p) && t.form != Form::runs)
    return "of 16 bits lines serve NCHW, in rows of a multiple of 16 bytes";
  if (p.stride_w != 1) return "lines serve a horizontal stride of 1";
  if (p.dilation_h != 1 && p.r > 1) return "lines serve no vertical dilation";
  if (p.r > 3 || p.s > 3) return "lines serve filters of up to 3x3";
  if (p.pad_left > (p.s - 1) * p.dilation_w) return "lines serve padding that a tap reaches";
  if (t.k != 64 || t.c % 8 != 0 || sums(c) * c.part_count() > 96)
    return "a block has 64 output channels, and a thread 96 sums, or 48 in two parts";
  const int row = row_bytes(c);
  if (c.turns() && (row != 128 || t.c % 32 != 0)) return "rows of NHWC are turned by 32 x 32 elements";
  if ((row != 64 && row != 128) || t.c * row % 1024 != 0) return "a row of x is 64 or 128 bytes";
  if (t.images != 1 || t.rows < 2) return "a tile is of one image, with two rows of the gradient or more";
  if (patch_height(c) > kMostBox || line_pixels(c) > kMostBox)
    return "a box is at most 256 pixels wide and high";
  if (t.form == Form::runs && !fits_box(c, late_by(c, p.p() * p.q()), narrow(p.q())))
    return "a row of a run lies further on than its box has room";
  return "";
}

}  // namespace

template <class Name>
void Tile::spell(Name& name) {
  name.word(form, kForms);
  name.word(kind, kKinds);
  name.key("bt", k, c);
  name.key("tp", height, width, images);
  name.key("st", stages);
  name.optional("ys", 0, rows);
  name.optional("cl", 1, cluster);
  name.word(pair, kPairs);
  name.optional("sk", 1, shares);
}

std::string to_string(const Tile& tile) { return config_name(tile); }

Tile parse_tile(std::string_view name) {
  Tile t;
  const bool spelled = parse_config(name, t);
  if (spelled && t.k >= 64 && t.c >= 8 && t.height >= 1 && t.width >= 1 && t.images >= 1 && t.stages >= 1 &&
      t.cluster >= 1 && t.shares >= 1 && t.shares % t.cluster == 0 && (t.kind == Kind::lines) == (t.rows > 0))
    return t;
  throw Error(Status::bad_problem, "weights_gradient_sm90 has no config '" + std::string(name) +
                                       "'; one looks like patch_bt64x64_tp8x32x1_st3_cl2_sk128 or "
                                       "lines_bt64x64_tp8x64x1_st2_ys5_sk132");
}

Rewrite rewritten(const Tile& t, const Problem& p) {
  if (t.form == Form::thinned) return rewrites::thin(p);
  if (t.form == Form::widened) {
    Rewrite rewrite = unchanged(p);  // x and w are
    rewrite.inner = inner_of(t, p);
    return rewrite;
  }
  return t.form == Form::deepened ? rewrites::space_to_depth(p) : unchanged(p);
}

namespace {

// What a form makes of a problem, or why it does not apply.
struct Answer {
  Form form = Form::plain;
  Problem of, inner;
  std::string why;
};
// Each question about each tile of a problem asks for it: the last answer is kept.
const Answer& answer(Form form, const Problem& p) {
  thread_local Answer last;
  if (last.form != form || last.of != p) {
    if (form == Form::runs) return last = {form, p, p, not_in_runs(p)};
    if (form == Form::widened) {
      const std::string why = not_widened(p);
      return last = {form, p, why.empty() ? widened(p) : p, why};
    }
    const RewriteRule& rule = form == Form::thinned ? rewrites::thin : rewrites::space_to_depth;
    last = {form, p, p, form == Form::plain ? "" : rule.why_not(p)};
    if (form != Form::plain && last.why.empty()) last.inner = rule.make(p).inner;
  }
  return last;
}

}  // namespace

Problem inner_of(const Tile& t, const Problem& p) {
  if (t.form == Form::plain) return p;
  const Answer& known = answer(t.form, p);
  if (known.why.empty()) return known.inner;
  if (is_of_lines(t.form)) throw Error(Status::bad_problem, known.why);
  return rewritten(t, p).inner;  // throws, with the reason
}

Problem seen(const Tile& t, const Problem& problem) {
  Problem p = inner_of(t, problem);
  if (t.kind == Kind::planes && t.form != Form::deepened && p.layout == Layout::nchw && is_flat(p)) {
    p.w = p.h * p.w, p.h = 1;
    return p;
  }
  if (t.kind == Kind::fetch && p.layout == Layout::nchw && is_flat(p)) {
    p.w = p.n * p.h * p.w, p.n = p.h = 1;
    return p;
  }
  const bool as_it_is = t.kind == Kind::lines && (t.form == Form::plain || t.form == Form::widened);
  if (t.form == Form::runs || (as_it_is && (is_16_bits(p) || has_aligned_rows(p)))) return p;
  p.layout = Layout::nhwc;
  p.c = round_up(p.c, chunk(p)), p.k = round_up(p.k, chunk(p));
  if (t.kind == Kind::patch && t.form != Form::deepened && is_flat(p)) p.w = p.n * p.h * p.w, p.n = p.h = 1;
  return p;
}

bool has_room(const Config& c) {
  return shared_bytes(c) <= (c.kind == Kind::fetch ? kFetchShared : kSharedLimit);
}

bool turns_x(const Tile& t, const Problem& p, const Problem& inner) {
  const bool takes_others = t.form == Form::deepened || t.form == Form::thinned;
  return takes_others || inner.c != p.c || (inner.layout != p.layout && p.h * p.w > 1);
}
bool turns_y(const Tile& t, const Problem& p, const Problem& inner) {
  return t.form == Form::widened || inner.k != p.k || (inner.layout != p.layout && p.p() * p.q() > 1);
}

namespace {

// What follows from the tile's channels.
void set_blocks(Config& c, const Tile& t, const Problem& p) {
  c.channels = std::min(t.c, 64);
  c.k_blocks = t.k / 64, c.c_blocks = t.c / c.channels;
  // Larger blocks of channels take one tap in that direction. Three rows, or four of few columns: a
  // warpgroup each.
  c.tap_columns = c.c_blocks > 1 ? 1 : taps_of(p.s, 192 / c.channels);
  c.tap_rows = c.k_blocks > 1 ? 1 : taps_of(p.r, c.channels * c.tap_columns <= 128 ? 4 : 3);
}

// Of 16-bit NCHW, by pixels: filters of several taps, whose channels are whole chunks.
bool has_chunks_of_filters(const Tile& t, const Problem& p) {
  return t.kind == Kind::patch && t.form == Form::plain && p.layout == Layout::nchw && p.r * p.s > 1 &&
         p.c / p.groups % chunk(p) == 0;
}

}  // namespace

bool sums_filters(const Tile& t, const Problem& p) {
  constexpr int kMostParts = 16, kMostThreads = 1024;  // of more parts it would wait too often
  return has_chunks_of_filters(t, p) && p.groups == 1 && t.parts() > 1 && t.parts() <= kMostParts &&
         sum_threads(p.r * p.s) <= kMostThreads;
}

bool turns_result(const Tile& t, const Problem& p) {
  if (!has_chunks_of_filters(t, p) || sums_filters(t, p)) return false;
  if (t.shares > 1 || p.groups > 1) return true;
  Config c;  // a block that has whole filters stores them as they are
  set_blocks(c, t, p);
  return c.tap_rows < p.r || c.tap_columns < p.s;
}

Config config(const Tile& t, const Problem& problem, const Problem& p) {
  Config c;
  c.kind = t.kind;
  c.element = p.dtype == DType::f16 ? Element::f16 : p.dtype == DType::bf16 ? Element::bf16 : Element::f32;
  c.order = p.layout == Layout::nchw ? Order::nchw : Order::nhwc;
  c.filter = problem.layout == Layout::nchw && !turns_result(t, problem) ? Order::nchw : Order::nhwc;
  c.r = narrow(p.r), c.s = narrow(p.s);
  c.stride_h = narrow(p.stride_h), c.stride_w = narrow(p.stride_w);
  c.dilation_h = narrow(p.dilation_h), c.dilation_w = narrow(p.dilation_w);
  if (t.form == Form::deepened) {
    c.depth_h = narrow(problem.stride_h), c.depth_w = narrow(problem.stride_w);
    c.depth_c = narrow(problem.c / problem.groups), c.depth_r = narrow(problem.r),
    c.depth_s = narrow(problem.s);
  }
  if (p.groups > 1) {
    const Problem inner = inner_of(t, problem);  // its channels are not padded
    c.group_k = narrow(inner.k / p.groups), c.group_c = narrow(inner.c / p.groups);
    c.merged = merged_groups(t, inner);
  }
  c.width = t.width, c.height = t.height, c.images = t.images;
  c.stages = t.stages, c.cluster = t.cluster, c.pair = t.pair;
  c.result = t.parts() > 1 ? Result::parts : Result::whole;
  if (t.kind == Kind::lines) {
    c.parts = p.dtype == DType::f32 && p.math == Math::f32 ? Parts::two : Parts::one;
    c.pad_left = narrow(p.pad_left);
    c.tap_rows = c.r, c.tap_columns = c.s;
    c.channels = t.c, c.rows = t.rows;
  } else {
    set_blocks(c, t, p);
    // A box has whole blocks of channels where there are no others.
    c.boxes_of_blocks = c.kind == Kind::patch && c.k_blocks * c.c_blocks > 1 && c.channels == 64 &&
                        p.groups == 1 && p.c % 64 == 0 && p.k % 64 == 0 && phases(c) == 1 &&
                        patch_bytes(c) == patch_stride(c);
  }
  return c;
}

Counts counts(const Tile& t, const Problem& p, const Config& c) {
  Counts n;
  n.groups = c.grouped() ? ceil_div(p.groups, c.merged) : 1;
  n.k = ceil_div(c.grouped() ? i64{c.merged} * c.group_k : p.k, t.k);
  n.c = ceil_div(c.grouped() ? i64{c.merged} * c.group_c : p.c, t.c);
  n.taps = ceil_div(p.r, c.tap_rows) * ceil_div(p.s, c.tap_columns);
  n.across = ceil_div(t.kind == Kind::lines ? p.w : p.q(), t.width);
  n.down = ceil_div(p.p(), t.height), n.images = ceil_div(p.n, t.images);
  return n;
}

std::string unfit(const Tile& t, const Problem& problem) {
  if (t.form != Form::plain) {
    if (const std::string& why = answer(t.form, problem).why; !why.empty()) return why;
  }
  if (t.form == Form::widened && t.kind != Kind::lines) return "rows are widened for lines alone";
  if (t.form == Form::runs && t.kind != Kind::lines) return "lines alone read rows as runs";
  const Problem p = seen(t, problem);
  constexpr i64 kMostExtent = 1 << 12;  // so that no size of a patch overflows
  if (p.dilation_h > kMostExtent || p.dilation_w > kMostExtent || p.stride_h > kMostExtent ||
      p.stride_w > kMostExtent || p.pad_left > kMostExtent || t.height > kMostBox || t.width > kMostBox)
    return "a box is at most 256 pixels wide and high";
  if (const std::string why = unfit_groups(t, problem); !why.empty()) return why;
  const Config c = config(t, problem, p);
  const std::string why = t.kind == Kind::patch    ? unfit_patch(t, p, c)
                          : t.kind == Kind::planes ? unfit_planes(t, p, c)
                          : t.kind == Kind::fetch  ? unfit_fetch(t, problem, c)
                                                   : unfit_lines(t, p, c);
  if (!why.empty()) return why;
  if (t.cluster > 2 || sums(c) / 2 % t.cluster != 0)
    return "a cluster has 1 or 2 blocks, which share a thread's sums alike";
  if (const std::string pair = unfit_pair(t, p, c); !pair.empty()) return pair;
  if (t.shares > counts(t, p, c).pixels()) return "more shares than tiles of pixels";
  if (t.stages < 2) return "it needs two buffers or more";
  if (!has_room(c))
    return "it needs " + std::to_string(shared_bytes(c)) + " bytes of shared memory, a block has " +
           std::to_string(kSharedLimit);
  return "";
}

i64 part_pairs_of(const Tile& t, const Problem& problem, const Problem& p) {
  const Config c = config(t, problem, p);
  if (!c.grouped()) return counts(t, p, c).results() * part_pairs(c);
  const Problem inner = inner_of(t, problem);
  return inner.k * inner.r * inner.s * round_up(inner.c / inner.groups, 2) / 2;
}

Workspace workspace(const Tile& t, const Problem& problem) {
  const Problem p = seen(t, problem);
  const auto bytes = [&](i64 elements) {
    return static_cast<std::size_t>(round_up(elements * size_of(p.dtype), 256));
  };
  const Problem inner = inner_of(t, problem);
  Workspace w;
  if (t.parts() > 1)
    w.x = static_cast<std::size_t>(round_up(t.parts() * part_pairs_of(t, problem, p) * 8, 256));
  w.y = w.x + (turns_x(t, problem, p) ? bytes(p.n * p.h * p.w * p.c) : 0);
  w.w = w.y + (turns_y(t, problem, p) ? bytes(p.n * p.p() * p.q() * p.k) : 0);
  w.bytes = w.w + (turns_result(t, problem) ? bytes(w_shape(inner).elements()) : 0);
  return w;
}

}  // namespace faltung::weights_gradient_sm90
