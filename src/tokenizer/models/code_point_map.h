// A map from code points to ids, with two loads for a look-up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace plimsoll {

class CodePointMap {
 public:
  CodePointMap() : ids_(kPage, -1) {}

  void set(char32_t code, int32_t id) {
    uint16_t& page = page_of_[code / kPage];
    if (page == 0) {
      page = static_cast<uint16_t>(ids_.size() / kPage);
      ids_.resize(ids_.size() + kPage, -1);
    }
    ids_[page * kPage + code % kPage] = id;
  }
  // -1 for a code point that was never set.
  [[nodiscard]] int32_t operator[](char32_t code) const {
    return ids_[size_t{page_of_[code / kPage]} * kPage + code % kPage];
  }
  [[nodiscard]] int64_t resident_bytes() const {
    return static_cast<int64_t>(sizeof *this + ids_.capacity() * sizeof(int32_t));
  }

 private:
  static constexpr size_t kPage = 128;
  std::array<uint16_t, 0x110000 / kPage> page_of_{};  // page 0 is empty
  std::vector<int32_t> ids_;
};

}  // namespace plimsoll
