#include "src/network/weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <vector>

#include "kernels/cpu/convert.hpp"
#include "src/backend/host_memory.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/problem.hpp"
#include "src/store/mapped_file.hpp"

namespace faltung::network {
namespace {

// `count` elements from `first` on as those of another type, one after the other.
void convert(const Constant& from, std::int64_t first, std::int64_t count, DType to, std::byte* target) {
  const DType own = dtype_of(from.type, "weights");
  const std::byte* const source = from.data + first * size_of(own);
  const std::int64_t lost = convert_elements(own, source, count, to, target);
  if (lost == count) return;
  float value;
  convert_elements(own, source + lost * size_of(own), 1, DType::f32, reinterpret_cast<std::byte*>(&value));
  throw Error(Status::unsupported, "a weight of " + std::to_string(value) + " is beyond what " +
                                       info(to).name + " holds; bf16 and f32 hold more");
}

// Without the numbers whose products are below f32's normal ones, or soon will be, with which some processors
// compute many times more slowly, and of which training leaves many where it shrinks weights and biases;
// where the tensor has any that are not small. docs/accuracy.md says what that changes.
void drop_tiny(float* values, std::int64_t count) {
  constexpr float kSmall = 0x1p-64f, kTiny = 0x1p-100f;
  float largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
  if (!(largest >= kSmall)) return;
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::abs(values[i]) < kTiny) values[i] = 0;
  }
}

// An output channel's elements, which lie together, by their places in the problem's layout.
template <class T>
void place(const std::byte* from, const TensorShape& to, std::byte* target) {
  for (std::int64_t r = 0; r < to.h; ++r)
    for (std::int64_t s = 0; s < to.w; ++s)
      for (std::int64_t c = 0; c < to.c; ++c)
        std::memcpy(target + to.offset(0, c, r, s) * static_cast<std::int64_t>(sizeof(T)),
                    from + ((c * to.h + r) * to.w + s) * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
}

// The filter in the problem's layout and type: files have it as K C/groups R S.
Bytes as_problem_has_it(const Constant& filter, const Problem& problem) {
  const TensorShape to = w_shape(problem);
  const Bytes bytes = allocate_aligned(static_cast<std::size_t>(bytes_of(problem, to)));
  auto* const target = const_cast<std::byte*>(bytes.get());
  const std::int64_t each = to.elements() / to.n, size = size_of(problem.dtype);
  if (problem.layout == Layout::nchw || to.h * to.w == 1) {
    convert(filter, 0, to.elements(), problem.dtype, target);
  } else {
    std::vector<std::byte> channel(static_cast<std::size_t>(each * size));
    for (std::int64_t k = 0; k < to.n; ++k) {
      convert(filter, k * each, each, problem.dtype, channel.data());
      std::byte* const there = target + to.offset(k, 0, 0, 0) * size;
      if (size == 2)
        place<std::uint16_t>(channel.data(), to, there);
      else
        place<std::uint32_t>(channel.data(), to, there);
    }
  }
  if (problem.dtype == DType::f32) drop_tiny(reinterpret_cast<float*>(target), to.elements());
  return bytes;
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
                              const std::shared_ptr<const PlanImpl>& plan) {
  const Recipe& recipe = plan->recipe();
  const Problem& problem = plan->problem();
  // Weights that nothing else can take are the problem's own.
  const std::string depends = recipe.packed_bytes == 0 ? faltung::name(problem.layout)
                              : recipe.packing.empty() ? to_string(problem)
                                                       : recipe.packing;
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[{filter.get(), plan->kernel(), depends}];
  if (entry.constant == nullptr) {
    Device& device = plan->device();
    const Bytes w = on_device(as_problem_has_it(*filter, problem),
                              static_cast<std::size_t>(bytes_of(problem, w_shape(problem))), device);
    give_back(*filter);
    Packed made;
    if (recipe.packed_bytes > 0) {
      made.packed = plan->pack_weights(w.get(), {});
      device.synchronize({});  // before w goes
    } else {
      made.w = w;
    }
    entry = {filter, std::move(made)};
  }
  return entry.packed;
}

Bytes Weights::bias(const std::shared_ptr<const Constant>& bias, const PlanImpl& plan) {
  const DType dtype = bias_dtype(plan.problem());
  const std::lock_guard lock(mutex_);
  auto& [constant, bytes] = biases_[{bias.get(), dtype}];
  if (constant == nullptr) {
    const std::int64_t count = elements(bias->shape);
    const std::size_t size = static_cast<std::size_t>(count * size_of(dtype));
    const Bytes host = allocate_aligned(size);
    auto* const target = const_cast<std::byte*>(host.get());
    convert(*bias, 0, count, dtype, target);
    if (plan.problem().dtype == DType::f32) drop_tiny(reinterpret_cast<float*>(target), count);
    bytes = on_device(host, size, plan.device());
    constant = bias;
  }
  return bytes;
}

}  // namespace faltung::network
