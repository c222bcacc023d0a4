#include "data/rows/row_access.h"

#include <algorithm>
#include <array>

namespace plimsoll {
namespace {

// Bytes of values that a row store takes a second; decoding them is most of the time (bench/results).
constexpr double kStoredPerSecond = 1e8;
constexpr double kSecondsOfStoredRow = 1e-4;

// While units are read one after the other, to count rows or to fill a store.
int64_t least_held(const Dataset& dataset) {
  int64_t largest = 0, all = 0;
  for (const PlacedUnit& unit : dataset.units()) {
    largest = std::max(largest, unit.bytes);
    all += unit.bytes;
  }
  return std::min(all, std::max(largest, 2 * kUnitBytes));
}

}  // namespace

std::string_view to_string(AccessKind kind) {
  constexpr std::array<std::string_view, 3> kNames = {"held", "alone", "stored"};
  return kNames[static_cast<size_t>(kind)];
}

RowAccess plan_access(const Dataset& dataset, const OrderOptions& options) {
  const RowAccess held = {.held_bytes = max_window_bytes(dataset.units(), options)};
  if (options.shuffle == Shuffle::off || !exceeds_window(dataset.units(), options)) return held;
  const RowsAlone alone = dataset.rows_alone();
  // Every window of a packed file would be another pass over it.
  if (options.shuffle == Shuffle::window && !alone.from_start) return held;
  RowAccess access{.kind = alone.stored_rows > 0 ? AccessKind::stored : AccessKind::alone,
                   .held_bytes = std::max(least_held(dataset), alone.bytes),
                   .store_bytes = alone.store_bytes,
                   .exact = alone.exact};
  if (alone.stored_rows > 0) access.held_bytes += RowStore::kBufferBytes;
  access.store_seconds = static_cast<double>(alone.store_bytes) / kStoredPerSecond;
  access.row_seconds = (alone.seconds + static_cast<double>(alone.stored_rows) * kSecondsOfStoredRow) /
                       static_cast<double>(dataset.rows());
  return access;
}

}  // namespace plimsoll
