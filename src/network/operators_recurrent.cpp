// Recurrent layers: LSTM, GRU and RNN, with the activations that they have unless told.
#include <algorithm>
#include <cmath>

#include "src/network/operator.hpp"
#include "src/network/recurrent.hpp"

namespace faltung::network {

Recurrence read_recurrence(const Site& s) {
  const Node& node = s.node();
  Recurrence r;
  r.cell = node.op == "LSTM" ? Cell::lstm : node.op == "GRU" ? Cell::gru : Cell::plain;
  r.batch_first = node.integer("layout", 0) != 0;
  const std::string direction = node.text("direction", "forward");
  r.both = direction == "bidirectional";
  r.reverse = direction == "reverse";
  s.require(r.both || r.reverse || direction == "forward", "its direction is " + direction);
  r.linear_before_reset = node.integer("linear_before_reset", 0) != 0;
  std::vector<std::string> usual;  // activations
  for (std::int64_t d = 0; d < r.directions(); ++d) {
    if (r.cell != Cell::plain) usual.emplace_back("Sigmoid");
    if (r.cell == Cell::lstm) usual.emplace_back("Tanh");
    usual.emplace_back("Tanh");
  }
  if (const auto at = node.attributes.find("activations"); at != node.attributes.end()) {
    const auto* given = std::get_if<std::vector<std::string>>(&at->second);
    if (given == nullptr || *given != usual)
      s.decline("activations other than Sigmoid and Tanh are not known");
  }
  if (node.has("clip")) s.decline("clipped states are not known");
  if (node.integer("input_forget", 0) != 0) s.decline("coupled gates are not known");
  const Shape &x = s.in(0).shape, &w = s.in(1).shape, &h = s.in(2).shape;
  s.require(x.size() == 3 && w.size() == 3 && h.size() == 3, "its input and weights have three dimensions");
  r.steps = x[r.batch_first ? 1 : 0], r.batch = x[r.batch_first ? 0 : 1], r.in = x[2], r.hidden = h[2];
  const std::int64_t rows = r.gates() * r.hidden;
  s.require(w == Shape{r.directions(), rows, r.in} && h == Shape{r.directions(), rows, r.hidden},
            "its weights do not fit its input");
  if (s.has(3))
    s.require(s.in(3).shape == Shape{r.directions(), 2 * rows}, "its bias does not fit its weights");
  const Shape state =
      r.batch_first ? Shape{r.batch, r.directions(), r.hidden} : Shape{r.directions(), r.batch, r.hidden};
  for (const std::size_t i : {std::size_t{5}, std::size_t{6}}) {
    if (s.has(i)) s.require(s.in(i).shape == state, "its first state does not fit its weights");
  }
  return r;
}

namespace {

using i64 = std::int64_t;

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

std::vector<Result> recurrent(const Site& s) {
  const Recurrence r = read_recurrence(s);
  const i64 t = r.steps, n = r.batch, d = r.directions(), h = r.hidden;
  const Shape all = r.batch_first ? Shape{n, t, d, h} : Shape{t, d, n, h};
  const Shape last = r.batch_first ? Shape{n, d, h} : Shape{d, n, h};
  std::vector<Result> results{{s.in(0).type, all}, {s.in(0).type, last}};
  if (r.cell == Cell::lstm) results.push_back({s.in(0).type, last});
  return results;
}

// One sequence of one direction, its state by hidden unit.
class Sequence {
 public:
  Sequence(const Site& s, const Recurrence& r, i64 direction) : s_(s), r_(r), direction_(direction) {
    if (s.has(4) && s.in(4).data == nullptr) s.decline("lengths of sequences must be known");
  }

  void run(i64 batch, std::vector<Array>& out) {
    const i64 state = r_.batch_first ? batch * r_.directions() + direction_ : direction_ * r_.batch + batch;
    const auto first = [&](std::size_t i) {
      std::vector<double> v(static_cast<std::size_t>(r_.hidden));
      if (s_.has(i)) std::copy_n(s_.in(i).data + state * r_.hidden, r_.hidden, v.begin());
      return v;
    };
    h_ = first(5), c_ = first(6);
    const bool back = r_.reverse || direction_ == 1;
    const i64 length = s_.has(4) ? static_cast<i64>(s_.in(4).data[batch]) : r_.steps;
    for (i64 i = 0; i < length; ++i) {
      const i64 t = back ? length - 1 - i : i;
      step(s_.in(0).data + (r_.batch_first ? batch * r_.steps + t : t * r_.batch + batch) * r_.in);
      if (out.empty() || out[0].data.empty()) continue;
      const i64 at = r_.batch_first ? (batch * r_.steps + t) * r_.directions() + direction_
                                    : (t * r_.directions() + direction_) * r_.batch + batch;
      std::ranges::copy(h_, out[0].data.begin() + at * r_.hidden);
    }
    for (std::size_t o = 1; o < out.size(); ++o) {
      if (!out[o].data.empty()) std::ranges::copy(o == 1 ? h_ : c_, out[o].data.begin() + state * r_.hidden);
    }
  }

 private:
  // Of a gate's row: x by W, and h by R, each with its bias.
  double from_x(const double* x, i64 gate, i64 i) const {
    const i64 row = direction_ * r_.gates() * r_.hidden + gate * r_.hidden + i;
    double sum = bias(gate, i);
    for (i64 j = 0; j < r_.in; ++j) sum += x[j] * s_.in(1).data[row * r_.in + j];
    return sum;
  }
  double from_h(const std::vector<double>& h, i64 gate, i64 i) const {
    const i64 row = direction_ * r_.gates() * r_.hidden + gate * r_.hidden + i;
    double sum = bias(r_.gates() + gate, i);
    for (i64 j = 0; j < r_.hidden; ++j)
      sum += h[static_cast<std::size_t>(j)] * s_.in(2).data[row * r_.hidden + j];
    return sum;
  }
  double bias(i64 part, i64 i) const {
    return s_.has(3) ? s_.in(3).data[(direction_ * 2 * r_.gates() + part) * r_.hidden + i] : 0;
  }
  double peephole(i64 part, i64 i, double c) const {
    return s_.has(7) ? s_.in(7).data[(direction_ * 3 + part) * r_.hidden + i] * c : 0;
  }

  void step(const double* x) {
    std::vector<double> h(h_.size()), c(c_.size()), reset(h_.size());
    const auto gate = [&](i64 g, i64 i) { return from_x(x, g, i) + from_h(h_, g, i); };
    for (i64 k = 0; k < r_.hidden; ++k) {
      const auto i = static_cast<std::size_t>(k);
      if (r_.cell == Cell::plain) h[i] = std::tanh(gate(0, k));
      if (r_.cell == Cell::gru) reset[i] = logistic(gate(1, k)) * h_[i];
      if (r_.cell != Cell::lstm) continue;
      const double in = logistic(gate(0, k) + peephole(0, k, c_[i]));
      const double forget = logistic(gate(2, k) + peephole(2, k, c_[i]));
      c[i] = forget * c_[i] + in * std::tanh(gate(3, k));
      h[i] = logistic(gate(1, k) + peephole(1, k, c[i])) * std::tanh(c[i]);
    }
    for (i64 k = 0; r_.cell == Cell::gru && k < r_.hidden; ++k) {
      const auto i = static_cast<std::size_t>(k);
      const double update = logistic(gate(0, k));
      const double other =
          r_.linear_before_reset ? logistic(gate(1, k)) * from_h(h_, 2, k) : from_h(reset, 2, k);
      h[i] = (1 - update) * std::tanh(from_x(x, 2, k) + other) + update * h_[i];
    }
    h_ = std::move(h), c_ = std::move(c);
  }

  const Site& s_;
  const Recurrence& r_;
  i64 direction_;
  std::vector<double> h_, c_;
};

void evaluate_recurrent(const Site& s, std::vector<Array>& out) {
  const Recurrence r = read_recurrence(s);
  for (i64 d = 0; d < r.directions(); ++d) {
    for (i64 b = 0; b < r.batch; ++b) Sequence(s, r, d).run(b, out);
  }
}

constexpr Operator kRecurrentOperators[] = {
    {"LSTM", 3, 8, recurrent, evaluate_recurrent},
    {"GRU", 3, 6, recurrent, evaluate_recurrent},
    {"RNN", 3, 6, recurrent, evaluate_recurrent},
};

}  // namespace

std::span<const Operator> recurrent_operators() { return kRecurrentOperators; }

}  // namespace faltung::network
