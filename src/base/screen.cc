#include "base/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "base/environment.h"
#include "base/strings.h"

namespace plimsoll {
namespace {

// COLUMNS, or 0.
size_t stated_columns() {
  const std::string text = environment("COLUMNS");
  size_t columns = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), columns);
  return problem == std::errc() && end == text.data() + text.size() && columns <= 10000 ? columns : 0;
}

// A word and the blanks before it.
struct Word {
  size_t gap = 0;
  std::string_view text;
};

bool is_unit(std::string_view word) {
  while (!word.empty() && (word.back() == ',' || word.back() == ';' || word.back() == ')' ||
                           word.back() == '.' || word.back() == ':'))
    word.remove_suffix(1);
  static constexpr std::array<std::string_view, 18> kUnits = {
      "B",   "KiB", "MiB",  "GiB",   "TiB",   "GB",    "%",      "s",        "ms",
      "min", "h",   "days", "hours", "tok/s", "steps", "tokens", "tokens/s", "threads"};
  return std::find(kUnits.begin(), kUnits.end(), word) != kUnits.end();
}

std::vector<Word> words_of(std::string_view line) {
  std::vector<Word> words;
  for (size_t at = 0; at < line.size();) {
    const size_t begin = line.find_first_not_of(' ', at);
    if (begin == std::string_view::npos) break;
    const size_t end = std::min(line.find(' ', begin), line.size());
    const std::string_view word = line.substr(begin, end - begin);
    const bool joins = begin - at == 1 && !words.empty() && is_unit(word) &&
                       words.back().text.back() >= '0' && words.back().text.back() <= '9';
    if (joins)
      words.back().text = line.substr(static_cast<size_t>(words.back().text.data() - line.data()),
                                      end - static_cast<size_t>(words.back().text.data() - line.data()));
    else
      words.push_back({begin - at, word});
    at = end;
  }
  return words;
}

bool is_command(std::string_view line) {
  const std::string_view text = trim(line);
  return text.starts_with("plimsoll ") || text.starts_with("hf ") || text.starts_with("$ ");
}

// The column at which the text behind a label begins: "  also fits  budget ..."; else two blanks behind the
// line's own.
size_t hanging_indent(const std::vector<Word>& words, size_t columns) {
  size_t at = words.front().gap + columns_of(words.front().text);
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i].gap >= 2 && at + words[i].gap <= columns / 3) return at + words[i].gap;
    at += words[i].gap + columns_of(words[i].text);
    if (at > columns / 3) break;
  }
  return words.front().gap + 2;
}

std::string fitted_line(std::string_view line, size_t columns) {
  const std::vector<Word> words = words_of(line);
  if (words.empty()) return std::string(line);
  const size_t indent = hanging_indent(words, columns);
  std::string text;
  size_t first = 0;  // of the line at hand
  while (first < words.size()) {
    size_t used = first == 0 ? words[0].gap : indent;
    const size_t begin = used;
    used += columns_of(words[first].text);
    size_t end = first + 1, best = 0;
    for (; end < words.size(); ++end) {
      if (words[end].gap >= 3 && used - begin > (columns - begin) / 3) best = end;
      if (used + words[end].gap + columns_of(words[end].text) > columns) break;
      used += words[end].gap + columns_of(words[end].text);
    }
    if (end < words.size() && best > 0) end = best;
    if (first > 0) text += "\n";
    text += std::string(begin, ' ') + std::string(words[first].text);
    for (size_t i = first + 1; i < end; ++i)
      text += std::string(words[i].gap, ' ') + std::string(words[i].text);
    first = end;
  }
  return text;
}

}  // namespace

ScreenSize screen_of(int descriptor) {
  constexpr size_t kNarrowest = 40;
  ScreenSize screen;
  winsize size{};
  screen.is_terminal = isatty(descriptor) == 1;
  const bool tells = screen.is_terminal && ioctl(descriptor, TIOCGWINSZ, &size) == 0;
  if (tells && size.ws_col > 0) screen.columns = size.ws_col;
  if (tells && size.ws_row > 0) screen.rows = size.ws_row;
  const size_t stated = stated_columns();
  if (stated > 0) screen.columns = stated;
  screen.columns = std::max(screen.columns, kNarrowest);
  return screen;
}

size_t output_columns() { return screen_of(STDOUT_FILENO).columns; }

size_t columns_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string fitted(std::string_view text, size_t columns) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    result +=
        columns_of(line) <= columns || is_command(line) ? std::string(line) : fitted_line(line, columns);
    if (end < text.size()) result += '\n';
    at = end + 1;
  }
  return result;
}

std::string fitted_to_terminal(std::string_view text, int descriptor) {
  const ScreenSize screen = screen_of(descriptor);
  return screen.is_terminal ? fitted(text, screen.columns) : std::string(text);
}

}  // namespace plimsoll
