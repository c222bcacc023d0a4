#include "fleet/queue/store/store.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/strings.h"
#include "base/units.h"
#include "files/file.h"
#include "fleet/queue/store/private_files.h"
#include "fleet/queue/store/row_values.h"
#include "fleet/queue/store/tables.h"

namespace plimsoll::queue {
namespace {

namespace fs = std::filesystem;

// SQLite follows no link: those of the way to the folder are resolved before. What is run, and what people
// ask to be written, has their own umask; the folder keeps everybody else out of the queue.
Database open_private(const fs::path& folder) {
  make_private(folder);
  const Umask files(kOwnersAlone);
  return Database((fs::canonical(folder) / kDatabaseFile).string());
}

constexpr int64_t kMaskKnown = 01000;  // beside its bits, so that 0 is none
std::string mask_name(int64_t id) { return "umask of " + std::to_string(id); }

}  // namespace

std::string_view name_of(State state) {
  constexpr std::string_view kNames[] = {"waiting", "held",   "submitted", "running",
                                         "done",    "failed", "canceled"};
  return kNames[static_cast<size_t>(state)];
}
bool is_over(State state) { return state >= State::done; }

bool is_begun(State state) { return state == State::submitted || state == State::running; }

State state_as_requested(const Entry& entry, State state) {
  if (!entry.stop_requested) return state;
  return entry.hold_requested ? State::held : State::canceled;
}

Store::Store(const fs::path& folder) : folder_(fs::absolute(folder)), database_(open_private(folder_)) {
  const Umask files(kOwnersAlone);
  const int64_t version = version_of(database_);
  if (version > kSchema)
    throw UsageError(printable((folder_ / kDatabaseFile).string()) + ": made by a newer plimsoll");
  if (version != kSchema) bring_up_to_date(database_);
  require_form(database_);
}

int64_t Store::insert(const Entry& entry) {
  for (const int64_t other : entry.after) (void)this->entry(other);
  if (std::max(entry.need.host_bytes, entry.need.device_bytes) > kMostRowBytes ||
      entry.need.threads > kMostThreads || entry.need.devices > kMostDevices)
    throw UsageError(
        formatted("{}: asks for more than any machine has: at most {}, {} threads and {} devices",
                  printable(entry.name), format_bytes(kMostRowBytes), kMostThreads, kMostDevices));
  const std::optional<int64_t> number = number_behind_folders();
  Statement statement(
      database_, "INSERT INTO entries VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
  if (number) {
    statement.bind(*number);
  } else {
    statement.bind_null();
  }
  bind_entry(statement, entry);
  statement.step();
  return database_.last_id();
}

// The number of the next entry, where runs of a database that was there before have left folders of the
// numbers that this one would give: what lies in them would be taken for the run of the new entry.
std::optional<int64_t> Store::number_behind_folders() {
  Statement row(database_,
                "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'entries'), 0), "
                "coalesce((SELECT max(id) FROM entries), 0))");
  const int64_t last = row.step() ? row.integer(0) : 0;
  if (last < 0 || last == INT64_MAX) return std::nullopt;
  int64_t next = last + 1;
  while (next < INT64_MAX && !is_absent(folder_of(next, 1).parent_path())) ++next;
  return next == last + 1 ? std::nullopt : std::optional(next);
}

void Store::require_in_place() const {
  if (database_.is_in_place()) return;
  throw StoppedError(
      printable((folder_ / kDatabaseFile).string()) +
      ": was moved, removed or replaced while it was in use; running jobs continue. Start the command "
      "again for the queue that is there now");
}

int64_t Store::add(const Entry& entry) { return add(std::vector<Entry>{entry}).front(); }

std::vector<int64_t> Store::add(const std::vector<Entry>& entries) {
  Transaction transaction(database_);
  std::vector<int64_t> ids;
  for (const Entry& entry : entries) ids.push_back(insert(entry));
  for (const int64_t id : ids) set(mask_name(id), kMaskKnown | static_cast<int64_t>(own_umask()));
  transaction.commit();
  return ids;
}

std::vector<Entry> Store::read(const std::string& condition) {
  Statement statement(
      database_,
      formatted(
          "SELECT {}, (SELECT job FROM attempts WHERE attempts.entry = entries.id AND attempts.number = "
          "entries.attempts) FROM entries {}",
          kEntryColumns, condition));
  std::vector<Entry> found;
  while (statement.step()) found.push_back(read_entry(statement));
  return found;
}

std::vector<Entry> Store::entries() { return read("ORDER BY id"); }

namespace {

// An unknown state is that of a damaged row, which needs a person to look at.
std::string where_open() {
  return formatted("(state < {} OR state > {})", static_cast<int>(State::done),
                   static_cast<int>(State::canceled));
}

}  // namespace

std::vector<Entry> Store::open_entries() { return read(formatted("WHERE {} ORDER BY id", where_open())); }

std::vector<Entry> Store::open_entries_and_last(size_t last) {
  return read(formatted(
      "WHERE {} OR id IN (SELECT id FROM entries WHERE NOT {} ORDER BY id DESC LIMIT {}) ORDER BY id",
      where_open(), where_open(), last));
}

std::vector<Entry> Store::entries_of(const std::string& group) {
  std::vector<Entry> found = entries();
  std::set<std::string> groups;
  for (const Entry& one : found)
    if (!one.group.empty()) groups.insert(printable(one.group));
  std::erase_if(found, [&](const Entry& one) { return one.group != group; });
  if (!found.empty() && !group.empty()) return found;
  throw UsageError(formatted(
      "the queue has no group '{}'; {}", printable(group),
      groups.empty() ? "queue add --group NAME makes one, as every sweep does"
                     : "it has " + join(std::vector<std::string>(groups.begin(), groups.end()), ", ")));
}

std::optional<Entry> Store::find(int64_t id) {
  std::vector<Entry> found = read("WHERE id = " + std::to_string(id));
  return found.empty() ? std::nullopt : std::optional(std::move(found.front()));
}

Entry Store::entry(int64_t id) {
  std::optional<Entry> found = find(id);
  if (!found) throw UsageError(formatted("the queue has no entry {}; plimsoll queue list shows them", id));
  return std::move(*found);
}

std::vector<Attempt> Store::read_attempts(const std::string& condition) {
  Statement row(database_,
                formatted("SELECT {} FROM attempts {} ORDER BY entry, number", kAttemptColumns, condition));
  std::vector<Attempt> found;
  while (row.step()) found.push_back(read_attempt(row));
  return found;
}

std::optional<Attempt> Store::attempt(int64_t id, int number) {
  std::vector<Attempt> found = read_attempts(formatted("WHERE entry = {} AND number = {}", id, number));
  return found.empty() ? std::nullopt : std::optional(std::move(found.front()));
}

std::vector<Attempt> Store::attempts(int64_t id) {
  return read_attempts("WHERE entry = " + std::to_string(id));
}
std::vector<Attempt> Store::attempts() { return read_attempts(""); }
std::vector<Attempt> Store::open_attempts() { return read_attempts("WHERE ended IS NULL"); }

// Columns of a damaged row that could not be read stay as they are.
void Store::update(const Entry& entry) {
  if (!entry.damage.empty()) {
    if (!is_over(entry.state))
      throw UsageError(formatted("{} {}: {}; all that can be done is plimsoll queue cancel {}", entry.id,
                                 printable(entry.name), entry.damage, entry.id));
    Statement statement(database_,
                        "UPDATE entries SET state=?, stop_asked=0, hold_asked=0, note=? WHERE id=?");
    statement.bind(static_cast<int64_t>(entry.state)).bind(entry.note).bind(entry.id).step();
    return;
  }
  Statement statement(
      database_,
      "UPDATE entries SET name=?, recipe=?, words=?, environment=?, folder=?, devices=?, "
      "device_bytes=?, host_bytes=?, threads=?, seconds=?, priority=?, retries=?, after=?, "
      "state=?, stop_asked=?, hold_asked=?, submitted=?, promised=?, attempts=?, note=?, "
      "output=?, fingerprint=?, variants=?, smaller=?, card=?, held_by=?, group_name=?, processes=?, "
      "shared_bytes=? WHERE id=?");
  bind_entry(statement, entry);
  statement.bind(entry.id).step();
}

Learned Store::learned(const std::string& fingerprint) {
  Statement row(database_,
                "SELECT done, peak_bytes, ended - started, card_peak_bytes FROM attempts WHERE fingerprint = "
                "? AND ended IS NOT NULL ORDER BY started DESC LIMIT 20");
  row.bind(fingerprint);
  Learned found;
  while (row.step()) {
    const int64_t peak = std::clamp<int64_t>(row.integer(1), 0, kMostRowBytes);
    const int64_t on_card = std::clamp<int64_t>(row.integer(3), 0, kMostRowBytes);
    found.least_bytes = std::max(found.least_bytes, peak);
    found.least_card_bytes = std::max(found.least_card_bytes, on_card);
    if (row.integer(0) == 0) continue;
    if (found.runs++ == 0) found.seconds = std::clamp(row.real(2), 0.0, kMostSeconds);
    found.peak_bytes = std::max(found.peak_bytes, peak);
    found.card_peak_bytes = std::max(found.card_peak_bytes, on_card);
  }
  return found;
}

bool Store::begin(int64_t id, const std::vector<std::string>& cards, double now,
                  const std::function<void(Entry&)>& change, const std::string& job) {
  Transaction transaction(database_);
  Entry found = entry(id);
  if (found.state != State::waiting) return false;
  found.state = job.empty() ? State::running : State::submitted;
  found.note.clear();
  if (change) change(found);
  ++found.attempts;
  update(found);
  Statement statement(database_, "INSERT INTO attempts VALUES(?,?,?,NULL,?,?,?,?,?,0,'',0,?,?,?,?,0,?,?,?)");
  statement.bind(id).bind(int64_t{found.attempts}).bind(now);
  bind_need(statement, found.need);
  statement.bind(stored_words(cards)).bind(stored_words(found.words)).bind(stored_words(found.environment));
  statement.bind(found.fingerprint).bind(job).bind(found.need.card);
  statement.bind(int64_t{found.need.processes}).bind(found.need.shared_bytes).step();
  transaction.commit();
  return true;
}

Entry Store::follow(int64_t id, int number, const std::function<void(Entry&, Attempt&)>& change) {
  Transaction transaction(database_);
  Entry found = entry(id);
  for (Attempt& attempt : attempts(id)) {
    if (attempt.number != number || !is_begun(found.state)) continue;
    change(found, attempt);
    write(attempt);
    update(found);
  }
  transaction.commit();
  return found;
}

Entry Store::take_back(int64_t id, int number, State state, const std::string& note) {
  Transaction transaction(database_);
  Entry found = entry(id);
  if (is_begun(found.state) && found.attempts == number) {
    found.state = state_as_requested(found, state);
    found.stop_requested = found.hold_requested = false;
    found.note = note;
    --found.attempts;
    update(found);
    Statement statement(database_, "DELETE FROM attempts WHERE entry = ? AND number = ?");
    statement.bind(id).bind(int64_t{number}).step();
  }
  transaction.commit();
  return found;
}

void Store::write(const Attempt& attempt) {
  Statement statement(
      database_,
      "UPDATE attempts SET started=?, job=?, ended=?, peak_bytes=?, outcome=?, done=? WHERE entry=? AND "
      "number=?");
  statement.bind(attempt.started).bind(attempt.job);
  if (attempt.ended) {
    statement.bind(*attempt.ended);
  } else {
    statement.bind_null();
  }
  statement.bind(attempt.peak_bytes).bind(attempt.outcome).bind(int64_t{attempt.done});
  statement.bind(attempt.entry).bind(int64_t{attempt.number}).step();
}

void Store::saw_on_cards(int64_t id, int number, int64_t bytes) {
  Statement statement(
      database_, "UPDATE attempts SET card_peak_bytes=max(card_peak_bytes, ?) WHERE entry=? AND number=?");
  statement.bind(bytes).bind(id).bind(int64_t{number}).step();
}

void Store::set(const std::string& name, int64_t value) {
  Statement statement(database_, "INSERT OR REPLACE INTO settings VALUES(?, ?)");
  statement.bind(name).bind(value).step();
}

int64_t Store::setting(const std::string& name) {
  Statement statement(database_, "SELECT value FROM settings WHERE name = ?");
  statement.bind(name);
  return statement.step() ? statement.integer(0) : 0;
}

std::optional<mode_t> Store::mask_of(int64_t id) {
  const int64_t known = setting(mask_name(id));
  return known == 0 ? std::nullopt : std::optional(static_cast<mode_t>(known & 0777));
}

void Store::pause(bool paused) { set("paused", int64_t{paused}); }
bool Store::paused() { return setting("paused") != 0; }
void Store::drain(bool draining) { set("draining", int64_t{draining}); }
bool Store::draining() { return setting("draining") != 0; }

int64_t Store::version() {
  Statement statement(database_, "PRAGMA data_version");
  return statement.step() ? statement.integer(0) : 0;
}

fs::path Store::folder_of(int64_t id, int attempt) const {
  return folder_ / "runs" / std::to_string(id) / std::to_string(attempt);
}

fs::path queue_folder() {
  const auto named = [](const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? fs::path() : fs::path(value);
  };
  if (!named("PLIMSOLL_QUEUE_DIR").empty()) return named("PLIMSOLL_QUEUE_DIR");
  if (!named("XDG_STATE_HOME").empty()) return named("XDG_STATE_HOME") / "plimsoll/queue";
  if (named("HOME").empty())
    throw UsageError("there is no HOME to keep a queue in: set PLIMSOLL_QUEUE_DIR to a folder");
  return named("HOME") / ".local/state/plimsoll/queue";
}

}  // namespace plimsoll::queue
