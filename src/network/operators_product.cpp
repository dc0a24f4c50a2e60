// Products of matrices.
#include <algorithm>

#include "src/network/epilogue.hpp"
#include "src/network/operator.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// y[m][n] += the sum over k of a[m][k] b[k][n]; strides in elements.
struct Matrix {
  const double* data;
  i64 row, column;
};
void multiply(i64 m, i64 n, i64 k, const Matrix& a, const Matrix& b, double* y) {
  for (i64 i = 0; i < m; ++i) {
    for (i64 l = 0; l < k; ++l) {
      const double x = a.data[i * a.row + l * a.column];
      const double* const from = b.data + l * b.row;
      for (i64 j = 0; j < n; ++j) y[i * n + j] += x * from[j * b.column];
    }
  }
}

// ---- Gemm: alpha a b + beta c, either matrix transposed

struct Sizes {
  i64 m, n, k;
};
Sizes gemm_sizes(const Site& s) {
  const Shape &a = s.in(0).shape, &b = s.in(1).shape;
  s.require(a.size() == 2 && b.size() == 2, "it multiplies matrices, of two dimensions each");
  const bool ta = s.node().integer("transA", 0) != 0, tb = s.node().integer("transB", 0) != 0;
  s.require(a[ta ? 0 : 1] == b[tb ? 1 : 0],
            "matrices of shapes " + to_string(a) + " and " + to_string(b) + " do not fit");
  return {a[ta ? 1 : 0], b[tb ? 0 : 1], a[ta ? 0 : 1]};
}
std::vector<Result> gemm(const Site& s) {
  const Sizes z = gemm_sizes(s);
  if (s.has(2)) {
    Shape sum;
    try {
      sum = broadcast(s.in(2).shape, {z.m, z.n});
    } catch (const Error& error) {
      s.fail(error.what());
    }
    s.require(sum == Shape{z.m, z.n}, "its third input is larger than its result");
  }
  return {{s.in(0).type, {z.m, z.n}}};
}
void evaluate_gemm(const Site& s, std::vector<Array>& out) {
  const Sizes z = gemm_sizes(s);
  const bool ta = s.node().integer("transA", 0) != 0, tb = s.node().integer("transB", 0) != 0;
  const double alpha = s.node().number("alpha", 1), beta = s.node().number("beta", 1);
  multiply(z.m, z.n, z.k, {s.in(0).data, ta ? 1 : z.k, ta ? z.m : 1},
           {s.in(1).data, tb ? 1 : z.n, tb ? z.k : 1}, out[0].data.data());
  if (!s.has(2)) {
    for (double& y : out[0].data) y *= alpha;
    return;
  }
  Odometer at({z.m, z.n}, {broadcast_strides(s.in(2).shape, {z.m, z.n})});
  for (double& y : out[0].data) {
    y = alpha * y + beta * s.in(2).data[at.offset()];
    at.next();
  }
}

// ---- MatMul: the last two dimensions are matrices, the others broadcast; one dimension alone is a vector

struct Batches {
  Shape batch, a, b;  // of the result, and strides of the two
  Sizes sizes;
  bool vector_a, vector_b;
};
Batches read_batches(const Site& s) {
  Shape a = s.in(0).shape, b = s.in(1).shape;
  s.require(!a.empty() && !b.empty(), "a number is no matrix");
  Batches r{{}, {}, {}, {}, a.size() == 1, b.size() == 1};
  if (r.vector_a) a.insert(a.begin(), 1);
  if (r.vector_b) b.push_back(1);
  r.sizes = {a[a.size() - 2], b.back(), a.back()};
  s.require(b[b.size() - 2] == a.back(), "matrices of shapes " + to_string(s.in(0).shape) + " and " +
                                             to_string(s.in(1).shape) + " do not fit");
  const Shape outer_a(a.begin(), a.end() - 2), outer_b(b.begin(), b.end() - 2);
  try {
    r.batch = broadcast(outer_a, outer_b);
  } catch (const Error& error) {
    s.fail(error.what());
  }
  r.a = broadcast_strides(outer_a, r.batch), r.b = broadcast_strides(outer_b, r.batch);
  return r;
}
std::vector<Result> matmul(const Site& s) {
  const Batches r = read_batches(s);
  Shape shape = r.batch;
  if (!r.vector_a) shape.push_back(r.sizes.m);
  if (!r.vector_b) shape.push_back(r.sizes.n);
  return {{s.in(0).type, std::move(shape)}};
}
void evaluate_matmul(const Site& s, std::vector<Array>& out) {
  const Batches r = read_batches(s);
  const auto [m, n, k] = r.sizes;
  Odometer at(r.batch, {r.a, r.b});
  const i64 count = elements(r.batch);
  for (i64 i = 0; i < count; ++i, at.next()) {
    multiply(m, n, k, {s.in(0).data + at.offset(0) * m * k, k, 1},
             {s.in(1).data + at.offset(1) * k * n, n, 1}, out[0].data.data() + i * m * n);
  }
}

// ---- faltung.Linear: x (..., k) times w (n, k) plus bias plus residual, activated: what passes leave of
// both

std::vector<Result> linear(const Site& s) {
  Shape shape = s.in(0).shape;
  const Shape& w = s.in(1).shape;
  s.require(!shape.empty() && w.size() == 2 && shape.back() == w[1], "its weights do not fit its input");
  shape.back() = w[0];
  if (s.has(2)) s.require(elements(s.in(2).shape) == w[0], "its bias has not one element a column");
  if (s.has(3)) s.require(s.in(3).shape == shape, "its residual is not of its result's shape");
  return {{s.in(0).type, std::move(shape)}};
}
void evaluate_linear(const Site& s, std::vector<Array>& out) {
  const i64 n = s.in(1).shape[0], k = s.in(1).shape[1], m = elements(s.in(0).shape) / std::max<i64>(1, k);
  multiply(m, n, k, {s.in(0).data, k, 1}, {s.in(1).data, 1, k}, out[0].data.data());
  const NodeEpilogue finish(s.node());
  for (std::size_t i = 0; i < out[0].data.size(); ++i) {
    double y = out[0].data[i];
    const i64 channel = static_cast<i64>(i) % n;
    if (s.has(2)) y += s.in(2).data[channel];
    out[0].data[i] = finish(channel, y, s.has(3) ? &s.in(3).data[i] : nullptr);
  }
}

constexpr Operator kProductOperators[] = {
    {"Gemm", 2, 3, gemm, evaluate_gemm},
    {"MatMul", 2, 2, matmul, evaluate_matmul},
    {"faltung.Linear", 2, 4, linear, evaluate_linear},
};

}  // namespace

std::span<const Operator> product_operators() { return kProductOperators; }

}  // namespace faltung::network
