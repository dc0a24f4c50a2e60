#include "src/network/weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <new>
#include <set>
#include <vector>

#include "kernels/cpu/convert.hpp"
#include "src/backend/host_memory.hpp"
#include "src/network/passes.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"
#include "src/problem/problem.hpp"
#include "src/store/mapped_file.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// `count` elements from `first` on as those of another type, one after the other.
void convert(const Constant& from, i64 first, i64 count, DType to, std::byte* target) {
  const DType own = dtype_of(from.type, "weights");
  const std::byte* const source = from.data + first * size_of(own);
  const i64 lost = convert_elements(own, source, count, to, target);
  if (lost == count) return;
  float value;
  convert_elements(own, source + lost * size_of(own), 1, DType::f32, reinterpret_cast<std::byte*>(&value));
  throw Error(Status::unsupported, "a weight of " + std::to_string(value) + " is beyond what " +
                                       info(to).name + " holds; bf16 and f32 hold more");
}

// Numbers whose products are below f32's normal ones, or soon will be: some processors compute many times
// more slowly with them, and training leaves many where it shrinks weights and biases. They are zero where a
// tensor has any that are not small. docs/accuracy.md says what that changes.
constexpr float kSmall = 0x1p-64f, kTiny = 0x1p-100f;
bool has_tiny(const Magnitudes& all) { return all.most >= kSmall && all.least < kTiny; }

// An output channel's elements, which lie together, by their places in the problem's layout.
template <class T>
void place(const std::byte* from, const TensorShape& to, std::byte* target) {
  const i64 c_step = to.offset(0, 1, 0, 0), r_step = to.offset(0, 0, 1, 0), s_step = to.offset(0, 0, 0, 1);
  for (i64 c = 0; c < to.c; ++c)
    for (i64 r = 0; r < to.h; ++r)
      for (i64 s = 0; s < to.w; ++s, from += sizeof(T))
        std::memcpy(target + (c * c_step + r * r_step + s * s_step) * i64{sizeof(T)}, from, sizeof(T));
}

// The filter in the problem's layout and type, made by all workers: files have it as K C/groups R S.
void as_problem_has_it(const Constant& filter, const Problem& problem, const Parallel& parallel,
                       std::byte* target) {
  constexpr i64 kPiece = 16 << 10;  // elements, about: they are in a cache when they are read again
  const TensorShape to = w_shape(problem);
  const i64 each = to.elements() / to.n, size = size_of(problem.dtype);
  const bool lies_so = problem.layout == Layout::nchw || to.h * to.w == 1;
  const i64 channels = std::max<i64>(1, kPiece / each), pieces = ceil_div(to.n, channels);
  const auto floats = [&](i64 piece) { return reinterpret_cast<float*>(target) + piece * channels * each; };
  const auto count = [&](i64 piece) { return std::min(channels, to.n - piece * channels) * each; };
  std::vector<Magnitudes> seen(static_cast<std::size_t>(pieces));
  parallel.each(pieces, [&](i64 piece, int) {
    const i64 first = piece * channels * each;
    std::byte* const there = target + first * size;
    if (lies_so) {
      convert(filter, first, count(piece), problem.dtype, there);
    } else {
      std::vector<std::byte> as_in_file(static_cast<std::size_t>(count(piece) * size));
      convert(filter, first, count(piece), problem.dtype, as_in_file.data());
      for (i64 at = 0; at < count(piece) * size; at += each * size)
        (size == 2 ? place<std::uint16_t> : place<std::uint32_t>)(as_in_file.data() + at, to, there + at);
    }
    if (problem.dtype == DType::f32)
      seen[static_cast<std::size_t>(piece)] = magnitudes(floats(piece), count(piece));
  });
  if (problem.dtype != DType::f32) return;
  Magnitudes all = seen.front();
  for (const Magnitudes& m : seen) all = {std::min(all.least, m.least), std::max(all.most, m.most)};
  if (!has_tiny(all)) return;
  parallel.each(pieces, [&](i64 piece, int) { zero_below(kTiny, floats(piece), count(piece)); });
}

std::size_t bytes_of(const Constant& constant) {
  return static_cast<std::size_t>(elements(constant.shape)) * size_of(constant.type);
}

// A file's bytes that have been copied need not stay in memory beside the copy.
void give_back(const Constant& constant) {
  give_back_pages(constant.owner, {constant.data, bytes_of(constant)});
}

// On a GPU: a copy there. On the CPU: what it is.
Bytes on_device(const Bytes& host, std::size_t bytes, Device& device) {
  if (device.info().kind == "cpu") return host;
  const auto buffer = std::make_shared<const faltung::Buffer>(device.allocate(bytes));
  device.copy_in(*buffer, host.get(), bytes);
  return {buffer, static_cast<const std::byte*>(buffer->pointer)};
}

}  // namespace

Bytes allocate_aligned(std::size_t bytes) { return host_memory(bytes); }

Bytes aligned_copy(const Constant& constant) {
  const std::size_t bytes = bytes_of(constant);
  const Bytes copy = allocate_aligned(bytes);
  if (bytes > 0) std::memcpy(const_cast<std::byte*>(copy.get()), constant.data, bytes);
  give_back(constant);
  return copy;
}

Weights::Packed Weights::pack(const std::shared_ptr<const Constant>& filter,
                              const std::shared_ptr<const PlanImpl>& plan, const Parallel& parallel,
                              bool packs) {
  const Recipe& recipe = plan->recipe();
  const Problem& problem = plan->problem();
  packs = packs && recipe.packed_bytes > 0;
  // Weights that nothing else can take are the problem's own.
  const std::string depends = !packs                   ? faltung::name(problem.layout)
                              : recipe.packing.empty() ? to_string(problem)
                                                       : recipe.packing;
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[{filter.get(), packs ? plan->packed_for() : "", depends}];
  if (entry.constant == nullptr) {
    Device& device = plan->device();
    const auto bytes = static_cast<std::size_t>(bytes_of(problem, w_shape(problem)));
    const bool stays = !packs && device.info().kind == "cpu";
    const Bytes host = stays ? allocate_aligned(bytes) : scratch(bytes);
    as_problem_has_it(*filter, problem, parallel, const_cast<std::byte*>(host.get()));
    give_back(*filter);
    const Bytes w = on_device(host, bytes, device);
    Packed made;
    if (packs) {
      made.packed = plan->pack_weights(w.get(), {});
      device.synchronize({});  // before w goes
    } else {
      made.w = w;
    }
    entry = {filter, std::move(made)};
  }
  return entry.packed;
}

bool Weights::finite_in(Type type, const std::shared_ptr<const Constant>& constant) {
  const std::lock_guard lock(mutex_);
  auto& [known, is_finite] = finite_in_[{constant.get(), type}];
  if (known == nullptr) {
    is_finite = is_finite_in(type, constant);
    known = constant;
  }
  return is_finite;
}

void Weights::find_finite_in(Type type, const Graph& graph, const Parallel& parallel) {
  std::set<std::shared_ptr<const Constant>> read;
  for (const Node& node : graph.nodes) {
    for (const ValueId id : node.inputs) {
      if (graph.is_constant(id) && graph.at(id).type == Type::f32) read.insert(graph.at(id).constant);
    }
  }
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const Constant>> all;
  std::ranges::copy_if(read, std::back_inserter(all), [&](const auto& constant) {
    return !finite_in_.contains({constant.get(), type});
  });
  std::vector<char> finite(all.size());
  parallel.each(static_cast<i64>(all.size()), [&](i64 i, int) {
    const auto at = static_cast<std::size_t>(i);
    finite[at] = is_finite_in(type, all[at]);
  });
  for (std::size_t i = 0; i < all.size(); ++i) finite_in_[{all[i].get(), type}] = {all[i], finite[i] != 0};
}

Bytes Weights::scratch(std::size_t bytes) {
  if (bytes > scratch_bytes_) {
    scratch_.reset();  // before there is another
    scratch_ = allocate_aligned(bytes), scratch_bytes_ = bytes;
  }
  return scratch_;
}

void Weights::give_back_scratch() {
  const std::lock_guard lock(mutex_);
  scratch_.reset(), scratch_bytes_ = 0;
}

Bytes Weights::of_channels(const std::shared_ptr<const Constant>& from, DType dtype, const PlanImpl& plan) {
  const std::lock_guard lock(mutex_);
  auto& [constant, bytes] = of_channels_[{from.get(), dtype}];
  if (constant == nullptr) {
    const std::int64_t count = elements(from->shape);
    const std::size_t size = static_cast<std::size_t>(count * size_of(dtype));
    const Bytes host = allocate_aligned(size);
    auto* const target = const_cast<std::byte*>(host.get());
    convert(*from, 0, count, dtype, target);
    auto* const floats = reinterpret_cast<float*>(target);
    if (plan.problem().dtype == DType::f32 && has_tiny(magnitudes(floats, count)))
      zero_below(kTiny, floats, count);
    bytes = on_device(host, size, plan.device());
    constant = from;
  }
  return bytes;
}

}  // namespace faltung::network
