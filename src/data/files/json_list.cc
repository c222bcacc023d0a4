#include "data/files/json_list.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/shell_word.h"
#include "data/files/json_block.h"

namespace plimsoll {
namespace {

constexpr size_t kMostOfKey = 80;  // bytes that a message shows

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool ends_scalar(char c) { return c == ',' || c == ']' || c == '}' || is_blank(c); }

}  // namespace

void JsonListScanner::fail(const std::string& what) const {
  throw DamagedError(formatted("{}:{}: {}", path_, line_, what));
}

// Refuses a file with two lists (train and test in one file): it does not say which of them is meant.
void JsonListScanner::fail_of_two_lists() const {
  const auto rows_of = [&](const std::string& key) {
    return formatted(
        "python3 -c 'import json, sys; [print(json.dumps(row)) for row in "
        "json.load(open(sys.argv[1]))[\"{}\"]]' {} > {}",
        key, quoted(path_), quoted(key + ".jsonl"));
  };
  const auto is_plain = [](const std::string& key) {
    return !key.empty() && std::ranges::all_of(key, [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '-';
    });
  };
  const std::string how =
      is_plain(list_key_) && is_plain(key_)
          ? formatted(
                ". Write each into a file of its own, and name those in data.train and data.eval:\n  {}\n  "
                "{}",
                rows_of(list_key_), rows_of(key_))
          : ". Write each into a file of its own";
  fail(formatted("the file has two lists of rows, '{}' and '{}'{}", printable(list_key_), printable(key_),
                 how));
}

bool JsonListScanner::feed(std::string_view chunk) {
  for (const char c : chunk) {
    step(c);
    if (kind_ == Kind::lines) return false;
    ++offset_;
    if (c == '\n') ++line_;
    if (is_row_ && offset_ - row_.start > kMaxRowBytes)
      throw DamagedError(
          formatted("{}:{}: the row is longer than {}.", path_, row_.line, format_bytes(kMaxRowBytes)));
  }
  return true;
}

JsonListScanner::Kind JsonListScanner::finish() const {
  if (state_ == State::root || state_ == State::done) return kind_;
  fail("the file ends within a value. Fetch it again.");
}

// The byte-order mark that some editors write counts as blank.
void JsonListScanner::step(char c) {
  const bool mark = offset_ < 3 && (c == '\xEF' || c == '\xBB' || c == '\xBF');
  switch (state_) {
    case State::text:
      // Escapes stay as they are: a key is only shown.
      if (outer_ == State::key_or_end && key_.size() < kMostOfKey && (c != '"' || escaped_)) key_ += c;
      if (escaped_)
        escaped_ = false;
      else if (c == '\\')
        escaped_ = true;
      else if (c == '"')
        end_text();
      return;
    case State::nested:
      if (c == '"') {
        outer_ = State::nested;
        state_ = State::text;
      } else if (c == '{' || c == '[') {
        ++depth_;
      } else if ((c == '}' || c == ']') && --depth_ == 0) {
        close_nested();
      }
      return;
    case State::scalar:
      if (!ends_scalar(c)) return;
      state_ = State::comma_or_brace;
      break;
    default:
      break;
  }
  if (is_blank(c) || mark) return;
  switch (state_) {
    case State::root:
      if (c != '[' && c != '{') fail(formatted("is no JSON list: found '{}'.", c));
      root_is_object_ = c == '{';
      has_list_ = !root_is_object_;
      if (has_list_) kind_ = Kind::list;
      state_ = root_is_object_ ? State::key_or_end : State::item_or_end;
      return;
    case State::key_or_end:
      if (c == '}') {
        state_ = State::done;
      } else if (c == '"') {
        key_.clear();
        outer_ = State::key_or_end;
        state_ = State::text;
      } else {
        fail(formatted("a key in quotes is expected, found '{}'.", c));
      }
      return;
    case State::colon:
      if (c != ':') fail(formatted("':' is expected after a key, found '{}'.", c));
      state_ = State::value;
      return;
    case State::value:
      open_value(c);
      return;
    case State::comma_or_brace:
      if (c != ',' && c != '}') fail(formatted("',' or '}}' is expected, found '{}'.", c));
      state_ = c == ',' ? State::key_or_end : State::done;
      return;
    case State::item_or_end:
    case State::item:
      if (c == ']' && state_ == State::item_or_end) {
        state_ = root_is_object_ ? State::comma_or_brace : State::done;
        return;
      }
      if (c != '{') fail(formatted("a row is expected to be an object, found '{}'.", c));
      row_ = {offset_, offset_, line_};
      is_row_ = true;
      depth_ = 1;
      state_ = State::nested;
      return;
    case State::comma_or_bracket:
      if (c != ',' && c != ']') fail(formatted("',' or ']' is expected after a row, found '{}'.", c));
      state_ = State::item;
      if (c == ']') {
        state_ = root_is_object_ ? State::comma_or_brace : State::done;
      }
      return;
    case State::done:
      if (c == '{' && root_is_object_)
        kind_ = Kind::lines;
      else
        fail(formatted("nothing is expected after the end, found '{}'.", c));
      return;
    default:
      return;
  }
}

// A member of the root object.
void JsonListScanner::open_value(char c) {
  if (at_list_start_) {
    at_list_start_ = false;
    if (c == '{' && has_list_) fail_of_two_lists();
    if (c == '{') list_key_ = key_;
    if (c == '{') {
      has_list_ = true;
      kind_ = Kind::list;
      state_ = State::item;
      return step(c);
    }
    depth_ = 1;  // of the '[' before
    state_ = State::nested;
    return step(c);
  }
  if (c == '[') {
    at_list_start_ = true;
    return;
  }
  outer_ = State::value;
  depth_ = 1;
  state_ = c == '"' ? State::text : c == '{' ? State::nested : State::scalar;
}

void JsonListScanner::close_nested() {
  if (is_row_) {
    row_.end = offset_ + 1;
    is_row_ = false;
    state_ = State::comma_or_bracket;
    on_row_(row_);
  } else {
    state_ = State::comma_or_brace;
  }
}

// After a string: it was a key, a member's value, or part of a nested value.
void JsonListScanner::end_text() {
  state_ = outer_;
  if (state_ == State::key_or_end)
    state_ = State::colon;
  else if (state_ == State::value)
    state_ = State::comma_or_brace;
}

}  // namespace plimsoll
