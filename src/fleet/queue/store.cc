#include "fleet/queue/store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"
#include "base/printable.h"
#include "base/strings.h"
#include "base/units.h"
#include "fleet/queue/tables.h"
#include "io/atomic.h"

namespace plimsoll::queue {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kSchema = 6;
constexpr const char* kTables = R"sql(
CREATE TABLE IF NOT EXISTS entries(
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, recipe INTEGER NOT NULL, words TEXT NOT NULL,
  environment TEXT NOT NULL, folder TEXT NOT NULL, devices INTEGER NOT NULL, device_bytes INTEGER NOT NULL,
  host_bytes INTEGER NOT NULL, threads INTEGER NOT NULL, seconds REAL NOT NULL, priority INTEGER NOT NULL,
  retries INTEGER NOT NULL, after TEXT NOT NULL, state INTEGER NOT NULL, stop_asked INTEGER NOT NULL,
  hold_asked INTEGER NOT NULL, submitted REAL NOT NULL, promised REAL, attempts INTEGER NOT NULL,
  note TEXT NOT NULL, output TEXT NOT NULL DEFAULT '', fingerprint TEXT NOT NULL DEFAULT '',
  variants TEXT NOT NULL DEFAULT '[]', smaller TEXT NOT NULL DEFAULT '[]', card TEXT NOT NULL DEFAULT '');
CREATE INDEX IF NOT EXISTS open_entries ON entries(state);
CREATE TABLE IF NOT EXISTS attempts(
  entry INTEGER NOT NULL REFERENCES entries(id), number INTEGER NOT NULL, started REAL NOT NULL, ended REAL,
  devices INTEGER NOT NULL, device_bytes INTEGER NOT NULL, host_bytes INTEGER NOT NULL, threads INTEGER NOT NULL,
  cards TEXT NOT NULL, peak_bytes INTEGER NOT NULL, outcome TEXT NOT NULL, done INTEGER NOT NULL DEFAULT 0,
  words TEXT NOT NULL DEFAULT '[]', environment TEXT NOT NULL DEFAULT '[]', fingerprint TEXT NOT NULL DEFAULT '',
  job TEXT NOT NULL DEFAULT '', card_peak_bytes INTEGER NOT NULL DEFAULT 0, card TEXT NOT NULL DEFAULT '',
  PRIMARY KEY(entry, number));
CREATE INDEX IF NOT EXISTS alike ON attempts(fingerprint);
CREATE TABLE IF NOT EXISTS settings(name TEXT PRIMARY KEY, value INTEGER NOT NULL);
)sql";
constexpr const char* kAttemptColumns =
    "entry, number, started, ended, devices, device_bytes, host_bytes, threads, cards, peak_bytes, outcome, "
    "done, "
    "words, environment, fingerprint, job, card_peak_bytes, card";
constexpr const char* kColumns =
    "id, name, recipe, words, environment, folder, devices, device_bytes, host_bytes, threads, seconds, "
    "priority, retries, after, state, stop_asked, hold_asked, submitted, promised, attempts, note, output, "
    "fingerprint, variants, smaller, card";
// What tables of older versions lack.
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
    "ALTER TABLE attempts ADD COLUMN job TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE attempts ADD COLUMN card_peak_bytes INTEGER NOT NULL DEFAULT 0;"
    "UPDATE entries SET state = state + 1 WHERE state >= 2;";
constexpr const char* kSinceVersion5 =
    "ALTER TABLE entries ADD COLUMN card TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE attempts ADD COLUMN card TEXT NOT NULL DEFAULT '';";

constexpr int kMostDevices = 1 << 16;
constexpr int kMostThreads = 1 << 20;
constexpr double kMostSeconds = 1e15;

// Bytes that are no UTF-8 have no place in JSON: words keep theirs, each byte as a character of its own.
json as_json(const std::vector<std::string>& words) {
  json list = json::array();
  for (const std::string& word : words) {
    list.push_back(json::array());
    for (const char c : word) list.back().push_back(static_cast<int>(static_cast<unsigned char>(c)));
  }
  return list;
}
std::string stored(const std::vector<std::string>& words) {
  const json plain = words;
  try {
    return plain.dump();
  } catch (const json::type_error&) {
    return as_json(words).dump();
  }
}
// ["a","b"] without escapes, as almost all are: a quote then only begins or ends a word. Nothing for others.
std::optional<std::vector<std::string>> loaded_plain(std::string_view text) {
  if (text.size() < 2 || text.front() != '[' || text.find('\\') != std::string_view::npos)
    return std::nullopt;
  std::vector<std::string> words;
  for (size_t at = 1; at < text.size(); ++at) {
    if (text[at] == ']' && words.empty()) return words;
    const size_t end = text[at] == '"' ? text.find('"', at + 1) : std::string_view::npos;
    if (end == std::string_view::npos || end + 1 >= text.size()) return std::nullopt;
    words.emplace_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
    if (text[at] == ']') return words;
    if (text[at] != ',') return std::nullopt;
  }
  return std::nullopt;
}
std::vector<std::string> loaded(const std::string& text) {
  if (auto plain = loaded_plain(text)) return std::move(*plain);
  std::vector<std::string> words;
  const json list = json::parse(text);
  for (const json& word : list.get_ref<const json::array_t&>()) {
    if (word.is_string()) {
      words.push_back(word.get<std::string>());
      continue;
    }
    words.emplace_back();
    for (const json& byte : word.get_ref<const json::array_t&>())
      words.back() += static_cast<char>(byte.get<int>());
  }
  return words;
}

std::vector<std::string> loaded_words(const std::string& text) {
  std::vector<std::string> words = loaded(text);
  if (words.empty()) (void)json().at(0);  // throws: there is nothing to run
  return words;
}

// Each variant as the texts of its lists.
std::string stored(const std::vector<Variant>& variants) {
  json list = json::array();
  for (const Variant& one : variants)
    list.push_back({stored(std::vector<std::string>{one.text, one.fingerprint}), stored(one.command.words),
                    stored(one.command.environment)});
  return list.dump();
}
std::vector<Variant> loaded_variants(const std::string& text) {
  std::vector<Variant> variants;
  if (text == "[]") return variants;
  const json all = json::parse(text);
  for (const json& one : all.get_ref<const json::array_t&>()) {
    const auto list = [&](size_t i) { return loaded(one.at(i).get<std::string>()); };
    std::vector<std::string> facts = list(0);
    facts.resize(2);
    variants.push_back({facts[0], {loaded_words(one.at(1).get<std::string>()), list(2)}, facts[1]});
  }
  return variants;
}

std::string stored(const std::vector<SmallerPlan>& plans) {
  json list = json::array();
  for (const SmallerPlan& one : plans)
    list.push_back({one.host_bytes, one.seconds, one.threads, one.device_bytes, one.card});
  return list.dump();
}
std::vector<SmallerPlan> loaded_plans(const std::string& text) {
  std::vector<SmallerPlan> plans;
  if (text == "[]") return plans;
  const json list = json::parse(text);
  for (const json& one : list.get_ref<const json::array_t&>()) {
    const auto threads = one.size() > 2 ? one.at(2).get<int64_t>() : 0;
    SmallerPlan& plan = plans.emplace_back();
    plan.host_bytes = one.at(0).get<int64_t>();
    plan.seconds = one.at(1).get<double>();
    plan.threads = static_cast<int>(threads);
    if (one.size() > 4) {  // since plans for cards
      plan.device_bytes = one.at(3).get<int64_t>();
      plan.card = one.at(4).get<std::string>();
    }
    const bool good = plan.host_bytes >= 0 && plan.host_bytes <= kMostRowBytes && plan.device_bytes >= 0 &&
                      plan.device_bytes <= kMostRowBytes && threads >= 0 && threads <= kMostThreads &&
                      plan.seconds >= 0 && plan.seconds <= kMostSeconds;
    if (!good) (void)json().at(0);  // throws
  }
  return plans;
}

// Reads the values of a row, which anybody may have written: the first that is none is named, and something
// harmless stands in its place.
class Checked {
 public:
  explicit Checked(const Statement& row) : row_(row) {}
  [[nodiscard]] const std::string& problem() const { return problem_; }

  int64_t whole(int column, const char* name, int64_t least, int64_t most) {
    const int64_t value = row_.integer(column);
    if (row_.is_whole(column) && value >= least && value <= most) return value;
    blame(name);
    return std::clamp<int64_t>(0, least, most);
  }
  int number(int column, const char* name, int least = 0, int most = INT32_MAX) {
    return static_cast<int>(whole(column, name, least, most));
  }
  double real(int column, const char* name, double least) {
    const double value = row_.real(column);
    if (row_.is_number(column) && value >= least && value <= kMostSeconds) return value;
    blame(name);
    return 0;
  }
  Need need(int column, int card) {
    return {number(column, "devices", 0, kMostDevices), whole(column + 1, "device_bytes", 0, kMostRowBytes),
            whole(column + 2, "host_bytes", 0, kMostRowBytes), number(column + 3, "threads", 0, kMostThreads),
            row_.text(card)};
  }
  // What `load` makes of a text; it throws where that is another.
  template <class Load>
  auto list(int column, const char* name, Load&& load) {
    try {
      return load(row_.text(column));
    } catch (const json::exception&) {
      blame(name);
      return decltype(load(std::string())){};
    }
  }
  void blame(const char* name) {
    if (problem_.empty()) problem_ = name;
  }

 private:
  const Statement& row_;
  std::string problem_;
};

// One that cannot be run as it stands is held, and can be canceled; what is over stays over.
void hold_damaged(Entry& entry, const std::string& column) {
  entry.damage = "its row in the queue's database is damaged (" + column + ")";
  entry.note = entry.damage;
  if (is_over(entry.state)) return;
  entry.state = State::held;
  entry.stop_asked = entry.hold_asked = false;
  entry.note =
      "held: " + entry.damage + "; plimsoll queue cancel " + std::to_string(entry.id) + " takes it out";
}

Entry read_entry(const Statement& row) {
  Checked checked(row);
  Entry entry;
  entry.id = row.integer(0);
  entry.name = row.text(1);
  entry.recipe = row.integer(2) != 0;
  entry.words = checked.list(3, "words", loaded_words);
  entry.environment = checked.list(4, "environment", loaded);
  entry.folder = row.text(5);
  entry.need = checked.need(6, 25);
  entry.seconds = checked.real(10, "seconds", 0);
  entry.priority = checked.number(11, "priority", INT32_MIN);
  entry.retries = checked.number(12, "retries");
  entry.after = checked.list(13, "after", [](const std::string& text) {
    return text == "[]" ? std::vector<int64_t>{} : json::parse(text).get<std::vector<int64_t>>();
  });
  entry.state = static_cast<State>(checked.number(14, "state", 0, static_cast<int>(State::canceled)));
  entry.stop_asked = row.integer(15) != 0;
  entry.hold_asked = row.integer(16) != 0;
  entry.submitted = checked.real(17, "submitted", -kMostSeconds);
  if (!row.is_null(18)) entry.promised = checked.real(18, "promised", -kMostSeconds);
  entry.attempts = checked.number(19, "attempts");
  entry.note = row.text(20);
  entry.output = row.text(21);
  entry.fingerprint = row.text(22);
  entry.variants = checked.list(23, "variants", loaded_variants);
  entry.smaller = checked.list(24, "smaller", loaded_plans);
  const bool has_last = row.integer(26) != 0;
  if (has_last != (entry.attempts > 0) || (is_begun(entry.state) && !has_last)) {
    checked.blame("attempts");
    entry.attempts = has_last ? entry.attempts : 0;
  }
  if (!checked.problem().empty()) hold_damaged(entry, checked.problem());
  return entry;
}

void bind_need(Statement& statement, const Need& need) {
  statement.bind(int64_t{need.devices})
      .bind(need.device_bytes)
      .bind(need.host_bytes)
      .bind(int64_t{need.threads});
}

// Binds all of kColumns but the id.
void bind_entry(Statement& statement, const Entry& entry) {
  statement.bind(entry.name)
      .bind(int64_t{entry.recipe})
      .bind(stored(entry.words))
      .bind(stored(entry.environment))
      .bind(entry.folder);
  bind_need(statement, entry.need);
  statement.bind(entry.seconds).bind(int64_t{entry.priority}).bind(int64_t{entry.retries});
  statement.bind(json(entry.after).dump())
      .bind(static_cast<int64_t>(entry.state))
      .bind(int64_t{entry.stop_asked})
      .bind(int64_t{entry.hold_asked})
      .bind(entry.submitted);
  if (entry.promised) {
    statement.bind(*entry.promised);
  } else {
    statement.bind_null();
  }
  statement.bind(int64_t{entry.attempts}).bind(entry.note).bind(entry.output);
  statement.bind(entry.fingerprint).bind(stored(entry.variants)).bind(stored(entry.smaller));
  statement.bind(entry.need.card);
}

// The mask of the process, with what its owner may do left out: a folder that nobody could enter would stay.
class OwnersMask {
 public:
  OwnersMask() { umask(before_ & 077); }
  OwnersMask(const OwnersMask&) = delete;
  OwnersMask& operator=(const OwnersMask&) = delete;
  ~OwnersMask() { umask(before_); }

 private:
  mode_t before_ = umask(077);
};

// Created for its owner alone; one that is there must be so already.
void make_private(const fs::path& folder) {
  const OwnersMask mask;
  if (!folder.parent_path().empty()) make_folders(folder.parent_path());
  const bool made = mkdir(folder.c_str(), 0700) == 0;
  if (made) flush_name(folder);
  if (!made && errno != EEXIST)
    throw UsageError(printable(folder.string()) + ": " + std::generic_category().message(errno));
  struct stat found {};
  if (lstat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode))
    throw UsageError(printable(folder.string()) + ": is no folder");
  if (found.st_uid != geteuid())
    throw UsageError(printable(folder.string()) + ": belongs to another user; a queue is its owner's alone");
  if ((found.st_mode & 077) != 0)
    throw UsageError(printable(folder.string()) +
                     ": others may enter it; a queue is its owner's alone: chmod 700");
  if ((found.st_mode & 0700) != 0700)
    throw UsageError(printable(folder.string()) + ": its owner may not enter it or write there: chmod 700");
}

// Of what is made while it is there. What is run, and what people ask to be written, has their own mask; the
// folder keeps everybody else out of the queue.
class PrivateFiles {
 public:
  PrivateFiles() : before_(umask(077)) {}
  PrivateFiles(const PrivateFiles&) = delete;
  PrivateFiles& operator=(const PrivateFiles&) = delete;
  ~PrivateFiles() { umask(before_); }

 private:
  mode_t before_;
};

// SQLite follows no link: those of the way to the folder are resolved before.
Database open_private(const fs::path& folder) {
  make_private(folder);
  const PrivateFiles files;
  return Database((fs::canonical(folder) / kDatabaseFile).string());
}

// Of this process.
mode_t own_mask() {
  const mode_t mask = umask(077);
  umask(mask);
  return mask;
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

State state_as_asked(const Entry& entry, State state) {
  if (!entry.stop_asked) return state;
  return entry.hold_asked ? State::held : State::canceled;
}

namespace {

std::string text_of(Database& database, const std::string& query) {
  Statement statement(database, query);
  return statement.step() ? statement.text(0) : "";
}

std::vector<std::string> split_columns(std::string_view text) {
  std::vector<std::string> columns;
  for (const std::string& one : split(text, ',')) columns.emplace_back(trim(one));
  return columns;
}

int64_t version_of(Database& database) {
  Statement statement(database, "PRAGMA user_version");
  return statement.step() ? statement.integer(0) : 0;
}

}  // namespace

const std::vector<Table>& tables() {
  static const std::vector<Table> all = {{"entries", split_columns(kColumns)},
                                         {"attempts", split_columns(kAttemptColumns)},
                                         {"settings", {"name", "value"}}};
  return all;
}

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
  if (version >= 1 && version <= 5) database.run(kSinceVersion5);
  database.run(kTables);
  database.run("PRAGMA user_version = " + std::to_string(kSchema));
  transaction.commit();
}

namespace {

void require_form(Database& database) {
  for (const Table& table : tables()) {
    Statement row(database, "SELECT name FROM pragma_table_info('" + table.name + "')");
    std::vector<std::string> found;
    while (row.step()) found.push_back(row.text(0));
    if (found != table.columns)
      database.refuse_form("its table " + table.name +
                           (found.empty() ? " is missing" : " has other columns than those of a queue"));
  }
  const std::string other =
      text_of(database, "SELECT type || ' ' || name FROM sqlite_master WHERE type IN ('trigger', 'view')");
  if (!other.empty()) database.refuse_form("it has a " + printable(other) + ", which no queue has");
}

}  // namespace

Store::Store(const fs::path& folder) : folder_(fs::absolute(folder)), database_(open_private(folder_)) {
  const PrivateFiles files;
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
    throw UsageError(printable(entry.name) + ": asks for more than any machine has: at most " +
                     format_bytes(kMostRowBytes) + ", " + std::to_string(kMostThreads) + " threads and " +
                     std::to_string(kMostDevices) + " devices");
  Statement statement(database_,
                      "INSERT INTO entries VALUES(NULL,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
  bind_entry(statement, entry);
  statement.step();
  return database_.last_id();
}

int64_t Store::add(const Entry& entry) { return add(std::vector<Entry>{entry}).front(); }

std::vector<int64_t> Store::add(const std::vector<Entry>& entries) {
  Transaction transaction(database_);
  std::vector<int64_t> ids;
  for (const Entry& entry : entries) ids.push_back(insert(entry));
  for (const int64_t id : ids) set(mask_name(id), kMaskKnown | static_cast<int64_t>(own_mask()));
  transaction.commit();
  return ids;
}

std::vector<Entry> Store::read(const std::string& condition) {
  Statement statement(database_, std::string("SELECT ") + kColumns +
                                     ", EXISTS(SELECT 1 FROM attempts WHERE attempts.entry = entries.id AND "
                                     "attempts.number = entries.attempts) FROM entries " +
                                     condition);
  std::vector<Entry> found;
  while (statement.step()) found.push_back(read_entry(statement));
  return found;
}

std::vector<Entry> Store::entries() { return read("ORDER BY id"); }
namespace {

// A state that is none is of a damaged row, which somebody has to look at.
std::string where_open() {
  return "(state < " + std::to_string(static_cast<int>(State::done)) + " OR state > " +
         std::to_string(static_cast<int>(State::canceled)) + ")";
}

}  // namespace

std::vector<Entry> Store::open_entries() { return read("WHERE " + where_open() + " ORDER BY id"); }

std::vector<Entry> Store::open_entries_and_last(size_t last) {
  return read("WHERE " + where_open() + " OR id IN (SELECT id FROM entries WHERE NOT " + where_open() +
              " ORDER BY id DESC LIMIT " + std::to_string(last) + ") ORDER BY id");
}

std::optional<Entry> Store::find(int64_t id) {
  std::vector<Entry> found = read("WHERE id = " + std::to_string(id));
  return found.empty() ? std::nullopt : std::optional(std::move(found.front()));
}

Entry Store::entry(int64_t id) {
  std::optional<Entry> found = find(id);
  if (!found)
    throw UsageError("the queue has no entry " + std::to_string(id) + "; plimsoll queue list shows them");
  return std::move(*found);
}

std::vector<Attempt> Store::read_attempts(const std::string& condition) {
  Statement row(database_, std::string("SELECT ") + kAttemptColumns + " FROM attempts " + condition +
                               " ORDER BY entry, number");
  std::vector<Attempt> found;
  while (row.step()) {
    Checked checked(row);
    Attempt attempt;
    attempt.entry = row.integer(0);
    attempt.number = checked.number(1, "number");
    attempt.started = checked.real(2, "started", -kMostSeconds);
    if (!row.is_null(3)) attempt.ended = checked.real(3, "ended", -kMostSeconds);
    attempt.need = checked.need(4, 17);
    attempt.cards = checked.list(8, "cards", loaded);
    attempt.peak_bytes = checked.whole(9, "peak_bytes", 0, kMostRowBytes);
    attempt.outcome = row.text(10);
    attempt.done = row.integer(11) != 0;
    attempt.words = checked.list(12, "words", loaded);
    attempt.environment = checked.list(13, "environment", loaded);
    attempt.job = row.text(15);
    attempt.card_peak_bytes = checked.whole(16, "card_peak_bytes", 0, kMostRowBytes);
    if (!checked.problem().empty())
      attempt.outcome += (attempt.outcome.empty() ? "" : "; ") +
                         std::string("its row in the queue's database is damaged (") + checked.problem() +
                         ")";
    found.push_back(std::move(attempt));
  }
  return found;
}

std::optional<Attempt> Store::attempt(int64_t id, int number) {
  std::vector<Attempt> found =
      read_attempts("WHERE entry = " + std::to_string(id) + " AND number = " + std::to_string(number));
  return found.empty() ? std::nullopt : std::optional(std::move(found.front()));
}

std::vector<Attempt> Store::attempts(int64_t id) {
  return read_attempts("WHERE entry = " + std::to_string(id));
}
std::vector<Attempt> Store::attempts() { return read_attempts(""); }

// What could not be read of a damaged row stays as it is.
void Store::update(const Entry& entry) {
  if (!entry.damage.empty()) {
    if (!is_over(entry.state))
      throw UsageError(std::to_string(entry.id) + " " + printable(entry.name) + ": " + entry.damage +
                       "; plimsoll queue cancel " + std::to_string(entry.id) + " takes it out");
    Statement statement(database_,
                        "UPDATE entries SET state=?, stop_asked=0, hold_asked=0, note=? WHERE id=?");
    statement.bind(static_cast<int64_t>(entry.state)).bind(entry.note).bind(entry.id).step();
    return;
  }
  Statement statement(database_,
                      "UPDATE entries SET name=?, recipe=?, words=?, environment=?, folder=?, devices=?, "
                      "device_bytes=?, host_bytes=?, threads=?, seconds=?, priority=?, retries=?, after=?, "
                      "state=?, stop_asked=?, hold_asked=?, submitted=?, promised=?, attempts=?, note=?, "
                      "output=?, fingerprint=?, variants=?, smaller=?, card=? WHERE id=?");
  bind_entry(statement, entry);
  statement.bind(entry.id).step();
}

Learned Store::learned(const std::string& fingerprint) {
  Statement row(database_,
                "SELECT done, peak_bytes, ended - started, card_peak_bytes FROM attempts WHERE fingerprint = "
                "? AND ended IS NOT "
                "NULL ORDER BY started DESC LIMIT 20");
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
  Statement statement(database_, "INSERT INTO attempts VALUES(?,?,?,NULL,?,?,?,?,?,0,'',0,?,?,?,?,0,?)");
  statement.bind(id).bind(int64_t{found.attempts}).bind(now);
  bind_need(statement, found.need);
  statement.bind(stored(cards)).bind(stored(found.words)).bind(stored(found.environment));
  statement.bind(found.fingerprint).bind(job).bind(found.need.card).step();
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
    found.state = state_as_asked(found, state);
    found.stop_asked = found.hold_asked = false;
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
