#include "base/strings.h"

#include <algorithm>
#include <numeric>

#include "base/format.h"
#include "base/printable.h"
#include "base/screen.h"

namespace plimsoll {
namespace {

// Words of `text` in lines of at most `width` columns; longer words are cut, where they can behind a mark.
std::vector<std::string> cell_lines(const std::string& text, size_t width) {
  std::vector<std::string> lines(1);
  for (std::string word : split(text, ' ')) {
    const size_t used = columns_of(lines.back());
    if (used > 0 && used + 1 + columns_of(word) <= width) {
      lines.back() += " " + word;
      continue;
    }
    if (used > 0) lines.emplace_back();
    while (columns_of(word) > width) {
      size_t hard = 0, soft = 0;
      for (size_t at = 0, columns = 0; at < word.size() && columns <= width; ++at) {
        if ((static_cast<unsigned char>(word[at]) & 0xC0U) == 0x80U) continue;
        if (columns > width / 2 && std::string_view("-_/,.+|").find(word[at - 1]) != std::string_view::npos)
          soft = at;
        if (columns == width) hard = at;
        ++columns;
      }
      const size_t cut = soft > 0 ? soft : hard;
      lines.back() = word.substr(0, cut);
      lines.emplace_back();
      word.erase(0, cut);
    }
    lines.back() = word;
  }
  return lines;
}

}  // namespace

std::string cut_text(std::string_view text, size_t columns) {
  if (columns_of(text) <= columns) return std::string(text);
  size_t at = 0;
  for (size_t used = 0; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) continue;
    if (used++ + 1 == columns) break;
  }
  return std::string(text.substr(0, at)) + "…";
}

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
  const auto dashes = static_cast<int>(std::min(word.find_first_not_of('-'), word.size()));
  const int most = letters - dashes < 4 ? 1 : std::max(2, letters / 3);
  int best = std::min(most + 1, letters);  // a change of every letter is another word
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
  return nearest.empty() ? std::string(otherwise) : formatted(" (did you mean '{}'?)", nearest);
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

std::string in_small_letters(std::string_view text) {
  std::string small(text);
  for (char& c : small)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return small;
}

std::string wrap(std::string_view text, std::string_view indent, size_t width) {
  std::string result;
  size_t used = columns_of(indent);
  for (const std::string& word : split(text, ' ')) {
    const bool first = used == columns_of(indent);
    if (!first && used + 1 + columns_of(word) > width) {
      result += formatted("\n{}{}", indent, word);
      used = columns_of(indent) + columns_of(word);
      continue;
    }
    result += (first ? "" : " ") + word;
    used += (first ? 0 : 1) + columns_of(word);
  }
  return result;
}

void TextTable::add_row(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::vector<size_t> TextTable::natural_widths() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], columns_of(row[c]));
  }
  return widths;
}

TextTable TextTable::without(size_t column) const {
  TextTable less;
  less.cuts_ = cuts_;
  const auto cut = [&](auto list) {
    if (column < list.size()) list.erase(list.begin() + static_cast<std::ptrdiff_t>(column));
    return list;
  };
  less.right_ = cut(right_);
  for (const auto& row : rows_) less.rows_.push_back(cut(row));
  for (const size_t other : may_go_)
    if (other != column) less.may_go_.push_back(other > column ? other - 1 : other);
  return less;
}

std::string TextTable::render(std::string_view indent, size_t width) const {
  constexpr size_t kNarrowest = 12;
  std::vector<size_t> widths = natural_widths();
  const auto is_right = [&](size_t c) { return c < right_.size() && right_[c]; };
  const size_t gaps = columns_of(indent) + (widths.empty() ? 0 : 2 * (widths.size() - 1));
  size_t total = std::accumulate(widths.begin(), widths.end(), gaps);
  size_t least = gaps;
  for (size_t c = 0; c < widths.size(); ++c)
    least += is_right(c) ? widths[c] : std::min(widths[c], kNarrowest);
  if (total > width && least > width && !may_go_.empty())
    return without(may_go_.front()).render(indent, width);
  for (; total > width; --total) {
    size_t widest = widths.size();
    for (size_t c = 0; c < widths.size(); ++c)
      if (!is_right(c) && widths[c] > kNarrowest && (widest == widths.size() || widths[c] >= widths[widest]))
        widest = c;
    if (widest == widths.size()) break;
    --widths[widest];
  }
  std::string text;
  for (const auto& row : rows_) add_lines(row, widths, indent, text);
  return text;
}

void TextTable::add_lines(const std::vector<std::string>& row, const std::vector<size_t>& widths,
                          std::string_view indent, std::string& text) const {
  std::vector<std::vector<std::string>> cells;
  size_t height = 1;
  for (size_t c = 0; c < row.size(); ++c) {
    const bool fits = columns_of(row[c]) <= widths[c];
    if (fits)
      cells.push_back({row[c]});
    else if (cuts_)
      cells.push_back({cut_text(row[c], widths[c])});
    else
      cells.push_back(cell_lines(row[c], widths[c]));
    height = std::max(height, cells.back().size());
  }
  for (size_t i = 0; i < height; ++i) {
    std::string line(indent);
    for (size_t c = 0; c < cells.size(); ++c) {
      const std::string cell = i < cells[c].size() ? cells[c][i] : "";
      const size_t pad = widths[c] - columns_of(cell);
      const bool right = c < right_.size() && right_[c];
      if (c > 0) line += "  ";
      if (right) line.append(pad, ' ');
      line += cell;
      if (!right) line.append(pad, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line += '\n';
  }
}

}  // namespace plimsoll
