#include "cli/plan/preview_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/page.h"
#include "base/printable.h"
#include "base/screen.h"
#include "base/strings.h"
#include "base/units.h"

namespace plimsoll {
namespace {

constexpr const char* kLearntStyle = "1;32";  // bold and green

// Lines of a row's text, broken at blanks where the screen ends; what stands in one style is one piece.
class RowText {
 public:
  RowText(size_t columns, std::vector<StyledText>& pieces) : columns_(columns), pieces_(pieces) {}

  void add(std::string_view text, const char* style) {
    const std::string shown = printable_text(text);
    for (size_t i = 0; i < shown.size();) {
      size_t end = i + 1;
      while (end < shown.size() && (static_cast<unsigned char>(shown[end]) & 0xC0U) == 0x80U) ++end;
      add_character(std::string_view(shown).substr(i, end - i), style);
      i = end;
    }
  }
  void end() {
    put_word();
    if (used_ > 0) break_line();
  }

 private:
  struct Character {
    std::string text;
    const char* style;
  };

  void add_character(std::string_view character, const char* style) {
    if (character == "\r") return;
    if (character == "\n") {
      put_word();
      return break_line();
    }
    const bool blank = character == " " || character == "\t";
    word_.push_back({blank ? " " : std::string(character), style});
    if (blank || word_.size() + kIndent.size() >= columns_) put_word();
  }
  // On the line at hand, or the next one where it has no room for it; a blank at its end may stand outside.
  void put_word() {
    const size_t width = word_.size() - (!word_.empty() && word_.back().text == " " ? 1 : 0);
    if (used_ > kIndent.size() && used_ + width > columns_) break_line();
    for (const Character& character : word_) {
      if (used_ == 0) put(kIndent, nullptr), used_ = kIndent.size();
      put(character.text, character.style);
      ++used_;
    }
    word_.clear();
  }
  void break_line() {
    put("\n", nullptr);
    used_ = 0;
  }
  void put(std::string_view text, const char* style) {
    if (!pieces_.empty() && pieces_.back().style == style)
      pieces_.back().text += text;
    else
      pieces_.push_back({std::string(text), style});
  }

  static constexpr std::string_view kIndent = "  ";
  size_t columns_;
  size_t used_ = 0;
  std::vector<Character> word_;
  std::vector<StyledText>& pieces_;
};

std::string tokens_words(int64_t count) { return format_count(count) + (count == 1 ? " token" : " tokens"); }

std::string length_words(const PreviewSequence& sequence, bool learns_tokens) {
  std::string text = (sequence.name.empty() ? "" : sequence.name + ": ") + tokens_words(sequence.tokens);
  if (learns_tokens) text += formatted(", {} learnt", format_count(sequence.learnt));
  if (sequence.cut_tokens > 0) text += formatted(", {} cut", format_count(sequence.cut_tokens));
  return text;
}

// The text that was cut, at most this much of it, on one line.
std::string cut_words(const PreviewSequence& sequence) {
  constexpr size_t kShown = 200;
  return cut_text(printable(sequence.cut_text), kShown);
}

}  // namespace

std::vector<StyledText> preview_text(const Preview& preview, size_t columns) {
  std::vector<StyledText> pieces;
  const auto plain = [&](const std::string& text) {
    pieces.push_back({fitted(printable_text(text), columns), nullptr});
  };
  std::string head;
  for (const std::string& words : preview.rendering) head += formatted("rows     {}\n", words);
  if (preview.learns_tokens)
    head += formatted("marks    {}trained tokens{}; the rest is read but not trained\n", kLearntBegin,
                      kLearntEnd);
  plain(head);
  for (const PreviewRow& row : preview.rows) {
    std::vector<std::string> lengths;
    for (const PreviewSequence& one : row.sequences)
      lengths.push_back(length_words(one, preview.learns_tokens));
    plain(formatted("\n{}{}\n", printable(row.where), lengths.empty() ? "" : "   " + join(lengths, "   ")));
    if (!row.problem.empty()) plain(formatted("  {}\n", printable(row.problem)));
    for (const PreviewSequence& sequence : row.sequences) {
      if (!sequence.name.empty()) plain(formatted("  {}\n", sequence.name));
      RowText text(columns, pieces);
      for (const PreviewPart& part : sequence.parts) {
        if (part.learnt) text.add(kLearntBegin, kLearntStyle);
        text.add(part.text, part.learnt ? kLearntStyle : nullptr);
        if (part.learnt) text.add(kLearntEnd, kLearntStyle);
      }
      text.end();
      if (sequence.cut_tokens > 0)
        plain(formatted("  cut      {}: {}\n", tokens_words(sequence.cut_tokens), cut_words(sequence)));
    }
    if (!row.target.empty()) plain(formatted("  target   {}\n", printable(row.target)));
  }
  return pieces;
}

std::string preview_page(const Preview& preview, const std::string& title) {
  static constexpr const char* kStyle = R"css(
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--panel);border-radius:8px;padding:10px 14px;font-size:13px;margin:6px 0}
mark{background:rgba(0,158,115,.22);color:inherit;border-bottom:2px solid #009e73}
.cut{color:var(--soft);text-decoration:line-through}.bad{color:var(--bad)}
)css";
  // Line breaks stay; all else that is foreign is made visible.
  const auto text_of = [](const std::string& text) {
    std::string html;
    for (const std::string& line : split(text, '\n')) html += page::escaped(line) + "\n";
    html.pop_back();
    return html;
  };
  std::string html = page::head(page::escaped(title), kStyle);
  for (const std::string& words : preview.rendering) html += formatted("<p>{}</p>\n", page::escaped(words));
  if (preview.learns_tokens)
    html += "<p><mark>Trained tokens</mark>; the rest is read but not trained.</p>\n";
  for (const PreviewRow& row : preview.rows) {
    html += formatted("<h2>{}</h2>\n", page::escaped(row.where));
    if (!row.problem.empty()) html += formatted("<p class=\"bad\">{}</p>\n", page::escaped(row.problem));
    for (const PreviewSequence& sequence : row.sequences) {
      html += formatted("<p>{}</p>\n<pre>", page::escaped(length_words(sequence, preview.learns_tokens)));
      for (const PreviewPart& part : sequence.parts)
        html += part.learnt ? formatted("<mark>{}</mark>", text_of(part.text)) : text_of(part.text);
      if (sequence.cut_tokens > 0)
        html += formatted("<span class=\"cut\">{}</span>", page::escaped(cut_words(sequence)));
      html += "</pre>\n";
    }
    if (!row.target.empty()) html += formatted("<p>target {}</p>\n", page::escaped(row.target));
  }
  return html + page::end("{}", "");
}

nlohmann::ordered_json preview_json(const Preview& preview) {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (const PreviewRow& row : preview.rows) {
    Json sequences = Json::array();
    for (const PreviewSequence& one : row.sequences) {
      Json parts = Json::array();
      for (const PreviewPart& part : one.parts)
        parts.push_back({{"text", part.text}, {"learnt", part.learnt}});
      sequences.push_back({{"name", one.name.empty() ? Json(nullptr) : Json(one.name)},
                           {"tokens", one.tokens},
                           {"learnt_tokens", one.learnt},
                           {"cut_tokens", one.cut_tokens},
                           {"cut_text", one.cut_text},
                           {"parts", parts}});
    }
    rows.push_back({{"where", row.where},
                    {"problem", row.problem.empty() ? Json(nullptr) : Json(row.problem)},
                    {"target", row.target.empty() ? Json(nullptr) : Json(row.target)},
                    {"sequences", sequences}});
  }
  return {{"rendering", preview.rendering}, {"rows", rows}};
}

}  // namespace plimsoll
