// Few input channels with a stride on Hopper's matrix units, as far as no GPU is needed: which words of the
// input and of the filter meet, by the boxes that the copy engine brings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

#include "kernels/sm90/few_channels_config.h"
#include "src/algorithms/algorithm.hpp"
#include "src/backend/nvrtc.hpp"
#include "tests/fake_device.hpp"
#include "tests/machine_code.hpp"

namespace faltung::few_channels_sm90 {
namespace {

using i64 = std::int64_t;

const Target& hopper() {
  static const FakeDevice device("fake:hopper", "sm_90a");
  static const Target target{device.info(), 1};
  return target;
}
const Algorithm& algorithm() { return find_algorithm("few_channels_sm90"); }

Problem parse(const std::string& text) {
  Problem p = parse_problem(text);
  p.math = p.dtype == DType::bf16 ? Math::bf16 : Math::f16;
  return p;
}

// The first launch of a kernel, and what it is told.
struct Kernel {
  Launch launch;
  Config config;
  Params params;
  const TiledMap& map(int argument) const {
    return std::get<TiledMap>(launch.arguments[argument].maps.front().shape);
  }
};
Kernel kernel_of(const Problem& p, const std::string& name) {
  Kernel k{std::get<Launch>(algorithm().candidate(p, name, hopper()).recipe().steps.front().work), {}, {}};
  std::memcpy(&k.params, k.launch.arguments.back().bytes.data(), sizeof k.params);
  Config& c = k.config;
  c.nchw = p.layout == Layout::nchw;
  c.c = static_cast<int>(p.c), c.r = static_cast<int>(p.r), c.s = static_cast<int>(p.s);
  c.stride_h = static_cast<int>(p.stride_h), c.stride_w = static_cast<int>(p.stride_w);
  c.pad_left = static_cast<int>(p.pad_left);
  EXPECT_EQ(std::sscanf(name.c_str(), "bt%dx%dx%d_st%d", &c.channels, &c.width, &c.height, &c.stages), 4);
  return k;
}

std::vector<int> random_tensor(i64 elements, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int> all(static_cast<std::size_t>(elements));
  for (int& v : all) v = static_cast<int>(random() % 7) - 3;
  return all;
}

// What the copy engine brings: zeros outside the tensor.
std::vector<int> box_of(const TiledMap& map, const std::vector<int>& tensor, std::vector<i64> at) {
  std::vector<int> box;
  EXPECT_EQ(at.front() * 2 % 16, 0) << "the copy engine begins at a multiple of 16 bytes";
  i64 count = 1;
  for (int d = 0; d < map.rank; ++d) count *= map.box[d];
  for (i64 i = 0; i < count; ++i) {
    i64 rest = i, from = 0;
    bool inside = true;
    for (int d = 0; d < map.rank; ++d) {
      const i64 index = at[static_cast<std::size_t>(d)] + rest % map.box[d];
      rest /= map.box[d];
      inside = inside && index >= 0 && index < map.size[d];
      from += index * (d == 0 ? 1 : map.stride_bytes[d - 1] / 2);
    }
    box.push_back(inside ? tensor[static_cast<std::size_t>(from)] : 0);
  }
  return box;
}

struct Tile {
  i64 n, h, w;
};
std::vector<Tile> tiles_of(const Params& p, const Config& c) {
  std::vector<Tile> all;
  for (int i = 0; i < p.tiles; ++i) {
    const int row = i / p.tiles_w;
    all.push_back({row / p.tiles_h, row % p.tiles_h * c.height, i % p.tiles_w * c.width});
  }
  return all;
}
std::vector<int> patch_of(const Kernel& k, const Problem& p, const std::vector<int>& x, const Tile& t) {
  const i64 h = t.h * p.stride_h - p.pad_top, w = t.w * p.stride_w - p.pad_left;
  return k.config.nchw ? box_of(k.map(0), x, {w - lead(k.config), h, 0, t.n})
                       : box_of(k.map(0), x, {w * p.c - lead(k.config), h, t.n});
}
// The element of a patch that a term of a result meets.
int meets(const Config& c, const std::vector<int>& patch, int row, int column, int octet, int element) {
  const int bytes = row * c.stride_h * row_bytes(c) + column * pixel_pitch(c) * 2 + octet_place(c, octet);
  return patch.at(static_cast<std::size_t>(bytes / 2 + element));
}

i64 pixel(const Problem& p, i64 n, i64 c, i64 h, i64 w, i64 channels, i64 height, i64 width) {
  return p.layout == Layout::nchw ? ((n * channels + c) * height + h) * width + w
                                  : ((n * height + h) * width + w) * channels + c;
}
i64 weight(const Problem& p, i64 k, i64 r, i64 s, i64 c) {
  return p.layout == Layout::nchw ? ((k * p.c + c) * p.r + r) * p.s + s : ((k * p.r + r) * p.s + s) * p.c + c;
}
// Of every product of the convolution: visit(where in y, in w, in x).
template <class Visit>
void each_product(const Problem& p, const Visit& visit) {
  for (i64 n = 0; n < p.n; ++n)
    for (i64 k = 0; k < p.k; ++k)
      for (i64 h = 0; h < p.p(); ++h)
        for (i64 w = 0; w < p.q(); ++w)
          for (i64 c = 0; c < p.c; ++c)
            for (i64 r = 0; r < p.r; ++r)
              for (i64 s = 0; s < p.s; ++s) {
                const i64 row = h * p.stride_h + r - p.pad_top, column = w * p.stride_w + s - p.pad_left;
                if (row < 0 || row >= p.h || column < 0 || column >= p.w) continue;
                visit(pixel(p, n, k, h, w, p.k, p.p(), p.q()), weight(p, k, r, s, c),
                      pixel(p, n, c, row, column, p.c, p.h, p.w));
              }
}

constexpr const char* kShapes[] = {"n2c3h29w40k16r7s7:st2:pad3:f16:nhwc",
                                   "n2c3h29w48k8r7s7:st2:pad3:f16:nchw",
                                   "n1c3h18w48k24r3s3:st2:pad0.1.0.1:f16:nhwc",
                                   "n1c4h21w30k8r5s5:st2:pad2:bf16:nhwc",
                                   "n1c1h12w32k9r5s7:st1x2:pad2x3:f16:nchw",
                                   "n2c2h9w48k16r6s6:st1x3:pad2:f16:nhwc",
                                   "n1c3h16w32k8r4s4:st4:f16:nchw"};

TEST(FewChannelsSm90, EachResultIsTheSumOfItsProducts) {
  for (const std::string shape : kShapes) {
    const Problem p = parse("fwd:" + shape);
    const std::vector<int> x = random_tensor(p.n * p.c * p.h * p.w, 1),
                           w = random_tensor(p.k * p.c * p.r * p.s, 2);
    std::vector<int> expected(static_cast<std::size_t>(p.n * p.k * p.p() * p.q()));
    each_product(p, [&](i64 to, i64 a, i64 b) {
      expected[static_cast<std::size_t>(to)] +=
          w[static_cast<std::size_t>(a)] * x[static_cast<std::size_t>(b)];
    });
    for (const Candidate& candidate : algorithm().candidates(p, hopper())) {
      const Kernel kernel = kernel_of(p, candidate.config);
      const Config& c = kernel.config;
      ASSERT_EQ(kernel.launch.source.shared_bytes, shared_bytes(c));
      std::vector<int> results(expected.size());
      for (const Tile& t : tiles_of(kernel.params, c)) {
        const std::vector<int> patch = patch_of(kernel, p, x, t);
        for (i64 k = 0; k < p.k; ++k)
          for (int i = 0; i < c.height && t.h + i < p.p(); ++i)
            for (int j = 0; j < c.width && t.w + j < p.q(); ++j) {
              int sum = 0;
              for (int o = 0; o < octets(c); ++o)
                for (int e = 0; e < 8; ++e) {
                  const int at = weight_of(c, o, e), v = meets(c, patch, i, j, o, e);
                  if (at >= 0) sum += v * w[static_cast<std::size_t>(k * filter_elements(c) + at)];
                }
              results[static_cast<std::size_t>(pixel(p, t.n, k, t.h + i, t.w + j, p.k, p.p(), p.q()))] += sum;
            }
      }
      EXPECT_EQ(results, expected) << shape << " " << candidate.config;
    }
  }
}

TEST(FewChannelsSm90, EachWeightsGradientIsTheSumOfItsProducts) {
  for (const std::string shape : kShapes) {
    const Problem p = parse("bwd_w:" + shape);
    const std::vector<int> x = random_tensor(p.n * p.c * p.h * p.w, 3),
                           dy = random_tensor(p.n * p.k * p.p() * p.q(), 4);
    std::vector<int> expected(static_cast<std::size_t>(p.k * p.c * p.r * p.s));
    each_product(p, [&](i64 a, i64 to, i64 b) {
      expected[static_cast<std::size_t>(to)] +=
          dy[static_cast<std::size_t>(a)] * x[static_cast<std::size_t>(b)];
    });
    if (!algorithm().supports(p, hopper()).yes) continue;
    for (const Candidate& candidate : algorithm().candidates(p, hopper())) {
      const Kernel kernel = kernel_of(p, candidate.config);
      const Config& c = kernel.config;
      ASSERT_EQ(kernel.launch.source.shared_bytes, weights_shared_bytes(c));
      std::vector<int> results(expected.size());
      for (const Tile& t : tiles_of(kernel.params, c)) {
        const std::vector<int> patch = patch_of(kernel, p, x, t);
        const std::vector<int> gradient = c.nchw ? box_of(kernel.map(1), dy, {t.w, 0, t.h, t.n})
                                                 : box_of(kernel.map(1), dy, {0, t.w, t.h, t.n});
        for (int k = 0; k < p.k; ++k)
          for (int i = 0; i < c.height; ++i)
            for (int j = 0; j < c.width; ++j) {
              const int at = c.nchw ? (i * kGradientChannels + k) * c.width + j
                                    : (i * c.width + j) * kGradientChannels + k;
              const int v = gradient.at(static_cast<std::size_t>(at));
              for (int o = 0; o < octets(c); ++o)
                for (int e = 0; e < 8; ++e) {
                  const int term = weight_of(c, o, e);
                  if (term < 0) continue;
                  results[static_cast<std::size_t>(k * filter_elements(c) + term)] +=
                      v * meets(c, patch, i, j, o, e);
                }
            }
      }
      EXPECT_EQ(results, expected) << shape << " " << candidate.config;
    }
  }
}

// A row of the gradient times all rows of the filter, whose sums move on by a row of blocks with the next
// one.
TEST(FewChannelsSm90, EachInputsGradientIsTheSumOfItsProducts) {
  int computed = 0;
  for (const std::string shape : kShapes) {
    const Problem p = parse("bwd_d:" + shape);
    if (!algorithm().supports(p, hopper()).yes) continue;
    const std::vector<int> w = random_tensor(p.k * p.c * p.r * p.s, 5),
                           dy = random_tensor(p.n * p.k * p.p() * p.q(), 6);
    std::vector<int> expected(static_cast<std::size_t>(p.n * p.c * p.h * p.w));
    each_product(p, [&](i64 a, i64 b, i64 to) {
      expected[static_cast<std::size_t>(to)] +=
          dy[static_cast<std::size_t>(a)] * w[static_cast<std::size_t>(b)];
    });
    for (const Candidate& candidate : algorithm().candidates(p, hopper())) {
      const Kernel kernel = kernel_of(p, candidate.config);
      const Config& c = kernel.config;
      const Params& params = kernel.params;
      ASSERT_EQ(kernel.launch.source.shared_bytes, data_shared_bytes(c));
      std::vector<int> results(expected.size(), 99);
      for (Tile t : tiles_of(params, c)) {
        t.h += params.first;
        const i64 last = std::min<i64>(t.h + c.height, params.end), first = t.h - (reach_h(c) - 1);
        std::vector<std::vector<int>> sums(kDataWidth,
                                           std::vector<int>(static_cast<std::size_t>(data_columns(c))));
        for (i64 row = first; row < last; ++row) {
          const i64 left = t.w + row_begin(c), skipped = left_pixel(c) - row_begin(c);
          const std::vector<int> gradient =
              box_of(kernel.map(0), dy,
                     c.nchw ? std::vector<i64>{left, 0, row, t.n} : std::vector<i64>{0, left, row, t.n});
          for (int block = 0; block < kDataWidth; ++block) {
            std::vector<int>& all = sums[static_cast<std::size_t>(block)];
            for (int across = 0; across < reach_w(c); ++across)
              for (int k = 0; k < p.k; ++k) {
                const i64 at = block + skipped + reach_w(c) - 1 - across;
                const int v = gradient.at(
                    static_cast<std::size_t>(c.nchw ? k * row_pixels(c) + at : at * kGradientChannels + k));
                for (int column = 0; v != 0 && column < data_columns(c); ++column) {
                  const int weight = data_weight_of(c, across, column);
                  if (weight >= 0)
                    all[static_cast<std::size_t>(column)] +=
                        v * w[static_cast<std::size_t>(k * filter_elements(c) + weight)];
                }
              }
            for (int e = 0; row >= t.h && e < block_elements(c); ++e) {
              const int line = e / line_elements(c), channel = c.nchw ? line % c.c : 0,
                        a = c.nchw ? line / c.c : line;
              const i64 h = row * c.stride_h + a - p.pad_top, of_row = c.nchw ? p.w : p.w * p.c;
              const i64 within = (t.w + block) * line_elements(c) + e % line_elements(c);
              if (h < 0 || h >= p.h || within >= of_row) continue;
              const i64 plane = c.nchw ? t.n * p.c + channel : t.n;
              results[static_cast<std::size_t>((plane * p.h + h) * of_row + within)] =
                  all[static_cast<std::size_t>(e)];
            }
            all.erase(all.begin(), all.begin() + kBlockColumns);
            all.resize(static_cast<std::size_t>(data_columns(c)));
          }
        }
      }
      EXPECT_EQ(results, expected) << shape << " " << candidate.config;
      ++computed;
    }
  }
  EXPECT_GT(computed, 8);
}

// Each chunk of 16 bytes of the filter has a place of its own, swizzled as the matrix units read it.
TEST(FewChannelsSm90, TheFilterLiesSwizzled) {
  Config c;
  std::set<int> places;
  for (int channel = 0; channel < c.channels; ++channel)
    for (int octet = 0; octet < 2 * steps(c); ++octet) {
      const int place = weights_place(c, channel, octet), line = place / 128;
      EXPECT_EQ(line, octet / 8 * c.channels + channel);
      EXPECT_EQ((place / 16 ^ line) % 8, octet % 8);
      EXPECT_LT(place, weights_bytes(c));
      EXPECT_TRUE(places.insert(place).second);
    }
}

// Nor is a place a warp's results have another's.
TEST(FewChannelsSm90, ResultsLieSwizzled) {
  for (const bool nchw : {false, true}) {
    for (const int channels : {32, 64}) {
      Config c;
      c.nchw = nchw, c.channels = channels;
      std::set<int> places;
      for (int row = 0; row < result_rows(c); ++row) {
        for (int chunk = 0; chunk < result_chunks(c); ++chunk) {
          const int place = result_place(c, row, chunk);
          EXPECT_EQ(place / result_pitch(c), row);
          EXPECT_LT(place, result_bytes(c));
          EXPECT_TRUE(places.insert(place).second);
        }
      }
      for (int first = 0; first < result_rows(c); first += 8) {  // that are written at once
        std::set<int> banks;
        for (int row = first; row < first + 8; ++row) banks.insert(result_place(c, row, 0) / 16 % 8);
        EXPECT_EQ(banks.size(), 8u);
      }
    }
  }
}

// What the threads of a warp read at once lies in different banks, or is the same word.
TEST(FewChannelsSm90, WarpsReadEachBankOnce) {
  for (const bool nchw : {false, true}) {
    Config c;
    c.nchw = nchw;
    const auto conflicts = [&](const auto& word_of) {
      std::map<int, std::set<int>> words;
      std::size_t most = 0;
      for (int lane = 0; lane < 32; ++lane) {
        const int word = word_of(lane);
        words[word % 32].insert(word);
        most = std::max(most, words[word % 32].size());
      }
      return most;
    };
    EXPECT_EQ(conflicts([&](int lane) { return lane / 4 * pixel_pitch(c) / 2 + lane % 4; }), 1u);
    if (nchw) c.width = 64, c.height = 4;
    for (int warp = 0; warp < octets(c) / 2; ++warp) {
      const auto word = [&](int lane) {
        const int pair = warp * 8 + lane / 4;
        return octet_place(c, pair / 4) / 4 + pair % 4 + lane % 4 * pixel_pitch(c);
      };
      EXPECT_LE(conflicts(word), nchw ? 1u : 2u) << warp;
    }
  }
}

TEST(FewChannelsSm90, SaysWhatItDoesNotTake) {
  const auto why = [](const char* text) { return algorithm().supports(parse(text), hopper()).why; };
  using testing::HasSubstr;
  EXPECT_EQ(why("fwd:n1c3h224w224k64r7s7:st2:pad3:f16:nhwc"), "");
  EXPECT_THAT(why("fwd:n1c3h224w224k64r3s3:pad1:f16:nhwc"), HasSubstr("is no word"));
  EXPECT_THAT(why("fwd:n1c3h224w222k64r7s7:st2:pad3:f16:nchw"), HasSubstr("multiples of 8"));
  EXPECT_THAT(why("fwd:n1c3h224w224k60r7s7:st2:pad3:f16:nhwc"), HasSubstr("multiples of 8"));
  EXPECT_THAT(why("fwd:n1c16h32w32k64r7s7:st2:pad3:f16:nhwc"), HasSubstr("up to 192 weights"));
  EXPECT_THAT(why("fwd:n1c3h224w224k64r11s3:st2:pad3:f16:nchw"), HasSubstr("operands of 12"));
  EXPECT_THAT(why("fwd:n1c3h224w224k64r7s7:st2:pad3:residual:f16:nhwc"), HasSubstr("no residual"));
  EXPECT_EQ(why("bwd_d:n1c3h224w224k64r7s7:st2:pad3:f16:nchw"), "");
  EXPECT_THAT(why("bwd_d:n1c3h224w224k96r7s7:st2:pad3:f16:nhwc"), HasSubstr("up to 64 output channels"));
  EXPECT_THAT(why("bwd_d:n1c3h224w224k64r4s4:st4:f16:nhwc"), HasSubstr("16 at most"));
  EXPECT_THAT(why("fwd:n1c4h224w224k64r3s3:st2:dil2:f16:nhwc"), HasSubstr("no dilation"));
  // The kernel reckons in 32 bits where in the padding a tile begins.
  EXPECT_EQ(why("fwd:n1c1h8w8k64r1s1:st8:pad0.0.0.1073741752:f16:nchw"), "");
  EXPECT_THAT(why("fwd:n1c1h8w8k64r1s1:st8:pad0.0.0.4294967288:f16:nchw"), HasSubstr("more than 2^30"));
}

// One product of 64 rows a step, nothing spilled, and none waits for another.
TEST(FewChannelsSm90, NvrtcMakesGoodKernels) {
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  for (const char* text :
       {"fwd:n32c3h224w224k64r7s7:st2:pad3:f16:nhwc", "fwd:n32c3h224w224k64r7s7:st2:pad3:bias:silu:bf16:nchw",
        "fwd:n8c3h224w224k32r3s3:st2:pad0.1.0.1:f16:nhwc", "bwd_w:n32c3h224w224k64r7s7:st2:pad3:f16:nhwc",
        "bwd_w:n32c3h224w224k64r7s7:st2:pad3:bf16:nchw", "bwd_d:n32c3h224w224k64r7s7:st2:pad3:f16:nhwc",
        "bwd_d:n32c3h224w224k64r7s7:st2:pad3:bf16:nchw"}) {
    const Problem p = parse(text);
    for (const Candidate& candidate : algorithm().candidates(p, hopper())) {
      const Kernel kernel = kernel_of(p, candidate.config);
      const Binary binary = Nvrtc::get()->compile(kernel.launch.source.whole(), "sm_90a");
      EXPECT_THAT(binary.log, testing::HasSubstr(" 0 bytes spill stores, 0 bytes spill loads")) << text;
      EXPECT_THAT(binary.log, testing::Not(testing::HasSubstr("C75"))) << text << " " << candidate.config;
      const Config& c = kernel.config;
      EXPECT_EQ(count_instructions(binary.code, kHgmma), p.direction == Direction::forward ? steps(c)
                                                         : p.direction == Direction::backward_data
                                                             ? reach_w(c) * 4
                                                             : c.height * c.width / kColumns)
          << text << " " << candidate.config;
    }
  }
}

}  // namespace
}  // namespace faltung::few_channels_sm90
