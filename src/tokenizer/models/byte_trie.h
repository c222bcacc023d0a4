// A trie over bytes, 20 bytes a node, with the failure links of Aho and Corasick where they are asked for.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace plimsoll {

class ByteTrie {
 public:
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNone = UINT32_MAX;

  ByteTrie() : nodes_(1) { first_.fill(kNone); }
  [[nodiscard]] bool empty() const { return nodes_.size() == 1; }
  // `key` is not empty, `value` not negative. A key that is there keeps its value.
  void add(std::string_view key, int32_t value);
  // kNone where the node has no such child.
  [[nodiscard]] uint32_t child(uint32_t node, char byte) const;
  // The value of the key that ends in the node; -1 where none does.
  [[nodiscard]] int32_t value(uint32_t node) const { return nodes_[node].value; }

  // After the last add(): what follow() and longest_value() need.
  void add_failure_links();
  // The node of the longest beginning of a key that ends with `byte`, read behind what leads to `node`. A
  // walk takes time linear in its length.
  [[nodiscard]] uint32_t follow(uint32_t node, char byte) const;
  // The value of the longest key that ends what leads to `node`; -1 where none does.
  [[nodiscard]] int32_t longest_value(uint32_t node) const { return longest_[node]; }

  [[nodiscard]] int64_t resident_bytes() const;

 private:
  struct Node {
    uint32_t first_child = kNone;
    uint32_t sibling = kNone;
    int32_t value = -1;
    char byte = 0;
  };

  std::array<uint32_t, 256> first_{};  // children of the root
  std::vector<Node> nodes_;
  std::vector<uint32_t> failure_;
  std::vector<int32_t> longest_;
};

}  // namespace plimsoll
