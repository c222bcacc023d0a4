#include "layout/program_layout.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "layout/skyline.h"
#include "layout/validator.h"
#include "ops/rule.h"

namespace plimsoll {
namespace {

bool is_transient(const Tensor& tensor) { return !is_persistent(tensor.role); }

// Lifetimes of a program's transient tensors, with the storage each one uses.
struct Lifetimes {
  std::vector<int32_t> first, last;  // by tensor id; last < first: never used
  std::vector<TensorId> storage;     // the tensor whose storage it uses: itself, or one it took over
};

void extend(Lifetimes& lives, TensorId id, int32_t at) {
  if (id == kNoTensor) return;
  auto& last = lives.last[static_cast<size_t>(id)];
  last = std::max(last, at);
}

Lifetimes find_lifetimes(const Graph& graph) {
  const size_t n = graph.tensors().size();
  Lifetimes lives{std::vector<int32_t>(n, 0), std::vector<int32_t>(n, 0), std::vector<TensorId>(n)};
  for (size_t i = 0; i < n; ++i) lives.storage[i] = static_cast<TensorId>(i);
  std::vector<char> written(n);
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.ops()[i];
    const auto at = static_cast<int32_t>(i);
    for (const TensorId id : op.inputs) extend(lives, id, at);
    for (const TensorId id : op.outputs) {
      if (id == kNoTensor || !is_transient(graph.tensor(id))) continue;
      // Only the first writer begins a life: ops may update in place.
      if (std::exchange(written[static_cast<size_t>(id)], 1) == 0) lives.first[static_cast<size_t>(id)] = at;
      extend(lives, id, at);
    }
    if (op.scratch != kNoTensor) {
      lives.first[static_cast<size_t>(op.scratch)] = at;
      lives.last[static_cast<size_t>(op.scratch)] = at;
    }
  }
  return lives;
}

// An output takes over an input's storage where the rule offers it, the sizes agree, the input dies here, and
// the op reads it in that place only.
bool may_take_over(const Graph& graph, const Op& op, const Reuse& reuse, int32_t at, const Lifetimes& lives) {
  if (!op.has_output(static_cast<size_t>(reuse.output)) || !op.has_input(static_cast<size_t>(reuse.input)))
    return false;
  const TensorId output = op.outputs[static_cast<size_t>(reuse.output)];
  const TensorId input = op.inputs[static_cast<size_t>(reuse.input)];
  if (!is_transient(graph.tensor(output)) || graph.tensor(input).role != Role::activation) return false;
  return graph.tensor(output).bytes() == graph.tensor(input).bytes() &&
         lives.last[static_cast<size_t>(input)] == at &&
         std::count(op.inputs.begin(), op.inputs.end(), input) == 1;
}

void share_storage(const Graph& graph, Lifetimes& lives) {
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.ops()[i];
    std::vector<TensorId> taken;
    for (const Reuse& reuse : rule_of(op.kind).reuse) {
      if (!may_take_over(graph, op, reuse, static_cast<int32_t>(i), lives)) continue;
      const TensorId output = op.outputs[static_cast<size_t>(reuse.output)];
      const TensorId input = op.inputs[static_cast<size_t>(reuse.input)];
      const bool done = lives.storage[static_cast<size_t>(output)] != output;
      if (done || std::find(taken.begin(), taken.end(), input) != taken.end()) continue;
      taken.push_back(input);
      lives.storage[static_cast<size_t>(output)] = lives.storage[static_cast<size_t>(input)];
    }
  }
}

struct ProgramProblem {
  layout::Problem problem;
  std::vector<int32_t> buffer_of;  // by tensor id; -1 for persistent tensors
};

// Storages become buffers first, then everything that took one over lengthens its buffer's life: a storage's
// first tensor need not have the lowest id.
ProgramProblem make_problem(const Graph& graph, const Lifetimes& lives, bool reuse) {
  ProgramProblem made{{{}, kArenaAlignment}, std::vector<int32_t>(graph.tensors().size(), -1)};
  const auto end = static_cast<int32_t>(graph.ops().size());
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    if (!is_transient(tensor) || static_cast<size_t>(lives.storage[i]) != i) continue;
    made.buffer_of[i] = static_cast<int32_t>(made.problem.buffers.size());
    made.problem.buffers.push_back(
        {tensor.name, tensor.bytes(), reuse ? lives.first[i] : 0, reuse ? lives.last[i] : end});
  }
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    if (!is_transient(graph.tensors()[i])) continue;
    made.buffer_of[i] = made.buffer_of[static_cast<size_t>(lives.storage[i])];
    layout::Buffer& buffer = made.problem.buffers[static_cast<size_t>(made.buffer_of[i])];
    buffer.last = std::max(buffer.last, lives.last[i]);
  }
  return made;
}

ProgramProblem problem_of(const Graph& graph, bool reuse) {
  Lifetimes lives = find_lifetimes(graph);
  if (reuse) share_storage(graph, lives);
  return make_problem(graph, lives, reuse);
}

TableRow row_of(const Tensor& tensor) {
  return {tensor.name, tensor.shape, tensor.dtype, tensor.role, tensor.bytes(), 0, 0, 0, ""};
}

// The persistent tensors of all programs, in order of first mention, one after the other.
class PersistentTable {
 public:
  explicit PersistentTable(std::span<const Graph> programs) {
    for (const Graph& graph : programs)
      for (const Tensor& tensor : graph.tensors())
        if (is_persistent(tensor.role)) add(graph, tensor);
  }
  [[nodiscard]] const TableRow& row(const std::string& name) const { return rows[by_name_.at(name)]; }

  std::vector<TableRow> rows;
  int64_t bytes = 0;

 private:
  void add(const Graph& graph, const Tensor& tensor) {
    const auto [found, is_new] = by_name_.emplace(tensor.name, rows.size());
    if (!is_new) {
      TableRow& row = rows[found->second];
      check_internal(row.shape == tensor.shape && row.dtype == tensor.dtype,
                     "program " + graph.name() + " has another shape or type of " + tensor.name);
      // Evaluation sees a trainable weight as frozen: what it is to training counts.
      if (tensor.role == Role::trainable_weight) row.role = tensor.role;
      return;
    }
    rows.push_back(row_of(tensor));
    rows.back().offset = bytes;
    bytes += round_up(tensor.bytes(), kArenaAlignment);
  }
  std::unordered_map<std::string, size_t> by_name_;
};

ProgramLayout place_program(const Graph& graph, const PersistentTable& persistent, bool reuse) {
  Lifetimes lives = find_lifetimes(graph);
  if (reuse) share_storage(graph, lives);
  const ProgramProblem made = make_problem(graph, lives, reuse);
  const layout::Placement placement = layout::solve(made.problem);
  layout::require_valid(made.problem, placement);
  ProgramLayout result{graph.name(),
                       {},
                       placement.top,
                       placement.lower_bound,
                       made.problem.buffers.empty() ? 0 : layout::peak_op(made.problem)};
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    TableRow row = row_of(tensor);
    if (!is_transient(tensor)) {
      row = persistent.row(tensor.name);
      row.last = static_cast<int32_t>(graph.ops().size());
    } else {
      row.offset = persistent.bytes + placement.offsets[static_cast<size_t>(made.buffer_of[i])];
      row.first = lives.first[i];
      row.last = lives.last[i];
      const auto root = static_cast<size_t>(lives.storage[i]);
      if (root != i) row.shares = graph.tensors()[root].name;
    }
    result.rows.push_back(std::move(row));
  }
  return result;
}

}  // namespace

int64_t ArenaLayout::lower_bound_bytes() const {
  int64_t largest = 0;
  for (const ProgramLayout& program : programs) largest = std::max(largest, program.lower_bound_bytes);
  return persistent_bytes + largest;
}

const TableRow* ArenaLayout::find_persistent(std::string_view name) const {
  const auto found = std::find_if(persistent.begin(), persistent.end(),
                                  [&](const TableRow& row) { return row.name == name; });
  return found == persistent.end() ? nullptr : &*found;
}

ArenaLayout lay_out(std::span<const Graph> programs, const LayoutOptions& options) {
  PersistentTable persistent(programs);
  ArenaLayout result;
  for (const Graph& graph : programs) {
    result.programs.push_back(place_program(graph, persistent, options.reuse));
    result.transient_bytes = std::max(result.transient_bytes, result.programs.back().transient_bytes);
  }
  result.persistent_bytes = persistent.bytes;
  result.persistent = std::move(persistent.rows);
  return result;
}

int64_t arena_lower_bound(std::span<const Graph> programs, Space space) {
  int64_t persistent = 0;
  std::unordered_set<std::string_view> known;
  int64_t largest = 0;
  for (const Graph& graph : programs) {
    for (const Tensor& tensor : graph.tensors())
      if (is_persistent(tensor.role) && tensor.space == space && known.insert(tensor.name).second)
        persistent += round_up(tensor.bytes(), kArenaAlignment);
    std::vector<int64_t> change(graph.ops().size() + 1);
    for (const StorageLife& life : storage_lives(graph)) {
      if (life.space != space) continue;
      change[static_cast<size_t>(life.first)] += life.bytes;
      change[static_cast<size_t>(life.last) + 1] -= life.bytes;
    }
    int64_t alive = 0;
    for (const int64_t step : change) largest = std::max(largest, alive += step);
  }
  return persistent + largest;
}

std::vector<StorageLife> storage_lives(const Graph& graph) {
  const ProgramProblem made = problem_of(graph, true);
  std::vector<StorageLife> lives(made.problem.buffers.size());
  for (size_t i = 0; i < lives.size(); ++i) {
    const layout::Buffer& buffer = made.problem.buffers[i];
    lives[i] = {round_up(buffer.bytes, kArenaAlignment), buffer.first, buffer.last, Space::device};
  }
  for (size_t i = 0; i < graph.tensors().size(); ++i)
    if (made.buffer_of[i] >= 0)
      lives[static_cast<size_t>(made.buffer_of[i])].space = graph.tensors()[i].space;
  return lives;
}

}  // namespace plimsoll
