#include "train/gradient_sums.h"

#include <algorithm>
#include <limits>

#include "autodiff/autodiff.h"
#include "base/error.h"
#include "graph/op_kind.h"
#include "ops/optimizer/optimizer.h"
#include "ops/optimizer/pieces.h"
#include "passes/reduce_gradients.h"
#include "runtime/nccl_exchange.h"
#include "weights/rank_reader.h"
#include "weights/row_io.h"

namespace plimsoll {

namespace {

size_t piece_bytes(int64_t elements, DType dtype) { return static_cast<size_t>(elements * size_of(dtype)); }

// In memory at once, else through `staging`.
void fill_with_zeros(const RankBytes& bytes, std::span<std::byte> staging) {
  std::ranges::fill(staging, std::byte{0});
  for (size_t at = 0; at < bytes.size(); at += staging.size())
    bytes.write(at, staging.first(std::min(staging.size(), bytes.size() - at)));
}

// The staging of sums: of the device, where the host does not reach its memory.
OrderedSum sum_for(RunRanks& ranks, Device& device, ExchangeWay way) {
  Group& group = ranks.group();
  if (group.is_alone() || device.reaches_host()) return OrderedSum(group);
  if (way == ExchangeWay::nccl) return OrderedSum(group, std::make_unique<NcclExchange>(ranks, device));
  return OrderedSum(group, std::make_unique<DeviceStaging>(device, OrderedSum::staging_bytes(group.size())));
}

}  // namespace

GradientSums::GradientSums(RunRanks& ranks, Device& device, const PersistentState& state, const Graph& update,
                           ExchangeWay way)
    : group_(ranks.group()), device_(device), state_(state), sum_(sum_for(ranks, device, way)) {
  if (group_.is_alone()) return;
  cut_ = updated_pieces(update);
  for (const Op& op : update.ops())
    if (op.kind == OpKind::grad_square && piece_of(op) > 0 && op.attrs.contains("elements"))
      squares_.push_back(update.tensor(op.output(operand::grad_square::square)).name);
  all_squares_.resize(squares_.size() * static_cast<size_t>(group_.size()));
  for (const TableRow& row : state_.rows()) {
    const auto found = cut_.find(row.name);
    if (found == cut_.end()) continue;
    const int64_t piece = found->second;
    gradient_types_[row.name] = update.tensor(find_gradient(update, row.name)).dtype;
    if (const TableRow* const gradient = state_.find(gradient_name(row.name)); gradient != nullptr) {
      if (piece == 0)
        parts_[gradient->dtype].push_back(bytes_of(*gradient));
      else
        pieces_[gradient->dtype].push_back({bytes_of(*gradient), piece_bytes(piece, gradient->dtype)});
    }
    if (piece == 0 || row.is_piece()) continue;  // whole at every rank, or gathered where it is read
    const TableRow* const master = state_.master_of(row);
    const bool rounds = master != nullptr && !master->is_piece();
    const TableRow& gathered = rounds ? *master : row;
    divided_at_[row.name] = divided_.size();
    divided_.push_back({&row, rounds ? master : nullptr});
    gathered_.push_back({bytes_of(gathered), piece_bytes(piece, gathered.dtype)});
  }
}

RankBytes GradientSums::bytes_of(const TableRow& row) {
  if (state_.in_memory(row)) return state_.bytes(row);
  stores_.push_back(std::make_unique<StoredRow>(state_, row));
  return RankBytes(*stores_.back());
}

// Transfers may still be moving what is off the device.
void GradientSums::clear() {
  device_.finish();
  for (const auto& [dtype, parts] : parts_)
    for (const RankBytes& part : parts) fill_with_zeros(part, sum_.staging());
  for (const auto& [dtype, parts] : pieces_)
    for (const RankPieces& part : parts) fill_with_zeros(part.whole, sum_.staging());
}

void GradientSums::add_up() {
  device_.finish();
  for (const auto& [dtype, parts] : parts_) sum_.add(parts, dtype);
  for (const auto& [dtype, parts] : pieces_) sum_.add_pieces(parts, dtype);
}

void GradientSums::add_up(const std::string& weight, const DeviceBytes& gradient) {
  const DType dtype = gradient_types_.at(weight);
  if (const int64_t piece = cut_.at(weight); piece > 0) {
    const RankPieces pieces = {RankBytes(gradient), piece_bytes(piece, dtype)};
    sum_.add_pieces(std::span(&pieces, 1), dtype);
  } else {
    const RankBytes whole(gradient);
    sum_.add(std::span(&whole, 1), dtype);
  }
}

void GradientSums::gather_weights() {
  device_.finish();
  sum_.gather_pieces(gathered_);
  for (const Divided& divided : divided_) round(divided);
}

void GradientSums::gather_weight(const std::string& weight) {
  const auto found = divided_at_.find(weight);
  if (found == divided_at_.end()) return;
  sum_.gather_pieces(std::span(gathered_).subspan(found->second, 1));
  round(divided_[found->second]);
}

void GradientSums::round(const Divided& divided) {
  if (divided.rounded_from != nullptr)
    round_from_master(state_, *divided.weight, *divided.rounded_from, sum_.staging());
}

void GradientSums::exchange_squares(const Executor& update) {
  const size_t count = squares_.size();
  const auto own = static_cast<size_t>(group_.rank());
  const auto ranks = static_cast<size_t>(group_.size());
  const std::span<std::byte> staged = sum_.staging();  // by weight: each rank's
  const auto bytes_of_weight = [&](size_t i) {
    return staged.subspan(i * ranks * sizeof(double), ranks * sizeof(double));
  };
  check_internal(all_squares_.size() * sizeof(double) <= staged.size(), "more squares than staging");
  for (size_t i = 0; i < count; ++i)
    device_.copy(bytes_of_weight(i).data(), update.bytes_on_its_way(squares_[i]));
  sum_.settle();
  const std::span<double> sums(reinterpret_cast<double*>(staged.data()), all_squares_.size());
  for (size_t i = 0; i < count; ++i) all_squares_[own * count + i] = sums[i * ranks + own];
  group_.all_gather(std::as_writable_bytes(std::span(all_squares_)));
  for (size_t i = 0; i < count; ++i) {
    for (size_t rank = 0; rank < ranks; ++rank) sums[i * ranks + rank] = all_squares_[rank * count + i];
    device_.copy(update.bytes_on_its_way(squares_[i]).data(), bytes_of_weight(i));
  }
}

void gather_weight(const Executor& program, const Op& gather, OrderedSum& sum) {
  const TensorId whole = gather.output(operand::all_gather::whole);
  const DeviceBytes bytes(program.device(), program.bytes_on_its_way(whole));
  const RankPieces pieces = {RankBytes(bytes),
                             piece_bytes(piece_of(gather), program.graph().tensor(whole).dtype)};
  sum.gather_pieces(std::span(&pieces, 1));
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
