#include "weights/row_io.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "files/file.h"
#include "formats/convert.h"
#include "formats/load.h"

namespace plimsoll {
namespace {

// `bytes` of the row from `start` on: the row's own memory, or `staging`.
std::span<std::byte> window(const PersistentState& state, const TableRow& row, int64_t start, int64_t bytes,
                            std::span<std::byte> staging) {
  if (!state.in_memory(row)) return staging.first(static_cast<size_t>(bytes));
  return state.bytes(row).subspan(static_cast<size_t>(start), static_cast<size_t>(bytes));
}

// Whole blocks first, without a branch inside: the compiler makes vectors of that.
template <class T>
std::optional<int64_t> find_exponent(std::span<const std::byte> values, T mask) {
  constexpr size_t kBlock = 1024;
  const size_t count = values.size() / sizeof(T);
  const auto at = [&](size_t i) {
    T value;
    std::memcpy(&value, values.data() + i * sizeof(T), sizeof value);
    return value;
  };
  for (size_t first = 0; first < count; first += kBlock) {
    const size_t end = std::min(count, first + kBlock);
    bool any = false;
    for (size_t i = first; i < end; ++i) any |= (at(i) & mask) == mask;
    for (size_t i = first; any && i < end; ++i)
      if ((at(i) & mask) == mask) return static_cast<int64_t>(i);
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> find_not_finite(std::span<const std::byte> values, DType dtype) {
  // Exponent bits that are all ones.
  if (dtype == DType::f32) return find_exponent(values, uint32_t{0x7F80'0000});
  if (dtype == DType::bf16) return find_exponent(values, uint16_t{0x7F80});
  if (dtype == DType::f16) return find_exponent(values, uint16_t{0x7C00});
  return std::nullopt;
}

void require_finite(const StoredTensor& stored, int64_t first, std::span<const std::byte> values,
                    DType dtype) {
  if (const auto bad = find_not_finite(values, dtype))
    throw DamagedError(
        formatted("{}: tensor '{}': element {} is NaN or infinite as {}: the weights are damaged.",
                  stored.file->path().string(), stored.entry->name, first + *bad, to_string(dtype)));
}

void load_row(const PersistentState& state, const TableRow& row, const StoredTensor& stored,
              std::span<std::byte> staging) {
  load_part(state, row, state.range_of(row), stored, staging);
}

void load_part(const PersistentState& state, const TableRow& row, ElementRange part,
               const StoredTensor& stored, std::span<std::byte> staging) {
  require_shape(stored, row.whole_shape());
  const size_t half = staging.size() / 2;
  state.fill(row, part, staging.first(half), [&](int64_t start, std::span<std::byte> piece) {
    load_elements(stored, start / size_of(row.dtype), piece, row.dtype, staging.subspan(half));
    // A state may overflow and the run continue; a weight that did is of no use for training or inference.
    if (row.role != Role::optimizer_state)
      require_finite(stored, start / size_of(row.dtype), piece, row.dtype);
  });
}

void load_part_bytes(const PersistentState& state, const TableRow& row, ElementRange part,
                     const StoredTensor& stored, std::span<std::byte> staging) {
  check_internal(stored.entry->bytes == row.whole_bytes(), "load_part_bytes: the sizes differ");
  state.fill(row, part, staging, [&](int64_t start, std::span<std::byte> piece) {
    stored.file->read(*stored.entry, start, piece);
  });
}

void write_row(const PersistentState& state, const TableRow& row, SafetensorsWriter& writer,
               std::string_view name, std::span<std::byte> staging) {
  state.visit(row, staging, [&](int64_t, std::span<const std::byte> piece) { writer.write(name, piece); });
}

void write_pieces(const PersistentState& state, std::span<const TableRow* const> rows,
                  const ModelFolder& made) {
  std::optional<File> file;  // all of them are in one
  std::vector<std::byte> staging(static_cast<size_t>(kSaveStagingBytes));
  for (const TableRow* row : rows) {
    if (!row->is_piece()) continue;
    const StoredTensor stored = made.find(row->name);
    if (!file) file.emplace(File::of_other(stored.file->path()));
    const int64_t begin = stored.entry->offset;
    state.visit(*row, staging,
                [&](int64_t start, std::span<const std::byte> piece) { file->write(begin + start, piece); });
  }
  if (file) file->sync();
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
