#include "fleet/doctor/log_scanner.h"

#include <algorithm>
#include <mutex>
#include <optional>

namespace plimsoll::doctor {
namespace {

constexpr int64_t kReach = 3000;  // squeezed bytes of the longest message
constexpr int64_t kHead = 240;    // of what stands before an anchor on its line
constexpr size_t kTrimmedAt = size_t{1} << 15;
constexpr size_t kMostSenders = 256;
constexpr size_t kMostOpen = 256;  // of a stream; the oldest is closed early
// Places that are looked at, each of which takes some 10 microseconds: of each row the first, and of all rows
// together one for so many bytes of the log. An error message is longer.
constexpr int64_t kTriesOfRow = 64, kTriesOfLog = 20'000, kBytesOfTry = 400;
constexpr int64_t kPlaceReach = 400;  // lines from a traceback to its message

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

// Two asterisks alone make a word bold where a log is quoted in a page.
bool is_bold(std::string_view text, size_t at) {
  const auto star = [&](size_t i) { return i < text.size() && text[i] == '*'; };
  return star(at) && star(at + 1) && !star(at + 2) && (at == 0 || !star(at - 1));
}

// Appends `text` without blanks to `out`; one stays between two digits. `gap`: blanks came before.
template <class Each>
void squeeze(std::string_view text, std::string& out, bool& gap, Each each) {
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_blank(c)) {
      gap = true;
      continue;
    }
    if (is_bold(text, i)) {
      ++i;
      continue;
    }
    if (gap) {
      gap = false;
      if (is_digit(c) && !out.empty() && is_digit(out.back())) out += ' ';
    }
    out += c;
    each(c, i);
  }
}

// Lines of programs and their documentation speak of messages without being one.
bool is_quoted(const std::string& head) {
  static const Expression kCode(
      R"(^ (?! .* \) [\w.]* (?: Error | Exception ) : [^"']* $ ) (?: \# (?! [0-9] | [\w.]* Error: ) | // | /\* | \* (?! \*\* | [0-9] ) | <!-- | ;; | """ | ''' | ` | > | -- ))"
      R"( | ^ (?! .* \) [\w.]* (?: Error | Exception ) : [^"']* $ ) (?: [\w.]* print | raise | [\w.]* log (?:ger)? \. \w+ | if | elif | except | return | assert | [\w.]* warn \w* | assertIn | self\.assert \w* | grep | echo ) (?: [\w.]+ )? \s* [\("'])"
      R"( | ^ (?: if | elif | except | assert | grep ) .* ["'])"
      R"( | (?i: ifyou | whenyou | youmay | youmight | youwill | youcan | youget | e\.g\. | forexample | suchas | example: | seean | errorslike | errorlike | maysee | faq | toavoid | avoid | prevent | insteadof | howto | tip: | hint: | question: | questionsabout | mightraise | mayraise ) )"
      R"( | ^ [^`]* (?: ` [^`]* ` [^`]* )* ` [\w.:]* $ )");
  Expression::Groups groups;
  return kCode.match(head, groups);
}

// "... when you see" right before the message, also on the line before. The first letter of general words is before them.
bool is_spoken_of(const std::string& before) {
  static const Expression kProse(
      R"((?i: yousee | errorlike | errorslike | e\.g\. | suchas | forexample | example: | messageis ) (?: an? )? (?: [\w.]* Error: )? (?: CUDA | HIP )? [A-Za-z]? $)");
  Expression::Groups groups;
  return kProse.match(before, groups);
}

std::string quoted(std::string_view text, size_t at) {
  constexpr size_t kMost = 200;
  const size_t first = std::min(text.find_first_not_of(" \t"), text.size());
  const size_t begin = at > first + kMost - 40 ? at - (kMost - 60) : first;
  std::string quote(begin > first ? "..." : "");
  quote.append(text.substr(begin, kMost));
  if (begin + kMost < text.size()) quote += "...";
  return quote;
}

}  // namespace

std::string squeezed(std::string_view text) {
  std::string out;
  bool gap = false;
  squeeze(text, out, gap, [](char, size_t) {});
  return out;
}

// A message whose text is not whole yet.
struct LogScanner::Open {
  uint16_t row;
  int64_t begin;  // of the anchor
  Sighting sighting;
  size_t first_line = 0;  // squeezed bytes from the anchor to the end of its line; 0: not ended yet
};

struct LogScanner::Stream {
  std::string sender;
  std::string text;
  int64_t base = 0;  // offset of text[0]
  std::vector<Mark> marks;
  std::deque<Open> open;
  Literals::State state = Literals::kStart;
  bool gap = true;
  std::string_view place;
  int64_t place_line = 0;
  [[nodiscard]] int64_t end() const { return base + static_cast<int64_t>(text.size()); }
  [[nodiscard]] std::string_view from(int64_t begin, int64_t end_at) const {
    begin = std::max(begin, base);
    return std::string_view(text).substr(static_cast<size_t>(begin - base),
                                         static_cast<size_t>(std::max<int64_t>(end_at - begin, 0)));
  }
  // The line that an offset lies on.
  [[nodiscard]] Mark mark_of(int64_t offset) const {
    const auto after = std::upper_bound(marks.begin(), marks.end(), offset,
                                        [](int64_t value, const Mark& mark) { return value < mark.offset; });
    return after == marks.begin() ? Mark{base, 0} : *(after - 1);
  }
};

struct LogScanner::Kept {
  std::vector<Sighting> first;
  std::deque<Sighting> last;
  int64_t count = 0, tries = 0;
  // The last text that was searched, and the result: logs repeat themselves.
  std::string head, before, window;
  bool passes = false, window_passes = false;
  Expression::Groups groups;
};

// The expressions of a row, made where its anchor is met first: most logs meet few of a thousand rows.
struct LogScanner::Compiled {
  std::once_flag once;
  std::optional<Expression> needs, first;
  void make(const MessageRow& row) {
    std::call_once(once, [&] {
      if (!row.needs.empty()) needs.emplace(row.needs);
      if (!row.fields.empty() && !row.fields.front().empty()) first.emplace(row.fields.front());
    });
  }
};

LogScanner::LogScanner() : rows_(all_messages()), lines_([this](const LogPiece& piece) { take(piece); }) {
  struct Shared {
    std::shared_ptr<const Literals> literals;
    std::shared_ptr<std::vector<Compiled>> compiled;
  };
  static const Shared kShared = [] {
    std::vector<std::string> anchors;
    for (const MessageRow& row : all_messages()) anchors.push_back(squeezed(row.anchor));
    return Shared{std::make_shared<Literals>(anchors),
                  std::make_shared<std::vector<Compiled>>(anchors.size())};
  }();
  literals_ = kShared.literals;
  compiled_ = kShared.compiled;
  for (size_t i = 0; i < rows_.size(); ++i) kept_.push_back(std::make_shared<Kept>());
  current_ = &stream_of("");
}

LogScanner::Stream& LogScanner::stream_of(std::string_view sender) {
  const std::string name(sender);
  const auto found = streams_.find(name);
  if (found != streams_.end()) return *found->second;
  if (streams_.size() >= kMostSenders) return *streams_.begin()->second;
  auto stream = std::make_shared<Stream>();
  stream->sender = name;
  return *(streams_[name] = stream);
}

void LogScanner::take(const LogPiece& piece) {
  if (piece.progress) {
    // A bar has no message in it, but shows how far the run is.
    const size_t end = piece.text.rfind('[');
    if (const std::string_view place = place_of_bar(piece.text); !place.empty()) {
      current_->place = place;
      current_->place_line = piece.line;
    }
    if (end != piece.text.npos && is_bar_of_steps(piece.text)) read_step(piece, piece.text, end, true);
    return;
  }
  if (!piece.fresh) return append(*current_, piece, piece.text);
  const Unprefixed line = without_prefixes(piece.text);
  // A line without a sender's prefix continues the last sender's message.
  if (!line.sender.empty()) current_ = &stream_of(line.sender);
  append(*current_, piece, line.text);
}

void LogScanner::append(Stream& stream, const LogPiece& piece, std::string_view text) {
  if (piece.fresh) {
    stream.gap = true;
    if (stream.marks.empty() || stream.marks.back().line != piece.line ||
        stream.marks.back().offset != stream.end())
      stream.marks.push_back({stream.end(), piece.line});
    for (Open& open : stream.open)
      if (open.first_line == 0) open.first_line = static_cast<size_t>(stream.end() - open.begin);
  }
  squeeze(text, stream.text, stream.gap, [&](char c, size_t at) {
    stream.state = literals_->next(stream.state, c);
    if (!literals_->ends(stream.state)) return;
    for (const uint16_t row : literals_->ending(stream.state)) hit(stream, row, piece, text, at);
  });
  if (!stream.open.empty()) close_full(stream);
  if (stream.text.size() > kTrimmedAt) {
    int64_t needed = stream.end() - kHead - kReach;
    for (const Open& open : stream.open) needed = std::min(needed, open.begin - kHead);
    const auto drop = static_cast<size_t>(std::max<int64_t>(needed - stream.base, 0));
    stream.text.erase(0, drop);
    stream.base += static_cast<int64_t>(drop);
    auto first = stream.marks.begin();
    while (stream.marks.end() - first > 1 && (first + 1)->offset <= stream.base) ++first;
    stream.marks.erase(stream.marks.begin(), first);
  }
}

void LogScanner::hit(Stream& stream, uint16_t index, const LogPiece& piece, std::string_view text,
                     size_t at) {
  const MessageRow& row = rows_[index];
  if (row.sign == Sign::step) return read_step(piece, text, at, false);
  if (row.sign == Sign::place) {
    stream.place = row.words;
    stream.place_line = piece.line;
    return;
  }
  Kept& kept = *kept_[index];
  Open open{index, stream.end() - static_cast<int64_t>(literals_->length(index)), {}};
  const Mark line = stream.mark_of(open.begin);
  const std::string_view head = stream.from(std::max(line.offset, open.begin - kHead), open.begin);
  const std::string_view before =
      stream.from(open.begin - kHead, open.begin);  // the line may have been wrapped
  if (kept.tries == 0 || kept.head != head || kept.before != before) {
    if (!may_look_at(kept)) return;
    kept.head = head;
    kept.before = before;
    kept.groups.clear();
    Compiled& compiled = (*compiled_)[index];
    compiled.make(row);
    const std::optional<Expression>& needs = compiled.needs;
    kept.passes =
        (!needs || needs->match(head, kept.groups) || (!row.one_line && needs->match(before, kept.groups))) &&
        !is_quoted(kept.head) && !is_spoken_of(kept.before);
  }
  if (!kept.passes) return;
  open.sighting.before = kept.groups;
  Sighting& sighting = open.sighting;
  sighting.row = &row;
  sighting.line = line.line;
  sighting.place_in_log = sighted_++;
  sighting.sender = stream.sender;
  sighting.quote = quoted(text, at);
  if (!stream.place.empty() && piece.line - stream.place_line <= kPlaceReach) {
    sighting.during = stream.place;
    sighting.during_line = stream.place_line;
  }
  sighting.step = step_;
  sighting.of_steps = of_steps_;
  stream.open.push_back(std::move(open));
  if (stream.open.size() > kMostOpen) {
    close(stream, stream.open.front(), stream.end());
    stream.open.pop_front();
  }
}

bool LogScanner::may_look_at(Kept& kept) {
  if (kept.tries >= kTriesOfRow && tries_ >= kTriesOfLog + bytes_ / kBytesOfTry) {
    ++skipped_;
    return false;
  }
  ++kept.tries;
  ++tries_;
  return true;
}

void LogScanner::close_full(Stream& stream) {
  while (!stream.open.empty() && stream.end() - stream.open.front().begin >= kReach) {
    const Open open = std::move(stream.open.front());
    stream.open.pop_front();
    close(stream, open, open.begin + kReach);
  }
}

void LogScanner::close(Stream& stream, const Open& open, int64_t end) {
  // The message ends where the same one begins again, and before a traceback.
  for (const Open& later : stream.open)
    if (later.row == open.row && later.begin > open.begin) end = std::min(end, later.begin);
  std::string_view window = stream.from(open.begin, std::min(end, stream.end()));
  window = window.substr(0, window.find("Traceback(mostrecent"));
  if (rows_[open.row].one_line && open.first_line > 0) window = window.substr(0, open.first_line);
  Kept& kept = *kept_[open.row];
  const std::optional<Expression>& first = (*compiled_)[open.row].first;
  if (first && (kept.window != window || window.empty())) {
    if (!may_look_at(kept)) return;
    Expression::Groups groups;
    kept.window = window;
    kept.window_passes = first->match(window, groups);
  }
  if (first && !kept.window_passes) return;
  ++kept.count;
  Sighting sighting = open.sighting;
  sighting.window = window;
  if (kept.first.size() < kKept) {
    kept.first.push_back(std::move(sighting));
    return;
  }
  kept.last.push_back(std::move(sighting));
  if (kept.last.size() > kKept) kept.last.pop_front();
}

void LogScanner::finish() {
  lines_.finish();
  for (const auto& [sender, stream] : streams_) {
    while (!stream->open.empty()) {
      const Open open = std::move(stream->open.front());
      stream->open.pop_front();
      close(*stream, open, open.begin + kReach);
    }
  }
}

std::vector<Sighting> LogScanner::sightings() const {
  std::vector<Sighting> all;
  for (const auto& kept : kept_) {
    all.insert(all.end(), kept->first.begin(), kept->first.end());
    all.insert(all.end(), kept->last.begin(), kept->last.end());
  }
  std::sort(all.begin(), all.end(),
            [](const Sighting& a, const Sighting& b) { return a.place_in_log < b.place_in_log; });
  return all;
}

int64_t LogScanner::count(const MessageRow& row) const {
  return kept_[static_cast<size_t>(&row - rows_.data())]->count;
}

}  // namespace plimsoll::doctor
