#include "plan/report/timeline.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "base/format.h"
#include "base/units.h"
#include "graph/op_kind.h"

namespace plimsoll {
namespace {

constexpr double kNarrowest = 0.12;  // of the width: room for a program's name
constexpr size_t kLargest = 4;       // tensors named at a moment

// From the bottom up: what stays before what comes and goes, so that the lower edges are straight.
constexpr std::array<const char*, 13> kStack = {
    "weights (frozen)",   "weights (nf4)",    "weights (int8)", "starts of adapters", "weights (trained)",
    "master weights",     "optimizer states", "gradients",      "key-value cache",    "activations kept",
    "inputs and metrics", "library scratch",  "working tensors"};

size_t stack_index(const std::string& component) {
  return static_cast<size_t>(std::find(kStack.begin(), kStack.end(), component) - kStack.begin());
}

// The bytes that a program holds at each op, by place in kStack.
using Usage = std::vector<std::array<int64_t, kStack.size()>>;

struct Life {
  size_t tensor = 0;
  size_t component = 0;
  int64_t bytes = 0;
  int32_t first = 0, last = 0;
};

// A tensor that takes over another's storage begins where that one ends, so that no byte counts twice.
std::vector<Life> lives_of(const Graph& graph, const ProgramLayout& layout) {
  std::vector<Life> lives;
  std::map<std::string, std::vector<size_t>> storages;
  for (size_t id = 0; id < layout.rows.size(); ++id) {
    const TableRow& row = layout.rows[id];
    if (is_persistent(row.role) || row.space != Space::device) continue;
    storages[row.shares.empty() ? row.name : row.shares].push_back(id);
  }
  for (auto& [name, ids] : storages) {
    std::stable_sort(ids.begin(), ids.end(),
                     [&](size_t a, size_t b) { return layout.rows[a].first < layout.rows[b].first; });
    int32_t free_from = 0;
    for (const size_t id : ids) {
      const TableRow& row = layout.rows[id];
      const Life life{id, stack_index(component_name(graph, row)), round_up(row.bytes, kArenaAlignment),
                      std::max(row.first, free_from), row.last};
      if (life.first > life.last) continue;
      free_from = life.last + 1;
      lives.push_back(life);
    }
  }
  return lives;
}

std::array<int64_t, kStack.size()> persistent_usage(const Plan& plan) {
  std::array<int64_t, kStack.size()> bytes{};
  for (const TableRow& row : plan.layout.persistent)
    if (row.space == Space::device)
      bytes[stack_index(component_name(plan.programs.front(), row))] += round_up(row.bytes, kArenaAlignment);
  return bytes;
}

Usage usage_of(const std::array<int64_t, kStack.size()>& persistent, const std::vector<Life>& lives,
               size_t ops) {
  Usage usage(ops + 1);
  for (const Life& life : lives) {
    usage[static_cast<size_t>(life.first)][life.component] += life.bytes;
    usage[static_cast<size_t>(life.last) + 1][life.component] -= life.bytes;
  }
  usage.pop_back();
  for (size_t i = 0; i < ops; ++i)
    for (size_t c = 0; c < kStack.size(); ++c) usage[i][c] += i == 0 ? persistent[c] : usage[i - 1][c];
  return usage;
}

int64_t sum(const std::array<int64_t, kStack.size()>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

std::vector<size_t> largest_at(const std::vector<Life>& by_size, int32_t op) {
  std::vector<size_t> ids;
  for (const Life& life : by_size) {
    if (life.first <= op && op <= life.last) ids.push_back(life.tensor);
    if (ids.size() == kLargest) break;
  }
  return ids;
}

std::vector<Moment> moments_of(const Usage& usage, std::vector<Life> lives, size_t most) {
  std::stable_sort(lives.begin(), lives.end(),
                   [](const Life& a, const Life& b) { return a.bytes > b.bytes; });
  const size_t count = std::min(usage.size(), most);
  std::vector<Moment> moments;
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = i * usage.size() / count;
    const size_t end = (i + 1) * usage.size() / count;
    size_t at = begin;
    for (size_t op = begin; op < end; ++op)
      if (sum(usage[op]) > sum(usage[at])) at = op;
    const auto op = static_cast<int32_t>(at);
    moments.push_back({op, sum(usage[at]), {usage[at].begin(), usage[at].end()}, largest_at(lives, op)});
  }
  return moments;
}

int32_t first_backward(const Graph& graph) {
  const auto found = std::find_if(graph.ops().begin(), graph.ops().end(),
                                  [](const Op& op) { return op.stage == Stage::backward; });
  return found == graph.ops().end() ? -1 : static_cast<int32_t>(found - graph.ops().begin());
}

// By ops; but an update that moves its states in slices has many small ones, and the micro-step matters more.
void set_shares(std::vector<ProgramTimeline>& programs) {
  constexpr double kBesideMicroStep = 0.5;  // of its width, at most
  const double most = kBesideMicroStep * programs.front().ops;
  double ops = 0;
  for (ProgramTimeline& program : programs) {
    program.share = &program == &programs.front() ? program.ops : std::min<double>(program.ops, most);
    ops += program.share;
  }
  double total = 0;
  for (ProgramTimeline& program : programs)
    total += program.share = std::max(kNarrowest, program.share / ops);
  for (ProgramTimeline& program : programs) program.share /= total;
}

// Components that hold nothing at any time are left out.
void drop_empty(Timeline& timeline) {
  std::vector<size_t> kept;
  for (size_t c = 0; c < kStack.size(); ++c) {
    const bool used =
        std::any_of(timeline.programs.begin(), timeline.programs.end(), [&](const auto& program) {
          return std::any_of(program.moments.begin(), program.moments.end(),
                             [&](const Moment& moment) { return moment.bytes[c] > 0; });
        });
    if (!used) continue;
    kept.push_back(c);
    timeline.components.emplace_back(kStack[c]);
  }
  for (ProgramTimeline& program : timeline.programs) {
    for (Moment& moment : program.moments) {
      for (size_t i = 0; i < kept.size(); ++i) moment.bytes[i] = moment.bytes[kept[i]];
      moment.bytes.resize(kept.size());
    }
  }
}

}  // namespace

Timeline make_timeline(const Plan& plan, int64_t most) {
  Timeline timeline;
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    const Graph& graph = plan.programs[i];
    if (graph.ops().empty()) continue;
    timeline.programs.push_back(
        {graph.name(), i, static_cast<int32_t>(graph.ops().size()), first_backward(graph), 0, {}});
  }
  set_shares(timeline.programs);
  const auto persistent = persistent_usage(plan);
  for (ProgramTimeline& program : timeline.programs) {
    const Graph& graph = plan.programs[program.program];
    const auto lives = lives_of(graph, plan.layout.programs[program.program]);
    const auto room = static_cast<size_t>(program.share * static_cast<double>(most));
    program.moments =
        moments_of(usage_of(persistent, lives, graph.ops().size()), lives, std::max<size_t>(room, 1));
  }
  drop_empty(timeline);
  return timeline;
}

TimelinePeak peak_of(const Timeline& timeline) {
  TimelinePeak peak;
  int64_t most = -1;
  for (size_t p = 0; p < timeline.programs.size(); ++p) {
    const auto& moments = timeline.programs[p].moments;
    for (size_t m = 0; m < moments.size(); ++m) {
      if (moments[m].total <= most) continue;
      most = moments[m].total;
      peak = {p, m};
    }
  }
  return peak;
}

std::string op_words(const Plan& plan, const ProgramTimeline& program, int32_t op) {
  const Op& at = plan.programs[program.program].ops()[static_cast<size_t>(op)];
  return formatted("op {} of {}: {}{} ({})", format_count(op + 1), format_count(program.ops),
                   at.scope.empty() ? "" : at.scope + ", ", to_string(at.stage), to_string(at.kind));
}

int64_t picture_top(const Plan& plan) {
  constexpr double kNear = 1.5;
  const int64_t arena = plan.arena_bytes();
  const int64_t budget = plan.arena_budget().value_or(0);
  const bool near = static_cast<double>(budget) < kNear * static_cast<double>(arena);
  return near ? std::max(arena, budget) : arena;
}

}  // namespace plimsoll
