// The copies before Hopper's kernels: an operand of a rewritten problem as they read it, NHWC with pixels of
// whole chunks of 16 bytes.
#ifndef FALTUNG_SRC_ALGORITHMS_SM90_COPIES_HPP_
#define FALTUNG_SRC_ALGORITHMS_SM90_COPIES_HPP_

#include <optional>
#include <string>

#include "src/algorithms/rewrite_steps.hpp"

namespace faltung::sm90 {

// An operand that is read, with its channels padded: x or the filter, whose "images" are its output channels.
TensorCopy pixels_of(const Problem& outer, const Rewrite& rewrite, Operand operand);

// A filter's channels in the order in which alternating pixels come (kernels/sm90/bring/alternating.cuh): of
// each block of so many the even ones, then the odd ones.
TensorCopy even_channels_first(TensorCopy filter, std::int64_t block);

// Images of so many pixels of c channels, a multiple of 16 bytes, as planes.
Step to_planes(const std::string& name, DType dtype, std::int64_t images, std::int64_t c, std::int64_t pixels,
               Slot from, Slot to);

// The pixels that a 1x1 filter with strides takes (rewrites::thin), of NCHW as NCHW.
Step thin_planes(const std::string& name, const TensorCopy& copy, Slot from, Slot to,
                 const DeviceInfo& device);

// Rows continued by zeros, to a width that is a multiple of 16 bytes.
Step widen_rows(const std::string& name, DType dtype, std::int64_t rows, std::int64_t width,
                std::int64_t to_width, Slot from, Slot to, const DeviceInfo& device);

// The way back: x's gradient out of that of the pixels taken (spreads(asked)), zeros between.
Step spread(const std::string& name, const Problem& asked, Slot from, Slot to);

// The way back from blocks of pixels as the channels of one (deepened_gradient); what none holds is zero.
Step depth_to_space(const std::string& name, const TensorCopy& scatter, Slot from, Slot to,
                    const DeviceInfo& device);

// Two tensors from planes to pixels by one launch; nothing if one of them is not turned so.
std::optional<Step> turn_both(const std::string& name, const TensorCopy& first, Slot first_from,
                              Slot first_to, const TensorCopy& second, Slot second_from, Slot second_to);

// By the kernel that is tuned for what the rewrite's map does, where there is one, else by the portable one.
// planes: of blocks of pixels, images of NCHW are so many a volume, of which a channel's are neighbours.
Step copy_step(const std::string& name, const TensorCopy& copy, Slot from, Slot to, const DeviceInfo& device,
               std::int64_t planes = 1);

}  // namespace faltung::sm90

#endif  // FALTUNG_SRC_ALGORITHMS_SM90_COPIES_HPP_
