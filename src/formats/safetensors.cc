#include "formats/safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "files/json.h"
#include "formats/safetensors_format.h"

namespace plimsoll {
namespace {

using nlohmann::json;

[[noreturn]] void damaged(const File& file, const std::string& what) {
  throw DamagedError(formatted("{}: {} Fetch it again.", file.path().string(), what));
}

[[noreturn]] void cut_off(const File& file, int64_t promised) {
  throw DamagedError(
      formatted("{}: ends at byte {}, header promises {}. The file is cut off: fetch it again.",
                file.path().string(), format_count(file.size()), format_count(promised)));
}

// The JSON text of the header.
std::string read_header(const File& file) {
  const int64_t file_bytes = file.size();
  if (file_bytes < kSafetensorsPrefixBytes) cut_off(file, kSafetensorsPrefixBytes);
  std::array<std::byte, kSafetensorsPrefixBytes> prefix{};
  file.read(0, prefix);
  uint64_t length = 0;
  for (size_t i = prefix.size(); i-- > 0;) length = length << 8U | std::to_integer<uint64_t>(prefix[i]);
  if (length > static_cast<uint64_t>(kMaxHeaderBytes))
    damaged(
        file,
        formatted("claims a header of {} bytes, at most {} are read: it is damaged or no safetensors file.",
                  length, format_bytes(kMaxHeaderBytes)));
  const auto header_bytes = static_cast<int64_t>(length);
  if (kSafetensorsPrefixBytes + header_bytes > file_bytes)
    cut_off(file, kSafetensorsPrefixBytes + header_bytes);
  std::string text(length, '\0');
  file.read(kSafetensorsPrefixBytes, std::as_writable_bytes(std::span<char>(text)));
  return text;
}

// A non-negative integer of the header that fits into 63 bits.
int64_t count_of(const File& file, const std::string& name, const json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    damaged(file, formatted("tensor '{}' has {} where a size or offset is expected.", name, value.dump()));
  return value.get<int64_t>();
}

DType dtype_of(const File& file, const std::string& name, const json& value) {
  if (!value.is_string()) damaged(file, formatted("tensor '{}' has no type.", name));
  const auto& text = value.get_ref<const std::string&>();
  for (const auto& [dtype, label] : kSafetensorsTypes)
    if (label == text) return dtype;
  throw UsageError(formatted(
      "{}: tensor '{}' has the element type {}, which is not supported (F64, F32, BF16, F16, I64, I32, "
      "I16, I8, U8, BOOL are).",
      file.path().string(), name, text));
}

int64_t bytes_of(const File& file, const TensorEntry& tensor) {
  int64_t bytes = size_of(tensor.dtype);
  for (const int64_t dim : tensor.shape.dims())
    if (__builtin_mul_overflow(bytes, dim, &bytes))
      damaged(file,
              formatted("tensor '{}' has the impossible shape {}.", tensor.name, tensor.shape.to_string()));
  return bytes;
}

// Offset and bytes are still relative to the end of the header.
TensorEntry parse_entry(const File& file, const std::string& name, const json& value) {
  const bool complete = value.is_object() && value.contains("dtype") && value.contains("shape") &&
                        value["shape"].is_array() && value.contains("data_offsets") &&
                        value["data_offsets"].is_array() && value["data_offsets"].size() == 2;
  if (!complete)
    damaged(file, formatted("the header's entry for tensor '{}' is not dtype, shape, data_offsets.", name));
  std::vector<int64_t> dims;
  for (const json& dim : value["shape"]) dims.push_back(count_of(file, name, dim));
  TensorEntry tensor{name, dtype_of(file, name, value["dtype"]), Shape(std::move(dims)), 0, 0};
  tensor.offset = count_of(file, name, value["data_offsets"][0]);
  tensor.bytes = bytes_of(file, tensor);
  const int64_t end = count_of(file, name, value["data_offsets"][1]);
  if (end < tensor.offset || end - tensor.offset != tensor.bytes)
    damaged(file, formatted("tensor '{}' {}{} takes {} bytes, the header gives it {} to {}.", name,
                            to_string(tensor.dtype), tensor.shape.to_string(), format_count(tensor.bytes),
                            format_count(tensor.offset), format_count(end)));
  return tensor;
}

// Sorts by offset, and makes sure that the tensors follow each other without overlap or gap.
// Returns the bytes of all tensors.
int64_t check_order(const File& file, std::vector<TensorEntry>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  int64_t end = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].offset < end)
      damaged(file, formatted("tensors '{}' and '{}' overlap.", tensors[i - 1].name, tensors[i].name));
    if (tensors[i].offset > end)
      damaged(file, formatted("{} bytes before tensor '{}' belong to no tensor.",
                              format_count(tensors[i].offset - end), tensors[i].name));
    end += tensors[i].bytes;
  }
  return end;
}

std::map<std::string, std::string> parse_metadata(const File& file, const json& value) {
  if (!value.is_object())
    damaged(file, formatted("__metadata__ is {}, not an object.", describe_kind(value)));
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string())
      damaged(file, formatted("__metadata__ entry '{}' is {}.", key, describe_kind(text)));
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile result(File::open(path));
  const File& file = result.file_;
  const std::string text = read_header(file);
  // Depth 3: header, entry, shape.
  const json header = parse_json(text, path.string() + ": header", {.max_depth = 3, .unique_keys = true});
  if (!header.is_object())
    damaged(file, formatted("the header is {}, not an object.", describe_kind(header)));
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__")
      result.metadata_ = parse_metadata(file, value);
    else
      result.tensors_.push_back(parse_entry(file, name, value));
  }
  const int64_t data_start = kSafetensorsPrefixBytes + static_cast<int64_t>(text.size());
  const int64_t data_bytes = check_order(file, result.tensors_);
  if (data_bytes > file.size() - data_start) cut_off(file, data_start + data_bytes);
  if (data_bytes < file.size() - data_start)
    damaged(file, formatted("has {} bytes after the last tensor that belong to none.",
                            format_count(file.size() - data_start - data_bytes)));
  for (size_t i = 0; i < result.tensors_.size(); ++i) {
    result.tensors_[i].offset += data_start;
    result.index_.emplace(result.tensors_[i].name, i);
  }
  return result;
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void SafetensorsFile::read(const TensorEntry& tensor, int64_t start, std::span<std::byte> to) const {
  check_internal(start >= 0 && static_cast<int64_t>(to.size()) <= tensor.bytes - start,
                 "read beyond the tensor's bytes");
  file_.read(tensor.offset + start, to);
}

}  // namespace plimsoll
