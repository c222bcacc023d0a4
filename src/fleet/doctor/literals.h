// Searches for many literals at once, with one table look-up a byte (Aho and Corasick, 1975).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll::doctor {

class Literals {
 public:
  using State = uint16_t;
  static constexpr State kStart = 0;

  // None may be empty; together they have fewer than 65,535 bytes.
  explicit Literals(const std::vector<std::string>& words);

  [[nodiscard]] State next(State state, char byte) const {
    return next_[state * classes_ + class_of_[static_cast<unsigned char>(byte)]];
  }
  // Returns true if some word ends in this state; ending() lists those words by their indices.
  [[nodiscard]] bool ends(State state) const { return ends_[state] != 0; }
  [[nodiscard]] const std::vector<uint16_t>& ending(State state) const { return ending_[state]; }
  [[nodiscard]] size_t length(uint16_t word) const { return lengths_[word]; }

 private:
  std::array<uint8_t, 256> class_of_{};  // bytes that no word has share class 0
  size_t classes_ = 1;
  std::vector<State> next_;
  std::vector<uint8_t> ends_;  // apart, since it is read at every byte
  std::vector<std::vector<uint16_t>> ending_;
  std::vector<size_t> lengths_;
};

}  // namespace plimsoll::doctor
