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

// The difference of a tensor's numbers in a GGUF from the checkpoint's.
struct GgufForm {
  int64_t head_rows = 0;  // rows of a head, whose halves are dealt out in turn; 0: rows are as they are
  float added = 0;        // to each number: norms' factors that are 1 more than their weights are whole there
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
