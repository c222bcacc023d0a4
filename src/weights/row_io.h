// Copies rows of a state from and into files, wherever the rows are. `staging` is all the memory that it uses
// in addition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "formats/model_folder.h"
#include "weights/persistent_state.h"

namespace plimsoll {

// A tensor of a file, converted to the row's type. Throws UsageError when the shapes differ, DamagedError for
// a weight that is not finite.
void load_row(const PersistentState& state, const TableRow& row, const StoredTensor& stored,
              std::span<std::byte> staging);
// Elements of the row from such a tensor.
void load_part(const PersistentState& state, const TableRow& row, ElementRange part,
               const StoredTensor& stored, std::span<std::byte> staging);
// The same of the file's bytes as they are; it has as many as the row.
void load_part_bytes(const PersistentState& state, const TableRow& row, ElementRange part,
                     const StoredTensor& stored, std::span<std::byte> staging);
// The whole row into the file's tensor `name`.
void write_row(const PersistentState& state, const TableRow& row, SafetensorsWriter& writer,
               std::string_view name, std::span<std::byte> staging);

// This rank's pieces of the rows (others are passed over) into a file that another rank has made, onto the disk.
void write_pieces(const PersistentState& state, std::span<const TableRow* const> rows,
                  const ModelFolder& made);

// The first element of f32, bf16 or f16 that is NaN or infinite; other types have none.
std::optional<int64_t> find_not_finite(std::span<const std::byte> values, DType dtype);
// Throws DamagedError for one; `values` are elements of the tensor from `first` on, as `dtype`.
void require_finite(const StoredTensor& stored, int64_t first, std::span<const std::byte> values,
                    DType dtype);

// Weight from master, rounded to nearest, after a load.
void round_from_master(const PersistentState& state, const TableRow& weight, const TableRow& master,
                       std::span<std::byte> staging);

}  // namespace plimsoll
