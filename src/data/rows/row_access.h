// Decides how the rows of an order are reached. The order never depends on it: what is read is the same.
#pragma once

#include <cstdint>
#include <string_view>

#include "data/rows/dataset.h"
#include "data/rows/row_order.h"

namespace plimsoll {

enum class AccessKind : uint8_t {
  held,    // the units of a window of the order are in memory
  alone,   // each row is read with the few around it
  stored,  // the same; the rows of files that cannot do so are written into a row store first
};

std::string_view to_string(AccessKind kind);

struct RowAccess {
  AccessKind kind = AccessKind::held;
  int64_t held_bytes = 0;  // of units and rows in memory, at most
  // The row store: bytes on disk, whether they are exact, and about how long the first step waits for it.
  int64_t store_bytes = 0;
  bool exact = true;
  double store_seconds = 0;
  double row_seconds = 0;  // of reading a row, on average; 0: what is held costs nothing
};

// A data set of a window or less is held in memory. In a full shuffle of a larger one each row is read alone,
// from its file where that takes milliseconds, else from a row store. A shuffle in windows does the same where
// files can only be read from their start.
RowAccess plan_access(const Dataset& dataset, const OrderOptions& options);

}  // namespace plimsoll
