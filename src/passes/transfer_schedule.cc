// Schedules transfers: when they start and are waited for. One mechanism for weights, activations, gradients
// and slices of an update.
#include <algorithm>
#include <array>
#include <unordered_map>

#include "graph/op_kind.h"
#include "ops/rule.h"
#include "ops/transfer.h"
#include "passes/transfers.h"

namespace plimsoll {
namespace {

// The stretches of one kind: where each begins and ends, and which one every op of the program is next to.
struct Stretches {
  std::vector<size_t> begin, end;  // of a stretch: its first op, and the one after its last
  std::vector<int32_t> before;     // by op: the last stretch with an op before it, -1 where there is no such
                                   // stretch

  [[nodiscard]] int32_t count() const { return static_cast<int32_t>(begin.size()); }
};

// The ops that go into each gap, in the order in which they were added.
class Places {
 public:
  explicit Places(size_t ops) : first_(ops + 1, kNone), last_(ops + 1), next_(ops, kNone) {}

  void add(size_t gap, size_t op) {
    uint32_t& link = first_[gap] == kNone ? first_[gap] : next_[last_[gap]];
    link = last_[gap] = static_cast<uint32_t>(op);
  }
  template <class Visit>
  void each(size_t gap, const Visit& visit) const {
    for (uint32_t op = first_[gap]; op != kNone; op = next_[op]) visit(op);
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  std::vector<uint32_t> first_, last_;  // by gap
  std::vector<uint32_t> next_;          // by op
};

class Schedule {
 public:
  Schedule(Graph graph, int64_t distance)
      : graph_(std::move(graph)), ops_(std::move(graph_.ops())), distance_(distance) {
    graph_.ops().clear();
    find_stretches();
  }

  Graph run() {
    // Places are gaps: gap i is before op i, the last one is the end of the program.
    Places fetches(ops_.size()), waits(ops_.size());
    std::vector<char> moves(ops_.size());
    for (size_t at = 0; at < ops_.size(); ++at) {
      const OpKind kind = ops_[at].kind;
      if (kind == OpKind::store) stores_[offloaded_of(ops_[at])].push_back(at);
      if (kind == OpKind::fetch) fetches.add(gap_of_fetch(at), at);
      if (kind == OpKind::store_wait) waits.add(gap_of_wait(at), at);
      moves[at] = kind == OpKind::fetch || kind == OpKind::store_wait ? 1 : 0;
    }
    graph_.ops().reserve(ops_.size());
    for (size_t gap = 0; gap <= ops_.size(); ++gap) {
      // Waits first: they give room to what is fetched.
      const auto put = [&](size_t at) { graph_.ops().push_back(std::move(ops_[at])); };
      waits.each(gap, put);
      fetches.each(gap, put);
      if (gap < ops_.size() && moves[gap] == 0) put(gap);
    }
    return std::move(graph_);
  }

 private:
  static size_t kind_of(const Op& op) { return op.stage == Stage::update ? 1 : 0; }

  void find_stretches() {
    StretchCounter counter;
    for (size_t at = 0; at < ops_.size(); ++at) {
      for (Stretches& stretches : kinds_) stretches.before.push_back(stretches.count() - 1);
      const Op& op = ops_[at];
      if (is_transfer(op.kind)) continue;
      Stretches& stretches = kinds_[kind_of(op)];
      if (counter.next(op) == stretches.count()) {
        stretches.begin.push_back(at);
        stretches.end.push_back(at);
      }
      stretches.end.back() = at + 1;
    }
  }

  // The fetch's reader is the next op of its kind. That op may begin a stretch or lie inside of one.
  [[nodiscard]] size_t gap_of_fetch(size_t at) const {
    const Stretches& stretches = kinds_[kind_of(ops_[at])];
    const int32_t before = stretches.before[at];
    const bool inside = before >= 0 && stretches.end[static_cast<size_t>(before)] > at;
    const int64_t target = std::max<int64_t>(0, (inside ? before : before + 1) - distance_);
    if (target >= stretches.count()) return at;
    return std::max(std::min(at, stretches.begin[static_cast<size_t>(target)]), after_stores(at));
  }

  [[nodiscard]] size_t gap_of_wait(size_t at) const {
    const Stretches& stretches = kinds_[kind_of(ops_[at])];
    const int64_t target = stretches.before[at] + distance_;
    return target < stretches.count() ? std::max(at, stretches.end[static_cast<size_t>(target)])
                                      : ops_.size();
  }

  // The gap behind the last store so far that wrote a part of what the fetch reads.
  [[nodiscard]] size_t after_stores(size_t at) const {
    const Op& fetch = ops_[at];
    const auto found = stores_.find(offloaded_of(fetch));
    if (found == stores_.end()) return 0;
    const int64_t first = fetch.attr_int("first");
    const int64_t end = first + fetch.attr_int("elements");
    for (auto store = found->second.rbegin(); store != found->second.rend(); ++store) {
      const int64_t stored = ops_[*store].attr_int("first");
      const int64_t elements = graph_.tensor(copy_of(ops_[*store])).shape.elements();
      if (stored < end && first < stored + elements) return *store + 1;
    }
    return 0;
  }

  Graph graph_;
  std::vector<Op> ops_;
  int64_t distance_;
  std::array<Stretches, 2> kinds_;                            // of layers, of updates
  std::unordered_map<TensorId, std::vector<size_t>> stores_;  // by offloaded tensor, ops passed so far
};

}  // namespace

Graph schedule_transfers(Graph graph, int64_t distance) {
  if (distance == 0) return graph;
  return Schedule(std::move(graph), distance).run();
}

}  // namespace plimsoll
