// The safetensors format: 8 bytes with the length N of the header (little-endian), N bytes of JSON that name
// each tensor's type, shape and byte range, then the bytes of all tensors without gaps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/file.h"
#include "formats/tensor_file.h"

namespace plimsoll {

// Holds the file open and its header in memory (about 200 bytes a tensor); tensor bytes are read on demand.
class SafetensorsFile : public TensorFile {
 public:
  // Checks the whole header against the file. Throws DamagedError when they disagree, UsageError for an
  // element type that Plimsoll does not have.
  static SafetensorsFile open(const std::filesystem::path& path);
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;
  SafetensorsFile(SafetensorsFile&&) = default;
  SafetensorsFile& operator=(SafetensorsFile&&) = default;
  ~SafetensorsFile() override;

  [[nodiscard]] const std::filesystem::path& path() const override { return file_.path(); }
  // In the order of their bytes.
  [[nodiscard]] std::span<const TensorEntry> tensors() const { return tensors_; }
  // Null when the file has no tensor of that name.
  [[nodiscard]] const TensorEntry* find(std::string_view name) const;
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  void read(const TensorEntry& tensor, int64_t start, std::span<std::byte> to) const override;

 private:
  explicit SafetensorsFile(File file) : file_(std::move(file)) {}

  File file_;
  std::vector<TensorEntry> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::string in_file = {};  // its name in the file, where that is another one

  [[nodiscard]] const std::string& file_name() const { return in_file.empty() ? name : in_file; }
};

inline int64_t bytes_of(const TensorSpec& spec) { return spec.shape.elements() * size_of(spec.dtype); }

// Writes a file whose bytes equal those of the Hugging Face library: tensors ordered by type, widest first,
// then by name. The header is written at once; tensors follow in any order, each in chunks of any size, so
// that a small staging buffer is enough. Writing allocates nothing.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorSpec> tensors,
                    const std::map<std::string, std::string>& metadata = {});

  // The specs in the order of their bytes: writing in this order is sequential.
  [[nodiscard]] std::span<const TensorSpec> tensors() const { return specs_; }
  // Size of the finished file.
  [[nodiscard]] int64_t file_bytes() const { return file_bytes_; }
  // Appends to what was written of the tensor so far.
  void write(std::string_view name, std::span<const std::byte> chunk);
  // The tensor is written by others, who open the file, from this offset on.
  int64_t leave(std::string_view name);
  // Flushes to disk; throws InternalError when a tensor is incomplete. A file not finished is not valid.
  // Returns the CRC-32C of the whole file where the tensors were written in the order of their bytes.
  std::optional<uint32_t> finish();

  // Size a file of these tensors would have, to check free space before anything is written.
  static int64_t file_bytes(std::vector<TensorSpec> tensors,
                            const std::map<std::string, std::string>& metadata = {});

 private:
  struct Region {
    int64_t next = 0;  // file offset of the next chunk
    int64_t end = 0;
  };
  Region& region_of(std::string_view name);

  std::vector<TensorSpec> specs_;
  std::map<std::string, Region, std::less<>> regions_;
  int64_t file_bytes_ = 0;
  int64_t summed_bytes_ = 0;  // of the file's start that checksum_ is of
  uint32_t checksum_ = 0;
  File file_;
};

}  // namespace plimsoll
