// The one grammar of config names, by which every algorithm prints and parses its free choices:
//
//   config  = part { "_" part }
//   part    = word | key numbers
//   numbers = number { "x" number }
//
// A word says which kind, a key what the numbers after it count; each means the same in every algorithm.
// docs/kernel_names.md lists them as they stand below.
//
// A choice describes itself once, and that prints and parses:
//
//   template <class Name> void spell(Name& name) {
//     name.word(kind, kKinds);            // an enum, one word a value; a value without a word is left out
//     name.key("bt", rows, columns);
//     name.optional("sk", 1, splits);     // left out where it is 1
//   }
#ifndef FALTUNG_SRC_ALGORITHMS_CONFIG_NAME_HPP_
#define FALTUNG_SRC_ALGORITHMS_CONFIG_NAME_HPP_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "faltung/faltung.hpp"
#include "src/problem/text.hpp"

namespace faltung {

struct NameEntry {
  std::string_view text, meaning;
};

inline constexpr NameEntry kNameKeys[] = {
    {"ap", "pixels of the output that results lie apart, across and down, with zeros between"},
    {"bt",
     "block tile: results that a block (work-group) computes, rows x columns or channels x width x height; "
     "of "
     "Winograd's transformed tiles, alone or x channels"},
    {"ch", "channels that a block computes"},
    {"ck", "chunks of 16 bytes of the sum that are taken at a time"},
    {"cl", "blocks of a cluster, which add up their sums"},
    {"f", "Winograd: results that a transformed tile gives, height x width"},
    {"ft", "FFT: side of a transformed tile, in pixels"},
    {"gm", "groups that are merged into one, its filter zero but for the diagonal"},
    {"gt", "groups of a tile, each with products of its own"},
    {"k", "terms of the sum that are taken at a time"},
    {"kb", "Trainium: filters whose weights are in SBUF at a time"},
    {"ln", "lines of an image that a thread keeps in registers"},
    {"ph",
     "phases of a strided backward_data or a transposed convolution: positions within a stride, each with "
     "taps of its own. Columns of a filter as wide as its stride are channels instead: of 2x2 with stride 2 "
     "two are left"},
    {"ra", "areas in shared memory for a consumer's results; with two a residual is brought a tile ahead"},
    {"rs", "buffers of raw rows in shared memory, before they are turned"},
    {"rt", "register tile: rows x SIMD vectors of results; of bf16 pairs (`amx`, `dot`) rows x columns"},
    {"sk", "split of the sum: parts that are summed side by side"},
    {"st", "stages: buffers of both operands in shared memory"},
    {"tp",
     "tile of pixels that are summed at a time: height x width x images; on Trainium, and of groups on "
     "mma.sync, of the result, that a block computes"},
    {"tt", "thread tile: results that a thread computes"},
    {"us", "buffers in shared memory for the stores of a tile"},
    {"v", "elements of a vector load"},
    {"wp", "warps of a block, rows x columns"},
    {"ws", "buffers of weights in shared memory"},
    {"xs", "buffers of pixels in shared memory"},
    {"ys", "buffers of rows of the output's gradient in shared memory"},
};

inline constexpr NameEntry kNameWords[] = {
    {"all", "Winograd: all tiles at once, which the workers share"},
    {"amx", "on AMX's tile registers"},
    {"both", "Trainium: the scalar and the vector engine empty PSUM in turn; else the scalar engine alone"},
    {"co", "the consumers share a tile (cooperative)"},
    {"dot", "by AVX-512's dot product of bf16 pairs"},
    {"ds", "results are stored directly, not through shared memory"},
    {"fetch", "warps bring pixels of 1x1 filters from NCHW, any plane and stride"},
    {"fold", "rewritten: a row of the filter's window becomes channels"},
    {"groups", "a vector holds several groups' channels"},
    {"im2col", "the copy engine gathers pixels, a tap of the filter at a time"},
    {"mx", "pairs of blocks bring the input for each other (multicast)"},
    {"my", "pairs of blocks bring the output's gradient for each other (multicast)"},
    {"nhwc", "rewritten: planes become pixels (NCHW to NHWC)"},
    {"lines", "a row of pixels at a time, read into registers where a tap needs it"},
    {"patch", "halo patches: every tap is a view of one patch"},
    {"plain", "no free choice"},
    {"planes", "the copy engine brings pixels of 1x1 filters from NCHW as it is"},
    {"pp", "the consumers take whole tiles in turn (ping-pong)"},
    {"px", "pixels on the matrix units' M side; else the channels"},
    {"rows", "whole rows of results"},
    {"runs", "rows of the output's gradient, no multiples of 16 bytes, as runs of their planes"},
    {"s2d", "rewritten: blocks of pixels become channels (space to depth)"},
    {"shift", "NCHW as it is: a set of sums for each horizontal tap, shifted when they are added"},
    {"thin", "rewritten: the pixels alone that a 1x1 filter with strides takes"},
    {"turned",
     "NCHW, turned to pixels on the way: halo patches to shared memory; on the CPU planes to a cache"},
    {"walk", "a thread walks down its rows, with the sums that a row of the image is part of"},
    {"whole", "whole planes of NCHW, which are turned to pixels in shared memory"},
    {"wide", "a block is one thread with wide vectors; or rows of the output's gradient are made wider"},
    {"wx", "the filter as it is, transposed by the matrix units (nothing is packed)"},
    {"wres", "weights stay in shared memory (resident)"},
};

// One value of an enum, and its word; an empty word is printed as nothing.
template <class E>
struct NameWord {
  E value;
  std::string_view word;
};

class NameWriter {
 public:
  template <class E>
  void word(E& value, std::span<const NameWord<E>> words) {
    for (const NameWord<E>& w : words) {
      if (w.value == value) part(w.word);
    }
  }
  template <class E, std::size_t kCount>
  void word(E& value, const NameWord<E> (&words)[kCount]) {
    word(value, std::span<const NameWord<E>>(words));
  }
  template <class... Ints>
  void key(std::string_view key, Ints&... numbers) {
    part(key);
    const char* separator = "";
    ((text_ += separator, text_ += std::to_string(numbers), separator = "x"), ...);
  }
  template <class Int>
  void optional(std::string_view key_text, Int absent, Int& number) {
    if (number != absent) key(key_text, number);
  }
  const std::string& text() const { return text_; }

 private:
  void part(std::string_view part) {
    if (part.empty()) return;
    if (!text_.empty()) text_ += '_';
    text_ += part;
  }
  std::string text_;
};

class NameReader {
 public:
  explicit NameReader(std::string_view text);
  template <class E>
  void word(E& value, std::span<const NameWord<E>> words) {
    for (const NameWord<E>& w : words) {
      if (!w.word.empty() && next() == w.word) {
        value = w.value;
        ++at_;
        return;
      }
    }
    for (const NameWord<E>& w : words) {
      if (w.word.empty()) {
        value = w.value;
        return;
      }
    }
    failed_ = true;
  }
  template <class E, std::size_t kCount>
  void word(E& value, const NameWord<E> (&words)[kCount]) {
    word(value, std::span<const NameWord<E>>(words));
  }
  template <class... Ints>
  void key(std::string_view key, Ints&... numbers) {
    std::vector<int> read;
    if (!take(key, sizeof...(numbers), read)) {
      failed_ = true;
      return;
    }
    std::size_t i = 0;
    ((numbers = static_cast<Ints>(read[i++])), ...);
  }
  template <class Int>
  void optional(std::string_view key, Int absent, Int& number) {
    std::vector<int> read;
    number = take(key, 1, read) ? static_cast<Int>(read[0]) : absent;
  }
  // Whether all of the text was read as it was spelled.
  bool done() const { return !failed_ && at_ == parts_.size(); }

 private:
  std::string_view next() const { return at_ < parts_.size() ? parts_[at_] : std::string_view(); }
  // Whether the next part is this key with so many numbers, each of one to four digits and not beginning
  // with 0; then it is taken.
  bool take(std::string_view key, std::size_t count, std::vector<int>& numbers);

  std::vector<std::string> parts_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

// How many texts were read as names in this process, for the test that on the way to a plan none is.
std::size_t names_read();

template <class T>
std::string config_name(T choice) {
  NameWriter writer;
  choice.spell(writer);
  return writer.text();
}

// False if text is not how a T is spelled; choice is then anything.
template <class T>
bool parse_config(std::string_view text, T& choice) {
  NameReader reader(text);
  choice.spell(reader);
  return reader.done() && config_name(choice) == text;
}

// The config of an algorithm that has no free choice: a word.
struct SoleConfig {
  std::string_view word;
  template <class Name>
  void spell(Name& name) {
    const NameWord<int> words[] = {{0, word}};
    int sole = 0;
    name.word(sole, words);
  }
};

// A tile of a table, and among how many blocks each result's sum is shared.
template <class T>
struct TileChoice {
  const T* tile = nullptr;
  int splits = 1;
  std::string name() const {
    NameWriter writer;
    T spelled = *tile;
    int parts = splits;
    spelled.spell(writer);
    writer.optional("sk", 1, parts);
    return writer.text();
  }
};

// The tiles of an algorithm that has a fixed list of them.
template <class T>
class TileTable {
 public:
  // most_splits: 1 where sums are not split.
  constexpr TileTable(std::string_view algorithm, std::span<const T> tiles, int most_splits = 1)
      : algorithm_(algorithm), tiles_(tiles), most_splits_(most_splits) {}

  auto begin() const { return tiles_.begin(); }
  auto end() const { return tiles_.end(); }
  const T& operator[](std::size_t i) const { return tiles_[i]; }

  // Throws Error(bad_problem) that names the nearest, if it is none of these.
  TileChoice<T> parse(std::string_view config) const {
    std::vector<std::string> names;
    for (const T& tile : tiles_) {
      NameReader reader(config);
      T spelled = tile;
      int splits = 1;
      spelled.spell(reader);
      if (most_splits_ > 1) reader.optional("sk", 1, splits);
      const TileChoice<T> choice{&tile, splits};
      if (reader.done() && splits >= 1 && splits <= most_splits_ && choice.name() == config) return choice;
      names.push_back(config_name(tile));
    }
    throw Error(
        Status::bad_problem,
        std::string(algorithm_) + " has no config '" + std::string(config) + "'; the nearest is " +
            nearest(config, names) +
            (most_splits_ > 1 ? ", and _sk2 to _sk" + std::to_string(most_splits_) + " after it split the sum"
                              : ""));
  }

 private:
  std::string_view algorithm_;
  std::span<const T> tiles_;
  int most_splits_;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_CONFIG_NAME_HPP_
