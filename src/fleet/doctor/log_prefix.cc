// Recognises what stands before the text of a line. Each form is looked at once, from the line's start; a
// line has few.
#include <array>

#include "fleet/doctor/log_lines.h"

namespace plimsoll::doctor {
namespace {

constexpr size_t kMostPrefix = 120;
constexpr int kMostPrefixes = 5;

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }

std::string_view without_blanks(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == text.npos ? std::string_view() : text.substr(first);
}

size_t digits_at(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  return end - at;
}

// A prefix that was found: what follows it, and whether it names a sender.
struct Found {
  size_t length = 0;  // 0: none
  bool sender = false;
};

// "2024-01-01T10:00:00.123Z stderr F ", "2024-01-01 10:00:00,123 - ".
Found date(std::string_view text) {
  if (digits_at(text, 0) != 4 || text.size() < 19 || (text[4] != '-' && text[4] != '/') ||
      (text[10] != 'T' && text[10] != ' ') || text[13] != ':')
    return {};
  size_t end = 11;
  while (end < text.size() &&
         (is_digit(text[end]) || std::string_view(":.,+-Z").find(text[end]) != std::string_view::npos))
    ++end;
  std::string_view rest = without_blanks(text.substr(end));
  for (const std::string_view stream : {"stdout F ", "stderr F ", "stdout P ", "stderr P "})
    if (rest.starts_with(stream)) rest.remove_prefix(stream.size());
  while (rest.starts_with('-') || rest.starts_with('|')) rest = without_blanks(rest.substr(1));
  return {text.size() - rest.size(), false};
}

bool starts_with_one_of(std::string_view text, std::string_view words) {
  for (size_t at = 0; at + 3 <= words.size(); at += 3)
    if (text.starts_with(words.substr(at, 3))) return true;
  return false;
}

// "Jan  2 10:00:00 host kernel: ", "Jan  2 10:00:00 host app[12]: ".
Found syslog(std::string_view text) {
  if (text.size() < 16 || !starts_with_one_of(text, "JanFebMarAprMayJunJulAugSepOctNovDec") ||
      text[3] != ' ' || text[9] != ':' || text[12] != ':')
    return {};
  const size_t host = text.find(' ', 16);
  if (host == text.npos || host > kMostPrefix) return {16, false};
  const size_t name = text.find_first_of(": [", host + 1);
  if (name == text.npos || text[name] == ' ') return {host + 1, false};
  const size_t colon = text.find(':', name);
  return colon == text.npos || colon > kMostPrefix ? Found{host + 1, false} : Found{colon + 1, false};
}

// "W0101 10:00:00.000000 123 file.cc:12] ".
Found glog(std::string_view text) {
  if (text.size() < 8 || std::string_view("IWEF").find(text[0]) == std::string_view::npos ||
      digits_at(text, 1) != 4 || text[5] != ' ')
    return {};
  const size_t close = text.find("] ");
  return close == text.npos || close > kMostPrefix ? Found{} : Found{close + 2, false};
}

// "[rank3]: ", "[1,3]<stderr>:", "[pod/a/b] ", "[  123.456] ", "[2024-01-01 10:00:00] ", "[INFO] ",
// "[node1:0] ".
Found bracket(std::string_view text) {
  const size_t close = text.find(']');
  if (close == text.npos || close > kMostPrefix || close < 2) return {};
  std::string_view inside = without_blanks(text.substr(1, close - 1));
  // "[Errno 12] Cannot allocate memory", "[metal::malloc] ...": of the message, and not before it.
  if (inside.starts_with("Errno ") || inside.starts_with("WinError ") || inside.ends_with("alloc")) return {};
  std::string_view rest = text.substr(close + 1);
  for (const std::string_view end : {"<stderr>:", "<stdout>:", ":"})
    if (rest.starts_with(end)) rest.remove_prefix(end.size());
  bool sender = inside.starts_with("rank") || inside.starts_with("Rank") || inside.starts_with("RANK") ||
                inside.starts_with("pod/");
  const size_t number = digits_at(inside, 0);
  if (number > 0 && number < inside.size() && inside[number] == ',')
    sender = sender || number + 1 + digits_at(inside, number + 1) == inside.size();  // job, rank
  const bool kept = rest.empty() || rest[0] == ' ' || rest[0] == '[' || sender;
  return kept ? Found{text.size() - rest.size(), sender} : Found{};
}

// "(RayTrainWorker pid=123, ip=10.0.0.1) ", "(raylet) ".
Found parenthesis(std::string_view text) {
  const size_t close = text.find(") ");
  if (close == text.npos || close > kMostPrefix) return {};
  const std::string_view inside = text.substr(1, close - 1);
  const bool ray = inside.starts_with("raylet") || inside.find(" pid=") != inside.npos ||
                   inside.starts_with("pid=") || inside.starts_with("autoscaler");
  return ray ? Found{close + 2, true} : Found{};
}

// "3: " of srun, "node-3: " of pdsh, "trainer-1  | " of compose. Words before a colon are many things: hosts
// have a digit and no capitals.
Found host(std::string_view text) {
  size_t end = 0;
  bool has_digit = false;
  while (end < text.size() && end < 64 &&
         (is_lower(text[end]) || is_digit(text[end]) || text[end] == '-' || text[end] == '.' ||
          text[end] == '_')) {
    has_digit = has_digit || is_digit(text[end]);
    ++end;
  }
  if (end == 0 || !has_digit || end >= text.size()) return {};
  if (text[end] == ':' && end + 1 < text.size() && text[end + 1] == ' ' && is_digit(text[end - 1]))
    return {end + 2, true};
  size_t bar = end;
  while (bar < text.size() && text[bar] == ' ') ++bar;
  if (bar > end && bar + 1 < text.size() && text[bar] == '|' && text[bar + 1] == ' ') return {bar + 2, true};
  return {};
}

// The mark of a quoted log, "> 2026-07-01 10:00:00 W"; "> 8388608" compares.
Found quote(std::string_view text) {
  const bool quotes =
      text.size() > 2 && text[1] == ' ' && (!is_digit(text[2]) || date(text.substr(2)).length > 0);
  return {quotes ? size_t{2} : size_t{0}, false};
}

// The mark of a line that Markdown prints bold or slanted.
Found emphasis(std::string_view text) {
  const size_t stars = text.size() > 2 && text[1] == '*' ? 2 : 1;
  const bool is_marked = text.size() > stars && text[stars] >= 'A' && text[stars] <= 'Z';
  return {is_marked ? stars : size_t{0}, false};
}

Found prefix_of(std::string_view text) {
  const char c = text[0];
  if (c == '[') return bracket(text);
  if (c == '(') return parenthesis(text);
  if (c == '>') return quote(text);
  if (c == '*') return emphasis(text);
  if (is_digit(c)) {
    const Found found = date(text);
    return found.length > 0 ? found : host(text);
  }
  if (is_lower(c)) return host(text);
  if (c < 'A' || c > 'Z') return {};
  const Found found = syslog(text);
  return found.length > 0 ? found : glog(text);
}

}  // namespace

Unprefixed without_prefixes(std::string_view line) {
  Unprefixed result{{}, line};
  for (int i = 0; i < kMostPrefixes; ++i) {
    const std::string_view text = without_blanks(result.text);
    if (text.empty()) break;
    const Found found = prefix_of(text);
    if (found.length == 0) break;
    if (found.sender) result.sender = text.substr(0, found.length);
    result.text = text.substr(found.length);
  }
  return result;
}

}  // namespace plimsoll::doctor
