#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "files/json.h"
#include "formats/safetensors.h"
#include "formats/safetensors_format.h"

namespace plimsoll {
namespace {

size_t type_order(DType dtype) {
  for (size_t i = 0; i < kSafetensorsTypes.size(); ++i)
    if (kSafetensorsTypes[i].first == dtype) return i;
  throw InternalError("safetensors has no name for " + std::string(to_string(dtype)));
}

void sort_for_file(std::vector<TensorSpec>& specs) {
  std::sort(specs.begin(), specs.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return std::tuple(type_order(a.dtype), std::string_view(a.file_name())) <
           std::tuple(type_order(b.dtype), std::string_view(b.file_name()));
  });
}

// Length and JSON of the header for sorted specs; its size is a multiple of 8, as spaces fill it up.
std::string header_text(std::span<const TensorSpec> specs,
                        const std::map<std::string, std::string>& metadata) {
  using nlohmann::json;
  using nlohmann::ordered_json;
  std::string text = "{";
  // The keys' order is that of the bytes, so the outermost object is put together by hand.
  const auto add = [&text](const std::string& key, const std::string& value) {
    if (text.size() > 1) text += ',';
    text += json(key).dump() + ':' + value;
  };
  if (!metadata.empty()) add("__metadata__", json(metadata).dump());
  int64_t offset = 0;
  for (const TensorSpec& spec : specs) {
    const int64_t end = offset + bytes_of(spec);
    const ordered_json entry = {{"dtype", kSafetensorsTypes[type_order(spec.dtype)].second},
                                {"shape", spec.shape.dims()},
                                {"data_offsets", {offset, end}}};
    add(spec.file_name(), entry.dump());
    offset = end;
  }
  text += '}';
  text.resize(static_cast<size_t>(round_up(static_cast<int64_t>(text.size()), kSafetensorsPrefixBytes)), ' ');
  std::string prefix;
  for (unsigned shift = 0; shift < 64; shift += 8) prefix += static_cast<char>(text.size() >> shift & 0xFFU);
  return prefix + text;
}

int64_t data_bytes(std::span<const TensorSpec> specs) {
  int64_t bytes = 0;
  for (const TensorSpec& spec : specs) bytes += bytes_of(spec);
  return bytes;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorSpec> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : specs_(std::move(tensors)), file_(File::create(path)) {
  sort_for_file(specs_);
  const std::string header = header_text(specs_, metadata);
  auto offset = static_cast<int64_t>(header.size());
  for (const TensorSpec& spec : specs_) {
    const int64_t end = offset + bytes_of(spec);
    check_internal(regions_.emplace(spec.name, Region{offset, end}).second,
                   formatted("two tensors of a file are called '{}'", spec.name));
    offset = end;
  }
  file_bytes_ = offset;
  file_.reserve(file_bytes_);
  file_.write(0, as_bytes(header));
  checksum_ = crc32c(as_bytes(header));
  summed_bytes_ = static_cast<int64_t>(header.size());
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> chunk) {
  Region& region = region_of(name);
  if (static_cast<int64_t>(chunk.size()) > region.end - region.next)
    throw InternalError(formatted("more bytes written than tensor '{}' has", name));
  file_.write(region.next, chunk);
  if (region.next == summed_bytes_) {
    checksum_ = crc32c(chunk, checksum_);
    summed_bytes_ += static_cast<int64_t>(chunk.size());
  }
  region.next += static_cast<int64_t>(chunk.size());
}

SafetensorsWriter::Region& SafetensorsWriter::region_of(std::string_view name) {
  const auto found = regions_.find(name);
  if (found == regions_.end()) throw InternalError(formatted("the file has no tensor '{}'", name));
  return found->second;
}

int64_t SafetensorsWriter::leave(std::string_view name) {
  Region& region = region_of(name);
  // The file is as long as its header says, also where nothing was reserved.
  if (region.end > region.next) file_.write(region.end - 1, std::array{std::byte{0}});
  return std::exchange(region.next, region.end);
}

std::optional<uint32_t> SafetensorsWriter::finish() {
  for (const auto& [name, region] : regions_)
    if (region.next != region.end)
      throw InternalError(
          formatted("tensor '{}' lacks {} bytes", name, format_count(region.end - region.next)));
  file_.sync();
  return summed_bytes_ == file_bytes_ ? std::optional(checksum_) : std::nullopt;
}

int64_t SafetensorsWriter::file_bytes(std::vector<TensorSpec> tensors,
                                      const std::map<std::string, std::string>& metadata) {
  sort_for_file(tensors);
  return static_cast<int64_t>(header_text(tensors, metadata).size()) + data_bytes(tensors);
}

}  // namespace plimsoll
