// The tables of a queue's database, for who makes, checks and rescues them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fleet/queue/database.h"

namespace plimsoll::queue {

// Of a number of bytes in a row: sums of many are numbers still.
inline constexpr int64_t kMostRowBytes = int64_t{1} << 56;

struct Table {
  std::string name;
  std::vector<std::string> columns;  // in their order
};
// entries, attempts, settings.
const std::vector<Table>& tables();

// Tables of earlier versions get what they lack; a new file gets all. Throws DamagedError for another
// program's.
void bring_up_to_date(Database& database);

}  // namespace plimsoll::queue
