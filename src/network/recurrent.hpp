// What a recurrent layer's node says.
#ifndef FALTUNG_SRC_NETWORK_RECURRENT_HPP_
#define FALTUNG_SRC_NETWORK_RECURRENT_HPP_

#include "src/network/operator.hpp"

namespace faltung::network {

enum class Cell { plain, gru, lstm };

// X is steps × batch × in, or batch first; each direction has weights of gates · hidden rows.
struct Recurrence {
  Cell cell = Cell::plain;
  bool batch_first = false, both = false, reverse = false;
  bool linear_before_reset = false;  // of a GRU
  std::int64_t steps = 0, batch = 0, in = 0, hidden = 0;

  std::int64_t directions() const { return both ? 2 : 1; }
  std::int64_t gates() const { return cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1; }
};

// Throws as Site's functions do.
Recurrence read_recurrence(const Site& site);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_RECURRENT_HPP_
