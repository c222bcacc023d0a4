#include "base/strings.h"

#include <algorithm>
#include <numeric>

#include "base/printable.h"

namespace plimsoll {
namespace {

// Columns a UTF-8 text takes on a terminal, every code point counted as one.
size_t columns(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b, int limit) {
  const size_t longer = std::max(a.size(), b.size());
  if (longer - std::min(a.size(), b.size()) >= static_cast<size_t>(limit)) return limit;
  // The rows of the table for the first i - 2, i - 1 and i letters of a.
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = static_cast<int>(i);
    int least = row[0];
    for (size_t j = 1; j <= b.size(); ++j) {
      const int change = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
      least = std::min(least, row[j]);
    }
    // No way to the end is shorter: one that leaps over this row by a transposition pays its 1 from the row
    // before, which has at least `least` - 1.
    if (least >= limit) return limit;
  }
  return std::min(row[b.size()], limit);
}

std::string nearest_name(std::string_view word, std::span<const std::string> candidates) {
  const auto letters = static_cast<int>(word.size());
  if (letters == 0) return "";
  int best = std::min(std::max(2, letters / 3) + 1, letters);  // a change of every letter is another word
  std::string name;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(word, candidate, best);
    if (distance < best) {
      best = distance;
      name = candidate;
    }
  }
  return name;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates,
                         std::string_view otherwise) {
  const std::string nearest = nearest_name(word, candidates);
  return nearest.empty() ? std::string(otherwise) : " (did you mean '" + nearest + "'?)";
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += separator;
    text += parts[i];
  }
  return text;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t start = 0;
  for (;;) {
    const size_t end = text.find(separator, start);
    parts.emplace_back(text.substr(start, end - start));
    if (end == std::string_view::npos) return parts;
    start = end + 1;
  }
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string wrap(std::string_view text, std::string_view indent, size_t width) {
  std::string result;
  size_t used = columns(indent);
  for (const std::string& word : split(text, ' ')) {
    const bool first = used == columns(indent);
    if (!first && used + 1 + columns(word) > width) {
      result += "\n" + std::string(indent) + word;
      used = columns(indent) + columns(word);
      continue;
    }
    result += (first ? "" : " ") + word;
    used += (first ? 0 : 1) + columns(word);
  }
  return result;
}

void TextTable::add_row(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::string TextTable::render(std::string_view indent) const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], columns(row[c]));
  }
  std::string text;
  std::string line;
  for (const auto& row : rows_) {
    line = indent;
    for (size_t c = 0; c < row.size(); ++c) {
      const size_t pad = widths[c] - columns(row[c]);
      const bool right = c < right_.size() && right_[c];
      if (c > 0) line += "  ";
      if (right) line.append(pad, ' ');
      line += row[c];
      if (!right) line.append(pad, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line += '\n';
  }
  return text;
}

}  // namespace plimsoll
