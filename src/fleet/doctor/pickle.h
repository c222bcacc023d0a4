// Pickle files as data: containers, numbers and texts. Nothing is ever imported, called or built; a file that
// asks for it is refused.
#pragma once

#include <cstdint>
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
  // calls, damage, more than kMostValues values.
  Pickle(std::string_view bytes, const std::string& name);

  static constexpr size_t kMostValues = 16'000'000;
  static constexpr int64_t kMostBytes = int64_t{1} << 30;  // of a file

  [[nodiscard]] Index root() const { return root_; }
  [[nodiscard]] Kind kind(Index value) const { return values_[value].kind; }
  [[nodiscard]] size_t values() const { return values_.size(); }
  // The whole number of an integer or a boolean; `otherwise` for other values and for what 64 bits do not
  // hold.
  [[nodiscard]] int64_t integer(Index value, int64_t otherwise = 0) const;
  // The text; empty for other values.
  [[nodiscard]] std::string_view text(Index value) const;
  // The items of a list, tuple or set; of a dictionary keys and values in turn. Empty for other values.
  [[nodiscard]] const std::vector<Index>& items(Index value) const;
  // The value of a dictionary's key, of its last kMostKeys; the last one where there are several. None: 0, a
  // value of kind none.
  static constexpr size_t kMostKeys = 64;
  [[nodiscard]] Index at(Index dictionary, std::string_view key) const;

 private:
  friend class PickleReader;
  struct Value {
    Kind kind = Kind::none;
    int64_t number = 0;  // or an index into texts_ or containers_
  };

  Index root_ = 0;
  std::vector<Value> values_;
  std::vector<std::string_view> texts_;  // into the file's bytes, which must live on
  std::vector<std::vector<Index>> containers_;
};

}  // namespace plimsoll::doctor
