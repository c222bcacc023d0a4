// Pickle files as data: containers, numbers and texts. Nothing is ever imported, called or built; a file that
// asks for it is refused.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::doctor {

// Values of one file, by index. Containers hold indices; one value may be in several containers, or in
// itself, so readers must not walk without a bound.
class Pickle {
 public:
  using Index = uint32_t;
  enum class Kind : uint8_t { none, boolean, integer, real, text, list, dictionary };

  // Reads protocols 0 to 5. Throws UsageError naming `name` for what is no pickle of plain data: objects and
  // calls, damage, more than kMostValues values, more than kMostTimes the memory of the file.
  Pickle(std::string_view bytes, const std::string& name);

  static constexpr size_t kMostValues = 16'000'000;
  static constexpr size_t kMostTimes = 3, kLeastMemory = 16 << 20;
  static constexpr int64_t kMostBytes = int64_t{1} << 30;  // of a file

  [[nodiscard]] Index root() const { return root_; }
  [[nodiscard]] Kind kind(Index value) const { return kinds_[value]; }
  [[nodiscard]] size_t values() const { return kinds_.size(); }
  // The whole number of an integer or a boolean; `otherwise` for other values and for what 64 bits do not
  // hold.
  [[nodiscard]] int64_t integer(Index value, int64_t otherwise = 0) const;
  // The text; empty for other values.
  [[nodiscard]] std::string_view text(Index value) const;
  // The items of a list, tuple or set; of a dictionary keys and values in turn. Empty for other values.
  [[nodiscard]] std::span<const Index> items(Index value) const;
  // The value of a dictionary's key, of its last kMostKeys; the last one where there are several. None: 0, a
  // value of kind none.
  static constexpr size_t kMostKeys = 64;
  [[nodiscard]] Index at(Index dictionary, std::string_view key) const;

 private:
  friend class PickleReader;
  struct Container {
    uint32_t begin = 0, size = 0, room = 0;  // in items_
  };

  Index root_ = 0;
  std::string_view bytes_;  // of the file, which must live on
  std::vector<Kind> kinds_;
  std::vector<int64_t> numbers_;  // or a text's place and length in bytes_, or an index into containers_
  std::vector<Container> containers_;
  std::vector<Index> items_;
};

}  // namespace plimsoll::doctor
