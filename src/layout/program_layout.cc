#include "layout/program_layout.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "layout/limited_layout.h"
#include "layout/skyline.h"
#include "layout/validator.h"
#include "ops/rule.h"
#include "ops/transfer.h"

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
  const std::vector<int32_t> waited = waited_transfers(graph);
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.ops()[i];
    const auto at = static_cast<int32_t>(i);
    for (const TensorId id : op.inputs) extend(lives, id, at);
    if (waited[i] >= 0) extend(lives, offloaded_of(graph.ops()[static_cast<size_t>(waited[i])]), at);
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
  if (!op.has_output(reuse.output) || !op.has_input(reuse.input)) return false;
  const TensorId output = op.outputs[reuse.output];
  const TensorId input = op.inputs[reuse.input];
  if (!is_transient(graph.tensor(output)) || graph.tensor(input).role != Role::activation) return false;
  return graph.tensor(output).bytes() == graph.tensor(input).bytes() &&
         graph.tensor(output).space == graph.tensor(input).space &&
         lives.last[static_cast<size_t>(input)] == at &&
         std::count(op.inputs.begin(), op.inputs.end(), input) == 1;
}

void share_storage(const Graph& graph, Lifetimes& lives) {
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.ops()[i];
    std::vector<TensorId> taken;
    for (const Reuse& reuse : rule_of(op.kind).reuse) {
      if (!may_take_over(graph, op, reuse, static_cast<int32_t>(i), lives)) continue;
      const TensorId output = op.outputs[reuse.output];
      const TensorId input = op.inputs[reuse.input];
      const bool done = lives.storage[static_cast<size_t>(output)] != output;
      if (done || std::find(taken.begin(), taken.end(), input) != taken.end()) continue;
      taken.push_back(input);
      lives.storage[static_cast<size_t>(output)] = lives.storage[static_cast<size_t>(input)];
    }
  }
}

struct ProgramProblem {
  layout::Problem problem;
  std::vector<int32_t> buffer_of;  // by tensor id; -1 for persistent tensors and those of other spaces
};

// Storages become buffers first, then everything that took one over lengthens its buffer's life: a storage's
// first tensor need not have the lowest id.
ProgramProblem make_problem(const Graph& graph, const Lifetimes& lives, bool reuse, Space space) {
  ProgramProblem made{{{}, kArenaAlignment}, std::vector<int32_t>(graph.tensors().size(), -1)};
  const auto end = static_cast<int32_t>(graph.ops().size());
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    const bool belongs = is_transient(tensor) && tensor.space == space;
    if (!belongs || static_cast<size_t>(lives.storage[i]) != i) continue;
    made.buffer_of[i] = static_cast<int32_t>(made.problem.buffers.size());
    made.problem.buffers.push_back(
        {tensor.name, tensor.bytes(), reuse ? lives.first[i] : 0, reuse ? lives.last[i] : end});
  }
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    if (!is_transient(tensor) || tensor.space != space) continue;
    made.buffer_of[i] = made.buffer_of[static_cast<size_t>(lives.storage[i])];
    layout::Buffer& buffer = made.problem.buffers[static_cast<size_t>(made.buffer_of[i])];
    buffer.last = std::max(buffer.last, lives.last[i]);
  }
  return made;
}

Lifetimes lifetimes_of(const Graph& graph, bool reuse) {
  Lifetimes lives = find_lifetimes(graph);
  if (reuse) share_storage(graph, lives);
  return lives;
}

TableRow row_of(const Tensor& tensor) {
  return {tensor.name, tensor.shape, tensor.dtype, tensor.role,      tensor.bytes(), 0,           0, 0,
          "",          tensor.space, tensor.block, tensor.parameter, tensor.module,  tensor.whole};
}

// The persistent tensors of all programs, in order of first mention, one after the other; first those that the processes
// of a node share.
class PersistentTable {
 public:
  PersistentTable(std::span<const Graph> programs, const NodeCopy& copy) : copy_(copy) {
    for (const Graph& graph : programs)
      for (const Tensor& tensor : graph.tensors())
        if (is_persistent(tensor.role)) add(graph, tensor);
    if (copy.is_shared()) place_shared();
    for (TableRow& row : rows)
      if (!is_shared(row)) place(row);
  }
  [[nodiscard]] const TableRow& row(const std::string& name) const { return rows[by_name_.at(name)]; }

  std::vector<TableRow> rows;
  std::array<int64_t, kSpaces.size()> bytes{};
  SharedFront shared;

 private:
  [[nodiscard]] bool is_shared(const TableRow& row) const {
    return copy_.has(row.role, row.space, row.is_piece());
  }
  void place(TableRow& row) {
    int64_t& end = bytes[index(row.space)];
    row.offset = end;
    end += round_up(row.bytes, kArenaAlignment);
  }
  void place_shared() {
    int64_t& end = bytes[index(copy_.space)];
    shared.space = copy_.space;
    for (TableRow& row : rows) {
      if (!is_shared(row)) continue;
      place(row);
      shared.share += copy_.share_of(round_up(row.bytes, kArenaAlignment));
    }
    if (end > 0) shared.share += copy_.share_of_last_page();
    shared.bytes = end = round_up(end, NodeCopy::kSharedUnit);
  }
  void add(const Graph& graph, const Tensor& tensor) {
    const auto [found, is_new] = by_name_.emplace(tensor.name, rows.size());
    if (!is_new) {
      TableRow& row = rows[found->second];
      check_internal(row.shape == tensor.shape && row.dtype == tensor.dtype,
                     formatted("program {} has another shape or type of {}", graph.name(), tensor.name));
      check_internal(row.space == tensor.space,
                     formatted("program {} has {} on the {}, another on the {}", graph.name(), tensor.name,
                               to_string(tensor.space), to_string(row.space)));
      // Evaluation sees a trainable weight as frozen: what it is to training counts.
      if (tensor.role == Role::trainable_weight) row.role = tensor.role;
      return;
    }
    rows.push_back(row_of(tensor));
  }
  NodeCopy copy_;
  std::unordered_map<std::string, size_t> by_name_;
};

std::vector<TableRow> rows_of(const Graph& graph, const PersistentTable& persistent, const Lifetimes& lives) {
  std::vector<TableRow> rows;
  rows.reserve(graph.tensors().size());
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    if (!is_transient(tensor)) {
      rows.push_back(persistent.row(tensor.name));
      rows.back().last = static_cast<int32_t>(graph.ops().size());
      continue;
    }
    rows.push_back(row_of(tensor));
    TableRow& row = rows.back();
    row.first = lives.first[i];
    row.last = lives.last[i];
    const auto root = static_cast<size_t>(lives.storage[i]);
    if (root != i) row.shares = graph.tensors()[root].name;
  }
  return rows;
}

// A program's layout with the transient bytes it needs in each space.
struct PlacedProgram {
  ProgramLayout layout;
  std::array<int64_t, kSpaces.size()> transient_bytes{};
  double work = 0;
  bool gave_up = false;
};

// The problems of placing a program, one in each space.
struct ProgramProblems {
  Lifetimes lives;
  std::array<ProgramProblem, kSpaces.size()> of_space;
};

// A region is as large as its largest program: less than that program's bound is worth nothing to the others.
std::vector<ProgramProblems> problems_of(std::span<const Graph> programs, const PersistentTable& persistent,
                                         bool reuse, const std::optional<int64_t>& most) {
  std::vector<ProgramProblems> problems;
  std::array<int64_t, kSpaces.size()> enough{};
  for (const Graph& graph : programs) {
    ProgramProblems& of = problems.emplace_back(ProgramProblems{lifetimes_of(graph, reuse), {}});
    for (const Space space : kSpaces) {
      of.of_space[index(space)] = make_problem(graph, of.lives, reuse, space);
      enough[index(space)] =
          std::max(enough[index(space)], layout::lower_bound(of.of_space[index(space)].problem));
    }
  }
  for (ProgramProblems& of : problems)
    for (size_t space = 0; space < enough.size(); ++space) {
      of.of_space[space].problem.enough = enough[space];
      of.of_space[space].problem.beside = persistent.bytes[space];
      if (most && space == index(Space::device))
        of.of_space[space].problem.most =
            *most - (persistent.bytes[space] - persistent.shared.of_others(Space::device));
    }
  return problems;
}

PlacedProgram place_program(const Graph& graph, const PersistentTable& persistent,
                            const ProgramProblems& problems) {
  PlacedProgram placed{{graph.name(), rows_of(graph, persistent, problems.lives), 0, 0, 0}, {}, 0, false};
  for (const Space space : kSpaces) {
    const ProgramProblem& made = problems.of_space[index(space)];
    const layout::Placement placement = layout::solve(made.problem);
    layout::require_valid(made.problem, placement);
    placed.transient_bytes[index(space)] = placement.top;
    placed.work += placement.work;
    placed.gave_up = placed.gave_up || placement.gave_up;
    for (size_t i = 0; i < made.buffer_of.size(); ++i)
      if (made.buffer_of[i] >= 0)
        placed.layout.rows[i].offset =
            persistent.bytes[index(space)] + placement.offsets[static_cast<size_t>(made.buffer_of[i])];
    if (space != Space::device) continue;
    placed.layout.transient_bytes = placement.top;
    placed.layout.lower_bound_bytes = placement.lower_bound;
    if (!made.problem.buffers.empty()) placed.layout.peak_op = layout::peak_op(made.problem);
  }
  return placed;
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

ArenaSizes ArenaLayout::sizes(Space space) const {
  if (space == Space::device) return {persistent_bytes, transient_bytes};
  return space == Space::host ? host : disk;
}

ArenaLayout lay_out(std::span<const Graph> programs, const LayoutOptions& options) {
  LayoutLimit none;
  return lay_out(programs, options, none);
}

ArenaLayout lay_out(std::span<const Graph> programs, const LayoutOptions& options, LayoutLimit& limit) {
  PersistentTable persistent(programs, options.node_copy);
  ArenaLayout result;
  std::array<int64_t, kSpaces.size()> transient{};
  const std::vector<ProgramProblems> problems =
      problems_of(programs, persistent, options.reuse, limit.device_bytes);
  for (size_t program = 0; program < programs.size(); ++program) {
    PlacedProgram placed = place_program(programs[program], persistent, problems[program]);
    result.programs.push_back(std::move(placed.layout));
    result.work += placed.work;
    limit.gave_up = limit.gave_up || placed.gave_up;
    for (size_t i = 0; i < transient.size(); ++i)
      transient[i] = std::max(transient[i], placed.transient_bytes[i]);
  }
  const auto sizes = [&](Space space) {
    return ArenaSizes{persistent.bytes[index(space)], transient[index(space)]};
  };
  result.persistent_bytes = sizes(Space::device).persistent_bytes;
  result.transient_bytes = sizes(Space::device).transient_bytes;
  result.host = sizes(Space::host);
  result.disk = sizes(Space::disk);
  result.shared = persistent.shared;
  result.persistent = std::move(persistent.rows);
  return result;
}

std::vector<StorageLife> storage_lives(const Graph& graph) {
  const Lifetimes lives = lifetimes_of(graph, true);
  std::vector<StorageLife> storages;
  std::vector<size_t> storage_of(graph.tensors().size());  // of those that are one themselves
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    if (!is_transient(tensor) || static_cast<size_t>(lives.storage[i]) != i) continue;
    storage_of[i] = storages.size();
    storages.push_back(
        {round_up(tensor.bytes(), kArenaAlignment), lives.first[i], lives.last[i], tensor.space});
  }
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    if (!is_transient(graph.tensors()[i])) continue;
    StorageLife& storage = storages[storage_of[static_cast<size_t>(lives.storage[i])]];
    storage.last = std::max(storage.last, lives.last[i]);
  }
  return storages;
}

}  // namespace plimsoll
