#include "src/network/weights.hpp"

#include <cstring>
#include <new>

#include "src/problem/problem.hpp"

namespace faltung::network {
namespace {

// The filter in the problem's layout: files have it as K C/groups R S.
Bytes in_layout(const Constant& filter, const Problem& problem) {
  if (problem.layout == Layout::nchw) return aligned_copy(filter);
  const TensorShape to = w_shape(problem);
  const Bytes bytes = allocate_aligned(static_cast<std::size_t>(to.elements()) * sizeof(float));
  auto* const target = reinterpret_cast<float*>(const_cast<std::byte*>(bytes.get()));
  const std::byte* from = filter.data;
  for (std::int64_t k = 0; k < to.n; ++k)
    for (std::int64_t c = 0; c < to.c; ++c)
      for (std::int64_t r = 0; r < to.h; ++r)
        for (std::int64_t s = 0; s < to.w; ++s, from += sizeof(float))
          std::memcpy(target + to.offset(k, c, r, s), from, sizeof(float));
  return bytes;
}

}  // namespace

Bytes allocate_aligned(std::size_t bytes) {
  const std::size_t rounded = aligned(std::max<std::size_t>(bytes, 1));
  auto* const memory = static_cast<std::byte*>(::operator new[](rounded, std::align_val_t{kAlignment}));
  return {memory, [](const std::byte* p) {
            ::operator delete[](const_cast<std::byte*>(p), std::align_val_t{kAlignment});
          }};
}

Bytes aligned_copy(const Constant& constant) {
  const std::size_t bytes = static_cast<std::size_t>(elements(constant.shape)) * size_of(constant.type);
  const Bytes copy = allocate_aligned(bytes);
  if (bytes > 0) std::memcpy(const_cast<std::byte*>(copy.get()), constant.data, bytes);
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
    const Bytes w = in_layout(*filter, problem);
    entry.constant = filter;
    if (recipe.packed_bytes > 0)
      entry.packed.packed = plan->pack_weights(w.get(), {});
    else
      entry.packed.w = w;
  }
  return entry.packed;
}

}  // namespace faltung::network
