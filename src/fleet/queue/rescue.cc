#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/regular_file.h"
#include "files/atomic.h"
#include "files/file.h"
#include "fleet/queue/entry_steps.h"
#include "fleet/queue/store/private_files.h"
#include "fleet/queue/store/store.h"
#include "fleet/queue/store/tables.h"

namespace plimsoll::queue {
namespace {

namespace fs = std::filesystem;

// Until the first error: what lies behind it is read from the other end.
template <class Take>
void for_each_row(Database& from, const std::string& query, Take&& take) {
  try {
    Statement row(from, query);
    while (row.step()) take(row);
  } catch (const DamagedError&) {  // there is no more that can be read this way
  }
}

std::set<std::string> columns_of(Database& from, const std::string& table) {
  std::set<std::string> found;
  for_each_row(from, formatted("SELECT name FROM pragma_table_info('{}')", table),
               [&](const Statement& row) { found.insert(row.text(0)); });
  return found;
}

// A column of the new table, and what stands there where the old one lacks it or has nothing.
struct Column {
  std::string name, value;
};

std::vector<Column> columns_with_values(Database& to, const std::string& table) {
  std::vector<Column> columns;
  Statement row(to,
                formatted("SELECT name, type, \"notnull\", dflt_value FROM pragma_table_info('{}')", table));
  while (row.step()) {
    Column column{row.text(0), row.text(3)};
    const bool is_list = column.name == "words" || column.name == "environment" || column.name == "after" ||
                         column.name == "cards";
    if (column.name == "id") {
      column.value = "rowid";
    } else if (row.integer(2) == 0) {
      column.value = "NULL";
    } else if (column.value.empty()) {
      column.value = is_list ? "'[]'" : row.text(1) == "TEXT" ? "''" : "0";
    }
    columns.push_back(std::move(column));
  }
  return columns;
}

std::string values_of(const std::vector<Column>& columns, const std::set<std::string>& there,
                      bool old_states) {
  std::string values;
  for (const Column& column : columns) {
    std::string value = there.contains(column.name) ? column.name : "NULL";
    if (column.name == "state" && old_states && there.contains(column.name)) value = "state + (state >= 2)";
    values += (values.empty() ? "" : ", ") + (formatted("coalesce({}, {})", value, column.value));
  }
  return values;
}

// Rows that were copied.
int64_t copy_table(Database& from, Database& to, const Table& table, bool old_states) {
  const std::set<std::string> there = columns_of(from, table.name);
  const std::string values = values_of(columns_with_values(to, table.name), there, old_states);
  std::string marks = "?";
  for (size_t i = 1; i < table.columns.size(); ++i) marks += ", ?";
  Statement insert(to, formatted("INSERT OR IGNORE INTO {} VALUES({})", table.name, marks));
  int64_t copied = 0;
  for (const char* order : {"", " DESC"})
    for_each_row(from, formatted("SELECT {} FROM {} ORDER BY rowid{}", values, table.name, order),
                 [&](const Statement& row) {
                   for (size_t i = 0; i < table.columns.size(); ++i) row.copy(static_cast<int>(i), insert);
                   try {
                     insert.step();
                     copied += to.changed_rows();
                   } catch (const DamagedError&) {  // no number where there has to be one
                   }
                   insert.reset();
                 });
  return copied;
}

fs::path free_name(const fs::path& file) {
  fs::path name = file.string() + ".damaged";
  for (int number = 2; !is_absent(name); ++number) name = formatted("{}.damaged-{}", file.string(), number);
  return name;
}

void fill(const fs::path& from, Database& to, Rescued& rescued) {
  try {
    Database old(from.string(), Database::ReadOnly{});
    // By its form, as its number may be what is wrong: `submitted` came with the jobs of Slurm.
    const bool old_states = !columns_of(old, tables().at(1).name).empty() &&
                            !columns_of(old, tables().at(1).name).contains("job");
    Transaction transaction(to);
    rescued.entries = copy_table(old, to, tables().at(0), old_states);
    if (!columns_of(old, tables().at(0).name).contains("held_by")) read_held_by_from_notes(to);
    rescued.attempts = copy_table(old, to, tables().at(1), false);
    (void)copy_table(old, to, tables().at(2), false);  // whether it is paused, and the umasks of entries
    transaction.commit();
  } catch (const DamagedError&) {  // no database at all
  }
}

}  // namespace

Rescued rescue(const fs::path& folder) {
  const fs::path place = fs::absolute(folder);
  if (is_absent(place / kDatabaseFile))
    throw UsageError(
        formatted("{}: has no {} that could be rescued", printable(place.string()), kDatabaseFile));
  require_regular(place / kDatabaseFile);  // a FIFO under its name would be waited for
  const WorkerLock alone(place);
  const fs::path file = fs::canonical(place) / kDatabaseFile, fresh = file.string() + ".rescued";
  for (const char* end : {"", "-wal", "-shm"}) fs::remove(fresh.string() + end);
  Rescued rescued;
  {
    const Umask files(kOwnersAlone);
    Database to(fresh.string());
    bring_up_to_date(to);
    fill(file, to, rescued);
  }
  fs::remove(fresh.string() + ".lock");
  rescued.damaged = free_name(file);
  // The log first: next to another database it would be taken for that one's.
  if (!is_absent(file.string() + "-wal"))
    fs::rename(file.string() + "-wal", rescued.damaged.string() + "-wal");
  fs::remove(file.string() + "-shm");
  std::error_code no_links;
  fs::create_hard_link(file, rescued.damaged, no_links);
  if (no_links) fs::rename(file, rescued.damaged);
  fs::rename(fresh, file);
  flush_to_disk(file.parent_path());
  return rescued;
}

}  // namespace plimsoll::queue
