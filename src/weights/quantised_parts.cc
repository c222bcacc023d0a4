#include "weights/quantised_parts.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/format.h"
#include "formats/convert.h"
#include "formats/load.h"
#include "weights/row_io.h"

namespace plimsoll {

void expect(bool condition, const std::string& where, const std::string& what) {
  if (!condition) throw UsageError(formatted("{}: {}", where, what));
}

void expect_bytes(const StoredTensor& tensor, int64_t bytes) {
  if (tensor.entry->bytes != bytes)
    throw DamagedError(
        formatted("{}: has {} bytes, expected {}", tensor.entry->name, tensor.entry->bytes, bytes));
}

void round_to(DType compute, std::span<float> values) {
  for (float& value : values)
    value = compute == DType::bf16  ? f32_from_bf16(bf16_from_f32(value))
            : compute == DType::f16 ? f32_from_f16(f16_from_f32(value))
                                    : value;
}

void with_stored_values(
    const ModelFolder& model, const std::string& name, const Shape& shape, std::span<std::byte> staging,
    const std::function<void(const StoredTensor&, std::span<float> chunk, const ReadValues&)>& use) {
  const StoredTensor stored = model.find(name);
  expect(stored.entry->shape == shape, name,
         formatted("has the shape {}, expected {}", stored.entry->shape.to_string(), shape.to_string()));
  const std::span<std::byte> half = staging.first(staging.size() / 2);
  const std::span chunk(reinterpret_cast<float*>(half.data()), half.size() / sizeof(float));
  use(stored, chunk, [&](int64_t first, std::span<float> to) {
    load_elements(stored, first, std::as_writable_bytes(to), DType::f32, staging.subspan(half.size()));
  });
}

void read_as_stored(const PersistentState& state, const TableRow& row, const ModelFolder& model,
                    std::span<std::byte> staging, RankReader* reader) {
  const StoredTensor stored = model.find(row.name);
  expect_bytes(stored, row.whole_bytes());
  if (reader != nullptr)
    reader->load_bytes(state, row, stored, staging);
  else
    load_part_bytes(state, row, state.range_of(row), stored, staging);
}

void write_codes(const PersistentState& state, const TableRow& row, int64_t start,
                 std::span<const std::byte> codes) {
  const ElementRange own = state.range_of(row);
  const int64_t begin = std::max(start, own.first);
  const int64_t end = std::min(start + std::ssize(codes), own.first + own.elements);
  if (begin >= end) return;
  state.write_part(row, begin - own.first,
                   codes.subspan(static_cast<size_t>(begin - start), static_cast<size_t>(end - begin)));
}

RankShare share_of_codes(const PersistentState& state, const TableRow& codes, int64_t per_byte,
                         const RankReader& reader) {
  if (!codes.is_piece()) return reader.share_of(per_byte * codes.whole_shape().elements());
  const ElementRange own = state.range_of(codes);
  return {per_byte * codes.shape.elements(), {per_byte * own.first, per_byte * own.elements}};
}

void make_by_ranks(const PersistentState& state, const TableRow& codes, const RankShare& part,
                   int64_t per_byte, RankPieces scales, int64_t stored_bytes,
                   const std::function<void()>& work, RankReader& reader) {
  const StoredRow row(state, codes);
  const bool stay = codes.is_piece() || reader.is_everywhere(state, codes);
  const std::array made = {scales, RankPieces{row.shared(), static_cast<size_t>(part.each / per_byte)}};
  reader.share(stored_bytes, work, std::span(made).first(stay ? 1 : 2));
}

}  // namespace plimsoll
