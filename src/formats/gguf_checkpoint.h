// A GGUF file as the checkpoint that it was made of: the checkpoint's names, rows in its order, f32.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "formats/gguf_file.h"
#include "formats/tensor_file.h"

namespace plimsoll {

// Value heads of which each key head has several: a checkpoint lists those of a key head one after the other, a GGUF the
// first ones of all key heads, then the second ones.
struct GgufHeads {
  int64_t key_heads = 0, group = 1;  // value heads of a key head; 1: the order is the same
  int64_t size = 0, first = 0;       // rows of a value head, and the first one's first row
  bool columns = false;              // columns instead of rows

  [[nodiscard]] bool move() const { return group > 1; }
  // The row or column of the file that has one of the checkpoint, and the other way.
  [[nodiscard]] int64_t in_file(int64_t at) const { return moved(at, group, key_heads); }
  [[nodiscard]] int64_t in_checkpoint(int64_t at) const { return moved(at, key_heads, group); }

 private:
  // From lists of `each` to lists of `number`.
  [[nodiscard]] int64_t moved(int64_t at, int64_t each, int64_t number) const {
    if (at < first) return at;
    const int64_t head = (at - first) / size;
    return first + (head % each * number + head / each) * size + (at - first) % size;
  }
};

// The difference of a tensor's numbers in a GGUF from the checkpoint's.
struct GgufForm {
  int64_t head_rows = 0;  // rows of a head, whose halves are dealt out in turn; 0: rows are as they are
  float added = 0;        // to each number: norms' factors that are 1 more than their weights are whole there
  GgufHeads heads = {};
  bool rates = false;     // -e^x of each number x
  bool squeezed = false;  // [rows, 1, columns] is [rows, columns], always f32
};

// A tensor by its name in the checkpoint and in the file.
struct GgufPart {
  std::string name, stored;
  GgufForm form = {};
};

class GgufCheckpoint : public TensorFile {
 public:
  // Throws UsageError where the file lacks a part; what GgufFile throws.
  GgufCheckpoint(const std::filesystem::path& path, const std::vector<GgufPart>& parts);
  GgufCheckpoint(const GgufCheckpoint&) = delete;
  GgufCheckpoint& operator=(const GgufCheckpoint&) = delete;
  ~GgufCheckpoint() override;

  [[nodiscard]] const std::filesystem::path& path() const override { return file_.path(); }
  [[nodiscard]] const GgufFile& file() const { return file_; }
  // An entry for each part; addresses stay.
  [[nodiscard]] const std::deque<TensorEntry>& tensors() const { return entries_; }
  // Reads whole numbers of f32.
  void read(const TensorEntry& tensor, int64_t start, std::span<std::byte> to) const override;

 private:
  struct Stored {
    const GgufTensor* tensor = nullptr;
    GgufForm form;
  };

  GgufFile file_;
  std::deque<TensorEntry> entries_;
  std::map<std::string, Stored, std::less<>> stored_;  // by the checkpoint's name
};

}  // namespace plimsoll
