#include "formats/gguf_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "formats/gguf_format.h"

namespace plimsoll {
namespace {

using nlohmann::json;
using namespace gguf_format;

constexpr int64_t kWindow = 64 * kKiB;
constexpr uint32_t kMostDimensions = 4;
constexpr int64_t kMostElements = int64_t{1} << 48;
// A head is held as JSON, 16 bytes and more for each value: a file must not choose how much memory that takes. Known
// tokenizers take less than 32 MiB and less than a million items.
constexpr int64_t kMostHead = 256 * kMiB;
constexpr int64_t kMostItems = int64_t{1} << 23;  // of all lists together

// The head of a file, read from its start on.
class HeadReader {
 public:
  explicit HeadReader(const File& file) : file_(file), size_(std::min(file.size(), kMostHead)) {}

  template <class Number>
  Number take() {
    Number value{};
    take_bytes(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  std::string take_text() {
    std::string text(static_cast<size_t>(take_count(1)), '\0');
    take_bytes(std::as_writable_bytes(std::span(text)));
    return text;
  }
  // A count of things of which each takes so many bytes of the file.
  int64_t take_count(int64_t least_bytes) {
    const auto count = take<uint64_t>();
    if (count > static_cast<uint64_t>((size_ - at_) / least_bytes)) refuse("counts more than it holds");
    return static_cast<int64_t>(count);
  }
  // A count of items of a list.
  int64_t take_items() {
    const int64_t count = take_count(1);
    items_ += count;
    if (items_ > kMostItems) refuse("has lists of too many items");
    return count;
  }
  [[nodiscard]] int64_t at() const { return at_; }
  [[noreturn]] void refuse(const std::string& what) const {
    throw DamagedError(formatted("{}: its head {} (at byte {}). Fetch or write it again.",
                                 file_.path().string(), what, format_count(at_)));
  }

 private:
  void take_bytes(std::span<std::byte> to) {
    if (static_cast<int64_t>(to.size()) > size_ - at_) refuse("is cut off");
    while (!to.empty()) {
      if (at_ < start_ || at_ >= start_ + static_cast<int64_t>(window_.size())) fill();
      const auto from = static_cast<size_t>(at_ - start_);
      const size_t count = std::min(to.size(), window_.size() - from);
      std::memcpy(to.data(), window_.data() + from, count);
      at_ += static_cast<int64_t>(count);
      to = to.subspan(count);
    }
  }
  void fill() {
    window_.resize(static_cast<size_t>(std::min(kWindow, size_ - at_)));
    file_.read(at_, window_);
    start_ = at_;
  }

  const File& file_;
  int64_t size_, at_ = 0, start_ = 0, items_ = 0;
  std::vector<std::byte> window_;
};

json take_value(HeadReader& head, uint32_t kind, bool within_array = false) {
  switch (kind) {
    case kU8:
      return head.take<uint8_t>();
    case kI8:
      return head.take<int8_t>();
    case kU16:
      return head.take<uint16_t>();
    case kI16:
      return head.take<int16_t>();
    case kU32:
      return head.take<uint32_t>();
    case kI32:
      return head.take<int32_t>();
    case kF32:
      return head.take<float>();
    case kBool:
      return head.take<uint8_t>() != 0;
    case kString:
      return head.take_text();
    case kU64:
      return head.take<uint64_t>();
    case kI64:
      return head.take<int64_t>();
    case kF64:
      return head.take<double>();
    case kArray:
      break;
    default:
      head.refuse("has a value of an unknown kind");
  }
  if (within_array) head.refuse("has a list of lists");
  const auto item = head.take<uint32_t>();
  const int64_t count = head.take_items();
  json::array_t values;  // grows with what is there, whatever the file counts
  for (int64_t i = 0; i < count; ++i) values.push_back(take_value(head, item, true));
  return values;
}

GgufTensor take_tensor(HeadReader& head, const std::string& name, const std::string& path) {
  const auto dimensions = head.take<uint32_t>();
  if (dimensions < 1 || dimensions > kMostDimensions)
    head.refuse(formatted("gives '{}' {} dimensions", name, dimensions));
  std::vector<int64_t> extents(dimensions);
  int64_t elements = 1;
  for (auto i = extents.rbegin(); i != extents.rend(); ++i) {
    const auto extent = head.take<uint64_t>();
    if (extent < 1 || extent > static_cast<uint64_t>(kMostElements / elements))
      head.refuse(formatted("gives '{}' an absurd shape", name));
    *i = static_cast<int64_t>(extent);
    elements *= *i;
  }
  const auto number = head.take<uint32_t>();
  const auto type = gguf_type_of(number);
  if (!type)
    throw UsageError(formatted(
        "{}: tensor '{}' has the type {} of GGUF, which is not read; f32, f16, bf16, q8_0, q4_0, q4_k, "
        "q5_k and q6_k are",
        path, name, number));
  const GgufTensor tensor{*type, Shape(extents), static_cast<int64_t>(head.take<uint64_t>())};
  if (tensor.shape.last() % gguf_block(*type).values != 0)
    head.refuse(formatted("cuts a block of '{}'", name));
  return tensor;
}

}  // namespace

GgufFile GgufFile::open(const std::filesystem::path& path) {
  GgufFile result(File::open(path));
  HeadReader head(result.file_);
  std::array<char, 4> magic{};
  for (char& letter : magic) letter = head.take<char>();
  if (std::string_view(magic.data(), magic.size()) != "GGUF") head.refuse("does not begin with GGUF");
  const auto version = head.take<uint32_t>();
  if (version != kVersion && version != 2)
    throw UsageError(
        formatted("{}: is of version {} of GGUF; versions 2 and 3 are read", path.string(), version));
  const int64_t tensors = head.take_count(24), values = head.take_count(13);
  for (int64_t i = 0; i < values; ++i) {
    const std::string key = head.take_text();
    const auto kind = head.take<uint32_t>();
    if (!result.values_.emplace(key, take_value(head, kind)).second)
      head.refuse(formatted("has '{}' twice", key));
  }
  for (int64_t i = 0; i < tensors; ++i) {
    const std::string name = head.take_text();
    if (!result.tensors_.emplace(name, take_tensor(head, name, path.string())).second)
      head.refuse(formatted("has '{}' twice", name));
  }
  int64_t alignment = kAlignment;
  if (const json* own = result.value("general.alignment"); own != nullptr && own->is_number_unsigned())
    alignment = std::clamp<int64_t>(own->get<int64_t>(), 1, kMiB);
  const int64_t start = round_up(head.at(), alignment), size = result.file_.size();
  for (auto& [name, tensor] : result.tensors_) {
    const int64_t bytes = gguf_bytes(tensor.type, tensor.shape);
    if (tensor.offset < 0 || start > size || tensor.offset > size - start ||
        bytes > size - start - tensor.offset)
      throw DamagedError(formatted("{}: is cut off: '{}' lies behind its end. Fetch or write it again.",
                                   path.string(), name));
    tensor.offset += start;
  }
  return result;
}

const json* GgufFile::value(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

void GgufFile::read(const GgufTensor& tensor, int64_t first, std::span<float> to) const {
  const auto [values, bytes] = gguf_block(tensor.type);
  const auto count = static_cast<int64_t>(to.size());
  check_internal(first >= 0 && count <= tensor.shape.elements() - first,
                 "read beyond a GGUF tensor's numbers");
  const int64_t begin = first / values, end = (first + count + values - 1) / values;
  const int64_t most = std::max<int64_t>(1, kWindow / bytes);
  std::vector<std::byte> stored;
  std::vector<float> numbers;
  for (int64_t block = begin; block < end; block += most) {
    const int64_t blocks = std::min(most, end - block);
    stored.resize(static_cast<size_t>(blocks * bytes));
    numbers.resize(static_cast<size_t>(blocks * values));
    file_.read(tensor.offset + block * bytes, stored);
    from_gguf(stored, tensor.type, numbers);
    const int64_t from = std::max(first, block * values),
                  until = std::min(first + count, (block + blocks) * values);
    std::copy_n(numbers.begin() + (from - block * values), until - from, to.begin() + (from - first));
  }
}

}  // namespace plimsoll
