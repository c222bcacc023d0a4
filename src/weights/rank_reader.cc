#include "weights/rank_reader.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "weights/row_io.h"

namespace plimsoll {
namespace {

// The share of a rank; of the last ones perhaps less, or nothing.
ElementRange share_of(int64_t elements, int64_t each, int64_t rank) {
  const int64_t first = std::min(elements, rank * each);
  return {first, std::min(each, elements - first)};
}

}  // namespace

void StoredRow::read(size_t at, std::span<std::byte> to) const {
  state_.read(row_, static_cast<int64_t>(at), to);
}

void StoredRow::write(size_t at, std::span<const std::byte> from) const {
  state_.write(row_, static_cast<int64_t>(at), from);
}

void RankReader::load(const PersistentState& state, const TableRow& row, const StoredTensor& stored,
                      std::span<std::byte> staging) {
  check_internal(!row.is_piece(), "RankReader: a rank's piece is its own");
  const int64_t elements = row.shape.elements();
  const int64_t each = round_up(ceil_div(elements, ranks_.size()), kPieceUnit);
  const ElementRange own = share_of(elements, each, ranks_.group().rank());
  ranks_.together([&] { load_part(state, row, own, stored, staging); });
  read_bytes_ += own.elements * size_of(stored.entry->dtype);
  const StoredRow elsewhere(state, row);
  const RankPieces pieces = {state.in_memory(row) ? RankBytes(state.bytes(row)) : RankBytes(elsewhere),
                             static_cast<size_t>(each * size_of(row.dtype))};
  const int64_t sent = sum_.sent_bytes();
  RunRanks::Exchange exchange(ranks_);
  sum_.gather_pieces(std::span(&pieces, 1));
  exchange.done();
  sent_bytes_ += sum_.sent_bytes() - sent;
}

}  // namespace plimsoll
