#include "formats/gguf.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/units.h"
#include "formats/gguf_format.h"

namespace plimsoll {
namespace {

using namespace gguf_format;

static_assert(std::endian::native == std::endian::little, "GGUF's numbers are little-endian");

template <class Number>
void append(std::string& text, Number value) {
  std::array<char, sizeof value> bytes{};
  std::memcpy(bytes.data(), &value, sizeof value);
  text.append(bytes.data(), bytes.size());
}

void append_string(std::string& text, std::string_view value) {
  append<uint64_t>(text, value.size());
  text += value;
}

}  // namespace

void GgufHead::add_key(std::string_view key, uint32_t type) {
  append_string(values_, key);
  append(values_, type);
  ++value_count_;
}

void GgufHead::add(std::string_view key, uint32_t value) {
  add_key(key, kU32);
  append(values_, value);
}

void GgufHead::add(std::string_view key, float value) {
  add_key(key, kF32);
  append(values_, value);
}

void GgufHead::add(std::string_view key, bool value) {
  add_key(key, kBool);
  append<uint8_t>(values_, value ? 1 : 0);
}

void GgufHead::add(std::string_view key, std::string_view text) {
  add_key(key, kString);
  append_string(values_, text);
}

void GgufHead::add(std::string_view key, std::span<const std::string> texts) {
  add_key(key, kArray);
  append(values_, kString);
  append<uint64_t>(values_, texts.size());
  for (const std::string& text : texts) append_string(values_, text);
}

void GgufHead::add(std::string_view key, std::span<const int32_t> values) {
  add_key(key, kArray);
  append(values_, kI32);
  append<uint64_t>(values_, values.size());
  for (const int32_t value : values) append(values_, value);
}

void GgufHead::add(std::string_view key, std::span<const float> values) {
  add_key(key, kArray);
  append(values_, kF32);
  append<uint64_t>(values_, values.size());
  for (const float value : values) append(values_, value);
}

void GgufHead::add_tensor(std::string_view name, GgufType type, const Shape& shape) {
  append_string(tensors_, name);
  append(tensors_, static_cast<uint32_t>(shape.rank()));
  for (auto i = static_cast<int>(shape.rank()); i-- > 0;) append(tensors_, static_cast<uint64_t>(shape[i]));
  append(tensors_, static_cast<uint32_t>(type));
  append(tensors_, static_cast<uint64_t>(data_bytes_));
  data_bytes_ += round_up(gguf_bytes(type, shape), kAlignment);
  ++tensor_count_;
}

std::string GgufHead::text() const {
  std::string text = "GGUF";
  append(text, kVersion);
  append(text, tensor_count_);
  append(text, value_count_);
  text += values_ + tensors_;
  text.resize(static_cast<size_t>(round_up(static_cast<int64_t>(text.size()), kAlignment)), '\0');
  return text;
}

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufHead& head)
    : file_(File::create(path)), end_(head.file_bytes()) {
  file_.reserve(end_);
  write(as_bytes(head.text()));
}

void GgufWriter::write(std::span<const std::byte> bytes) {
  file_.write(at_, bytes);
  at_ += static_cast<int64_t>(bytes.size());
}

void GgufWriter::end_tensor() {
  const std::array<std::byte, kAlignment> zeros{};
  write(std::span(zeros).first(static_cast<size_t>(round_up(at_, kAlignment) - at_)));
}

void GgufWriter::finish() {
  check_internal(at_ == end_, "a GGUF file is not as long as its head says");
  file_.sync();
}

}  // namespace plimsoll
