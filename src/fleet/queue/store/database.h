// SQLite with values bound and errors thrown.
//
// Throws StoppedError where the disk is full or another program holds the file, DamagedError for what is no
// database of ours, UsageError where its name is that of no regular file, each naming the file.
//
// Who writes, opens or closes it takes turns by a lock next to it (queue.db.lock): SQLite before 3.51.3 may
// damage a database whose write-ahead log one process copies back while another writes, and the first two
// that open a new one do not wait for each other.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace plimsoll::queue {

// The file that has a name.
struct FileIdentity {
  dev_t device = 0;
  ino_t number = 0;
  bool operator==(const FileIdentity&) const = default;
};

class Database {
 public:
  // Opens or creates it: write-ahead log, every commit on disk before it counts.
  explicit Database(const std::string& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Opens what is there, for reading alone: its own log counts, and nothing is changed.
  struct ReadOnly {};
  Database(const std::string& path, ReadOnly);

  void run(const std::string& sql);
  [[nodiscard]] int64_t last_id() const;
  [[nodiscard]] int changed_rows() const;
  // True if the file of its name is the one that was opened.
  [[nodiscard]] bool is_in_place() const;
  [[noreturn]] void fail(int code) const;
  // DamagedError: it is not what every queue is.
  [[noreturn]] void refuse_form(const std::string& why) const;

 private:
  friend class Statement;
  friend class Turn;
  std::string path_;
  sqlite3* handle_ = nullptr;
  int lock_ = -1;
  FileIdentity file_;
  int turns_ = 0;  // of this process that are under way, one within another
};

// While it is there, no other process writes. Throws StoppedError where another one does for 20 s.
class Turn {
 public:
  explicit Turn(Database& database);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Database& database_;
};

class Statement {
 public:
  Statement(Database& database, std::string_view sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // To the next parameter.
  Statement& bind(int64_t value);
  Statement& bind(double value);
  Statement& bind(const std::string& value);
  Statement& bind_null();
  // Moves to the next row. Returns false at the end.
  bool step();
  // To be bound and stepped again.
  void reset();

  [[nodiscard]] int64_t integer(int column) const;
  [[nodiscard]] double real(int column) const;
  [[nodiscard]] std::string text(int column) const;
  [[nodiscard]] bool is_null(int column) const;
  [[nodiscard]] bool is_number(int column) const;
  // A number without a fraction.
  [[nodiscard]] bool is_whole(int column) const;
  // The value as it is, to the next parameter of another statement.
  void copy(int column, Statement& to) const;

 private:
  Database& database_;
  sqlite3_stmt* handle_ = nullptr;
  int next_ = 0;
};

// A scope whose writes are all there afterwards, or none of them.
class Transaction {
 public:
  explicit Transaction(Database& database) : turn_(database), database_(database) {
    database_.run("BEGIN IMMEDIATE");
  }
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Turn turn_;  // until all is written, and copied back where that is due
  Database& database_;
  bool done_ = false;
};

}  // namespace plimsoll::queue
