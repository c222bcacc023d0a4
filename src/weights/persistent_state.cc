#include "weights/persistent_state.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {
namespace {

// Pieces that the disk moves without a detour.
constexpr size_t kDiskUnit = 4096;

void check_range(const TableRow& row, int64_t start, size_t bytes) {
  if (start < 0 || static_cast<int64_t>(bytes) > row.bytes - start)
    throw InternalError(formatted("bytes outside of {} were asked for", row.name));
}

size_t piece_bytes(const TableRow& row, std::span<std::byte> staging) {
  const size_t piece = staging.size() / kDiskUnit * kDiskUnit;
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

std::span<std::byte> PersistentState::apart(const TableRow& row) const {
  if (in_memory(row) || row.space != Space::device) return {};
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
  if (writes(row)) write_part(row, start, from);
}

void PersistentState::write_part(const TableRow& row, int64_t start, std::span<const std::byte> from) const {
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
  const ElementRange range = range_of(row);
  const int64_t begin = range.first * size_of(row.dtype), bytes = range.elements * size_of(row.dtype);
  if (in_memory(row)) return use(begin, this->bytes(row).first(static_cast<size_t>(bytes)));
  const size_t most = piece_bytes(row, staging);
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(most)) {
    const auto piece = staging.first(std::min(most, static_cast<size_t>(bytes - at)));
    read(row, at, piece);
    use(begin + at, piece);
  }
}

void PersistentState::fill(const TableRow& row, std::span<std::byte> staging, const Fill& fill) const {
  if (writes(row)) this->fill(row, range_of(row), staging, fill);
}

void PersistentState::fill(const TableRow& row, ElementRange part, std::span<std::byte> staging,
                           const Fill& fill) const {
  const int64_t size = size_of(row.dtype);
  const int64_t begin = part.first * size, bytes = part.elements * size;
  const int64_t own = begin - range_of(row).first * size;  // where it begins in what this rank has
  if (in_memory(row))
    return fill(begin, this->bytes(row).subspan(static_cast<size_t>(own), static_cast<size_t>(bytes)));
  const size_t most = piece_bytes(row, staging);
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(most)) {
    const auto piece = staging.first(std::min(most, static_cast<size_t>(bytes - at)));
    fill(begin + at, piece);
    write(row, own + at, piece);
  }
}

}  // namespace plimsoll
