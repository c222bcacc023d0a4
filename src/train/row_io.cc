#include "train/row_io.h"

#include <algorithm>

#include "base/error.h"
#include "io/convert.h"
#include "io/load.h"

namespace plimsoll {
namespace {

// `bytes` of the row from `start` on: the row's own memory, or `staging`.
std::span<std::byte> window(const PersistentState& state, const TableRow& row, int64_t start, int64_t bytes,
                            std::span<std::byte> staging) {
  if (!state.in_memory(row)) return staging.first(static_cast<size_t>(bytes));
  return state.bytes(row).subspan(static_cast<size_t>(start), static_cast<size_t>(bytes));
}

}  // namespace

void load_row(const PersistentState& state, const TableRow& row, const StoredTensor& stored,
              std::span<std::byte> staging) {
  require_shape(stored, row.shape);
  const size_t half = staging.size() / 2;
  state.fill(row, staging.first(half), [&](int64_t start, std::span<std::byte> piece) {
    load_elements(stored, start / size_of(row.dtype), piece, row.dtype, staging.subspan(half));
  });
}

void load_row_bytes(const PersistentState& state, const TableRow& row, const StoredTensor& stored,
                    std::span<std::byte> staging) {
  check_internal(stored.entry->bytes == row.bytes, "load_row_bytes: the sizes differ");
  state.fill(row, staging, [&](int64_t start, std::span<std::byte> piece) {
    stored.file->read(*stored.entry, start, piece);
  });
}

void write_row(const PersistentState& state, const TableRow& row, SafetensorsWriter& writer,
               std::string_view name, std::span<std::byte> staging) {
  state.visit(row, staging, [&](int64_t, std::span<const std::byte> piece) { writer.write(name, piece); });
}

void round_from_master(const PersistentState& state, const TableRow& weight, const TableRow& master,
                       std::span<std::byte> staging) {
  const int64_t from_size = size_of(master.dtype);
  const int64_t to_size = size_of(weight.dtype);
  // Half for the masters; the weights' other half is large enough, as they are no wider.
  const std::span<std::byte> half = staging.first(staging.size() / 2);
  const int64_t step = static_cast<int64_t>(half.size()) / from_size;
  check_internal(step > 0 && to_size <= from_size, "round_from_master: no staging, or a narrow master");
  const int64_t count = weight.shape.elements();
  for (int64_t first = 0; first < count; first += step) {
    const int64_t elements = std::min(step, count - first);
    const auto from = window(state, master, first * from_size, elements * from_size, half);
    const auto to = window(state, weight, first * to_size, elements * to_size, staging.subspan(half.size()));
    if (!state.in_memory(master)) state.read(master, first * from_size, from);
    convert(from, master.dtype, to, weight.dtype);
    if (!state.in_memory(weight)) state.write(weight, first * to_size, to);
  }
}

}  // namespace plimsoll
