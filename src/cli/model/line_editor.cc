#include "cli/model/line_editor.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/print.h"
#include "unicode/grapheme.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

constexpr char kEscapeByte = '\x1b';
constexpr char kDelete = '\x7f';
constexpr size_t kLongestKey = 16;  // of bytes that begin with Escape; what is longer is no key

constexpr char control(char letter) { return static_cast<char>(letter & 0x1F); }

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t'; }

// Returns true if `keys` (Escape first) ends here: "\e[" parameters letter, "\eO" letter, or Escape and one
// byte.
bool is_complete_key(std::string_view keys) {
  if (keys.size() < 2) return false;
  if (keys[1] != '[' && keys[1] != 'O') return true;
  return keys.size() > 2 && keys.back() >= '@' && keys.back() <= '~';
}

// The columns of a cluster that readers see as one character.
size_t shown_columns(std::string_view cluster) {
  const auto code = static_cast<UChar32>(decode_utf8(cluster.data()).code);
  if (code == '\t') return 4;
  const int width = u_getIntPropertyValue(code, UCHAR_EAST_ASIAN_WIDTH);
  const bool emoji = cluster.find("\xEF\xB8\x8F") != std::string_view::npos;  // asked for by a selector
  if (width == U_EA_WIDE || width == U_EA_FULLWIDTH || emoji) return 2;
  const int kind = u_charType(code);
  return kind == U_NON_SPACING_MARK || kind == U_ENCLOSING_MARK || kind == U_FORMAT_CHAR ? 0 : 1;
}

}  // namespace

void LineEditor::begin() {
  text_.clear();
  pending_.clear();
  draft_.clear();
  cursor_ = 0;
  pasting_ = false;
  place_ = lines_.size();
}

void LineEditor::remember(const std::string& line) {
  if (!line.empty() && (lines_.empty() || lines_.back() != line)) lines_.push_back(line);
}

LineEditor::Event LineEditor::take(char byte) {
  if (!pending_.empty() && pending_[0] == kEscapeByte) {
    pending_ += byte;
    if (is_complete_key(pending_) || pending_.size() > kLongestKey) take_sequence();
    return Event::edited;
  }
  if (byte == kEscapeByte) {
    pending_ = byte;
    return Event::edited;
  }
  const bool is_text = static_cast<unsigned char>(byte) >= ' ' && byte != kDelete;
  if (is_text || byte == '\t' || (pasting_ && byte == '\n')) {
    take_text(byte);
    return Event::edited;
  }
  pending_.clear();
  return pasting_ ? Event::edited : take_control(byte);
}

LineEditor::Event LineEditor::take_control(char byte) {
  switch (byte) {
    case '\n':
    case '\r':
      cursor_ = text_.size();
      return Event::entered;
    case control('D'):
      if (text_.empty()) return Event::ended;
      erase(cursor_, after());
      break;
    case control('Z'):
      return Event::suspended;
    case control('A'):
      cursor_ = 0;
      break;
    case control('E'):
      cursor_ = text_.size();
      break;
    case control('B'):
      cursor_ = before();
      break;
    case control('F'):
      cursor_ = after();
      break;
    case control('P'):
      go_back();
      break;
    case control('N'):
      go_on();
      break;
    case control('H'):
    case kDelete:
      erase(before(), cursor_);
      break;
    case control('U'):
      erase(0, cursor_);
      break;
    case control('K'):
      erase(cursor_, text_.size());
      break;
    case control('W'):
      erase(word_before(), cursor_);
      break;
    default:
      break;
  }
  return Event::edited;
}

void LineEditor::take_sequence() {
  const std::string key = std::exchange(pending_, {}).substr(1);
  const auto is_one_of = [&key](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), key) != names.end();
  };
  if (key == "[200~" || key == "[201~") {
    pasting_ = key == "[200~";
  } else if (key == "\n" || key == "\r") {
    insert("\n");
  } else if (is_one_of({"[A", "OA"})) {
    go_back();
  } else if (is_one_of({"[B", "OB"})) {
    go_on();
  } else if (is_one_of({"[C", "OC"})) {
    cursor_ = after();
  } else if (is_one_of({"[D", "OD"})) {
    cursor_ = before();
  } else if (is_one_of({"[H", "OH", "[1~", "[7~"})) {
    cursor_ = 0;
  } else if (is_one_of({"[F", "OF", "[4~", "[8~"})) {
    cursor_ = text_.size();
  } else if (key == "[3~") {
    erase(cursor_, after());
  } else if (is_one_of({"[1;5C", "[1;3C", "f"})) {
    cursor_ = word_after();
  } else if (is_one_of({"[1;5D", "[1;3D", "b"})) {
    cursor_ = word_before();
  } else if (is_one_of({"\x7f", "\b"})) {
    erase(word_before(), cursor_);
  }
}

void LineEditor::take_text(char byte) {
  pending_ += byte;
  while (!pending_.empty()) {
    const Utf8Step step = next_utf8_step(pending_);
    if (step.status == Utf8Status::cut_off) return;
    if (step.status == Utf8Status::complete) insert(pending_.substr(0, step.bytes));
    pending_.erase(0, step.bytes);
  }
}

void LineEditor::insert(std::string_view piece) {
  text_.insert(cursor_, piece);
  cursor_ += piece.size();
}

void LineEditor::erase(size_t begin, size_t end) {
  text_.erase(begin, end - begin);
  cursor_ = begin;
}

void LineEditor::recall(size_t index) {
  if (index > lines_.size() || index == place_) return;
  if (place_ == lines_.size()) draft_ = text_;
  place_ = index;
  text_ = place_ == lines_.size() ? draft_ : lines_[place_];
  cursor_ = text_.size();
}

size_t LineEditor::before() const {
  size_t at = 0;
  for (size_t next = 0; next < cursor_; next += grapheme_bytes(std::string_view(text_).substr(next)))
    at = next;
  return at;
}

size_t LineEditor::after() const {
  return cursor_ == text_.size() ? cursor_
                                 : cursor_ + grapheme_bytes(std::string_view(text_).substr(cursor_));
}

size_t LineEditor::word_before() const {
  size_t at = cursor_;
  while (at > 0 && is_blank(text_[at - 1])) --at;
  while (at > 0 && !is_blank(text_[at - 1])) --at;
  return at;
}

size_t LineEditor::word_after() const {
  size_t at = cursor_;
  while (at < text_.size() && is_blank(text_[at])) ++at;
  while (at < text_.size() && !is_blank(text_[at])) ++at;
  return at;
}

LineRows lay_out(std::string_view prompt, const LineEditor& line, size_t width) {
  const std::string& text = line.text();
  LineRows out;
  out.rows.push_back({std::string(prompt), prompt.size()});
  const auto mark_cursor = [&out] {
    out.cursor_row = out.rows.size() - 1;
    out.cursor_column = out.rows.back().columns;
  };
  for (size_t at = 0; at < text.size();) {
    const std::string_view cluster =
        std::string_view(text).substr(at, grapheme_bytes(std::string_view(text).substr(at)));
    // A pasted text may hold controls that the keys cannot give.
    const std::string shown = cluster == "\t" ? "    " : printable(cluster);
    const size_t columns = cluster == "\n" ? 0 : shown == cluster ? shown_columns(cluster) : shown.size();
    if (out.rows.back().columns + columns > width) out.rows.emplace_back();
    if (at <= line.cursor() && line.cursor() < at + cluster.size()) mark_cursor();
    if (cluster == "\n") {
      out.rows.push_back({std::string(prompt.size(), ' '), prompt.size()});
    } else {
      out.rows.back().text += shown;
      out.rows.back().columns += columns;
    }
    at += cluster.size();
  }
  if (out.rows.back().columns >= width) out.rows.emplace_back();  // the cursor needs a place
  if (line.cursor() == text.size()) mark_cursor();
  return out;
}

}  // namespace plimsoll
