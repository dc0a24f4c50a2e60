#include "kernels/cpu/rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/each_target.hpp"
#include "kernels/cpu/map_grid.hpp"

#include "kernels/cpu/vec-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace {

using V = FloatVec;

HWY_INLINE V load(const float* from, i64 count) {
  return count >= kFloatLanes ? hn::LoadU(FloatTag(), from)
                              : load_part<DType::f32>(from, static_cast<int>(count));
}
HWY_INLINE void store(V v, float* to, i64 count) {
  if (count >= kFloatLanes) return hn::StoreU(v, FloatTag(), to);
  store_part<DType::f32>(v, to, static_cast<int>(count));
}

// A NaN on either side comes out.
HWY_INLINE V larger(V a, V b) { return hn::IfThenElse(hn::Or(hn::IsNaN(b), hn::Gt(b, a)), b, a); }
HWY_INLINE V smaller(V a, V b) { return hn::IfThenElse(hn::Or(hn::IsNaN(b), hn::Lt(b, a)), b, a); }

template <RowsOp kOp>
HWY_INLINE V start() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kOfSums = kOp == RowsOp::product ? 1 : 0;
  return hn::Set(FloatTag(), kOp == RowsOp::max ? -kInfinity : kOp == RowsOp::min ? kInfinity : kOfSums);
}
template <RowsOp kOp>
HWY_INLINE V add(V sum, V x) {
  if constexpr (kOp == RowsOp::max) return larger(sum, x);
  if constexpr (kOp == RowsOp::min) return smaller(sum, x);
  if constexpr (kOp == RowsOp::product) return hn::Mul(sum, x);
  if constexpr (kOp == RowsOp::sum_of_squares) return hn::MulAdd(x, x, sum);
  if constexpr (kOp == RowsOp::sum_of_sizes) return hn::Add(sum, hn::Abs(x));
  return hn::Add(sum, x);
}
// Two parts of a result.
template <RowsOp kOp>
HWY_INLINE V join(V a, V b) {
  if constexpr (kOp == RowsOp::max || kOp == RowsOp::min || kOp == RowsOp::product) return add<kOp>(a, b);
  return hn::Add(a, b);
}
template <RowsOp kOp>
HWY_INLINE float across(V v) {
  HWY_ALIGN float lanes[kFloatLanes];
  hn::Store(v, FloatTag(), lanes);
  float result = lanes[0];
  for (int i = 1; i < kFloatLanes; ++i) {
    const float x = lanes[i];
    const bool stays = std::isnan(result) || (kOp == RowsOp::max ? result > x : result < x);
    if (kOp == RowsOp::max || kOp == RowsOp::min)
      result = stays ? result : x;
    else
      result = kOp == RowsOp::product ? result * x : result + x;
  }
  return result;
}

// Over contiguous elements.
template <RowsOp kOp>
HWY_INLINE float reduce_row(const float* from, i64 length) {
  const FloatTag d;
  V s0 = start<kOp>(), s1 = s0, s2 = s0, s3 = s0;
  i64 i = 0;
  for (; i + 4 * kFloatLanes <= length; i += 4 * kFloatLanes) {
    s0 = add<kOp>(s0, hn::LoadU(d, from + i)), s1 = add<kOp>(s1, hn::LoadU(d, from + i + kFloatLanes));
    s2 = add<kOp>(s2, hn::LoadU(d, from + i + 2 * kFloatLanes)),
    s3 = add<kOp>(s3, hn::LoadU(d, from + i + 3 * kFloatLanes));
  }
  for (; i + kFloatLanes <= length; i += kFloatLanes) s0 = add<kOp>(s0, hn::LoadU(d, from + i));
  if (i < length) {  // lanes beyond the end keep what they have
    const V part = add<kOp>(s1, load_part<DType::f32>(from + i, static_cast<int>(length - i)));
    s1 = hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(length - i)), part, s1);
  }
  return across<kOp>(join<kOp>(join<kOp>(s0, s1), join<kOp>(s2, s3)));
}

// Over rows of `inner` elements, `count` (a vector or less) of them at a time.
template <RowsOp kOp>
HWY_INLINE V reduce_columns(const float* from, i64 length, i64 inner, i64 count) {
  V s0 = start<kOp>(), s1 = s0;
  i64 i = 0;
  for (; i + 2 <= length; i += 2) {
    s0 = add<kOp>(s0, load(from + i * inner, count));
    s1 = add<kOp>(s1, load(from + (i + 1) * inner, count));
  }
  if (i < length) s0 = add<kOp>(s0, load(from + i * inner, count));
  return join<kOp>(s0, s1);
}

// Likewise of several whole vectors beside each other, so that a row's lines are read together.
constexpr int kReducedVectors = 4;
template <RowsOp kOp, int kVectors>
HWY_INLINE void reduce_vectors(const float* from, i64 length, i64 inner, V scale, float* to) {
  const FloatTag d;
  V even[kVectors], odd[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) even[v] = odd[v] = start<kOp>();
  i64 i = 0;
  for (; i + 2 <= length; i += 2, from += 2 * inner) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      even[v] = add<kOp>(even[v], hn::LoadU(d, from + v * kFloatLanes));
      odd[v] = add<kOp>(odd[v], hn::LoadU(d, from + inner + v * kFloatLanes));
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    if (i < length) even[v] = add<kOp>(even[v], hn::LoadU(d, from + v * kFloatLanes));
    hn::StoreU(hn::Mul(join<kOp>(even[v], odd[v]), scale), d, to + v * kFloatLanes);
  }
}

// `count` elements of the result: up to kReducedVectors vectors.
template <RowsOp kOp>
void reduce(const RowsExtent& e, float scale, const float* from, float* to, i64 count) {
  if (e.inner == 1) {
    *to = reduce_row<kOp>(from, e.length) * scale;
    return;
  }
  const V factor = hn::Set(FloatTag(), scale);
  const i64 vectors = std::min<i64>(count / kFloatLanes, kReducedVectors), whole = vectors * kFloatLanes;
  if (vectors == 1) reduce_vectors<kOp, 1>(from, e.length, e.inner, factor, to);
  if (vectors == 2) reduce_vectors<kOp, 2>(from, e.length, e.inner, factor, to);
  if (vectors == 3) reduce_vectors<kOp, 3>(from, e.length, e.inner, factor, to);
  if (vectors == 4) reduce_vectors<kOp, 4>(from, e.length, e.inner, factor, to);
  if (whole < count)
    store(hn::Mul(reduce_columns<kOp>(from + whole, e.length, e.inner, count - whole), factor), to + whole,
          count - whole);
}

// f(x) of each element of a row.
template <class F>
HWY_INLINE void transform_row(const float* from, float* to, i64 length, const F& f) {
  for (i64 i = 0; i < length; i += kFloatLanes) store(f(load(from + i, length - i)), to + i, length - i);
}
template <class F>
HWY_INLINE void transform_columns(const float* from, float* to, i64 length, i64 inner, i64 count,
                                  const F& f) {
  for (i64 i = 0; i < length; ++i) store(f(load(from + i * inner, count)), to + i * inner, count);
}

void softmax(const RowsCall& call, const float* from, float* to, i64 count) {
  const FloatTag d;
  const RowsExtent& e = call.extent;
  const bool log = call.op == RowsOp::log_softmax, row = e.inner == 1;
  const V most = row ? hn::Set(d, reduce_row<RowsOp::max>(from, e.length))
                     : reduce_columns<RowsOp::max>(from, e.length, e.inner, count);
  const auto each = [&](const auto& f) HWY_ATTR {
    if (row)
      transform_row(from, to, e.length, f);
    else
      transform_columns(from, to, e.length, e.inner, count, f);
  };
  V sum = hn::Zero(d);
  if (!log) {
    each([&](V x) HWY_ATTR { return vec_exp_of_sum(hn::Sub(x, most)); });
    sum = row ? hn::Set(d, reduce_row<RowsOp::sum>(to, e.length))
              : reduce_columns<RowsOp::sum>(to, e.length, e.inner, count);
    // Zero instead of a denormal, with which some processors take a hundred cycles.
    const V scale = hn::Div(hn::Set(d, 1.0f), sum), least = hn::Mul(sum, hn::Set(d, 0x1.00001p-126f));
    from = to;
    return each([&](V x) HWY_ATTR { return hn::Mul(hn::IfThenZeroElse(hn::Lt(x, least), x), scale); });
  }
  if (row) {
    for (i64 i = 0; i < e.length; i += kFloatLanes) {
      const V term = vec_exp_beside_one(hn::Sub(load(from + i, e.length - i), most));
      const std::size_t lanes = static_cast<std::size_t>(std::min<i64>(kFloatLanes, e.length - i));
      sum = hn::Add(sum, hn::IfThenElseZero(hn::FirstN(d, lanes), term));
    }
    sum = hn::Set(d, across<RowsOp::sum>(sum));
  } else {
    for (i64 i = 0; i < e.length; ++i)
      sum = hn::Add(sum, vec_exp_beside_one(hn::Sub(load(from + i * e.inner, count), most)));
  }
  HWY_ALIGN float sums[kFloatLanes];
  hn::Store(sum, d, sums);
  for (float& s : sums) s = std::log(s);
  const V shift = hn::Load(d, sums);
  each([&](V x) HWY_ATTR { return hn::Sub(hn::Sub(x, most), shift); });
}

// The sums of squared distances from the mean, as reduce_row and reduce_columns add.
HWY_INLINE float squares_of_row(const float* from, i64 length, V mean) {
  const FloatTag d;
  V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  const auto add_at = [&](V sum, i64 i) HWY_ATTR {
    const V x = hn::Sub(hn::LoadU(d, from + i), mean);
    return hn::MulAdd(x, x, sum);
  };
  i64 i = 0;
  for (; i + 4 * kFloatLanes <= length; i += 4 * kFloatLanes) {
    s0 = add_at(s0, i), s1 = add_at(s1, i + kFloatLanes);
    s2 = add_at(s2, i + 2 * kFloatLanes), s3 = add_at(s3, i + 3 * kFloatLanes);
  }
  for (; i + kFloatLanes <= length; i += kFloatLanes) s0 = add_at(s0, i);
  if (i < length) {
    const V x = hn::Sub(load_part<DType::f32>(from + i, static_cast<int>(length - i)), mean);
    s1 = hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(length - i)), hn::MulAdd(x, x, s1), s1);
  }
  return across<RowsOp::sum>(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}
HWY_INLINE V squares_of_columns(const float* from, i64 length, i64 inner, i64 count, V mean) {
  V s0 = hn::Zero(FloatTag()), s1 = s0;
  i64 i = 0;
  for (; i + 2 <= length; i += 2) {
    const V x0 = hn::Sub(load(from + i * inner, count), mean),
            x1 = hn::Sub(load(from + (i + 1) * inner, count), mean);
    s0 = hn::MulAdd(x0, x0, s0), s1 = hn::MulAdd(x1, x1, s1);
  }
  if (i < length) {
    const V x = hn::Sub(load(from + i * inner, count), mean);
    s0 = hn::MulAdd(x, x, s0);
  }
  return hn::Add(s0, s1);
}

// Of a row, whose parts are summed up where they are near: the first-level cache holds one.
struct RowMoments {
  float mean, inverse;
};
HWY_INLINE RowMoments moments_of_row(const float* from, i64 length, float epsilon) {
  constexpr i64 kPart = 4096;
  const FloatTag d;
  double mean = 0, squares = 0;
  for (i64 begin = 0; begin < length; begin += kPart) {
    const i64 count = std::min(kPart, length - begin);
    const float own = reduce_row<RowsOp::sum>(from + begin, count) / static_cast<float>(count);
    const double apart = own - mean, share = static_cast<double>(count) / static_cast<double>(begin + count);
    squares += squares_of_row(from + begin, count, hn::Set(d, own)) +
               apart * apart * share * static_cast<double>(begin);
    mean += apart * share;
  }
  const double variance = squares / static_cast<double>(length);
  return {static_cast<float>(mean), static_cast<float>(1 / std::sqrt(variance + epsilon))};
}

void standardize(const RowsCall& call, const float* from, float* to, i64 count) {
  const FloatTag d;
  const RowsExtent& e = call.extent;
  if (e.inner == 1) {
    const RowMoments moments = moments_of_row(from, e.length, call.epsilon);
    const V mean = hn::Set(d, moments.mean), inverse = hn::Set(d, moments.inverse);
    return transform_row(from, to, e.length,
                         [&](V x) HWY_ATTR { return hn::Mul(hn::Sub(x, mean), inverse); });
  }
  const V scale = hn::Set(d, 1.0f / static_cast<float>(e.length));
  const V mean = hn::Mul(scale, reduce_columns<RowsOp::sum>(from, e.length, e.inner, count));
  const V squares = squares_of_columns(from, e.length, e.inner, count, mean);
  const V inverse = hn::Div(hn::Set(d, 1.0f), hn::Sqrt(hn::MulAdd(squares, scale, hn::Set(d, call.epsilon))));
  transform_columns(from, to, e.length, e.inner, count,
                    [&](V x) HWY_ATTR { return hn::Mul(hn::Sub(x, mean), inverse); });
}

// A task is a row, or as many columns as a vector has; of a reduction a few vectors, such that tasks are an
// even number where rows are few.
struct RowsBlocks {
  i64 columns, count;
};
RowsBlocks rows_blocks(const RowsCall& call) {
  const i64 vectors = (call.extent.inner + kFloatLanes - 1) / kFloatLanes;
  if (!reduces(call.op) || vectors <= 1) return {kFloatLanes, vectors};
  constexpr i64 kMany = 8;
  if (call.extent.outer >= kMany)
    return {kReducedVectors * kFloatLanes, (vectors + kReducedVectors - 1) / kReducedVectors};
  const i64 pairs = (vectors + 2 * kReducedVectors - 1) / (2 * kReducedVectors);
  const i64 each = (vectors + 2 * pairs - 1) / (2 * pairs);
  return {each * kFloatLanes, (vectors + each - 1) / each};
}

}  // namespace

void RowsTask(const RowsCall& call, const float* from, float* to, i64 task) {
  const RowsExtent& e = call.extent;
  const RowsBlocks blocks = rows_blocks(call);
  const i64 outer = task / blocks.count, column = task % blocks.count * blocks.columns;
  const i64 count = std::min(e.inner - column, blocks.columns);
  from += outer * e.length * e.inner + column;
  to += reduces(call.op) ? outer * e.inner + column : outer * e.length * e.inner + column;
  switch (call.op) {
    case RowsOp::sum:
      return reduce<RowsOp::sum>(e, 1, from, to, count);
    case RowsOp::mean:
      return reduce<RowsOp::sum>(e, 1.0f / static_cast<float>(e.length), from, to, count);
    case RowsOp::max:
      return reduce<RowsOp::max>(e, 1, from, to, count);
    case RowsOp::min:
      return reduce<RowsOp::min>(e, 1, from, to, count);
    case RowsOp::sum_of_squares:
      return reduce<RowsOp::sum_of_squares>(e, 1, from, to, count);
    case RowsOp::sum_of_sizes:
      return reduce<RowsOp::sum_of_sizes>(e, 1, from, to, count);
    case RowsOp::product:
      return reduce<RowsOp::product>(e, 1, from, to, count);
    case RowsOp::softmax:
    case RowsOp::log_softmax:
      return softmax(call, from, to, count);
    case RowsOp::standardize:
      return standardize(call, from, to, count);
  }
}

void RowsThenTask(const RowsCall& call, const std::byte* const* inputs, std::byte* to, i64 task) {
  const RowsThen& then = *call.then;
  const MapCall& map = then.map;
  const std::size_t own = map.inputs.size() - 2;
  const i64 length = call.extent.length;
  const i64 begin = map.inputs[static_cast<std::size_t>(then.x)].offset;  // x may be a part of its buffer
  const float* const x = reinterpret_cast<const float*>(inputs[then.x]) + begin + task * length;
  const RowMoments moments = moments_of_row(x, length, call.epsilon);
  const std::byte* row[kMapRegisters];
  std::copy_n(inputs, own, row);
  i64 index = task;
  for (int d = then.rank - 1; d >= 0; --d) {
    const auto at = static_cast<std::size_t>(d);
    const i64 i = d == 0 ? index : index % then.sizes[at];
    index /= then.sizes[at];
    for (std::size_t o = 0; o < own; ++o)
      row[o] += i * then.strides[o][at] * static_cast<i64>(size_of(map.inputs[o].element));
    to += i * then.strides[own][at] * static_cast<i64>(size_of(map.output.element));
  }
  row[own] = reinterpret_cast<const std::byte*>(&moments.mean);
  row[own + 1] = reinterpret_cast<const std::byte*>(&moments.inverse);
  // The next row comes meanwhile, where the second-level cache holds both, and what it is stored to, where
  // the first does.
  constexpr i64 kMostAhead = 64 << 10, kMostToAhead = 2048;  // floats
  const i64 bytes = length * static_cast<i64>(sizeof(float));
  const bool fetches = length <= kMostAhead && task + 1 < call.extent.outer;
  const i64 parts = map_tasks(map);
  for (i64 part = 0; part < parts; ++part) {
    const i64 further = bytes + bytes / parts * part;
    MapAhead ahead;
    if (fetches) ahead.from = reinterpret_cast<const std::byte*>(x) + further;
    if (fetches && length <= kMostToAhead) ahead.to = to + further;
    map_task_ahead(map, row, to, part, ahead);
  }
}

i64 RowsTasks(const RowsCall& call) { return call.extent.outer * rows_blocks(call).count; }

void TapsTask(const TapsCall& call, const float* from, float* to, i64 task) {
  const FloatTag d;
  const RowsExtent& e = call.extent;
  if (e.inner == 1) {
    from += task * e.length, to += task * call.out;
    for (i64 i = 0; i < call.out; ++i) {
      float sum = 0;
      for (i64 t = i * call.taps; t < (i + 1) * call.taps; ++t)
        sum += call.weight[static_cast<std::size_t>(t)] * from[call.index[static_cast<std::size_t>(t)]];
      to[i] = sum;
    }
    return;
  }
  const i64 outer = task / call.out, first = task % call.out * call.taps;
  from += outer * e.length * e.inner, to += task * e.inner;
  for (i64 j = 0; j < e.inner; j += kFloatLanes) {
    V sum = hn::Zero(d);
    for (i64 t = first; t < first + call.taps; ++t) {
      const V x = load(from + call.index[static_cast<std::size_t>(t)] * e.inner + j, e.inner - j);
      sum = hn::MulAdd(hn::Set(d, call.weight[static_cast<std::size_t>(t)]), x, sum);
    }
    store(sum, to + j, e.inner - j);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace faltung {

HWY_EXPORT(RowsTask);
HWY_EXPORT(RowsTasks);
HWY_EXPORT(RowsThenTask);
HWY_EXPORT(TapsTask);

std::int64_t rows_tasks(const RowsCall& call) { return HWY_DYNAMIC_DISPATCH(RowsTasks)(call); }
void rows_task(const RowsCall& call, const float* from, float* to, std::int64_t task) {
  HWY_DYNAMIC_DISPATCH(RowsTask)(call, from, to, task);
}
void rows_then_task(const RowsCall& call, const std::byte* const* inputs, std::byte* to, std::int64_t task) {
  HWY_DYNAMIC_DISPATCH(RowsThenTask)(call, inputs, to, task);
}
void taps_task(const TapsCall& call, const float* from, float* to, std::int64_t task) {
  HWY_DYNAMIC_DISPATCH(TapsTask)(call, from, to, task);
}

}  // namespace faltung
#endif  // HWY_ONCE
