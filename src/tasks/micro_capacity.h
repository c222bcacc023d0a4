// Decides which rows of an effective batch share a micro-step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace plimsoll {

// Tokens of a row's sequences; those of its target apart where targets have room of their own; and those that
// its sequences begin with alike, which need no room where they are computed once.
struct RowSize {
  int64_t tokens = 0;
  int64_t targets = 0;
  int64_t shared = 0;
};

// Shape of a micro-batch: so many rows (with packing, places), each as long as it may be, or rows until so
// many tokens are full.
struct MicroCapacity {
  int64_t samples = 1;
  int64_t tokens = 0;   // of rows together, or of their sources; 0: each row may be as long as any
  int64_t targets = 0;  // of their targets, where those have room of their own
  int64_t begin = 0;    // of `tokens`: what all rows begin with, which is there once

  [[nodiscard]] bool by_tokens() const { return tokens > 0; }
  friend bool operator==(const MicroCapacity&, const MicroCapacity&) = default;
};

// The longest row first, each to the first micro-step that has room (first-fit decreasing): few micro-steps,
// and the same ones for the same rows. A row is given by what it takes in addition to the capacity's begin.
// Throws InternalError for a row longer than the capacity.
class MicroPacker {
 public:
  MicroPacker(const MicroCapacity& capacity, int64_t rows);

  void clear();
  void add(const RowSize& row);
  // Micro-steps that all rows added need; of_row() then says which one each is in.
  int64_t pack();
  [[nodiscard]] int64_t of_row(int64_t row) const { return step_of_[static_cast<size_t>(row)]; }
  // Rows in the fullest one.
  [[nodiscard]] int64_t most_rows() const;

 private:
  struct Filled {
    RowSize size;
    int64_t rows = 0;
  };
  [[nodiscard]] bool takes(const Filled& filled, const RowSize& row) const;

  MicroCapacity capacity_;
  std::vector<RowSize> sizes_;
  std::vector<int32_t> order_, step_of_;
  std::vector<Filled> filled_;
};

}  // namespace plimsoll
