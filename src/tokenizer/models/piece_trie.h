// Finds the pieces that a text starts with, in one walk: a double-array trie, 12 bytes a node.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace plimsoll {

class PieceTrie {
 public:
  struct Entry {
    std::string_view piece;  // not empty
    int32_t id;              // not negative
  };
  // The last of several entries with one piece counts. Sorts `entries`.
  explicit PieceTrie(std::vector<Entry> entries);

  // Calls found(length, id) for every piece that `text` starts with, the shortest first.
  template <typename Found>
  void for_each_prefix(std::string_view text, Found found) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const uint32_t next = nodes_[node].base ^ static_cast<unsigned char>(text[i]);
      if (nodes_[next].parent != node) return;
      node = next;
      if (nodes_[node].id >= 0) found(i + 1, nodes_[node].id);
    }
  }

  [[nodiscard]] int64_t resident_bytes() const {
    return static_cast<int64_t>(nodes_.capacity() * sizeof(Node));
  }

 private:
  static constexpr uint32_t kFree = UINT32_MAX;
  // The child for a byte stands at base ^ byte, and names its parent.
  struct Node {
    uint32_t base = 0;
    uint32_t parent = kFree;
    int32_t id = -1;
  };
  class Builder;

  std::vector<Node> nodes_;
};

}  // namespace plimsoll
