#include "train/gradient_sums.h"

#include <algorithm>
#include <limits>
#include <set>

#include "autodiff/autodiff.h"
#include "formats/convert.h"
#include "graph/op_kind.h"
#include "ops/optimizer/optimizer.h"

namespace plimsoll {

namespace {

// The whole tensor as the pieces of ranks; `elements` of it are one.
RankPieces pieces_of(const PersistentState& state, const TableRow& row, int64_t elements) {
  return {state.bytes(row), static_cast<size_t>(elements * size_of(row.dtype))};
}

}  // namespace

GradientSums::GradientSums(Group& group, const PersistentState& state, const Graph& update)
    : group_(group), sum_(group) {
  if (group.is_alone()) return;
  std::map<std::string, int64_t> cut;  // elements of a piece, by weight
  std::set<std::string> cut_gradients;
  for (const Op& op : update.ops()) {
    if (piece_of(op) == 0 || !op.attrs.contains("elements")) continue;
    if (op.kind == OpKind::grad_square)
      squares_.push_back(update.tensor(op.output(operand::grad_square::square)).name);
    else {
      cut[update.tensor(op.output(kWeightOutput)).name] = piece_of(op);
      cut_gradients.insert(update.tensor(op.input(kGradientInput)).name);
    }
  }
  all_squares_.resize(squares_.size() * static_cast<size_t>(group.size()));
  for (const TableRow& row : state.rows()) {
    if (row.role == Role::gradient && !cut_gradients.contains(row.name))
      parts_[row.dtype].push_back(state.bytes(row));
    const auto found = cut.find(row.name);
    if (found == cut.end()) continue;
    const TableRow& gradient = *state.find(gradient_name(row.name));
    pieces_[gradient.dtype].push_back(pieces_of(state, gradient, found->second));
    const TableRow* const master = state.master_of(row);
    const bool rounds = master != nullptr && !master->is_piece();
    weights_.push_back(pieces_of(state, rounds ? *master : row, found->second));
    if (rounds) rounded_.push_back({state.bytes(*master), state.bytes(row), row.dtype});
  }
}

void GradientSums::clear() const {
  for (const auto& [dtype, parts] : parts_)
    for (const std::span<std::byte> part : parts) std::ranges::fill(part, std::byte{0});
  for (const auto& [dtype, parts] : pieces_)
    for (const RankPieces& part : parts) std::ranges::fill(part.whole, std::byte{0});
}

void GradientSums::add_up() {
  for (const auto& [dtype, parts] : parts_) sum_.add(parts, dtype);
  for (const auto& [dtype, parts] : pieces_) sum_.add_pieces(parts, dtype);
}

void GradientSums::exchange_squares(const Executor& update) {
  const size_t count = squares_.size();
  const auto own = static_cast<size_t>(group_.rank());
  for (size_t i = 0; i < count; ++i)
    all_squares_[own * count + i] = update.on_its_way<double>(squares_[i])[own];
  group_.all_gather(std::as_writable_bytes(std::span(all_squares_)));
  for (size_t i = 0; i < count; ++i) {
    const std::span<double> sums = update.on_its_way<double>(squares_[i]);
    for (size_t rank = 0; rank < sums.size(); ++rank) sums[rank] = all_squares_[rank * count + i];
  }
}

void GradientSums::gather_weights() {
  sum_.gather_pieces(weights_);
  for (const Rounded& each : rounded_) convert(each.master, DType::f32, each.weight, each.dtype);
}

void add_up_losses(Group& group, const TaskSpec& task, bool any, std::vector<double>& sums) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const SumMetrics& rule = rule_of(task.task).metrics;
  const auto count = std::ssize(sums);
  const auto neutral = [&](int64_t i) {
    return i == rule.least ? kInfinity : i == rule.most ? -kInfinity : 0.0;
  };
  std::vector<double> all(sums.size() * static_cast<size_t>(group.size()));
  const auto of_rank = [&](int64_t rank, int64_t i) -> double& {
    return all[static_cast<size_t>(rank * count + i)];
  };
  for (int64_t i = 0; i < count; ++i)
    of_rank(group.rank(), i) = any ? sums[static_cast<size_t>(i)] : neutral(i);
  group.all_gather(std::as_writable_bytes(std::span(all)));
  for (int64_t i = 0; i < count; ++i) {
    double total = neutral(i);
    for (int64_t rank = 0; rank < group.size(); ++rank) {
      const double value = of_rank(rank, i);
      total = i == rule.least  ? std::min(total, value)
              : i == rule.most ? std::max(total, value)
                               : total + value;
    }
    sums[static_cast<size_t>(i)] = total;
  }
}

}  // namespace plimsoll
