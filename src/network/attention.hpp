// Attention as one step of a GPU: softmax(scale · queries · keysᵀ) · values, of every head.
#ifndef FALTUNG_SRC_NETWORK_ATTENTION_HPP_
#define FALTUNG_SRC_NETWORK_ATTENTION_HPP_

#include <cstdint>

#include "kernels/cpu/map.hpp"
#include "src/backend/backend.hpp"

namespace faltung::network {

// Reads queries, keys and values, and writes a row a query, all of `depth` elements that lie together and
// begin at multiples of 16 bytes. The CPU has no kernel for it: there the two products and the softmax are
// steps of their own.
struct AttentionCall {
  // Elements from batch to batch (0: all have the same), from head to head and from row to row.
  struct Strides {
    std::int64_t batch = 0, head = 0, row = 0;
  };
  std::int64_t batches = 1, heads = 1, queries = 1, keys = 1, depth = 8;
  MapElement element = MapElement::f16;  // f16 or bf16, of all four
  float scale = 1;                       // positive
  Strides q, k, v, y;
};

// Whether the device has a kernel for it.
bool computes_attention(const AttentionCall& call, const DeviceInfo& device);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_ATTENTION_HPP_
