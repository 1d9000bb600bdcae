#include <algorithm>
#include <queue>
#include <utility>

#include "runtime/work.hpp"

namespace standin {
namespace {

using Dependencies = std::vector<std::vector<std::size_t>>;

// Whatever can be done is done; others first.
std::vector<std::size_t> others_early(const Dependencies& dependencies, const std::vector<bool>& is_main) {
  std::vector<std::vector<std::size_t>> followers(dependencies.size());
  std::vector<std::size_t> missing(dependencies.size());
  using Turn = std::pair<bool, std::size_t>;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> ready;
  for (std::size_t i = 0; i < dependencies.size(); ++i) {
    missing[i] = dependencies[i].size();
    for (const std::size_t dependency : dependencies[i]) {
      followers[dependency].push_back(i);
    }
    if (missing[i] == 0) {
      ready.emplace(is_main[i], i);
    }
  }
  std::vector<std::size_t> order;
  while (!ready.empty()) {
    const std::size_t next = ready.top().second;
    ready.pop();
    order.push_back(next);
    for (const std::size_t follower : followers[next]) {
      if (--missing[follower] == 0) {
        ready.emplace(is_main[follower], follower);
      }
    }
  }
  return order;
}

// Nothing is done before something needs it: what comes before a node, and then the node, depth first.
std::vector<std::size_t> others_late(const Dependencies& dependencies, const std::vector<bool>& is_main) {
  std::vector<std::size_t> order;
  std::vector<std::size_t> next_dependency(dependencies.size());
  std::vector<bool> is_begun(dependencies.size());
  std::vector<std::size_t> path;
  const auto follow = [&](std::size_t root) {
    if (is_begun[root]) {
      return;
    }
    is_begun[root] = true;
    path.push_back(root);
    while (!path.empty()) {
      const std::size_t node = path.back();
      if (next_dependency[node] == dependencies[node].size()) {
        order.push_back(node);
        path.pop_back();
        continue;
      }
      const std::size_t dependency = dependencies[node][next_dependency[node]++];
      if (!is_begun[dependency]) {
        is_begun[dependency] = true;
        path.push_back(dependency);
      }
    }
  };
  for (const bool turn : {true, false}) {
    for (std::size_t i = 0; i < dependencies.size(); ++i) {
      if (is_main[i] == turn) {
        follow(i);
      }
    }
  }
  return order;
}

}  // namespace

std::vector<std::size_t> adversarial_order(const Dependencies& dependencies,
                                           const std::vector<bool>& is_main) {
  return order() == Order::kForward ? others_early(dependencies, is_main)
                                    : others_late(dependencies, is_main);
}

}  // namespace standin
