// Checks token ids against the model's vocabulary: those that a file holds, and those that a tokenizer gave.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "data/encode/example.h"
#include "data/files/data_file.h"

namespace plimsoll {

// A list of ids that a cell holds, all below `vocab_size`. Throws DamagedError that starts with where().
std::vector<int32_t> ready_ids(const nlohmann::ordered_json& list, int64_t vocab_size, const Where& where);

// Throws DamagedError for an id of a file that the model does not have; a label may be kIgnoreLabel too.
enum class IdsAre : uint8_t { tokens, labels };
void require_ready(const std::vector<int32_t>& ids, IdsAre are, int64_t vocab_size, const Where& where);

// Fills in the ids of a row, and its labels, which are the ids where the row has none. Throws DamagedError.
void read_ready(const Row& row, int64_t vocab_size, const Where& where, Example& example);

// Throws UsageError for an id of the tokenizer that the model does not have: the tokenizer is another
// model's, which is no fault of the row. A vocabulary of 0 is not known, and nothing is checked.
void require_known_ids(const std::vector<int32_t>& ids, int64_t vocab_size, const Where& where);

// Drops what ends with `padding`, where there is such a token; of padding alone one stays. A sequence is
// scored at its last token that is no padding, as transformers finds it: what stands behind it is not
// computed.
void drop_padding(std::optional<int64_t> padding, std::vector<int32_t>& ids);

}  // namespace plimsoll
