#include "fleet/queue/store/database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"

namespace plimsoll::queue {
namespace {

constexpr int kBusyMilliseconds = 20'000;

// SQLite would wait for a FIFO, or say only that it cannot open what is there.
void require_file(const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0 || S_ISREG(found.st_mode)) return;
  throw UsageError(formatted(
      "{}: is {}, where the queue's database has to be a regular file; move it away, or name another "
      "folder in PLIMSOLL_QUEUE_DIR",
      printable(path), S_ISLNK(found.st_mode) ? "a symbolic link" : "no regular file"));
}

int open_lock(const std::string& path) {
  const int lock = open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (lock < 0)
    throw StoppedError(formatted("{}.lock: {}", printable(path), std::generic_category().message(errno)));
  return lock;
}

FileIdentity identity_of(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 ? FileIdentity{found.st_dev, found.st_ino} : FileIdentity{};
}

[[noreturn]] void another_holds(const std::string& path) {
  throw StoppedError(
      formatted("{}: another program holds it since {} s", printable(path), kBusyMilliseconds / 1000));
}

}  // namespace

// Without locks of its own: no two threads have one connection.
Database::Database(const std::string& path) : path_(path), lock_(open_lock(path)) {
  try {
    const Turn turn(*this);
    require_file(path);
    const int code = sqlite3_open_v2(
        path.c_str(), &handle_,
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_NOMUTEX, nullptr);
    if (code != SQLITE_OK) fail(code);
    sqlite3_busy_timeout(handle_, kBusyMilliseconds);
    run("PRAGMA journal_mode = WAL");
    run("PRAGMA synchronous = FULL");
    file_ = identity_of(path);
    if (file_ == FileIdentity{})
      throw StoppedError(printable(path) + ": was moved or removed while it was opened");
  } catch (...) {
    sqlite3_close(handle_);
    close(lock_);
    throw;
  }
}

Database::Database(const std::string& path, ReadOnly) : path_(path), lock_(open_lock(path)) {
  const int code = sqlite3_open_v2(
      path.c_str(), &handle_, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_NOMUTEX, nullptr);
  try {
    if (code != SQLITE_OK) fail(code);
    sqlite3_busy_timeout(handle_, kBusyMilliseconds);
  } catch (...) {
    sqlite3_close(handle_);
    close(lock_);
    throw;
  }
}

// The last one that closes it copies the log back.
Database::~Database() {
  try {
    const Turn turn(*this);
    sqlite3_close(handle_);
  } catch (const Error&) {  // another has it open, so that this one is not the last
    sqlite3_close(handle_);
  }
  close(lock_);
}

Turn::Turn(Database& database) : database_(database) {
  const bool has_it = database_.turns_ > 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kBusyMilliseconds);
  while (!has_it && flock(database_.lock_, LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() > end) another_holds(database_.path_);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ++database_.turns_;
}

Turn::~Turn() {
  if (--database_.turns_ == 0) flock(database_.lock_, LOCK_UN);
}

void Database::run(const std::string& sql) {
  const int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(code);
}

bool Database::is_in_place() const {
  errno = 0;
  const bool same = identity_of(path_) == file_;
  const bool unknown = errno != 0 && errno != ENOENT && errno != ENOTDIR;  // a network that is away
  return same || unknown;
}

int64_t Database::last_id() const { return sqlite3_last_insert_rowid(handle_); }
int Database::changed_rows() const { return sqlite3_changes(handle_); }

void Database::fail(int code) const {
  const std::string why = handle_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(handle_);
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
      another_holds(path_);
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_NOMEM:
      throw StoppedError(formatted("{}: {}", printable(path_), printable(why)));
    case SQLITE_MISUSE:
    case SQLITE_RANGE:
      throw InternalError(formatted("{}: {}", path_, why));
    default:  // what it holds is not what every queue has
      refuse_form(printable(why));
  }
}

void Database::refuse_form(const std::string& why) const {
  throw DamagedError(formatted(
      "{}: {}. It is no queue, or a damaged one: plimsoll queue rescue keeps what can be read of it "
      "and begins a new one",
      printable(path_), why));
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
  std::optional<Turn> turn;
  if (sqlite3_stmt_readonly(handle_) == 0) turn.emplace(database_);
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
bool Statement::is_number(int column) const {
  return is_whole(column) || sqlite3_column_type(handle_, column) == SQLITE_FLOAT;
}
bool Statement::is_whole(int column) const { return sqlite3_column_type(handle_, column) == SQLITE_INTEGER; }
void Statement::copy(int column, Statement& to) const {
  sqlite3_bind_value(to.handle_, ++to.next_, sqlite3_column_value(handle_, column));
}

void Statement::reset() {
  sqlite3_reset(handle_);
  next_ = 0;
}

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
