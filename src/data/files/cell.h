// A value of a row, read from a file of any format.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/files/data_file.h"

namespace plimsoll {

// One value of a row: `text` or `ids`, as the column's kind says, or `json`. Rows are read into the same
// cells again and again, so that their storage is allocated once.
struct Cell {
  std::string text;
  std::vector<int32_t> ids;
  nlohmann::ordered_json json = nullptr;
};

// The memory of a row on its way to tokens is planned as a multiple of its size (data/batch/loader.h). The
// size is the bytes of its texts and ids, and so many bytes for each value of JSON, whose memory goes by
// their number.
inline constexpr int64_t kValueSize = 24;
int64_t row_size(const nlohmann::ordered_json& value);
int64_t row_size(const Row& row);

// Gives back the memory of a long row that was read into these cells before.
void forget_long(Row& row);

}  // namespace plimsoll
