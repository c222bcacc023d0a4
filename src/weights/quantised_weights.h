// Quantised weights of a state, in 4 bits (weights/nf4_weights.h) or in 8 (weights/int8_weights.h): whichever a row
// or a folder holds.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "passes/quantise.h"
#include "weights/int8_weights.h"
#include "weights/nf4_weights.h"

namespace plimsoll {

using QuantisedRows = std::variant<Nf4Rows, Int8Rows>;
// None where the row is no quantised weight's codes.
std::optional<QuantisedRows> find_quantised(const PersistentState& state, const TableRow& row);
Shape weight_shape(const QuantisedRows& rows);

// As the functions of the formats.
void quantise_values(const PersistentState& state, const QuantisedRows& rows, std::span<float> chunk,
                     const ReadValues& read);
void load_quantised(const PersistentState& state, const QuantisedRows& rows, const ModelFolder& model,
                    std::span<std::byte> staging, RankReader* reader = nullptr);
void visit_quantised(const PersistentState& state, const QuantisedRows& rows, std::span<std::byte> staging,
                     const UseValues& use);

// The folder's quantisation: by config.json, and by the headers of its files where it has any (else by
// llm_int8_skip_modules) which modules are not quantised. Nullopt: not at all. Throws UsageError for ways
// that are not supported, with the key. `config`: config.json as it was read; `model` is asked where no
// weights show what is quantised.
std::optional<QuantiseOptions> stored_quantisation(const std::filesystem::path& folder,
                                                   const nlohmann::json& config,
                                                   const std::function<ModelSpec()>& model);

// Null where the folder, which outlives it, does not hold this weight quantised.
std::unique_ptr<StoredCodes> open_quantised(const ModelFolder& model, const std::string& weight,
                                            const Shape& shape);
// For the weight `stored`, which is plain. NF4 reads it whole once, for its scales; `staging` is all the memory used
// but for these.
std::unique_ptr<RoundTrip> round_trip(const StoredTensor& stored, const QuantiseOptions& options,
                                      DType compute, std::span<std::byte> staging);

// Fills a row that holds whole values, a task's head for one, with those of a weight that the folder holds quantised.
void load_from_quantised(const PersistentState& state, const TableRow& row, StoredCodes& stored,
                         std::span<std::byte> staging);

}  // namespace plimsoll
