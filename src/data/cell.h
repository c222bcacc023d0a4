// A value of a row, read from a file of any format.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace plimsoll {

// One value of a row: `text` or `ids`, as the column's kind says, or `json`. Rows are read into the same
// cells again and again, so that their storage is allocated once.
struct Cell {
  std::string text;
  std::vector<int32_t> ids;
  nlohmann::ordered_json json = nullptr;
};
}  // namespace plimsoll
