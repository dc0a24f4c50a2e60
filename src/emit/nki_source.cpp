#include "src/emit/nki_source.hpp"

#include <utility>
#include <vector>

#include <fmt/core.h>

#include "src/jit/embedded.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/text.hpp"

namespace faltung::nki {
namespace {

using i64 = std::int64_t;
using Words = std::set<std::string>;

bool holds(std::string_view condition, const Words& words) {
  for (const std::string& either : split(std::string(condition), '|')) {
    bool all = true;
    for (const std::string& part : split(either, '&')) {
      const std::string_view word = trim(part);
      const bool wanted = !word.starts_with('!');
      all = all && (words.count(std::string(word.substr(wanted ? 0 : 1))) != 0) == wanted;
    }
    if (all) return true;
  }
  return false;
}

std::string piece(const char* name, const Words& words) {
  return selected(jit::expanded(fmt::format("#include \"kernels/nki/{}.py\"\n", name)), words);
}

Words words_of(const Problem& p, const Schedule& s) {
  const Epilogue& e = p.epilogue;
  Words words;
  const auto when = [&](bool condition, const char* word) {
    if (condition) words.insert(word);
  };
  when(p.layout == Layout::nhwc, "nhwc");
  when(e.bias, "bias");
  when(e.residual, "residual");
  when(has_pool(p), "pool");
  when(e.pool.kind == PoolKind::max, "max");
  when(e.pool.kind == PoolKind::average, "average");
  when(has_pool(p) && e.pool.size_h * e.pool.size_w == 1, "narrow");
  when(has_pool(p) &&
           (e.pool.pad_top > 0 || e.pool.pad_bottom > 0 || e.pool.pad_left > 0 || e.pool.pad_right > 0),
       "pool_padded");
  when(is_padded(p), "padded");
  when(s.c_part == p.c && s.choice.filters == p.k, "one_part");
  when(s.choice.filters >= s.k_groups, "one_block");
  when(s.choice.cols == p.y_w(), "one_width");
  when(needs_scratch(p), "scratch");
  when(s.choice.emptying == Emptying::both, "both");
  when(s.weights == Schedule::Weights::depthwise, "depthwise");
  when(s.weights == Schedule::Weights::grouped, "grouped");
  when(e.activation == Activation::relu, "relu");
  when(e.activation == Activation::relu6, "relu6");
  when(e.activation == Activation::leaky_relu, "leaky");
  when(e.slope <= 1, "flat");
  when(e.activation == Activation::hardswish, "hardswish");
  when(e.activation != Activation::none && !scalar_activation(e.activation).empty(), "scalar");
  return words;
}

const char* numpy_type(DType dtype) {
  constexpr const char* kNames[] = {"float32", "float16", "bfloat16"};
  return kNames[static_cast<int>(dtype)];
}

std::string shape_text(Layout layout, i64 n, i64 c, i64 h, i64 w) {
  return layout == Layout::nchw ? fmt::format("({}, {}, {}, {})", n, c, h, w)
                                : fmt::format("({}, {}, {}, {})", n, h, w, c);
}

// One line of assignments to each group of names.
std::string constants(const Problem& p, const Schedule& s, const Words& words) {
  const Pool& pool = p.epilogue.pool;
  std::string text;
  const auto line = [&](std::initializer_list<std::pair<const char*, i64>> values, const char* comment = "") {
    std::string names, numbers;
    for (const auto& [name, value] : values) {
      names += (names.empty() ? "" : ", ") + std::string(name);
      numbers += (numbers.empty() ? "" : ", ") + std::to_string(value);
    }
    text += names + " = " + numbers + (*comment == 0 ? "" : std::string("  # ") + comment) + "\n";
  };
  line({{"N", p.n}, {"C", p.c}, {"H", p.h}, {"W", p.w}, {"K", p.k}, {"R", p.r}, {"S", p.s}});
  line({{"P", p.p()}, {"Q", p.q()}, {"Y_H", p.y_h()}, {"Y_W", p.y_w()}}, "of the convolution, and of y");
  line({{"STRIDE_H", p.stride_h},
        {"STRIDE_W", p.stride_w},
        {"DILATION_H", p.dilation_h},
        {"DILATION_W", p.dilation_w},
        {"PAD_TOP", p.pad_top},
        {"PAD_LEFT", p.pad_left}});
  if (words.count("pool") != 0) {
    line({{"POOL_H", pool.size_h},
          {"POOL_W", pool.size_w},
          {"POOL_STRIDE_H", pool.stride_h},
          {"POOL_STRIDE_W", pool.stride_w},
          {"POOL_TOP", pool.pad_top},
          {"POOL_LEFT", pool.pad_left}});
    const bool max = pool.kind == PoolKind::max;
    text +=
        fmt::format("POOL_OP, POOL_FILL, V_DTYPE = {}, nl.{}  # V: between the convolution and the pool\n",
                    !max                    ? "nl.add, 0.0"
                    : p.dtype == DType::f16 ? "nl.maximum, -65504.0"
                                            : "nl.maximum, -3.3895e38",
                    max ? numpy_type(p.dtype) : "float32");
  }
  const std::string scalar = scalar_activation(p.epilogue.activation);
  text += fmt::format("ACTIVATION = {}\n", scalar.empty() ? "nl.copy" : scalar);
  text += "VECTOR, TENSOR, GPSIMD = nisa.engine.vector, nisa.engine.tensor, nisa.engine.gpsimd\n";
  if (words.count("leaky") != 0) text += fmt::format("SLOPE = {:.9g}\n", p.epilogue.slope);
  line({{"C_OF_GROUP", p.c / p.groups},
        {"K_OF_GROUP", p.k / p.groups},
        {"C_PART", s.c_part},
        {"K_GROUPS", s.k_groups},
        {"K_PART", s.choice.filters}},
       "part: one set of weights");
  line({{"IMAGES", s.choice.images}, {"ROWS", s.choice.rows}, {"COLS", s.choice.cols}},
       "of y, that a block computes");
  line({{"C_TILES", s.c_tiles}, {"K_TILES", s.k_tiles}, {"GROUP_ROWS", s.group_rows}},
       "tiles of 128; rows that fill a bank of PSUM");
  if (words.count("pool") != 0 || words.count("residual") != 0) {
    line({{"ROWS_IN", s.rows_in},
          {"COLS_IN", s.cols_in},
          {"ROWS_C", s.window_rows},
          {"COLS_C", s.window_cols}},
         "of x, and of the convolution, that a block reads");
  } else {
    line({{"ROWS_IN", s.rows_in}, {"COLS_IN", s.cols_in}}, "of x, that a block reads");
  }
  line({{"X_BUFFERS", s.x_buffers},
        {"W_BUFFERS", s.w_buffers},
        {"Y_BUFFERS", s.y_buffers},
        {"BANKS", Schedule::kBanks}});
  return text;
}

// Why this schedule: in the words of what it is made of.
std::string reasons(const Problem& p, const Schedule& s, const NkiCore& core, const Prediction& t) {
  std::string text;
  const auto say = [&](const std::string& line) { text += (text.empty() ? "" : " ") + line; };
  if (s.weights == Schedule::Weights::depthwise) {
    say("A depthwise filter is a diagonal matrix for each tap, so that 128 channels are one product.");
  } else if (s.weights == Schedule::Weights::grouped) {
    say(fmt::format("{} groups share a product: their weights lie on its diagonal.",
                    s.c_part / (p.c / p.groups)));
  } else if (s.choice.filters < s.k_groups) {
    say(fmt::format(
        "The weights do not fit SBUF at once: {} filters at a time, and x is read again for each.",
        s.choice.filters));
  } else {
    say(fmt::format("The weights of {} filters are turned once and stay in SBUF.", s.choice.filters));
  }
  const i64 sums = s.choice.images * std::min(s.group_rows, s.conv_rows) * s.conv_cols;
  say(fmt::format(
      "A product streams {} columns, of the 512 that a bank of PSUM holds; {} banks are used in turn.", sums,
      Schedule::kBanks));
  if (s.choice.images > 1) say(fmt::format("{} small images share a bank.", s.choice.images));
  say(fmt::format(
      "Pixels come in blocks of {} x {} x {} of y, {}.", s.choice.images, s.choice.rows, s.choice.cols,
      s.x_buffers > 1 ? "the next ones while these are multiplied" : "one at a time, for two have no room"));
  if (s.choice.emptying == Emptying::both)
    say("The scalar engine alone would be slower than the products: every other bank is the vector "
        "engine's.");
  if (p.layout == Layout::nhwc)
    say("Pixels lie in memory as NHWC and are turned by the tensor engine, on the way in and out.");
  say(fmt::format("SBUF {} of {} bytes a partition; {} instructions once loops are unrolled.", s.sbuf_bytes,
                  core.sbuf_bytes, t.instructions()));
  return text;
}

std::string header(const NkiCore& core, const std::string& problem, const std::string& kernel) {
  return fmt::format(
      "\"\"\"{} for {} ({}), as {}.\n\nEmitted by faltung {}; Apache License 2.0. Never run on hardware by "
      "its makers: every time "
      "is predicted.\n",
      problem, core.words, core.chip, kernel, version());
}

constexpr const char* kImports = "\nimport nki\nimport nki.isa as nisa\nimport nki.language as nl\n\n";

// A paragraph, indented.
std::string folded(const std::string& text) {
  constexpr std::size_t kWidth = 118;
  std::string out, line = " ";
  for (const std::string& word : split(text, ' ')) {
    if (line.size() + 1 + word.size() > kWidth) out += line + "\n", line = " ";
    line += " " + word;
  }
  return out + line + "\n";
}

// Each engine's instructions, what they work on, and how long.
std::string work(const Prediction& t) {
  std::string text = "Work, and predicted us:";
  const char* separator = " ";
  const auto add = [&](const char* engine, const Work& w, const char* unit) {
    text += fmt::format("{}{} {} instr. {} {} {:.1f}", separator, engine, w.instructions, w.amount, unit,
                        w.busy_us);
    separator = ", ";
  };
  constexpr const char* kUnits[] = {"columns", "elements", "elements", "elements", "bytes", "bytes"};
  for (std::size_t e = 0; e < kEngines; ++e) {
    if (t.work[e].instructions > 0) add(name(static_cast<Engine>(e)), t.work[e], kUnits[e]);
  }
  if (t.turning.instructions > 0) add("turning", t.turning, "columns");
  return text + ".";
}

// The arguments at the end of text, one in a line, as few lines as they fit.
void join_arguments(std::string& text) {
  constexpr std::size_t kWidth = 118;
  const std::size_t opened = text.rfind("(\n"), begin = text.rfind('\n', opened) + 1;
  const std::vector<std::string> lines = split(text.substr(opened + 2), '\n');
  const std::string indent(text.find_first_not_of(' ', begin) - begin + 4, ' ');
  std::string joined, folded = indent, line = indent;
  for (std::size_t i = 0; i + 2 < lines.size(); ++i) {
    const std::string argument(trim(lines[i]));
    if (line.size() + 1 + argument.size() > kWidth) folded += "\n" + indent, line = indent;
    folded += (line == indent ? "" : " ") + argument, line += " " + argument;
    joined += (joined.empty() ? "" : " ") + argument;
  }
  const std::string end(trim(lines[lines.size() - 2]));
  const bool fits = opened - begin + 1 + joined.size() + end.size() <= kWidth;
  text.resize(opened + 1);
  text += fits ? joined.substr(0, joined.size() - 1) + end + "\n"
               : "\n" + folded + "\n" + indent.substr(4) + end + "\n";
}

}  // namespace

std::string selected(std::string_view text, const Words& words) {
  constexpr std::string_view kMark = "  #? ", kLoop = "  #: ";
  std::string out;
  std::vector<std::size_t> dropped;  // indents of loops whose bodies stand alone
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (const std::size_t mark = line.rfind(kMark); mark != std::string_view::npos) {
      if (!holds(line.substr(mark + kMark.size()), words)) continue;
      line = line.substr(0, mark);
    }
    const std::size_t indent_of_line = line.find_first_not_of(' ');
    if (indent_of_line != std::string_view::npos) {
      while (!dropped.empty() && indent_of_line <= dropped.back()) dropped.pop_back();
    }
    if (const std::size_t mark = line.rfind(kLoop); mark != std::string_view::npos) {
      if (holds(line.substr(mark + kLoop.size()), words)) {
        dropped.push_back(indent_of_line);
        continue;
      }
      line = line.substr(0, mark);
    }
    if (!line.empty()) line.remove_prefix(4 * dropped.size());
    // Functions that were left out leave no gaps.
    if (line.empty() && out.ends_with("\n\n")) continue;
    out.append(line).append("\n");
    if (const std::string_view last = trim(line); last == "):" || last == ")") join_arguments(out);
  }
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

std::string source(const Problem& p, const Schedule& s, const NkiCore& core, const std::string& kernel) {
  const Words words = words_of(p, s);
  const Prediction t = predict(p, s, core);
  const bool nhwc = p.layout == Layout::nhwc;
  const char* type = numpy_type(p.dtype);
  std::string text = header(core, to_string(p), kernel);
  text += fmt::format("Tensors are {} and contiguous, sums are float32:\n  x {}, w {}", type,
                      shape_text(p.layout, p.n, p.c, p.h, p.w),
                      shape_text(p.layout, p.k, p.c / p.groups, p.r, p.s));
  if (p.epilogue.bias) text += fmt::format(", bias ({},)", p.k);
  if (p.epilogue.residual) text += fmt::format(", residual {}", shape_text(p.layout, p.n, p.k, p.p(), p.q()));
  text += fmt::format(" -> y {}\n", shape_text(p.layout, p.n, p.k, p.y_h(), p.y_w()));
  text += fmt::format("Predicted: {:.4g} ms, {:.1f} % of the core's {:g} TFLOP/s, bound by {}.\n", t.ms,
                      t.mfu, p.dtype == DType::f32 ? core.f32_tflops : core.f16_tflops,
                      t.bound >= Engine::dma_in ? "DMA" : name(t.bound));
  text += folded(work(t)) + folded("Why so: " + reasons(p, s, core, t)) + "\"\"\"\n" + kImports +
          constants(p, s, words);
  std::vector<const char*> pieces = {"tiles", "convolution",
                                     words.count("depthwise") != 0 ? "weights_depthwise" : "weights",
                                     nhwc ? "load_nhwc" : "load_nchw"};
  pieces.push_back("finish");
  if (has_pool(p)) pieces.push_back("pool");
  pieces.insert(pieces.end(), {nhwc ? "store_nhwc" : "store_nchw", "run"});
  for (const char* name : pieces) text += "\n" + piece(name, words);
  return text;
}

bool is_plain_kernel(std::string_view text) {
  return text.starts_with("add:") || text.starts_with("transpose:");
}

std::string plain_source(std::string_view text, const NkiCore& core) {
  const std::vector<std::string> parts = split(std::string(text), ':');
  const bool adds = parts[0] == "add";
  const auto refuse = [&]() -> Error {
    return Error(Status::bad_problem,
                 fmt::format("'{}' is no plain kernel; one is {}, with f32, f16 or bf16", text,
                             adds ? "add:<rows>x<columns>:f16" : "transpose:<batch>x<rows>x<columns>:f16"));
  };
  std::vector<i64> sizes;
  for (const std::string& size : split(parts.size() > 1 ? parts[1] : "", 'x')) {
    if (size.empty() || size.size() > 9 || size.find_first_not_of("0123456789") != std::string::npos)
      throw refuse();
    sizes.push_back(std::stoll(size));
    if (sizes.back() < 1) throw refuse();
  }
  if (parts.size() > 3 || sizes.size() != (adds ? 2u : 3u)) throw refuse();
  DType dtype = DType::f32;
  if (parts.size() == 3) {
    bool known = false;
    for (const DTypeInfo& type : kDTypes) {
      if (parts[2] == type.name) dtype = type.dtype, known = true;
    }
    if (!known) throw refuse();
  }
  // Of a row, what DMA moves at its full rate; SBUF has room for all of it twice.
  const i64 width = std::min<i64>(sizes.back(), (8 << 10) / size_of(dtype));
  std::string out = header(core, std::string(text), parts[0]);
  const char* type = numpy_type(dtype);
  if (adds) {
    out += fmt::format("\na, b and the sum are {}, ({}, {}).\n", type, sizes[0], sizes[1]);
  } else {
    out += fmt::format("\nx is {}, ({}, {}, {}), the result ({}, {}, {}).\n", type, sizes[0], sizes[1],
                       sizes[2], sizes[0], sizes[2], sizes[1]);
  }
  out += std::string("\"\"\"\n") + kImports;
  if (!adds) out += fmt::format("BATCH = {}\n", sizes[0]);
  out += "VECTOR, TENSOR = nisa.engine.vector, nisa.engine.tensor\n";
  out += fmt::format("ROWS, COLS = {}, {}\nWIDTH = {}  # columns at a time\n\n", sizes[sizes.size() - 2],
                     sizes.back(), width);
  return out + piece("tiles", {}) + "\n" + piece(adds ? "add" : "transpose", {});
}

}  // namespace faltung::nki
