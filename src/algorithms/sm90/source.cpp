// The text of Hopper's kernels: what each is specialised by, wgmma as a function, and the files that it is
// made of.
#include "src/algorithms/sm90/source.hpp"

#include <fmt/core.h>

#include <string>

#include "src/algorithms/sm90/bring.hpp"
#include "src/algorithms/sm90/wgmma.hpp"
#include "src/problem/dtype.hpp"

namespace faltung::sm90 {
namespace {

using std::string;

// The files of kernels/sm90/bring and kernels/sm90/store, which are called as the ways are.
const char* bring_name(Bring bring) {
  switch (bring) {
    case Bring::patch:
      return "patch";
    case Bring::im2col:
      return "im2col";
    case Bring::planes:
      return "planes";
    case Bring::fetch:
      return "fetch";
    case Bring::turned:
      return "turned";
    case Bring::lines:
      return "lines";
    case Bring::shift:
      break;
  }
  return "shift";
}
const char* way_name(Way way) {
  switch (way) {
    case Way::bulk:
      return "bulk";
    case Way::rows:
      return "rows";
    case Way::planes:
      return "planes";
    case Way::images:
      return "images";
    case Way::values:
      return "values";
    case Way::pairs:
      return "pairs";
    case Way::direct:
      return "direct";
    case Way::plain:
      return "plain";
    case Way::split:
      return "split";
    case Way::shift:
      break;
  }
  return "shift";
}

string include(const string& file) { return "#include \"kernels/sm90/" + file + "\"\n"; }

string what_brings(const Tiling& t, const KernelConfig& c, const Problem& p) {
  if (t.bring == Bring::im2col && takes_every_pixel(p)) return include("bring/pixels.cuh");
  if (alternates(t, p)) return include("bring/alternating.cuh");
  return include(string("bring/") + bring_name(t.bring) + (c.turns_16_bits() ? "_16" : "") + ".cuh");
}
string store_file(const Tiling& t, const KernelConfig& c) {
  return string("store/") + (t.apart > 1 ? "apart" : way_name(c.way)) + ".cuh";
}

// A function config() whose statements fill in what differs from a KernelConfig's defaults.
class KernelConfigText {
 public:
  explicit KernelConfigText(const KernelConfig& c) {
    const Choices& t = c.tile;
    line("tile.bring", string("Bring::") + bring_name(t.bring));
    line("tile.schedule", t.cooperative() ? "Schedule::cooperative" : "Schedule::ping_pong");
    line("tile.m_side", t.pixels_on_m() ? "MSide::pixels" : "MSide::channels");
    line("tile.weights_in", t.resident() ? "WeightsIn::resident" : "WeightsIn::ring");
    line("tile.stores", t.stores == Stores::direct ? "Stores::direct" : "Stores::staged");
    line("tile.channels", t.channels), line("tile.width", t.width), line("tile.height", t.height);
    line("tile.k_block", t.k_block);
    line("tile.pixel_slots", t.pixel_slots), line("tile.weight_slots", t.weight_slots);
    line("tile.filter", t.filter_as_it_is() ? "Filter::as_it_is" : "Filter::packed");
    line("tile.phases", t.phases), line("tile.groups", t.groups);
    line("tile.row_slots", t.row_slots), line("tile.store_slots", t.store_slots);
    line("tile.result_areas", t.result_areas), line("tile.split", t.split);
    line("element", c.element == Element::f32    ? "Element::f32"
                    : c.element == Element::bf16 ? "Element::bf16"
                                                 : "Element::f16");
    if (c.phase_order == PhaseOrder::in_turn) line("phase_order", "PhaseOrder::in_turn");
    line("grouped", c.grouped), line("parts", c.parts), line("nchw", c.nchw);
    line("r", c.r), line("s", c.s);
    line("volume", c.volume), line("t", c.t), line("dilation_d", c.dilation_d);
    line("dilation_h", c.dilation_h), line("dilation_w", c.dilation_w);
    line("stride_h", c.stride_h), line("stride_w", c.stride_w);
    line("pad_left", c.pad_left), line("kept_weights", c.kept_weights);
    line("slopes", c.slopes);
    line("bias", c.bias), line("f32_bias", c.f32_bias), line("residual", c.residual),
        line("residual_after", c.residual_after);
    line("gates", c.gates);
    if (c.relu) line("relu", 1);
    if (c.stats) line("stats", 1);
    if (c.affine) line("affine", 1), line("affine_relu", c.affine_relu), line("affine_pads", c.affine_pads);
    line("pooling", c.pooling == Pooling::max    ? "Pooling::max"
                    : c.pooling == Pooling::none ? "Pooling::none"
                                                 : "Pooling::average");
    line("pool_window", c.pool_window), line("pool_pad", c.pool_pad);
    line("pool_end_h", c.pool_end_h), line("pool_end_w", c.pool_end_w);
    line("way", string("Way::") + way_name(c.way));
    line("mapped", c.mapped), line("whole_sectors", c.whole_sectors);
    line("pixels_a_store", c.pixels_a_store), line("even_images", c.even_images);
    line("pixels_a_load", c.pixels_a_load), line("load_step", c.load_step), line("odd_images", c.odd_images);
    line("pixels_a_turn", c.pixels_a_turn), line("row_pitch", c.row_pitch);
    line("rows_whole", c.rows_whole), line("rows_begin_alike", c.rows_begin_alike);
    line("walks", c.walks);
  }
  string text() const {
    return "__device__ constexpr faltung::sm90::KernelConfig config() {\n  using namespace faltung::sm90;\n"
           "  KernelConfig c;\n" +
           lines_ + "  return c;\n}\nconstexpr faltung::sm90::KernelConfig kConfig = config();\n";
  }

 private:
  void line(const char* field, const string& value) {
    lines_ += "  c." + string(field) + " = " + value + ";\n";
  }
  void line(const char* field, const char* value) { line(field, string(value)); }
  void line(const char* field, int value) { line(field, std::to_string(value)); }
  string lines_;
};

// Of 16-bit NCHW as it is the rows, or columns, lie side by side, not the depth.
string mma_function(const KernelConfig& c, DType dtype) {
  const Choices& t = c.tile;
  const bool as_it_is = t.bring == Bring::planes || t.bring == Bring::fetch || t.bring == Bring::shift;
  const bool first = t.pixels_on_m() ? as_it_is : t.filter_as_it_is(),
             second = t.pixels_on_m() ? t.filter_as_it_is() : as_it_is;
  const string transposed = string(first ? ", 1" : ", 0") + (second ? ", 1" : ", 0");
  return wgmma_function(columns(c), dtype, First::shared, dtype == DType::f32 ? "" : transposed);
}

// The file of the kernel's function, which is called as that is. Both of what brings pixels and of what
// stores results there is one for implicit_gemm alone.
string entry_of(const Tiling& t, const Problem& p) {
  if (t.bring == Bring::shift) return "shift_gemm";
  if (t.bring == Bring::lines) return "lines_gemm";
  return t.bring == Bring::planes && planes::in_registers(p) ? "planes_gemm" : "implicit_gemm";
}

}  // namespace

// What is quick and its file: GELU's is one of its own, so that kernels without it stay the programs that
// they were.
string activate_function(const Epilogue& e, DType dtype) {
  const ActivationCall call = activation_of(e);
  const Activation activation = call.kind;
  const bool gelu = activation == Activation::gelu && dtype != DType::f32;
  const bool quick =
      gelu || activation == Activation::relu ||
      (dtype != DType::f32 && (activation == Activation::sigmoid || activation == Activation::silu));
  const string numbers = activation == Activation::clip ? fmt::format("{:a}f, {:a}f", call.a, call.b)
                         : quick                        ? "slope"
                                                        : "slope, 0.0f";
  return (gelu ? include("gelu.cuh") : "") +
         "__device__ __forceinline__ float activate(float x, float slope) { return " +
         (quick ? "quick_" : "activate_") + name(activation) + "(x, " + numbers + "); }\n";
}

jit::Source kernel_source(const Tiling& t, const Problem& p, PhaseOrder order) {
  KernelConfig c = kernel_config(t, p);
  c.phase_order = order;
  jit::Source source;
  source.name = "implicit_gemm_sm90/" + to_string(t);
  source.entry = entry_of(t, p);
  source.block_threads = threads(t, p);
  source.shared_bytes = shared_bytes(t, p);
  source.text = include("config.h") + KernelConfigText(c).text() + include("activations.cuh") +
                activate_function(p.epilogue, p.dtype) + mma_function(c, p.dtype);
  if (source.entry == "planes_gemm" || source.entry == "lines_gemm")
    source.text += wgmma_function(columns(c), p.dtype, First::registers, "");
  if (source.entry == "lines_gemm")
    source.text += include(t.split > 1 ? "lines_split.cuh" : "lines_store.cuh");
  if (source.entry == "implicit_gemm") source.text += what_brings(t, c, p) + include(store_file(t, c));
  source.text += include(source.entry + ".cu");
  return source;
}

}  // namespace faltung::sm90
