#include "weights/rank_reader.h"

#include <algorithm>

#include "base/units.h"
#include "weights/row_io.h"

namespace plimsoll {

StoredRow::StoredRow(const PersistentState& state, const TableRow& row) : state_(state), row_(row) {
  if (const std::span<std::byte> bytes = state.apart(row); !bytes.empty())
    apart_.emplace(*state.device_apart(), bytes);
}

void StoredRow::read(size_t at, std::span<std::byte> to) const {
  if (apart_) return apart_->read(at, to);
  state_.read(row_, static_cast<int64_t>(at), to);
}

void StoredRow::write(size_t at, std::span<const std::byte> from) const {
  if (apart_) return apart_->write(at, from);
  state_.write(row_, static_cast<int64_t>(at), from);
}

RankBytes StoredRow::shared() const {
  return state_.in_memory(row_) ? RankBytes(state_.bytes(row_)) : RankBytes(*this);
}

RankShare RankReader::share_of(int64_t elements) const {
  const int64_t each = round_up(ceil_div(elements, ranks_.size()), kPieceUnit);
  const int64_t first = std::min(elements, ranks_.group().rank() * each);
  return {each, {first, std::min(each, elements - first)}};
}

void RankReader::load(const PersistentState& state, const TableRow& row, const StoredTensor& stored,
                      std::span<std::byte> staging) {
  // The piece of a master that begins as its weight is read from that weight's bytes, which count once.
  const bool counts_already = row.is_piece() && row.role == Role::master && stored.entry->name != row.name;
  load_by(state, row, counts_already ? 0 : size_of(stored.entry->dtype),
          [&](ElementRange own) { load_part(state, row, own, stored, staging); });
}

void RankReader::load_bytes(const PersistentState& state, const TableRow& row, const StoredTensor& stored,
                            std::span<std::byte> staging) {
  load_by(state, row, size_of(row.dtype),
          [&](ElementRange own) { load_part_bytes(state, row, own, stored, staging); });
}

void RankReader::load_by(const PersistentState& state, const TableRow& row, int64_t stored_size,
                         const std::function<void(ElementRange)>& load) {
  if (row.is_piece()) {
    const ElementRange own = state.range_of(row);
    ranks_.together([&] { load(own); });
    read_bytes_ += own.elements * stored_size;
    return;
  }
  const RankShare part = share_of(row.shape.elements());
  const StoredRow whole(state, row);
  const RankPieces made = {whole.shared(), static_cast<size_t>(part.each * size_of(row.dtype))};
  share(
      part.own.elements * stored_size, [&] { load(part.own); },
      std::span(&made, is_everywhere(state, row) ? 0 : 1));
}

void RankReader::share(int64_t bytes, const std::function<void()>& work, std::span<const RankPieces> made) {
  ranks_.together(work);
  read_bytes_ += bytes;
  if (made.empty()) return;
  RunRanks::Exchange exchange(ranks_);
  sum_.gather_pieces(made);
  exchange.done();
}

}  // namespace plimsoll
