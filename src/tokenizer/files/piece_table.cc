#include "tokenizer/files/piece_table.h"

#include <bit>
#include <functional>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {
namespace {

// Published vocabularies have no or few holes; a larger share is a damaged or hostile file.
constexpr int64_t kMostHoles = 1 << 16;

}  // namespace

PieceTable::PieceTable(std::span<const PieceId> pieces, const std::string& where) {
  const size_t count = pieces.size();
  const auto limit = static_cast<int64_t>(count) * 2 + kMostHoles;
  size_t text_bytes = 0;
  for (const PieceId& p : pieces) text_bytes += p.piece.size();
  if (text_bytes >= kHole) throw DamagedError(where + ": the vocabulary's pieces exceed 4 GiB");
  text_.reserve(text_bytes);
  places_.reserve(count);
  slots_.assign(std::bit_ceil(count + count / 2 + 1), -1);
  for (const PieceId& p : pieces) {
    if (p.id < 0 || p.id >= limit)
      throw DamagedError(formatted("{}: the piece \"{}\" has the id {} in a vocabulary of {} pieces", where,
                                   p.piece, p.id, count));
    if (places_.size() <= static_cast<size_t>(p.id)) places_.resize(static_cast<size_t>(p.id) + 1);
    Place& place = places_[static_cast<size_t>(p.id)];
    int32_t& slot = slots_[slot_of(p.piece)];
    if (slot == p.id) continue;
    if (place.length != kHole)
      throw DamagedError(
          formatted("{}: the id {} has two pieces, \"{}\" and \"{}\"", where, p.id, piece(p.id), p.piece));
    place = {static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(p.piece.size())};
    text_ += p.piece;
    if (slot >= 0)
      places_[static_cast<size_t>(slot)] = Place{};
    else
      ++size_;
    slot = p.id;
  }
}

size_t PieceTable::slot_of(std::string_view piece) const {
  const size_t mask = slots_.size() - 1;
  size_t i = std::hash<std::string_view>{}(piece)&mask;
  while (slots_[i] >= 0 && this->piece(slots_[i]) != piece) i = (i + 1) & mask;
  return i;
}

std::optional<int32_t> PieceTable::find(std::string_view piece) const {
  const int32_t id = slots_[slot_of(piece)];
  return id < 0 ? std::nullopt : std::optional(id);
}

std::string_view PieceTable::piece(int32_t id) const {
  if (id < 0 || id >= end_id()) return {};
  const Place& place = places_[static_cast<size_t>(id)];
  return place.length == kHole ? std::string_view()
                               : std::string_view(text_).substr(place.offset, place.length);
}

int64_t PieceTable::resident_bytes() const {
  return static_cast<int64_t>(text_.capacity() + places_.capacity() * sizeof(Place) +
                              slots_.capacity() * sizeof(int32_t));
}

}  // namespace plimsoll
