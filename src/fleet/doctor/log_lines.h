// Reads a log as lines of plain text, without what a terminal, a container engine or a launcher put around
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace plimsoll::doctor {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A line, or what stands between two carriage returns of it.
struct LogPiece {
  int64_t line = 0;       // counted from 1
  bool fresh = true;      // false: continues where the piece before it was cut, as longer than kMostPiece
  bool progress = false;  // a bar that is drawn over
  std::string_view text;
};
constexpr size_t kMostPiece = size_t{1} << 16;

// Cuts bytes into pieces, without escape sequences and zero bytes. Memory: one piece.
class LogLines {
 public:
  using Take = std::function<void(const LogPiece&)>;
  explicit LogLines(Take take) : take_(std::move(take)) {}

  void feed(std::string_view bytes);
  // The last line, where no newline ends it.
  void finish();
  [[nodiscard]] int64_t lines() const { return line_; }

 private:
  void end_line(std::string_view line);
  void cut(std::string_view line);
  void give(std::string_view text, bool fresh);
  void give_piece(std::string_view text, bool fresh);

  Take take_;
  int64_t line_ = 0;
  bool goes_on_ = false;  // the piece before was cut
  std::string rest_;      // of the last feed()
  std::string plain_;
};

// Prefixes of loggers, launchers, container engines and the kernel before the text of a line.
struct Unprefixed {
  std::string_view sender;  // identifies who writes into a shared log, "[rank3]:"; empty: unknown
  std::string_view text;
};
Unprefixed without_prefixes(std::string_view line);

}  // namespace plimsoll::doctor
