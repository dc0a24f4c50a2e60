#include "src/network/layouts.hpp"

#include <algorithm>
#include <limits>
#include <queue>

namespace faltung::network {
namespace {

constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max() / 4;

// Dinic's maximum flow.
class Flow {
 public:
  int add_node() {
    edges_of_.emplace_back();
    return static_cast<int>(edges_of_.size()) - 1;
  }
  void add_edge(int from, int to, std::int64_t capacity) {
    if (capacity <= 0) return;
    edges_of_[index(from)].push_back(static_cast<int>(edges_.size()));
    edges_.push_back({to, capacity});
    edges_of_[index(to)].push_back(static_cast<int>(edges_.size()));
    edges_.push_back({from, 0});
  }
  std::int64_t run(int source, int sink) {
    std::int64_t total = 0;
    while (find_levels(source, sink)) {
      next_.assign(edges_of_.size(), 0);
      while (const std::int64_t pushed = push(source, sink, kUnbounded)) total += pushed;
    }
    return total;
  }
  // After run: whether a node is still reached from the source.
  bool reached(int node) const { return level_[index(node)] >= 0; }

 private:
  struct Edge {
    int to;
    std::int64_t room;
  };
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  bool find_levels(int source, int sink) {
    level_.assign(edges_of_.size(), -1);
    level_[index(source)] = 0;
    std::queue<int> open({source});
    for (; !open.empty(); open.pop()) {
      for (const int e : edges_of_[index(open.front())]) {
        const Edge& edge = edges_[index(e)];
        if (edge.room == 0 || level_[index(edge.to)] >= 0) continue;
        level_[index(edge.to)] = level_[index(open.front())] + 1;
        open.push(edge.to);
      }
    }
    return level_[index(sink)] >= 0;
  }

  // Along one path, found by walking and stepping back; networks are deep, and so it is no recursion.
  std::int64_t push(int source, int sink, std::int64_t most) {
    std::vector<int> path;  // edges
    int node = source;
    while (node != sink) {
      std::size_t& at = next_[index(node)];
      const std::vector<int>& edges = edges_of_[index(node)];
      while (at < edges.size() && !leads_on(node, edges[at])) ++at;
      if (at < edges.size()) {
        path.push_back(edges[at]);
        node = edges_[index(edges[at])].to;
      } else {
        if (path.empty()) return 0;
        node = edges_[index(path.back() ^ 1)].to;
        path.pop_back();
        ++next_[index(node)];
      }
    }
    for (const int e : path) most = std::min(most, edges_[index(e)].room);
    for (const int e : path) edges_[index(e)].room -= most, edges_[index(e ^ 1)].room += most;
    return most;
  }
  bool leads_on(int node, int e) const {
    const Edge& edge = edges_[index(e)];
    return edge.room > 0 && level_[index(edge.to)] == level_[index(node)] + 1;
  }

  std::vector<std::vector<int>> edges_of_;
  std::vector<Edge> edges_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;
};

}  // namespace

int LayoutChoice::add(std::int64_t as_nchw, std::int64_t as_nhwc) {
  nchw_.push_back(as_nchw), nhwc_.push_back(as_nhwc);
  return static_cast<int>(nchw_.size()) - 1;
}

void LayoutChoice::add_value(int maker, const std::vector<int>& readers, std::int64_t turning) {
  if (turning > 0 && !readers.empty()) values_.push_back({maker, readers, turning});
}

LayoutChoice::Solution LayoutChoice::solve() const {
  Flow flow;
  const int source = flow.add_node(), sink = flow.add_node();
  std::vector<int> nodes;
  for (std::size_t i = 0; i < nchw_.size(); ++i) {
    nodes.push_back(flow.add_node());
    flow.add_edge(source, nodes.back(), nhwc_[i]);
    flow.add_edge(nodes.back(), sink, nchw_[i]);
  }
  const auto node = [&](int choice) {
    return choice == kNchw ? source : nodes[static_cast<std::size_t>(choice)];
  };
  for (const Value& v : values_) {
    // Paid if it is made as nchw and any reader wants nhwc, and if it is made as nhwc and any wants nchw.
    const int forth = flow.add_node();
    flow.add_edge(node(v.maker), forth, v.turning);
    for (const int reader : v.readers) flow.add_edge(forth, node(reader), kUnbounded);
    if (v.maker == kNchw) continue;
    const int back = flow.add_node();
    flow.add_edge(back, node(v.maker), v.turning);
    for (const int reader : v.readers) flow.add_edge(node(reader), back, kUnbounded);
  }
  Solution solution{{}, flow.run(source, sink)};
  for (const int n : nodes) solution.nhwc.push_back(!flow.reached(n));
  return solution;
}

std::int64_t LayoutChoice::cost(const std::vector<bool>& nhwc) const {
  const auto label = [&](int choice) { return choice != kNchw && nhwc[static_cast<std::size_t>(choice)]; };
  std::int64_t total = 0;
  for (std::size_t i = 0; i < nchw_.size(); ++i) total += nhwc[i] ? nhwc_[i] : nchw_[i];
  for (const Value& v : values_) {
    const bool turned = std::ranges::any_of(v.readers, [&](int r) { return label(r) != label(v.maker); });
    total += turned ? v.turning : 0;
  }
  return total;
}

}  // namespace faltung::network
