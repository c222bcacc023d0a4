// A vocabulary: piece -> id by hash, id -> piece by index. Pieces lie in one string.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

struct PieceId {
  std::string piece;
  int32_t id;
};

class PieceTable {
 public:
  // A piece named twice keeps its last id. Throws DamagedError, naming `where`, for an id that is negative,
  // has two pieces, or is so large that the table would be mostly holes.
  PieceTable(std::span<const PieceId> pieces, const std::string& where);

  [[nodiscard]] std::optional<int32_t> find(std::string_view piece) const;
  // Null data for an id without a piece.
  [[nodiscard]] std::string_view piece(int32_t id) const;
  // Number of pieces; ids may leave holes.
  [[nodiscard]] int64_t size() const { return size_; }
  // Largest id plus one.
  [[nodiscard]] int64_t end_id() const { return static_cast<int64_t>(places_.size()); }
  [[nodiscard]] int64_t resident_bytes() const;

 private:
  struct Place {
    uint32_t offset = 0;
    uint32_t length = kHole;
  };
  static constexpr uint32_t kHole = UINT32_MAX;

  // Slot of `piece`, or the empty slot where it belongs.
  [[nodiscard]] size_t slot_of(std::string_view piece) const;

  std::string text_;
  std::vector<Place> places_;   // by id
  std::vector<int32_t> slots_;  // open addressing, a power of two; -1 is empty
  int64_t size_ = 0;
};

}  // namespace plimsoll
