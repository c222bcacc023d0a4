#include "fleet/doctor/log_lines.h"

#include <algorithm>
#include <cstring>

namespace plimsoll::doctor {
namespace {

constexpr char kEscape = '\x1b';

// The length of the escape sequence at the start of `text`.
size_t escape_length(std::string_view text) {
  if (text.size() < 2) return text.size();
  size_t i = 2;
  if (text[1] == '[') {
    while (i < text.size() && (text[i] < '@' || text[i] > '~')) ++i;
    return std::min(i + 1, text.size());
  }
  if (text[1] == ']') {  // up to a bell or ESC backslash
    while (i < text.size() && text[i] != '\a' && text[i] != kEscape) ++i;
    return i < text.size() && text[i] == kEscape ? std::min(i + 2, text.size())
                                                 : std::min(i + 1, text.size());
  }
  return 2;
}

bool is_plain(std::string_view text) {
  return std::memchr(text.data(), kEscape, text.size()) == nullptr &&
         std::memchr(text.data(), '\0', text.size()) == nullptr;
}

void append_plain(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size();) {
    if (text[i] == kEscape) {
      i += escape_length(text.substr(i));
    } else {
      if (text[i] != '\0') out += text[i];  // UTF-16, as PowerShell writes it
      ++i;
    }
  }
}

// {"log":"...\n","stream":"stderr",...}, a line of Docker's json-file driver: its text, into `out`.
bool docker_text(std::string_view line, std::string& out) {
  constexpr std::string_view kHead = "{\"log\":\"";
  if (!line.starts_with(kHead)) return false;
  out.clear();
  for (size_t i = kHead.size(); i < line.size(); ++i) {
    if (line[i] == '"') return true;
    if (line[i] != '\\' || i + 1 == line.size()) {
      out += line[i];
      continue;
    }
    const char c = line[++i];
    if (c == 'u' && i + 4 < line.size()) {
      // <, > and & are written so, and carriage returns of bars; others are not what messages are made of.
      const std::string_view code = line.substr(i + 1, 4);
      out += code == "003c"   ? '<'
             : code == "003e" ? '>'
             : code == "0026" ? '&'
             : code == "001b" ? kEscape
                              : '?';
      i += 4;
    } else {
      out += c == 'n' ? ' ' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
    }
  }
  return true;  // cut off
}

// The end of the last bar in a piece, or 0: tqdm's "12%|#2  | 12/100 [00:03<00:26, 3.33it/s]".
size_t bar_end(std::string_view text) {
  if (std::memchr(text.data(), '|', text.size()) == nullptr || text.find("%|") == text.npos) return 0;
  const size_t per_second = text.rfind("it/s");
  const size_t per_item = text.rfind("s/it");
  size_t end = per_second == text.npos ? per_item
               : per_item == text.npos ? per_second
                                       : std::max(per_second, per_item);
  if (end == text.npos) return 0;
  end = text.find(']', end);
  return end == text.npos ? text.size() : end + 1;
}

}  // namespace

void LogLines::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const void* found = std::memchr(bytes.data(), '\n', bytes.size());
    const size_t end =
        found == nullptr ? bytes.npos : static_cast<size_t>(static_cast<const char*>(found) - bytes.data());
    const std::string_view part = bytes.substr(0, end);
    if (end == bytes.npos || !rest_.empty() || goes_on_) {
      // A line that is longer than a piece is passed on in pieces before it ends.
      for (size_t at = 0; at < part.size();) {
        const size_t room = kMostPiece - rest_.size();
        rest_.append(part.substr(at, room));
        at += std::min(room, part.size() - at);
        if (rest_.size() == kMostPiece) cut(rest_), rest_.clear();
      }
    }
    if (end == bytes.npos) return;
    end_line(rest_.empty() && !goes_on_ ? part : std::string_view(rest_));
    rest_.clear();
    bytes.remove_prefix(end + 1);
  }
}

void LogLines::finish() {
  if (!rest_.empty()) end_line(rest_);
  rest_.clear();
}

// A whole line, or the end of one.
void LogLines::end_line(std::string_view line) {
  if (!goes_on_) ++line_;
  const bool fresh = !goes_on_;
  goes_on_ = false;
  while (line.size() > kMostPiece) {
    give(line.substr(0, kMostPiece), fresh);
    line.remove_prefix(kMostPiece);
  }
  give(line, fresh);
}

void LogLines::cut(std::string_view line) {
  if (!goes_on_) ++line_;
  give(line, !goes_on_);
  goes_on_ = true;
}

void LogLines::give(std::string_view text, bool fresh) {
  if (fresh && docker_text(text, plain_)) {
    const std::string decoded = plain_;
    plain_.clear();
    append_plain(decoded, plain_);
    text = plain_;
  } else if (!is_plain(text)) {
    plain_.clear();
    append_plain(text, plain_);
    text = plain_;
  }
  while (!text.empty() && std::memchr(text.data(), '\r', text.size()) != nullptr) {
    const size_t end = text.find('\r');
    if (end > 0) give_piece(text.substr(0, end), fresh);
    fresh = true;
    text.remove_prefix(end + 1);
  }
  if (!text.empty()) give_piece(text, fresh);
}

void LogLines::give_piece(std::string_view text, bool fresh) {
  const size_t bar = bar_end(text);
  if (bar > 0) take_({line_, true, true, text.substr(0, bar)});
  text.remove_prefix(bar);
  if (!text.empty()) take_({line_, fresh || bar > 0, false, text});
}

}  // namespace plimsoll::doctor
