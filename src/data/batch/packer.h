// Decides which sequence of a step a row joins. Rows stay whole: a row goes to the first sequence that has
// room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace plimsoll {

// Capacity of a place of the program: one row, or several with packing. A row is one sequence, or a few that
// stay together (a pair); each is a document to the program.
struct SequenceShape {
  int64_t tokens = 1024;
  int64_t documents = 1;
  int64_t targets = 0;  // numbers that come with each document
  // The common beginning of documents needs room in a micro-step only once (data/batch/prefix_tree.h).
  bool shares_prefixes = false;
  int64_t of_row = 1;  // documents that a row has
  // Each token gets the length of the longest sequence that begins as its own does
  // (data/batch/longest_alike.h).
  bool longest_alike = false;
  bool labels_in_place = false;  // a token's label is its own, not the next one's

  [[nodiscard]] bool packs() const { return documents > of_row; }
};

// With packing a sequence holds so many documents at most: their starts and rotary frequencies are inputs of
// the program and take memory. 8 tokens each on average are shorter than any real data's.
constexpr int64_t packed_documents(int64_t max_length) { return max_length < 32 ? 4 : max_length / 8; }

class Packer {
 public:
  Packer(int64_t sequences, const SequenceShape& shape) : shape_(shape) {
    filled_.reserve(static_cast<size_t>(sequences));
    capacity_ = sequences;
  }

  void clear() { filled_.clear(); }
  // The number of the place that takes so many documents of so many tokens together, or -1 when none does.
  int64_t place(int64_t tokens, int64_t documents = 1);
  [[nodiscard]] int64_t sequences() const { return static_cast<int64_t>(filled_.size()); }

 private:
  struct Filled {
    int64_t tokens = 0;
    int64_t documents = 0;
  };
  SequenceShape shape_;
  int64_t capacity_ = 0;
  std::vector<Filled> filled_;
};

}  // namespace plimsoll
