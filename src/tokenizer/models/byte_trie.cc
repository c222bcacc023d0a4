#include "tokenizer/models/byte_trie.h"

namespace plimsoll {

uint32_t ByteTrie::child(uint32_t node, char byte) const {
  if (node == kRoot) return first_[static_cast<unsigned char>(byte)];
  uint32_t next = nodes_[node].first_child;
  while (next != kNone && nodes_[next].byte != byte) next = nodes_[next].sibling;
  return next;
}

void ByteTrie::add(std::string_view key, int32_t value) {
  uint32_t node = kRoot;
  for (const char byte : key) {
    uint32_t next = child(node, byte);
    if (next == kNone) {
      next = static_cast<uint32_t>(nodes_.size());
      uint32_t& first = node == kRoot ? first_[static_cast<unsigned char>(byte)] : nodes_[node].first_child;
      const uint32_t sibling = first;
      first = next;
      nodes_.push_back({kNone, node == kRoot ? kNone : sibling, -1, byte});
    }
    node = next;
  }
  if (nodes_[node].value < 0) nodes_[node].value = value;
}

// Breadth first: the links of a node lead to nodes that are less deep.
void ByteTrie::add_failure_links() {
  failure_.assign(nodes_.size(), kRoot);
  longest_.assign(nodes_.size(), -1);
  std::vector<uint32_t> order;
  for (const uint32_t node : first_)
    if (node != kNone) order.push_back(node);
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t node = order[i];
    longest_[node] = nodes_[node].value >= 0 ? nodes_[node].value : longest_[failure_[node]];
    for (uint32_t next = nodes_[node].first_child; next != kNone; next = nodes_[next].sibling) {
      failure_[next] = follow(failure_[node], nodes_[next].byte);
      order.push_back(next);
    }
  }
}

uint32_t ByteTrie::follow(uint32_t node, char byte) const {
  for (;;) {
    const uint32_t next = child(node, byte);
    if (next != kNone) return next;
    if (node == kRoot) return kRoot;
    node = failure_[node];
  }
}

int64_t ByteTrie::resident_bytes() const {
  return static_cast<int64_t>(nodes_.capacity() * sizeof(Node) + failure_.capacity() * sizeof(uint32_t) +
                              longest_.capacity() * sizeof(int32_t));
}

}  // namespace plimsoll
