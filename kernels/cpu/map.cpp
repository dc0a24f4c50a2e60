#include "kernels/cpu/map.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/each_target.hpp"

#include <hwy/contrib/math/math-inl.h>
#include "kernels/cpu/map_copy-inl.hpp"
#include "kernels/cpu/map_grid.hpp"
#include "kernels/cpu/vec-inl.hpp"
#include "src/problem/dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace {

using V = FloatVec;

template <class F>
HWY_INLINE V vec_by_lanes(V x, V y, const F& f) {
  HWY_ALIGN float a[kFloatLanes], b[kFloatLanes];
  const FloatTag d;
  hn::Store(x, d, a);
  hn::Store(y, d, b);
  for (int i = 0; i < kFloatLanes; ++i) a[i] = f(a[i], b[i]);
  return hn::Load(d, a);
}
HWY_INLINE V vec_pow(V x, V y) {
  return vec_by_lanes(x, y, [](float a, float b) { return std::pow(a, b); });
}
HWY_INLINE V vec_fmod(V x, V y) {
  return vec_by_lanes(x, y, [](float a, float b) { return std::fmod(a, b); });
}

// Highway's logarithm is of what is positive and finite.
HWY_INLINE V vec_log(V x) {
  const FloatTag d;
  const V beyond = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(hn::Inf(d)), hn::NaN(d));
  return hn::IfThenElse(hn::Lt(hn::Zero(d), x), hn::IfThenElse(hn::Lt(x, hn::Inf(d)), hn::Log(d, x), x),
                        beyond);
}

// Its sine and cosine are of angles up to 39000: others, and NaN, go one by one.
template <class Fast, class Exact>
HWY_INLINE V vec_turned(V x, const Fast& fast, const Exact& exact) {
  const FloatTag d;
  if (hn::AllTrue(d, hn::Lt(hn::Abs(x), hn::Set(d, 39000.0f)))) return fast(x);
  HWY_ALIGN float all[kFloatLanes];
  hn::Store(x, d, all);
  for (float& angle : all) angle = exact(angle);
  return hn::Load(d, all);
}
HWY_INLINE V vec_sin(V x) {
  return vec_turned(
      x, [](V v) HWY_ATTR { return hn::Sin(FloatTag(), v); }, [](float v) { return std::sin(v); });
}
HWY_INLINE V vec_cos(V x) {
  return vec_turned(
      x, [](V v) HWY_ATTR { return hn::Cos(FloatTag(), v); }, [](float v) { return std::cos(v); });
}

// An instruction on count elements. Registers are padded to whole vectors; the last result may lie in memory
// that is not.
template <class Op>
HWY_INLINE void each(i64 count, float* to, const float* x, const float* y, const float* z, const Op& op) {
  const FloatTag d;
  i64 i = 0;
  for (; i + kFloatLanes <= count; i += kFloatLanes)
    hn::StoreU(op(hn::LoadU(d, x + i), hn::LoadU(d, y + i), hn::LoadU(d, z + i)), d, to + i);
  if (i == count) return;
  const int rest = static_cast<int>(count - i);
  store_part<DType::f32>(op(load_part<DType::f32>(x + i, rest), load_part<DType::f32>(y + i, rest),
                            load_part<DType::f32>(z + i, rest)),
                         to + i, rest);
}

HWY_INLINE void run_instruction(const MapInstruction& in, i64 count, float* to, const float* px,
                                const float* py, const float* pz) {
  const FloatTag d;
  [[maybe_unused]] const V a = hn::Set(d, in.a), b = hn::Set(d, in.b);
#define F_C(v) hn::Set(d, v)
#define F_LT(p, q, yes, no) hn::IfThenElse(hn::Lt(p, q), yes, no)
#define F_EQ(p, q, yes, no) hn::IfThenElse(hn::Eq(p, q), yes, no)
#define F_EXP(v) (kAlone ? vec_exp(v) : vec_exp_beside_one(v))
#define F_LOG(v) vec_log(v)
#define F_ERF(v) vec_erf(v)
#define F_TANH(v) vec_tanh(v)
#define F_SIN(v) vec_sin(v)
#define F_COS(v) vec_cos(v)
#define F_SQRT(v) hn::Sqrt(v)
#define F_ABS(v) hn::Abs(v)
#define F_FLOOR(v) hn::Floor(v)
#define F_CEIL(v) hn::Ceil(v)
#define F_ROUND(v) hn::Round(v)
#define F_POW(p, q) vec_pow(p, q)
#define F_FMOD(p, q) vec_fmod(p, q)
#define F_MIN(p, q) hn::IfThenElse(hn::Lt(p, q), p, q)
#define F_MAX(p, q) hn::IfThenElse(hn::Lt(q, p), p, q)
  switch (in.op) {
#define FALTUNG_MAP(op, inputs, value)                                                           \
  case MapOp::op:                                                                                \
    return each(count, to, px, inputs > 1 ? py : px, inputs > 2 ? pz : px,                       \
                [&]([[maybe_unused]] V x, [[maybe_unused]] V y, [[maybe_unused]] V z) HWY_ATTR { \
                  [[maybe_unused]] constexpr bool kAlone = MapOp::op == MapOp::exp;              \
                  return value;                                                                  \
                });
#include "kernels/common/map_ops.inc"
#undef FALTUNG_MAP
  }
#undef F_C
#undef F_LT
#undef F_EQ
#undef F_EXP
#undef F_LOG
#undef F_ERF
#undef F_TANH
#undef F_SIN
#undef F_COS
#undef F_SQRT
#undef F_ABS
#undef F_FLOOR
#undef F_CEIL
#undef F_ROUND
#undef F_POW
#undef F_FMOD
#undef F_MIN
#undef F_MAX
}

// How many instructions from this one on are one pass: differences that are scaled, what is scaled and
// shifted, or both in turn, as a norm's end is, where each alone reads the result of the one before.
std::size_t in_one_pass(const std::vector<MapInstruction>& program, std::size_t first) {
  const auto follows = [&](std::size_t i, MapOp before, MapOp op) {
    if (i >= program.size() || program[i - 1].op != before || program[i].op != op) return false;
    const std::uint8_t result = program[i - 1].to;
    if (program[i].x != result || program[i].y == result) return false;
    return std::none_of(
        program.begin() + static_cast<i64>(i) + 1, program.end(),
        [&](const MapInstruction& in) { return in.x == result || in.y == result || in.z == result; });
  };
  if (follows(first + 1, MapOp::mul, MapOp::add)) return 2;
  if (!follows(first + 1, MapOp::sub, MapOp::mul)) return 1;
  return follows(first + 2, MapOp::mul, MapOp::mul) && follows(first + 3, MapOp::mul, MapOp::add) ? 4 : 2;
}
HWY_INLINE void run_pass(const MapInstruction* in, std::size_t instructions, i64 count, float* to,
                         const float* const* value) {
  const float *const x = value[in[0].x], *const y = value[in[0].y], *const z = value[in[1].y];
  if (in[0].op == MapOp::mul)
    return each(count, to, x, y, z, [](V a, V b, V c) HWY_ATTR { return hn::MulAdd(a, b, c); });
  if (instructions == 2)
    return each(count, to, x, y, z, [](V a, V b, V c) HWY_ATTR { return hn::Mul(hn::Sub(a, b), c); });
  const FloatTag d;
  const float *const scale = value[in[2].y], *const shift = value[in[3].y];
  i64 i = 0;
  for (; i + kFloatLanes <= count; i += kFloatLanes) {
    const V standard = hn::Mul(hn::Sub(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), hn::LoadU(d, z + i));
    hn::StoreU(hn::MulAdd(standard, hn::LoadU(d, scale + i), hn::LoadU(d, shift + i)), d, to + i);
  }
  for (; i < count; ++i) to[i] = (x[i] - y[i]) * z[i] * scale[i] + shift[i];
}

HWY_INLINE float load_number(MapElement element, const std::byte* from) {
  switch (element) {
    case MapElement::f32:
      return *reinterpret_cast<const float*>(from);
    case MapElement::boolean:
      return *from != std::byte{0} ? 1.0f : 0.0f;
    case MapElement::i32:
      return static_cast<float>(*reinterpret_cast<const std::int32_t*>(from));
    case MapElement::i64:
      return static_cast<float>(*reinterpret_cast<const i64*>(from));
    case MapElement::f16:
      return f16_to_float(*reinterpret_cast<const std::uint16_t*>(from));
    case MapElement::bf16:
      return bf16_to_float(*reinterpret_cast<const std::uint16_t*>(from));
  }
  return 0;
}

HWY_INLINE void store_number(MapElement element, std::byte* to, float value) {
  switch (element) {
    case MapElement::f32:
      *reinterpret_cast<float*>(to) = value;
      return;
    case MapElement::boolean:
      *to = value != 0 ? std::byte{1} : std::byte{0};
      return;
    case MapElement::i32:
      *reinterpret_cast<std::int32_t*>(to) =
          static_cast<std::int32_t>(std::clamp(value, -2147483648.0f, 2147483520.0f));
      return;
    case MapElement::i64:
      *reinterpret_cast<i64*>(to) = static_cast<i64>(std::clamp(value, -9.2233715e18f, 9.2233715e18f));
      return;
    case MapElement::f16:
      *reinterpret_cast<std::uint16_t*>(to) = float_to_f16(value);
      return;
    case MapElement::bf16:
      *reinterpret_cast<std::uint16_t*>(to) = float_to_bf16(value);
      return;
  }
}

// Elements of 16 bits that lie one after the other, as floats and back.
template <DType kType>
HWY_INLINE void widen(const std::byte* from, i64 count, float* to) {
  i64 i = 0;
  for (; i + kFloatLanes <= count; i += kFloatLanes)
    hn::StoreU(load_vec<kType>(from + 2 * i), FloatTag(), to + i);
  if (i < count)
    store_part<DType::f32>(load_part<kType>(from + 2 * i, static_cast<int>(count - i)), to + i,
                           static_cast<int>(count - i));
}
template <DType kType>
HWY_INLINE void narrow(const float* from, i64 count, std::byte* to) {
  i64 i = 0;
  for (; i + kFloatLanes <= count; i += kFloatLanes)
    store_vec<kType>(hn::LoadU(FloatTag(), from + i), to + 2 * i);
  if (i < count)
    store_part<kType>(load_part<DType::f32>(from + i, static_cast<int>(count - i)), to + 2 * i,
                      static_cast<int>(count - i));
}

// rows × columns elements of an operand one after the other.
HWY_INLINE void gather(const MapOperand& o, const std::byte* from, i64 row_stride, i64 stride, i64 rows,
                       i64 columns, float* to) {
  const i64 size = static_cast<i64>(size_of(o.element));
  for (i64 r = 0; r < rows; ++r, to += columns) {
    const std::byte* const row = from + r * row_stride * size;
    if (stride == 0) {
      std::fill_n(to, columns, load_number(o.element, row));
    } else if (stride == 1 && o.element == MapElement::f32) {
      std::memcpy(to, row, static_cast<std::size_t>(columns) * sizeof(float));
    } else if (stride == 1 && o.element == MapElement::f16) {
      widen<DType::f16>(row, columns, to);
    } else if (stride == 1 && o.element == MapElement::bf16) {
      widen<DType::bf16>(row, columns, to);
    } else {
      for (i64 i = 0; i < columns; ++i) to[i] = load_number(o.element, row + i * stride * size);
    }
  }
}

// The other way, of elements that lie one after the other.
HWY_INLINE void scatter_rows(const MapOperand& o, std::byte* to, i64 row_stride, i64 stride, i64 rows,
                             i64 columns, const float* from) {
  const i64 size = static_cast<i64>(size_of(o.element));
  for (i64 r = 0; r < rows; ++r, from += columns) {
    std::byte* const row = to + r * row_stride * size;
    if (stride == 1 && o.element == MapElement::f32) {
      std::memcpy(row, from, static_cast<std::size_t>(columns) * sizeof(float));
    } else if (stride == 1 && o.element == MapElement::f16) {
      narrow<DType::f16>(from, columns, row);
    } else if (stride == 1 && o.element == MapElement::bf16) {
      narrow<DType::bf16>(from, columns, row);
    } else {
      for (i64 i = 0; i < columns; ++i) store_number(o.element, row + i * stride * size, from[i]);
    }
  }
}

constexpr i64 kLine = 64;  // bytes

// The program over a part of a matrix of elements; at: where that begins in each operand.
void compute(const MapCall& call, const MapPart& part, const std::byte* const* inputs, std::byte* output,
             const MapAhead& ahead) {
  HWY_ALIGN float registers[kMapRegisters][kMapStrip];
  const float* value[kMapRegisters];
  // What a broadcast operand holds stays from strip to strip.
  bool filled[kMapRegisters] = {};
  const int last = call.rank - 1;
  const i64 strip_rows = std::max<i64>(1, kMapStrip / part.columns);
  const MapOperand& out = call.output;
  const i64 out_row = part.row_stride(out), out_stride = out.strides[static_cast<std::size_t>(last)];
  // One instruction on what lies in rows needs no registers: a row is a strip, however long.
  const auto lies = [&](const MapOperand& o) {
    return o.element == MapElement::f32 && o.strides[static_cast<std::size_t>(last)] == 1;
  };
  const bool rows_are_strips = strip_rows == 1 && call.program.size() == 1 && lies(out) &&
                               std::all_of(call.inputs.begin(), call.inputs.end(), lies);
  const i64 strip_columns = rows_are_strips ? part.columns : kMapStrip;
  std::size_t passes[kMapRegisters];  // instructions that are one, from each on
  for (std::size_t i = 0; i < call.program.size(); ++i) passes[i] = in_one_pass(call.program, i);
  i64 done = 0;
  for (i64 row = 0; row < part.rows; row += strip_rows) {
    const i64 rows = std::min(strip_rows, part.rows - row);
    for (i64 column = 0; column < part.columns; column += strip_columns) {
      const i64 columns = std::min(strip_columns, part.columns - column), count = rows * columns;
      if (ahead.from != nullptr) {
        const i64 end = (done + count) * static_cast<i64>(sizeof(float));
        for (i64 at = done * static_cast<i64>(sizeof(float)); at < end; at += kLine) {
          __builtin_prefetch(ahead.from + at, 0, 2);
          if (ahead.to != nullptr) __builtin_prefetch(ahead.to + at, 1, 3);
        }
        done += count;
      }
      for (std::size_t i = 0; i < call.inputs.size(); ++i) {
        const MapOperand& o = call.inputs[i];
        const i64 row_stride = part.row_stride(o), stride = o.strides[static_cast<std::size_t>(last)];
        const std::byte* const from = inputs[i] + (part.offset(o) + row * row_stride + column * stride) *
                                                      static_cast<i64>(size_of(o.element));
        const bool direct =
            o.element == MapElement::f32 && stride == 1 && (rows == 1 || row_stride == columns);
        const bool stays =
            stride == 0 ? row_stride == 0 || column > 0 : row_stride == 0 && part.columns <= kMapStrip;
        value[i] = direct ? reinterpret_cast<const float*>(from) : registers[i];
        if (direct || (stays && filled[i])) continue;
        gather(o, from, row_stride, stride, row_stride == 0 && stays ? strip_rows : rows, columns,
               registers[i]);
        filled[i] = (stays || stride == 0) && columns == std::min(kMapStrip, part.columns);
      }
      std::byte* const to = output + (part.offset(out) + row * out_row + column * out_stride) *
                                         static_cast<i64>(size_of(out.element));
      const bool direct =
          out.element == MapElement::f32 && out_stride == 1 && (rows == 1 || out_row == columns);
      for (std::size_t i = 0; i < call.program.size(); ++i) {
        const MapInstruction* const first = &call.program[i];
        i += passes[i] - 1;
        const MapInstruction& in = call.program[i];
        float* const result =
            direct && &in == &call.program.back() ? reinterpret_cast<float*>(to) : registers[in.to];
        if (first != &in) {
          run_pass(first, static_cast<std::size_t>(&in - first) + 1, count, result, value);
          value[in.to] = result;
          continue;
        }
        if (in.op == MapOp::copy && result == registers[in.to]) {  // where it lies
          value[in.to] = value[in.x];
          continue;
        }
        run_instruction(in, count, result, value[in.x], value[in.y], value[in.z]);
        value[in.to] = result;
      }
      if (!direct) scatter_rows(out, to, out_row, out_stride, rows, columns, value[call.program.back().to]);
    }
  }
}

}  // namespace

void MapTask(const MapCall& call, const std::byte* const* inputs, std::byte* output, i64 task,
             const MapAhead& ahead) {
  const MapPart part = map_part(call, task);
  if (call.program.empty()) return copy(call, part, inputs[0], output);
  compute(call, part, inputs, output, ahead);
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace faltung {

HWY_EXPORT(MapTask);

std::int64_t map_tasks(const MapCall& call) {
  const MapGrid grid(call);
  return grid.outer * grid.row_parts * grid.column_parts;
}

void map_task(const MapCall& call, const std::byte* const* inputs, std::byte* output, std::int64_t task) {
  map_task_ahead(call, inputs, output, task, {});
}
void map_task_ahead(const MapCall& call, const std::byte* const* inputs, std::byte* output, std::int64_t task,
                    const MapAhead& ahead) {
  HWY_DYNAMIC_DISPATCH(MapTask)(call, inputs, output, task, ahead);
}

}  // namespace faltung
#endif  // HWY_ONCE
