#include "fleet/queue/store/tables.h"

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/strings.h"

namespace plimsoll::queue {
namespace {

constexpr const char* kTables = R"sql(
CREATE TABLE IF NOT EXISTS entries(
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, recipe INTEGER NOT NULL, words TEXT NOT NULL,
  environment TEXT NOT NULL, folder TEXT NOT NULL, devices INTEGER NOT NULL, device_bytes INTEGER NOT NULL,
  host_bytes INTEGER NOT NULL, threads INTEGER NOT NULL, seconds REAL NOT NULL, priority INTEGER NOT NULL,
  retries INTEGER NOT NULL, after TEXT NOT NULL, state INTEGER NOT NULL, stop_asked INTEGER NOT NULL,
  hold_asked INTEGER NOT NULL, submitted REAL NOT NULL, promised REAL, attempts INTEGER NOT NULL,
  note TEXT NOT NULL, output TEXT NOT NULL DEFAULT '', fingerprint TEXT NOT NULL DEFAULT '',
  variants TEXT NOT NULL DEFAULT '[]', smaller TEXT NOT NULL DEFAULT '[]', card TEXT NOT NULL DEFAULT '',
  held_by INTEGER NOT NULL DEFAULT 0, group_name TEXT NOT NULL DEFAULT '', processes INTEGER NOT NULL DEFAULT 1,
  shared_bytes INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS open_entries ON entries(state);
CREATE TABLE IF NOT EXISTS attempts(
  entry INTEGER NOT NULL REFERENCES entries(id), number INTEGER NOT NULL, started REAL NOT NULL, ended REAL,
  devices INTEGER NOT NULL, device_bytes INTEGER NOT NULL, host_bytes INTEGER NOT NULL, threads INTEGER NOT NULL,
  cards TEXT NOT NULL, peak_bytes INTEGER NOT NULL, outcome TEXT NOT NULL, done INTEGER NOT NULL DEFAULT 0,
  words TEXT NOT NULL DEFAULT '[]', environment TEXT NOT NULL DEFAULT '[]', fingerprint TEXT NOT NULL DEFAULT '',
  job TEXT NOT NULL DEFAULT '', card_peak_bytes INTEGER NOT NULL DEFAULT 0, card TEXT NOT NULL DEFAULT '',
  processes INTEGER NOT NULL DEFAULT 1, shared_bytes INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY(entry, number));
CREATE INDEX IF NOT EXISTS alike ON attempts(fingerprint);
CREATE TABLE IF NOT EXISTS settings(name TEXT PRIMARY KEY, value INTEGER NOT NULL);
)sql";
// Columns that tables of older versions lack.
constexpr const char* kSinceVersion1 = "ALTER TABLE entries ADD COLUMN output TEXT NOT NULL DEFAULT '';";
constexpr const char* kSinceVersion2 = R"sql(
ALTER TABLE entries ADD COLUMN fingerprint TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN variants TEXT NOT NULL DEFAULT '[]';
ALTER TABLE attempts ADD COLUMN done INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN words TEXT NOT NULL DEFAULT '[]';
ALTER TABLE attempts ADD COLUMN environment TEXT NOT NULL DEFAULT '[]';
ALTER TABLE attempts ADD COLUMN fingerprint TEXT NOT NULL DEFAULT '';
)sql";
constexpr const char* kSinceVersion3 = "ALTER TABLE entries ADD COLUMN smaller TEXT NOT NULL DEFAULT '[]';";
// `submitted` came before `running`.
constexpr const char* kSinceVersion4 =
    "ALTER TABLE attempts ADD COLUMN job TEXT NOT NULL DEFAULT '';ALTER TABLE attempts ADD COLUMN "
    "card_peak_bytes INTEGER NOT NULL DEFAULT 0;UPDATE entries SET state = state + 1 WHERE state >= 2;";
constexpr const char* kSinceVersion5 =
    "ALTER TABLE entries ADD COLUMN card TEXT NOT NULL DEFAULT '';ALTER TABLE attempts ADD COLUMN card TEXT "
    "NOT NULL DEFAULT '';ALTER TABLE entries ADD COLUMN held_by INTEGER NOT NULL DEFAULT 0;ALTER TABLE "
    "entries ADD COLUMN group_name TEXT NOT NULL DEFAULT '';";
constexpr const char* kSinceVersion6 =
    "ALTER TABLE entries ADD COLUMN processes INTEGER NOT NULL DEFAULT 1;ALTER TABLE attempts ADD COLUMN "
    "processes INTEGER NOT NULL DEFAULT 1;ALTER TABLE entries ADD COLUMN shared_bytes INTEGER NOT NULL DEFAULT "
    "0;ALTER TABLE attempts ADD COLUMN shared_bytes INTEGER NOT NULL DEFAULT 0;";
// Until version 5 the note alone said which entry holds another: "held: 12, which it comes after, is failed".
constexpr const char* kReadHeldBy =
    "UPDATE entries SET held_by = CAST(substr(note, 7) AS INTEGER) "
    "WHERE state = 1 AND note LIKE 'held: %, which it comes after, is %';";

std::string text_of(Database& database, const std::string& query) {
  Statement statement(database, query);
  return statement.step() ? statement.text(0) : "";
}

std::vector<std::string> split_columns(std::string_view text) {
  std::vector<std::string> columns;
  for (const std::string& one : split(text, ',')) columns.emplace_back(trim(one));
  return columns;
}

}  // namespace

int64_t version_of(Database& database) {
  Statement statement(database, "PRAGMA user_version");
  return statement.step() ? statement.integer(0) : 0;
}

const std::vector<Table>& tables() {
  static const std::vector<Table> all = {{"entries", split_columns(kEntryColumns)},
                                         {"attempts", split_columns(kAttemptColumns)},
                                         {"settings", {"name", "value"}}};
  return all;
}

void read_held_by_from_notes(Database& database) { database.run(kReadHeldBy); }

void bring_up_to_date(Database& database) {
  Transaction transaction(database);
  const int64_t version = version_of(database);  // another may have done it meanwhile
  if (version == kSchema) return;
  if (version < 0 || (version == 0 && !text_of(database, "SELECT name FROM sqlite_master").empty()))
    database.refuse_form("it has the tables of another program");
  // Those that are not there yet have all columns.
  if (version == 1) database.run(kSinceVersion1);
  if (version == 1 || version == 2) database.run(kSinceVersion2);
  if (version >= 1 && version <= 3) database.run(kSinceVersion3);
  if (version >= 1 && version <= 4) database.run(kSinceVersion4);
  if (version >= 1 && version <= 5) {
    database.run(kSinceVersion5);
    read_held_by_from_notes(database);
  }
  if (version >= 1 && version <= 6) database.run(kSinceVersion6);
  database.run(kTables);
  database.run("PRAGMA user_version = " + std::to_string(kSchema));
  transaction.commit();
}

void require_form(Database& database) {
  for (const Table& table : tables()) {
    Statement row(database, formatted("SELECT name FROM pragma_table_info('{}')", table.name));
    std::vector<std::string> found;
    while (row.step()) found.push_back(row.text(0));
    if (found != table.columns)
      database.refuse_form(
          formatted("its table {}{}", table.name,
                    found.empty() ? " is missing" : " has other columns than those of a queue"));
  }
  const std::string other =
      text_of(database, "SELECT type || ' ' || name FROM sqlite_master WHERE type IN ('trigger', 'view')");
  if (!other.empty()) database.refuse_form(formatted("it has a {}, which no queue has", printable(other)));
}

}  // namespace plimsoll::queue
