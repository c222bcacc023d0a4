#include "plan/program/block_shares.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/units.h"
#include "graph/op_kind.h"
#include "ops/rule.h"
#include "ops/transfer.h"

namespace plimsoll {
namespace {

// Transfers start and end up to two blocks before and behind the block that they are for.
constexpr int64_t kReach = 3;

bool is_of_backward(const Op& op) { return op.stage != Stage::forward; }

// The place of each op among the blocks: its block, or behind the last one where it is between both passes; of other
// ops, none.
std::vector<int64_t> places_of(const Graph& graph) {
  const auto& ops = graph.ops();
  const auto has_block = [](const Op& op) { return op.block != kNoBlock; };
  const auto first_backward =
      std::ranges::find_if(ops, [&](const Op& op) { return has_block(op) && is_of_backward(op); });
  const auto is_last = [&](const Op& op) { return has_block(op) && !is_of_backward(op); };
  const auto last_forward = std::find_if(ops.rbegin(), ops.rend(), is_last).base();
  std::vector<int64_t> places(ops.size(), kNoBlock);
  for (size_t i = 0; i < ops.size(); ++i) {
    const auto at = ops.begin() + static_cast<std::ptrdiff_t>(i);
    if (has_block(*at))
      places[i] = at->block;
    else if (at >= last_forward && at < first_backward)
      places[i] = std::ssize(graph.blocks());
  }
  return places;
}

// The block in whose forward pass a storage is made; kNoBlock: before all blocks.
std::optional<BlockId> maker_of(const Graph& graph, const StorageLife& life, int32_t first_of_block) {
  const Op& maker = graph.ops()[static_cast<size_t>(life.first)];
  if (life.first < first_of_block) return kNoBlock;
  if (maker.block == kNoBlock || is_of_backward(maker)) return std::nullopt;
  return maker.block;
}

int32_t first_of_blocks(const Graph& graph) {
  const auto found = std::ranges::find_if(graph.ops(), [](const Op& op) { return op.block != kNoBlock; });
  return static_cast<int32_t>(found - graph.ops().begin());
}

// The bytes that are alive from op to op: in all, and of each block's forward pass.
class Alive {
 public:
  Alive(const Graph& graph, const std::vector<StorageLife>& lives)
      : change_(graph.ops().size() + 1), of_(graph.blocks().size() + 1) {
    const int32_t first_of_block = first_of_blocks(graph);
    for (const StorageLife& life : lives) {
      if (life.space != Space::device) continue;
      const auto first = static_cast<size_t>(life.first), after = static_cast<size_t>(life.last) + 1;
      change_[first] += life.bytes;
      change_[after] -= life.bytes;
      if (const auto maker = maker_of(graph, life, first_of_block)) {
        made_.push_back({first, place_of(*maker), life.bytes});
        made_.push_back({after, place_of(*maker), -life.bytes});
      }
    }
    std::ranges::sort(made_, {}, &Change::at);
  }
  void step_to(size_t op) {
    all_ += change_[op];
    for (; next_ < made_.size() && made_[next_].at == op; ++next_) {
      of_[made_[next_].place] += made_[next_].bytes;
      of_blocks_ += made_[next_].bytes;
    }
  }
  // Without what blocks two and more below made, nor what far ones above did.
  [[nodiscard]] int64_t near(int64_t place) const {
    int64_t bytes = all_ - of_blocks_;
    const int64_t end = std::min(std::ssize(of_) - 1, place + kReach + 1);
    for (int64_t block = std::max<int64_t>(kNoBlock, place - 1); block < end; ++block)
      bytes += of_[place_of(block)];
    return bytes;
  }

 private:
  // The first place is for storages that are made before all blocks.
  static size_t place_of(int64_t block) { return static_cast<size_t>(block + 1); }
  struct Change {
    size_t at = 0, place = 0;
    int64_t bytes = 0;
  };
  std::vector<int64_t> change_;
  std::vector<Change> made_;
  std::vector<int64_t> of_;  // by place_of(), of made_
  size_t next_ = 0;
  int64_t all_ = 0, of_blocks_ = 0;
};

void add_kept(const Graph& graph, const std::vector<StorageLife>& lives, BlockShares& shares) {
  for (const StorageLife& life : lives) {
    const auto maker = maker_of(graph, life, 0);
    const Op& last = graph.ops()[static_cast<size_t>(life.last)];
    if (life.space != Space::device || !maker || !is_of_backward(last) || last.block == kNoBlock) continue;
    if (last.block == *maker || last.block == *maker + 1)
      shares.kept[static_cast<size_t>(*maker)] += life.bytes;
  }
}

int64_t bytes_across(const Graph& graph) {
  const auto& ops = graph.ops();
  const auto is_of_blocks = [](const Op& op) {
    return op.block != kNoBlock && is_of_backward(op) && !is_transfer(op.kind);
  };
  const auto begin = std::ranges::find_if(ops, is_of_blocks);
  const auto end = std::find_if(ops.rbegin(), ops.rend(), is_of_blocks).base();
  if (begin == ops.end()) return 0;
  std::vector<char> before(graph.tensors().size());  // written by an op that computes before all of these
  for (auto op = ops.begin(); op < begin; ++op)
    for (const TensorId id : op->outputs)
      if (id != kNoTensor && !is_transfer(op->kind)) before[static_cast<size_t>(id)] = 1;
  int64_t bytes = 0;
  for (auto op = end; op != ops.end(); ++op) {
    if (op->kind != OpKind::store || graph.tensor(offloaded_of(*op)).role != Role::gradient) continue;
    const TensorId copy = copy_of(*op);
    if (std::exchange(before[static_cast<size_t>(copy)], 0) != 0)
      bytes += round_up(graph.tensor(copy).bytes(), kArenaAlignment);
  }
  return bytes;
}

int64_t segment_end(int64_t begin, int64_t segment, int64_t blocks) {
  return std::min(begin + segment, blocks) - 1;
}

}  // namespace

BlockShares block_shares_of(const Graph& graph, const std::vector<StorageLife>& lives,
                            const std::vector<double>& seconds, const std::vector<LossWorkspace>& losses,
                            size_t chunks) {
  BlockShares shares;
  const size_t blocks = graph.blocks().size();
  if (graph.stacks().size() != 1 || std::ranges::none_of(graph.ops(), is_of_backward)) return shares;
  for (auto* bytes : {&shares.kept, &shares.most, &shares.most_in_backward}) bytes->resize(blocks);
  for (auto* list : {&shares.compute, &shares.products}) list->resize(blocks);
  shares.most_at_loss.resize(chunks);
  add_kept(graph, lives, shares);
  shares.across = bytes_across(graph);
  const std::vector<int64_t> places = places_of(graph);
  Alive alive(graph, lives);
  auto loss = losses.begin();
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    alive.step_to(i);
    const Op& op = graph.ops()[i];
    while (loss != losses.end() && loss->at < i) ++loss;
    if (places[i] == kNoBlock) continue;
    const int64_t bytes = alive.near(places[i]);
    if (op.block == kNoBlock) {
      const bool is_loss = loss != losses.end() && loss->at == i;
      const int64_t own = is_loss && op.scratch != kNoTensor
                              ? round_up(graph.tensor(op.scratch).bytes(), kArenaAlignment)
                              : 0;
      for (size_t chunk = 0; chunk < chunks; ++chunk)
        shares.most_at_loss[chunk] =
            std::max(shares.most_at_loss[chunk], bytes - own + (is_loss ? loss->bytes[chunk] : 0));
      continue;
    }
    const auto block = static_cast<size_t>(op.block);
    shares.most[block] = std::max(shares.most[block], bytes);
    if (is_of_backward(op)) shares.most_in_backward[block] = std::max(shares.most_in_backward[block], bytes);
    if (is_transfer(op.kind)) continue;
    shares.compute[block] += seconds[i];
    const RecomputeClass kind = rule_of(op.kind).recompute;
    if (!is_of_backward(op) && (kind == RecomputeClass::product || kind == RecomputeClass::mixer))
      shares.products[block] += seconds[i];
  }
  return shares;
}

int64_t alive_between(const BlockShares& first, const BlockShares& rest, int64_t first_layers, size_t chunk) {
  const int64_t blocks = std::ssize(rest.kept);
  const auto kept = [&](int64_t block) {
    const auto i = static_cast<size_t>(block);
    if (block >= first_layers - 2 && block <= first_layers + 1) return std::min(first.kept[i], rest.kept[i]);
    return block < first_layers ? first.kept[i] : rest.kept[i];
  };
  int64_t most = 0, below = 0;
  for (int64_t block = 0; block <= blocks; ++block) {
    if (block >= 2) below += kept(block - 2);
    const auto i = static_cast<size_t>(block);
    if (block < first_layers - kReach) most = std::max(most, first.most[i] + below);
    if (block < first_layers + kReach) continue;
    most = std::max(most, below + (block < blocks ? rest.most[i] : rest.most_at_loss[chunk]));
  }
  return most;
}

double more_between(std::span<const double> first, std::span<const double> rest, int64_t first_layers) {
  double amount = 0;
  const auto blocks = static_cast<int64_t>(rest.size());
  for (int64_t block = 0; block < std::min(blocks, first_layers + 2); ++block) {
    const auto i = static_cast<size_t>(block);
    const double more = first[i] - rest[i];
    amount += block < first_layers - 2 ? more : std::min(more, 0.0);
  }
  return amount;
}

// The last block of a segment has the inputs of all of its blocks there when the backward pass begins.
int64_t alive_in_segments(const BlockShares& block, int64_t segment, bool inputs_stay) {
  const int64_t blocks = std::ssize(block.kept);
  int64_t most = 0, ends = 0;  // of segments that end two blocks and more below
  for (int64_t begin = 0; begin < blocks; begin += segment) {
    const int64_t end = segment_end(begin, segment, blocks);
    if (inputs_stay && begin >= 1 && begin - 1 <= end - 2) ends += block.kept[static_cast<size_t>(begin - 1)];
    int64_t inside = 0;
    for (int64_t i = begin; i <= end - 2; ++i) inside += block.kept[static_cast<size_t>(i)];
    most = std::max(most, block.most_in_backward[static_cast<size_t>(end)] + ends + inside);
  }
  return most;
}

double longer_in_segments(const BlockShares& block, int64_t segment) {
  const int64_t blocks = std::ssize(block.products);
  double seconds = 0;
  for (int64_t begin = 0; begin < blocks; begin += segment)
    for (int64_t i = begin; i < segment_end(begin, segment, blocks); ++i)
      seconds += block.products[static_cast<size_t>(i)];
  return seconds;
}

}  // namespace plimsoll
