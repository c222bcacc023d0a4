// The facts that a log proves: messages with their figures, in the log's order.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/doctor/log_scanner.h"

namespace plimsoll::doctor {

// A size as it was printed: 1.05 GiB stands for all that rounds to it.
struct Bytes {
  int64_t value = 0;
  int64_t slack = 0;  // value - slack to value + slack
  [[nodiscard]] int64_t least() const { return value - slack; }
  [[nodiscard]] int64_t most() const { return value + slack; }
};
// "23.52GiB", "1048576kB", "608 bytes"; letters mean powers of 1,024. None for what is no size; sizes beyond
// 2^62 bytes are the mark of an unknown figure, and none too.
std::optional<Bytes> parse_printed_bytes(std::string_view text);

struct Holder {
  int64_t pid = 0;
  Bytes bytes;
};

struct Message {
  const MessageRow* row = nullptr;
  std::string file;  // of several; else empty
  int64_t line = 0;
  int64_t count = 1;  // with the same figures
  int64_t last_line = 0;
  std::string sender, quote;
  std::string_view during;
  int64_t during_line = 0;
  int64_t step = -1, of_steps = -1;
  std::map<std::string, Bytes, std::less<>> bytes;
  std::map<std::string, int64_t, std::less<>> counts;
  std::map<std::string, std::string, std::less<>> words;
  std::vector<Holder> holders;  // processes that it names

  [[nodiscard]] const Bytes* size(std::string_view name) const {
    const auto found = bytes.find(name);
    return found == bytes.end() ? nullptr : &found->second;
  }
  [[nodiscard]] std::optional<int64_t> number(std::string_view name) const {
    const auto found = counts.find(name);
    return found == counts.end() ? std::nullopt : std::optional(found->second);
  }
  [[nodiscard]] std::string word(std::string_view name) const {
    const auto found = words.find(name);
    return found == words.end() ? "" : found->second;
  }
};

struct Evidence {
  std::vector<Message> messages;
  int64_t lines = 0;
  int64_t skipped = 0;  // places that begin like a message and were not looked at
  int64_t last_step = -1, last_step_line = 0;
};

// Adds what a scanner found in `file`. Messages with the same figures count as one.
void add_evidence(const LogScanner& scanner, const std::string& file, Evidence& evidence);

}  // namespace plimsoll::doctor
