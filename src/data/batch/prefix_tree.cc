#include "data/batch/prefix_tree.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/error.h"
#include "data/batch/micro_batch.h"
#include "data/encode/example.h"
#include "ops/name_hash.h"

namespace plimsoll {
namespace {

// Returns true if a sequence trains on its token `at`: labels of a batch are those of the next tokens.
bool learns(const MicroBatch& batch, int32_t sequence, int32_t at) {
  const int32_t row = batch.seq_starts[static_cast<size_t>(sequence)] + at;
  return at > 0 && batch.labels[static_cast<size_t>(row) - 1] != kIgnoreLabel;
}

int32_t token(const MicroBatch& batch, int32_t sequence, int32_t at) {
  return batch.input_ids[static_cast<size_t>(batch.seq_starts[static_cast<size_t>(sequence)] + at)];
}

// Returns true if the label that a sequence has for its token `at` is another token.
bool learns_another(const MicroBatch& batch, int32_t sequence, int32_t at) {
  const auto row = static_cast<size_t>(batch.seq_starts[static_cast<size_t>(sequence)] + at);
  return learns(batch, sequence, at) && batch.labels[row - 1] != batch.input_ids[row];
}

}  // namespace

// The first token follows no other, so its label does not count.
size_t shareable_begin(std::span<const int32_t> ids, std::span<const int32_t> labels, SharedLabels kind) {
  const auto may_be = [&](size_t at) {
    return labels[at] == kIgnoreLabel || (kind == SharedLabels::weighed && labels[at] == ids[at]);
  };
  size_t at = std::min<size_t>(1, labels.size());
  while (at < labels.size() && may_be(at)) ++at;
  return at;
}

int64_t common_tokens(std::span<const int32_t> ids, std::span<const int32_t> labels,
                      std::span<const int32_t> other_ids, std::span<const int32_t> other_labels) {
  const size_t most = std::min(ids.size(), other_ids.size());
  size_t at = 0;
  for (; at < most && ids[at] == other_ids[at]; ++at)
    if (at > 0 && labels[at] != kIgnoreLabel && other_labels[at] != kIgnoreLabel) break;
  return static_cast<int64_t>(at);
}

void write_prefix_hashes(std::span<const int32_t> ids, std::span<int32_t> to, size_t from) {
  uint64_t hash = kNameHashStart;
  for (size_t i = 0; i < from + to.size(); ++i) {
    const auto id = std::bit_cast<std::array<char, sizeof(int32_t)>>(ids[i]);
    hash = name_hash({id.data(), id.size()}, hash);
    if (i >= from) to[i - from] = static_cast<int32_t>(static_cast<uint32_t>(hash ^ (hash >> 32)));
  }
}

PrefixTree::PrefixTree(int64_t sequences, int64_t tokens) : taken_(static_cast<size_t>(tokens)) {
  nodes_.reserve(static_cast<size_t>(2 * sequences));
  order_.reserve(nodes_.capacity());
  ends_.reserve(static_cast<size_t>(sequences));
}

void PrefixTree::build(const MicroBatch& batch, SharedLabels labels) {
  nodes_.clear();
  order_.clear();
  ends_.clear();
  roots_ = -1;
  tokens_ = 0;
  std::fill_n(taken_.begin(), batch.live_tokens, uint8_t{0});
  for (int32_t sequence = 0; sequence < batch.live_sequences; ++sequence) insert(batch, sequence, labels);
  for (int32_t root = roots_; root >= 0; root = nodes_[static_cast<size_t>(root)].next) set_order(root, -1);
}

// A node's tokens lie at the same places in all sequences that share them.
bool PrefixTree::meets(const MicroBatch& batch, const Node& node, int32_t sequence, int32_t at,
                       SharedLabels labels) const {
  if (token(batch, node.sequence, at) != token(batch, sequence, at)) return false;
  if (labels == SharedLabels::weighed)
    return !learns_another(batch, sequence, at) && !learns_another(batch, node.sequence, at);
  if (!learns(batch, sequence, at)) return true;
  return taken_[static_cast<size_t>(batch.seq_starts[static_cast<size_t>(node.sequence)] + at)] == 0;
}

int32_t PrefixTree::next_node(const MicroBatch& batch, int32_t node, int32_t sequence, int32_t at,
                              SharedLabels labels) const {
  int32_t found = -1;
  for (int32_t child = node < 0 ? roots_ : nodes_[static_cast<size_t>(node)].first; child >= 0;
       child = nodes_[static_cast<size_t>(child)].next)
    if (meets(batch, nodes_[static_cast<size_t>(child)], sequence, at, labels)) found = child;
  return found;
}

void PrefixTree::insert(const MicroBatch& batch, int32_t sequence, SharedLabels labels) {
  const auto start = batch.seq_starts[static_cast<size_t>(sequence)];
  const int32_t length = batch.seq_starts[static_cast<size_t>(sequence) + 1] - start;
  int32_t above = -1, at = 0;
  while (at < length) {
    const int32_t node = next_node(batch, above, sequence, at, labels);
    if (node < 0) {
      above = add_node({.sequence = sequence, .begin = at, .end = length, .parent = above});
      for (int32_t i = at; i < length; ++i)
        taken_[static_cast<size_t>(start + i)] = learns(batch, sequence, i) ? 1 : 0;
      at = length;
      continue;
    }
    const Node shared = nodes_[static_cast<size_t>(node)];
    const int32_t from = at, owner = batch.seq_starts[static_cast<size_t>(shared.sequence)];
    for (; at < std::min(shared.end, length) && meets(batch, shared, sequence, at, labels); ++at)
      if (learns(batch, sequence, at)) taken_[static_cast<size_t>(owner + at)] = 1;
    if (at < shared.end) split(node, at - from);
    above = node;
  }
  ends_.push_back(above);
}

int32_t PrefixTree::add_node(const Node& node) {
  check_internal(nodes_.size() < nodes_.capacity(), "a prefix tree has more segments than sequences make");
  const auto made = static_cast<int32_t>(nodes_.size());
  nodes_.push_back(node);
  int32_t* last = node.parent < 0 ? &roots_ : &nodes_[static_cast<size_t>(node.parent)].first;
  while (*last >= 0) last = &nodes_[static_cast<size_t>(*last)].next;
  *last = made;
  return made;
}

void PrefixTree::split(int32_t node, int32_t tokens) {
  Node& upper = nodes_[static_cast<size_t>(node)];
  Node lower = upper;
  lower.begin = upper.end = upper.begin + tokens;
  lower.parent = node;
  lower.next = -1;
  const int32_t below = upper.first;
  upper.first = -1;
  const int32_t made = add_node(lower);
  for (int32_t child = below; child >= 0; child = nodes_[static_cast<size_t>(child)].next)
    nodes_[static_cast<size_t>(child)].parent = made;
  std::replace(ends_.begin(), ends_.end(), node, made);
}

void PrefixTree::set_order(int32_t node, int32_t parent) {
  Node& own = nodes_[static_cast<size_t>(node)];
  own.number = static_cast<int32_t>(order_.size());
  order_.push_back({own.sequence, own.begin, own.end, parent, static_cast<int32_t>(tokens_)});
  tokens_ += own.end - own.begin;
  for (int32_t child = own.first; child >= 0; child = nodes_[static_cast<size_t>(child)].next)
    set_order(child, own.number);
}

}  // namespace plimsoll
