#include "fleet/queue/database.h"

#include <sqlite3.h>

#include "base/error.h"

namespace plimsoll::queue {
namespace {

constexpr int kBusyMilliseconds = 20'000;

}  // namespace

// Without locks of its own: no two threads have one connection.
Database::Database(const std::string& path) : path_(path) {
  const int code = sqlite3_open_v2(
      path.c_str(), &handle_,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_NOMUTEX, nullptr);
  try {
    if (code != SQLITE_OK) fail(code);
    sqlite3_busy_timeout(handle_, kBusyMilliseconds);
    run("PRAGMA journal_mode = WAL");
    run("PRAGMA synchronous = FULL");
  } catch (...) {
    sqlite3_close(handle_);
    throw;
  }
}

Database::~Database() { sqlite3_close(handle_); }

void Database::run(const std::string& sql) {
  const int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(code);
}

int64_t Database::last_id() const { return sqlite3_last_insert_rowid(handle_); }
int Database::changed_rows() const { return sqlite3_changes(handle_); }

void Database::fail(int code) const {
  const std::string why = handle_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(handle_);
  switch (code & 0xff) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      throw DamagedError(path_ + ": " + why + ". It is no queue, or a damaged one: move it away");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      throw StoppedError(path_ + ": another program holds it since " +
                         std::to_string(kBusyMilliseconds / 1000) + " s");
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
      throw StoppedError(path_ + ": " + why);
    default:
      throw InternalError(path_ + ": " + why);
  }
}

Statement::Statement(Database& database, std::string_view sql) : database_(database) {
  const int code =
      sqlite3_prepare_v2(database.handle_, sql.data(), static_cast<int>(sql.size()), &handle_, nullptr);
  if (code != SQLITE_OK) database.fail(code);
}

Statement::~Statement() { sqlite3_finalize(handle_); }

Statement& Statement::bind(int64_t value) {
  sqlite3_bind_int64(handle_, ++next_, value);
  return *this;
}
Statement& Statement::bind(double value) {
  sqlite3_bind_double(handle_, ++next_, value);
  return *this;
}
Statement& Statement::bind(const std::string& value) {
  sqlite3_bind_text(handle_, ++next_, value.data(), static_cast<int>(value.size()), SQLITE_TRANSIENT);
  return *this;
}
Statement& Statement::bind_null() {
  sqlite3_bind_null(handle_, ++next_);
  return *this;
}

bool Statement::step() {
  const int code = sqlite3_step(handle_);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) database_.fail(code);
  return false;
}

int64_t Statement::integer(int column) const { return sqlite3_column_int64(handle_, column); }
double Statement::real(int column) const { return sqlite3_column_double(handle_, column); }
std::string Statement::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(handle_, column));
  return bytes == nullptr ? ""
                          : std::string(bytes, static_cast<size_t>(sqlite3_column_bytes(handle_, column)));
}
bool Statement::is_null(int column) const { return sqlite3_column_type(handle_, column) == SQLITE_NULL; }

Transaction::~Transaction() {
  if (done_) return;
  try {
    database_.run("ROLLBACK");
  } catch (const Error&) {  // the failure that led here is the one to be told
  }
}

void Transaction::commit() {
  database_.run("COMMIT");
  done_ = true;
}

}  // namespace plimsoll::queue
