// Finds messages in a log of any length, in one pass and bounded memory.
//
// Text is squeezed: blanks and line breaks go, but for one blank between two digits. The lines of several
// senders (ranks, pods) in one log are taken apart by their prefixes first, so each one's text is whole.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fleet/doctor/expression.h"
#include "fleet/doctor/literals.h"
#include "fleet/doctor/log_lines.h"
#include "fleet/doctor/messages.h"

namespace plimsoll::doctor {

// A message that matched its row.
struct Sighting {
  const MessageRow* row = nullptr;
  int64_t line = 0;           // of the anchor, from 1
  int64_t place_in_log = 0;   // order among all sightings
  std::string sender;         // "[rank3]:", or empty
  std::string quote;          // of its line, at most 200 bytes
  std::string window;         // squeezed, from the anchor on
  Expression::Groups before;  // named groups of MessageRow::needs
  std::string_view during;    // the last place before it, or empty
  int64_t during_line = 0;
  int64_t step = -1, of_steps = -1;  // as last printed before it; -1: unknown
};

class LogScanner {
 public:
  LogScanner();

  void feed(std::string_view bytes) {
    bytes_ += static_cast<int64_t>(bytes.size());
    lines_.feed(bytes);
  }
  void finish();

  // The first kKept and the last kKept of each row, in the log's order.
  [[nodiscard]] std::vector<Sighting> sightings() const;
  // The number of times that `row` was met, all counted.
  [[nodiscard]] int64_t count(const MessageRow& row) const;
  [[nodiscard]] int64_t lines() const { return lines_.lines(); }
  // Places that begin like a message and were not looked at: a log that is full of them would take minutes.
  [[nodiscard]] int64_t skipped() const { return skipped_; }
  // The highest step that was printed, and its line; -1: none.
  [[nodiscard]] int64_t last_step() const { return step_; }
  [[nodiscard]] int64_t last_step_line() const { return step_line_; }
  static constexpr size_t kKept = 16;

 private:
  struct Mark {
    int64_t offset, line;
  };
  struct Open;
  struct Stream;
  struct Kept;
  struct Compiled;

  void take(const LogPiece& piece);
  bool may_look_at(Kept& kept);
  Stream& stream_of(std::string_view sender);
  void append(Stream& stream, const LogPiece& piece, std::string_view text);
  void hit(Stream& stream, uint16_t row, const LogPiece& piece, std::string_view text, size_t at);
  void read_step(const LogPiece& piece, std::string_view text, size_t at, bool bar);
  static bool is_bar_of_steps(std::string_view text);
  // The program's activity while it draws a bar, as a place; empty: not known.
  static std::string_view place_of_bar(std::string_view text);
  void close_full(Stream& stream);
  void close(Stream& stream, const Open& open, int64_t end);

  const std::vector<MessageRow>& rows_;
  std::shared_ptr<const Literals> literals_;
  std::shared_ptr<std::vector<Compiled>> compiled_;
  std::unordered_map<std::string, std::shared_ptr<Stream>> streams_;
  Stream* current_ = nullptr;
  std::vector<std::shared_ptr<Kept>> kept_;  // by row
  int64_t step_ = -1, of_steps_ = -1, step_line_ = 0, sighted_ = 0, bytes_ = 0, tries_ = 0, skipped_ = 0;
  LogLines lines_;
};

// Without blanks, as text is compared.
std::string squeezed(std::string_view text);

}  // namespace plimsoll::doctor
