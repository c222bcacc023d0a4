#include "weights/persistent_state.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {
namespace {

// Pieces that the disk moves without a detour.
constexpr size_t kPieceUnit = 4096;

void check_range(const TableRow& row, int64_t start, size_t bytes) {
  if (start < 0 || static_cast<int64_t>(bytes) > row.bytes - start)
    throw InternalError(formatted("bytes outside of {} were asked for", row.name));
}

size_t piece_bytes(const TableRow& row, std::span<std::byte> staging) {
  const size_t piece = staging.size() / kPieceUnit * kPieceUnit;
  if (piece == 0) throw InternalError("no staging was given for " + row.name);
  return piece;
}

}  // namespace

std::span<std::byte> PersistentState::bytes(const TableRow& row) const {
  if (!in_memory(row)) throw InternalError(row.name + " is where the host does not reach it");
  // Its queues may still be moving tensors between the host and itself.
  if (arenas_.apart != nullptr) arenas_.apart->finish();
  return {arenas_.address(row), static_cast<size_t>(row.bytes)};
}

bool PersistentState::has_pieces() const {
  return std::any_of(rows().begin(), rows().end(), [](const TableRow& row) { return row.is_piece(); });
}

ElementRange PersistentState::range_of(const TableRow& row) const {
  const int64_t elements = row.shape.elements();
  if (!row.is_piece()) return {0, elements};
  const int64_t first = rank_ * elements;
  return {first, std::min(elements, row.whole.elements() - first)};
}

void PersistentState::read(const TableRow& row, int64_t start, std::span<std::byte> to) const {
  check_range(row, start, to.size());
  if (to.empty()) return;
  if (in_memory(row)) {
    std::memcpy(to.data(), bytes(row).data() + start, to.size());
  } else if (row.space == Space::device) {
    arenas_.apart->download(to, arenas_.address(row) + start);
  } else {
    if (arenas_.apart != nullptr) arenas_.apart->finish();
    arenas_.disk->read(row.offset + start, to);
  }
}

void PersistentState::write(const TableRow& row, int64_t start, std::span<const std::byte> from) const {
  check_range(row, start, from.size());
  if (from.empty()) return;
  if (in_memory(row)) {
    std::memcpy(bytes(row).data() + start, from.data(), from.size());
  } else if (row.space == Space::device) {
    arenas_.apart->upload(arenas_.address(row) + start, from);
  } else {
    if (arenas_.apart != nullptr) arenas_.apart->finish();
    arenas_.disk->write(row.offset + start, from);
  }
}

void PersistentState::visit(const TableRow& row, std::span<std::byte> staging, const Use& use) const {
  if (in_memory(row)) {
    const ElementRange range = range_of(row);
    const int64_t size = size_of(row.dtype);
    use(range.first * size, bytes(row).first(static_cast<size_t>(range.elements * size)));
    return;
  }
  check_internal(!row.is_piece(), "a piece that is not in memory");
  const size_t most = piece_bytes(row, staging);
  for (int64_t start = 0; start < row.bytes; start += static_cast<int64_t>(most)) {
    const auto piece = staging.first(std::min(most, static_cast<size_t>(row.bytes - start)));
    read(row, start, piece);
    use(start, piece);
  }
}

void PersistentState::fill(const TableRow& row, std::span<std::byte> staging, const Fill& fill) const {
  if (in_memory(row)) {
    const ElementRange range = range_of(row);
    const int64_t size = size_of(row.dtype);
    fill(range.first * size, bytes(row).first(static_cast<size_t>(range.elements * size)));
    return;
  }
  check_internal(!row.is_piece(), "a piece that is not in memory");
  const size_t most = piece_bytes(row, staging);
  for (int64_t start = 0; start < row.bytes; start += static_cast<int64_t>(most)) {
    const auto piece = staging.first(std::min(most, static_cast<size_t>(row.bytes - start)));
    fill(start, piece);
    write(row, start, piece);
  }
}

}  // namespace plimsoll
