// Rows of the queue's database, and the entries and attempts that they are. Anybody may have edited a row:
// what a column may not hold is named and never taken.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fleet/queue/store/database.h"
#include "fleet/queue/store/store.h"

namespace plimsoll::queue {

// The most that a row may hold: sums of many are numbers still.
inline constexpr int64_t kMostRowBytes = int64_t{1} << 56;
inline constexpr int kMostDevices = 1 << 16;
inline constexpr int kMostThreads = 1 << 20;
inline constexpr double kMostSeconds = 1e15;

// A list of words as a column holds it.
std::string stored_words(const std::vector<std::string>& words);

void bind_need(Statement& statement, const Need& need);
// Binds all of kEntryColumns but the id.
void bind_entry(Statement& statement, const Entry& entry);

// Reads kEntryColumns, and behind them the job of its last attempt: NULL where that has no row. A damaged one
// is held unless it is over, and `damage` says which column it was.
Entry read_entry(const Statement& row);
// Reads kAttemptColumns. Damage stands behind its outcome.
Attempt read_attempt(const Statement& row);

}  // namespace plimsoll::queue
