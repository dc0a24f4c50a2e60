// What a tile of the weights' gradient costs on Hopper, and those worth trying.
#include <algorithm>

#include "src/algorithms/weights_gradient_sm90.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::weights_gradient_sm90 {
namespace {

using i64 = std::int64_t;

// So many multiprocessors have a block: larger clusters do not fill every part of the chip. One has room on
// any.
i64 filled(const Tile& t, int multiprocessors) {
  return std::max<i64>(1, multiprocessors / t.cluster) * t.cluster;
}

// Pixels that are summed at a time: height, width, images. Columns that do not come by eights leave no rest
// of narrow images, whose eights are made of several.
constexpr int kShapes[][3] = {{8, 32, 1}, {4, 32, 1}, {16, 8, 1}, {14, 8, 1}, {4, 16, 1},
                              {7, 16, 1}, {8, 8, 1},  {8, 8, 2},  {7, 8, 2},  {4, 8, 2},
                              {2, 8, 1},  {14, 4, 2}, {14, 2, 4}, {1, 7, 16}};

// Whether so many images side by side spare enough: they bring more of what is beside the pixels, and take
// 3 % longer; 16 at a time are for the narrowest images.
bool leaves_a_rest(i64 columns, int images) {
  return (round_up(columns, 8) - columns) * 16 >= columns && (images <= 8 || columns < 8);
}

// A cluster's own sum is worth its time where it leaves so few parts: of more, half of them are not felt.
constexpr int kFewParts = 8;

constexpr int kHalfOfShared = 114 * 1024;  // of a multiprocessor's
// Two blocks share a multiprocessor, by their memory and registers.
bool pairs_up(const Config& c) {
  return c.kind != Kind::fetch && shared_bytes(c) <= kHalfOfShared && consumers(c) <= 2 && sums(c) <= 64;
}

// Of a product of matrices each operand is read once for each block across the other, or pair of blocks that
// bring it for each other. The larger operand's readings beyond the first, as a share of them all.
double read_again(const Tile& t, const Problem& p) {
  if (p.r * p.s > 1 || p.groups > 1) return 0;
  const i64 x = ceil_div(p.k, i64{t.k} * (t.pair == Pair::x ? 2 : 1));
  const i64 dy = ceil_div(p.c, i64{t.c} * (t.pair == Pair::dy ? 2 : 1));
  const i64 times = p.k > p.c ? dy : p.k < p.c ? x : std::min(x, dy);
  return 1 - 1 / static_cast<double>(times);
}

}  // namespace

// Fitted to kernels timed on an H200 (docs/notes/hopper_gradients.md).
Cost cost(const Tile& t, const Problem& problem, const sm90::Chip& chip) {
  constexpr double kClock = 1.47e6;                // cycles a millisecond
  constexpr double kFill = 55.8, kFillTap = 99.2;  // bytes a cycle into shared memory: halo patches; a tap
  constexpr double kFillPlanes = 43.2;             // of planes, less what a pair brings for each other
  constexpr double kFillFetch = 37;                // by warps
  constexpr double kFillLines = 68.5;
  constexpr double kAgain = 0.325;               // longer, where the larger operand is read again and again
  constexpr double kNarrow = 1.09;               // longer, for products of 64 columns
  constexpr double kIssue = 124;                 // cycles until the next box is asked for
  constexpr double kFirst = 12.2;                // cycles to read 64 rows
  constexpr double kStart = 774, kTile = 12.7;   // cycles of a block, and of a tile, that nothing hides
  constexpr double kRoom = 2350;                 // what room for the next launch's blocks saves of them
  constexpr double kLatency = 1361, kMeet = 93;  // cycles until a buffer begins to fill; more for a pair
  constexpr double kMemory = 4.26e9, kCache = 4.24e9;     // bytes a millisecond
  constexpr double kStep = 0.000435, kLaunch = 0.000977;  // ms: the sum's step, the product's
  constexpr double kTurn = 0.002475, kTurned = 4.51e9;    // ms: a step that turns; bytes a ms
  constexpr double kJoin = 0.00053;                       // ms: a cluster's sum
  constexpr double kJoined = 38.8e6;                      // bytes a ms of it that a block gets
  constexpr double kOverlap = 0.3775;  // what is lost of the shorter of bytes and arithmetic
  constexpr double kPaired = 0.00028;  // ms: what two blocks lose by waiting for each other
  constexpr double kLines = 1.1;       // products from registers, by so much slower
  // Of those in one part: longer by so much where rows are of 64 bytes, and with a ring of few rows; by a
  // share of what a halo has beyond the tile, more where it is turned too; and cycles until the first patch
  // is there, a row beyond six.
  constexpr double kPlanesLines = 0.97, kNarrowRow = 1.07, kFewRows = 1.1, kHalo = 0.04, kTurnedHalo = 0.1,
                   kFirstRow = 590;
  // Of those in two parts; longer by so much where rows are of 64 bytes.
  constexpr double kPlanesParts = 0.855, kNarrowParts = 1.13;
  constexpr double kTurnedRow = 0.53;  //   and where x is turned: for each of its rows by so much, beside
  constexpr double kUnturned = 0.83;   //   so many
  const Problem p = seen(t, problem);
  const Config c = config(t, problem, p);
  const Counts n = counts(t, p, c);
  const int multiprocessors = chip.multiprocessors;
  const i64 together = pairs_up(c) && n.results() * t.shares > filled(t, multiprocessors) ? 2 : 1;
  const i64 waves = ceil_div(n.results() * t.shares, filled(t, multiprocessors) * together);
  double tile = 0, fill = 0, issue = 0, first = 0;  // cycles
  if (t.kind != Kind::lines) {
    const auto instruction = [&](int columns) { return std::max(columns / 2.0, kFirst + columns / 4.0); };
    const double step = (phases(c) - short_phases(c)) * instruction(columns(c)) +
                        short_phases(c) * instruction(short_columns(c));
    tile = pixels(c) / 16 * consumers(c) * step;
    const bool one_tap = c.tap_rows * c.tap_columns == 1;
    const int halves = t.kind != Kind::planes ? 0
                       : c.pair == Pair::x    ? patches(c) * patch_bytes(c)
                       : c.pair == Pair::dy   ? c.k_blocks * gradient_bytes(c)
                                              : 0;
    fill = (stage_stride(c) - halves / 2) / (t.kind == Kind::planes  ? kFillPlanes
                                             : t.kind == Kind::fetch ? kFillFetch
                                             : one_tap               ? kFillTap
                                                                     : kFill);
    fill *= 1 + kAgain * read_again(t, p);
    if (one_tap && columns(c) <= 64) fill *= kNarrow;
    const int boxes = c.boxes_of_blocks        ? 2
                      : t.kind == Kind::fetch  ? 0
                      : t.kind == Kind::planes ? t.width / 64 * 2
                                               : c.k_blocks + c.c_blocks * phases(c);
    issue = kIssue * boxes;
  } else {
    const double rows = static_cast<double>(std::min<i64>(t.height, p.p()));
    const double halo = static_cast<double>(patch_height(c)) / (c.height * c.stride_h);
    const bool two_parts = c.parts == Parts::two;
    const double slower = c.turns() && two_parts ? kTurnedRow * (kUnturned + halo) : kLines;
    const double step = columns(c) / 2.0 * (two_parts ? 3 : 1) * slower;
    tile = rows * (row_bytes(c) / 32) * consumers(c) * step;
    if (!two_parts) {
      tile *= kPlanesLines * (row_bytes(c) < 128 ? kNarrowRow : 1) * (c.rows < 5 ? kFewRows : 1) *
              (1 + (c.turns() ? kTurnedHalo : kHalo) * (halo - 1));
      first = kFirstRow * std::max(0, patch_height(c) - 6);
    } else if (!c.turns()) {
      tile *= kPlanesParts * (row_bytes(c) < 128 ? kNarrowParts : 1);
    }
    fill = (patch_stride(c) + rows * line_bytes(c)) / kFillLines;
  }
  // All buffers but one are on their way while that one is multiplied.
  const double latency = kLatency + (t.pair == Pair::neither ? 0 : kMeet);
  tile = std::max({tile, fill, issue, (fill + latency) / (t.stages - 1)});
  const double a_block =
      static_cast<double>(ceil_div(n.pixels(), i64{t.shares}) * together) * (tile + kTile) + kStart + first -
      (pairs_up(c) ? kRoom : 0);
  const double arithmetic = static_cast<double>(waves) * a_block / (kClock * chip.pace);
  // Strides beyond the filter leave pixels out.
  const double read = std::min(1.0, static_cast<double>(problem.r) / static_cast<double>(problem.stride_h)) *
                      std::min(1.0, static_cast<double>(problem.s) / static_cast<double>(problem.stride_w));
  const double left_out = (1 - read) * static_cast<double>(bytes_of(problem, x_shape(problem)));
  const double bytes = (min_bytes(problem) - left_out) / (kMemory * chip.memory);
  double more = kLaunch;
  if (t.parts() > 1)
    more += kStep + 2.0 * t.parts() * static_cast<double>(part_pairs_of(t, problem, p)) * 8 / kCache;
  if (t.pair != Pair::neither) more += kPaired;
  if (t.cluster > 1) more += kJoin + sum_bytes(c) / kJoined;
  // Of what is turned as much is read as written, where pixels are taken their rows.
  const double turned_a_ms = kTurned * chip.memory;
  const auto turned = [&](bool turns, const TensorShape& shape) {
    return turns ? kTurn + 2.0 * static_cast<double>(bytes_of(problem, shape)) / turned_a_ms : 0.0;
  };
  const auto thinned = [&] {
    const double all = static_cast<double>(bytes_of(problem, x_shape(problem)));
    const double rows = all / static_cast<double>(problem.stride_h);
    return kTurn + (rows + rows / static_cast<double>(problem.stride_w)) / turned_a_ms;
  };
  if (turns_result(t, problem)) more += kTurn;  // the result's way back
  // One launch turns both.
  if (turns_x(t, problem, p) && turns_y(t, problem, p) && t.form != Form::deepened) more -= kTurn;
  more += t.form == Form::thinned ? thinned() : turned(turns_x(t, problem, p), x_shape(problem));
  // By the bytes, and at a turn's rate: not measured yet.
  more += turned(turns_y(t, problem, p), conv_shape(problem));
  return {std::max(arithmetic, bytes) + kOverlap * std::min(arithmetic, bytes) + more,
          bytes > arithmetic ? Bound::bytes : Bound::arithmetic};
}

namespace {

void list(const Problem& problem, Form form, int multiprocessors, std::vector<Tile>& all) {
  const auto add = [&](Tile t) {
    // As many buffers as there is room for.
    const int most = t.kind == Kind::lines ? 2 : t.pair == Pair::neither ? 8 : 12;
    t.shares = t.cluster, t.stages = 2;
    if (!unfit(t, problem).empty()) return;
    const Problem p = seen(t, problem);
    Config c = config(t, problem, p);
    for (c.stages = most; !has_room(c);) --c.stages;
    t.stages = c.stages;
    const Counts n = counts(t, p, c);
    const auto share = [&](int blocks) {
      const i64 room = filled(t, multiprocessors) * blocks / n.results();
      t.shares = static_cast<int>(std::clamp<i64>(room, t.cluster, n.pixels()) / t.cluster * t.cluster);
      if (t.cluster > 1 && t.parts() > kFewParts) return;
      if (all.empty() || all.back() != t) all.push_back(t);
    };
    share(1);
    // Two a multiprocessor, one after the other or side by side; or one, which leaves room for the next
    // launch's.
    while (c.stages > 3 && !pairs_up(c)) --c.stages;
    if (pairs_up(c)) {
      t.stages = c.stages;
      share(1);
    }
    share(2);
  };
  constexpr int kFlat[][3] = {{1, 64, 1}, {1, 128, 1}, {1, 256, 1}};
  Tile t;
  t.form = form;
  const Problem inner = inner_of(t, problem);
  // Of a group; small ones are merged to 64 output channels.
  const i64 group_k = inner.k / inner.groups, merged = inner.groups > 1 ? std::max<i64>(1, 64 / group_k) : 1;
  const i64 most_k = group_k * merged, most_c = inner.c / inner.groups * merged;
  const bool flat = seen(t, problem).h == 1 && inner.r == 1 && inner.s == 1;
  // With strides a halo patch has many pixels for each tap: taps by themselves may be faster.
  const bool strides = inner.stride_h > 1 || inner.stride_w > 1;
  const std::span<const int[3]> shapes =
      flat ? std::span<const int[3]>(kFlat) : std::span<const int[3]>(kShapes);
  for (const int cluster : {1, 2}) {
    t = Tile{};
    t.form = form, t.cluster = cluster;
    for (const auto& shape : is_of_lines(form) ? std::span<const int[3]>() : shapes) {
      t.height = shape[0], t.width = shape[1], t.images = shape[2];
      if (t.width % 8 != 0 && !leaves_a_rest(inner.q(), t.images)) continue;
      for (const int k : {64, 128, 192, 256}) {
        if (k > 64 && ((inner.r > 1 && !strides) || most_k <= k - 64)) continue;
        for (const int c : {16, 32, 64, 128, 192, 256}) {
          if (c > 64 && ((inner.s > 1 && !strides) || most_c <= c - 64)) continue;
          if (c < 32 && most_c > c) continue;
          if (c == 64 && most_c <= 32) continue;
          t.k = k, t.c = c;
          for (const Kind kind : {Kind::patch, Kind::planes, Kind::fetch}) {
            if (kind != Kind::patch && (!flat || c < 64)) continue;
            // The copy engine brings planes of whole 16 bytes.
            if (kind == Kind::fetch && inner.h * inner.w % 8 == 0) continue;
            t.kind = kind;
            for (const Pair pair : {Pair::neither, Pair::x, Pair::dy}) {
              if (pair != Pair::neither && (!flat || cluster > 1 || kind == Kind::fetch)) continue;
              t.pair = pair;
              add(t);
            }
          }
        }
      }
    }
    const bool two_parts = problem.dtype == DType::f32 && problem.math == Math::f32;
    t.kind = Kind::lines, t.pair = Pair::neither, t.k = 64, t.c = two_parts ? 32 : 64, t.images = 1;
    for (const int bytes : {128, 64}) {
      t.width = bytes / size_of(problem.dtype);
      for (const auto& [height, rows] : {std::pair{8, 5}, std::pair{8, 3}, std::pair{4, 6}}) {
        t.height = height, t.rows = rows;
        add(t);
      }
    }
  }
}

}  // namespace

namespace {

std::vector<Tile> list_all(const Problem& problem, int multiprocessors) {
  std::vector<Tile> all;
  list(problem, Form::plain, multiprocessors, all);
  // Few channels; and of 32 bits the strides that lines do not serve.
  if (rewrites::space_to_depth.applies(problem) && (problem.c <= kFewChannels || problem.dtype == DType::f32))
    list(problem, Form::deepened, multiprocessors, all);
  // Of planes, and of 32 bits, no other way takes a part of the pixels.
  if (rewrites::thin.applies(problem) && (problem.layout == Layout::nchw || problem.dtype == DType::f32))
    list(problem, Form::thinned, multiprocessors, all);
  // Or both tensors would be turned.
  for (const Form form : {Form::widened, Form::runs}) {
    Tile tile;
    tile.form = form, tile.kind = Kind::lines, tile.rows = 5, tile.stages = 2;
    tile.width = 128 / size_of(problem.dtype), tile.c = 32;
    if (problem.r * problem.s > 1 && unfit(tile, problem).empty()) list(problem, form, multiprocessors, all);
  }
  if (!all.empty()) return all;
  // Taps that lie far apart, each by blocks of its own.
  Tile t;
  t.k = t.c = 128;
  for (const auto& shape : kShapes) {
    t.height = shape[0], t.width = shape[1], t.images = shape[2];
    t.stages = 2, t.shares = 1;
    if (!unfit(t, problem).empty()) continue;
    const Problem p = seen(t, problem);
    Config c = config(t, problem, p);
    for (c.stages = 8; !has_room(c);) --c.stages;
    t.stages = c.stages;
    const Counts n = counts(t, p, c);
    t.shares = static_cast<int>(std::clamp<i64>(multiprocessors / n.results(), 1, n.pixels()));
    all.push_back(t);
  }
  return all;
}

}  // namespace

std::vector<Tile> tiles(const Problem& problem, int multiprocessors) {
  // Whoever asks whether there are any asks next which: the last answer is kept.
  struct Answer {
    Problem of;
    int multiprocessors = 0;
    std::vector<Tile> all;
  };
  thread_local Answer last;
  if (last.multiprocessors != multiprocessors || last.of != problem)
    last = {problem, multiprocessors, list_all(problem, multiprocessors)};
  return last.all;
}

}  // namespace faltung::weights_gradient_sm90
