// SQLite with values bound and errors thrown.
//
// Throws StoppedError where the disk is full or another program holds the file, DamagedError for what is no
// database of ours, each naming the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace plimsoll::queue {

class Database {
 public:
  // Opens or creates it: write-ahead log, every commit on disk before it counts.
  explicit Database(const std::string& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  void run(const std::string& sql);
  [[nodiscard]] int64_t last_id() const;
  [[nodiscard]] int changed_rows() const;
  [[noreturn]] void fail(int code) const;

 private:
  friend class Statement;
  std::string path_;
  sqlite3* handle_ = nullptr;
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
  // Whether there is a row.
  bool step();

  [[nodiscard]] int64_t integer(int column) const;
  [[nodiscard]] double real(int column) const;
  [[nodiscard]] std::string text(int column) const;
  [[nodiscard]] bool is_null(int column) const;

 private:
  Database& database_;
  sqlite3_stmt* handle_ = nullptr;
  int next_ = 0;
};

// What is written within is there as a whole, or not at all.
class Transaction {
 public:
  explicit Transaction(Database& database) : database_(database) { database_.run("BEGIN IMMEDIATE"); }
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Database& database_;
  bool done_ = false;
};

}  // namespace plimsoll::queue
