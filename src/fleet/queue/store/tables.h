// The tables of a queue's database: their form, and how those of earlier versions come to it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fleet/queue/store/database.h"

namespace plimsoll::queue {

inline constexpr int64_t kSchema = 7;  // PRAGMA user_version

// In the order of their tables, which row_values.h relies on.
inline constexpr const char* kEntryColumns =
    "id, name, recipe, words, environment, folder, devices, device_bytes, host_bytes, threads, seconds, "
    "priority, retries, after, state, stop_asked, hold_asked, submitted, promised, attempts, note, output, "
    "fingerprint, variants, smaller, card, held_by, group_name, processes, shared_bytes";
inline constexpr const char* kAttemptColumns =
    "entry, number, started, ended, devices, device_bytes, host_bytes, threads, cards, peak_bytes, outcome, "
    "done, words, environment, fingerprint, job, card_peak_bytes, card, processes, shared_bytes";

struct Table {
  std::string name;
  std::vector<std::string> columns;  // in their order
};
// entries, attempts, settings.
const std::vector<Table>& tables();

int64_t version_of(Database& database);
// Tables of earlier versions get what they lack; a new file gets all. Throws DamagedError for another
// program's.
void bring_up_to_date(Database& database);
// For entries that a version before this column has written.
void read_held_by_from_notes(Database& database);
// Throws DamagedError where it has other tables than a queue's, or what runs by itself (triggers).
void require_form(Database& database);

}  // namespace plimsoll::queue
