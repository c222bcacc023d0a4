// Trees of sequences that begin with the same tokens, so that those pass through a model once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace plimsoll {

class MicroBatch;

// The meaning of a label where several sequences hold its token. `of_one`: each of them has a label of its
// own, so that a token is shared as long as at most one of them trains on it. `weighed`: there is one label,
// the token itself, that counts for as many as train on it. Rows of ids may have labels of their own: a token
// whose label is another token is not shared.
enum class SharedLabels : uint8_t { of_one, weighed };
// The kind for rows of so many sequences.
constexpr SharedLabels labels_of(int64_t sequences) {
  return sequences > 1 ? SharedLabels::of_one : SharedLabels::weighed;
}

// Tokens at the beginning of a sequence that any number of others may share with it. They end before the
// first token that the sequence trains on; where labels are weighed, before the first whose label is another
// token.
size_t shareable_begin(std::span<const int32_t> ids, std::span<const int32_t> labels, SharedLabels kind);
// Tokens that two sequences of a sample begin with alike; labels are aligned with ids. They end where both
// would train on a token.
int64_t common_tokens(std::span<const int32_t> ids, std::span<const int32_t> labels,
                      std::span<const int32_t> other_ids, std::span<const int32_t> other_labels);

// Writes the keys of the random draws of tokens that sequences share (ops/philox.h), used instead of a
// sequence's number: a hash of a token's id and of all before it, so that the token draws the same whichever
// sequences it is computed for. `to` holds the sequence's tokens from `from` on. Fixed for ever, as
// ops/name_hash.h is.
void write_prefix_hashes(std::span<const int32_t> ids, std::span<int32_t> to, size_t from = 0);

// All storage is allocated by the constructor.
class PrefixTree {
 public:
  // Tokens that some sequences share with all that continue from them: [begin, end) of `sequence`, which is
  // the first of those sequences. Row `start` of the token axis has the first.
  struct Segment {
    int32_t sequence = 0;
    int32_t begin = 0, end = 0;
    int32_t parent = -1;  // in order()
    int32_t start = 0;

    [[nodiscard]] int32_t tokens() const { return end - begin; }
    [[nodiscard]] int32_t last_row() const { return start + tokens() - 1; }
  };

  PrefixTree(int64_t sequences, int64_t tokens);

  // Builds the tree of the batch's live sequences.
  void build(const MicroBatch& batch, SharedLabels labels);
  // Depth first: a segment is followed by those that continue it, in the order of its sequences.
  [[nodiscard]] std::span<const Segment> order() const { return order_; }
  [[nodiscard]] int64_t tokens() const { return tokens_; }
  // The segment, in order(), that a live sequence ends with.
  [[nodiscard]] int32_t last_of(int64_t sequence) const {
    return nodes_[static_cast<size_t>(ends_[static_cast<size_t>(sequence)])].number;
  }

 private:
  struct Node {
    int32_t sequence = 0, begin = 0, end = 0;
    int32_t parent = -1, first = -1, next = -1;  // nodes: above, the first below, the next one with the same
                                                 // parent
    int32_t number = -1;                         // in order_
  };
  void insert(const MicroBatch& batch, int32_t sequence, SharedLabels labels);
  // The child of `node` (-1: a root) by which `sequence` continues at its token `at`, or -1. Where several
  // have that token, as sequences that train on it do, the last: those of a sample stay together.
  [[nodiscard]] int32_t next_node(const MicroBatch& batch, int32_t node, int32_t sequence, int32_t at,
                                  SharedLabels labels) const;
  [[nodiscard]] bool meets(const MicroBatch& batch, const Node& node, int32_t sequence, int32_t at,
                           SharedLabels labels) const;
  int32_t add_node(const Node& node);
  // Cuts a node behind `tokens` of it.
  void split(int32_t node, int32_t tokens);
  void set_order(int32_t node, int32_t parent);

  std::vector<Node> nodes_;
  std::vector<Segment> order_;
  std::vector<int32_t> ends_;   // node that each sequence ends with
  std::vector<uint8_t> taken_;  // by token of the batch: whether one of the sequences that share it trains on
                                // it
  int32_t roots_ = -1;
  int64_t tokens_ = 0;
};

}  // namespace plimsoll
