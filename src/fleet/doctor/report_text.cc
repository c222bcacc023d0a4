#include <algorithm>

#include "base/format.h"
#include "base/printable.h"
#include "base/strings.h"
#include "base/units.h"
#include "fleet/doctor/diagnosis.h"

namespace plimsoll::doctor {
namespace {

constexpr size_t kMostQuotes = 6;

const char* words_of(Certainty certainty) {
  switch (certainty) {
    case Certainty::certain:
      return "certain";
    case Certainty::likely:
      return "likely";
    case Certainty::possible:
      return "possible";
  }
  return "";
}

// Paragraphs of a report that is so wide.
class Paragraphs {
 public:
  explicit Paragraphs(size_t columns) : columns_(std::min(columns, kColumns)) {}
  // "  cause   text", wrapped below its own `first`, which stands before the text ("1. ").
  void add(const std::string& label, const std::string& words, const std::string& first = "") {
    const std::string indent(10 + first.size(), ' ');
    std::string head = "  " + label;
    head.resize(std::max<size_t>(10, head.size() + 1), ' ');
    text += formatted("{}{}{}\n", head, first, wrap(words, indent, columns_));
  }
  void add_headline(const std::string& words) { text += formatted("  {}\n", wrap(words, "  ", columns_)); }

  std::string text;

 private:
  size_t columns_;
};

std::string cause_words(Cause cause) {
  std::string words(name_of(cause));
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

std::string place_of(const Message& message) {
  return (message.file.empty() ? "line " : printable(message.file) + ":") +
         (message.file.empty() ? format_count(message.line) : std::to_string(message.line));
}

std::string where_text(const Diagnosis& diagnosis) {
  if (!diagnosis.message || diagnosis.message->line == 0) return "";
  const Message& message = *diagnosis.message;
  std::string text = " at " + place_of(message);
  if (message.step >= 0)
    text += formatted(", step {}{}", format_count(message.step),
                      message.of_steps > 0 ? " of " + format_count(message.of_steps) : "");
  if (!message.during.empty()) text += ", " + std::string(message.during);
  return text;
}

std::string quote_text(const Message& message) {
  if (message.line == 0) return printable(message.quote);
  std::string text = place_of(message);
  if (message.count > 1)
    text +=
        formatted(" ({} times, to line {})", format_count(message.count), format_count(message.last_line));
  return formatted("{}: {}", text, printable(message.quote));
}

// Several rows may quote one line: it is printed once.
std::vector<std::string> quotes_of(const Diagnosis& diagnosis) {
  std::vector<const Message*> told;
  if (diagnosis.message) told.push_back(&*diagnosis.message);
  for (const Message& message : diagnosis.supporting)
    if (std::none_of(told.begin(), told.end(), [&](const Message* one) {
          return one->line == message.line && one->file == message.file && one->quote == message.quote;
        }))
      told.push_back(&message);
  std::vector<std::string> quotes;
  for (const Message* message : told) quotes.push_back(quote_text(*message));
  return quotes;
}

std::string step_text(const Step& step) {
  std::string text = step.what;
  if (step.saves > 0) text += formatted(": about {} less", format_bytes(step.saves));
  if (step.seconds > 0) text += formatted(", {} a step", format_seconds(step.seconds));
  if (!step.lossless) text += " (changes the result)";
  return text;
}

}  // namespace

std::string diagnosis_text(const Diagnosis& diagnosis, const Evidence& evidence, size_t columns) {
  Paragraphs report(columns);
  std::string headline = diagnosis.headline + where_text(diagnosis);
  if (diagnosis.out_of_memory == Verdict::yes) headline += "   certain";
  report.add_headline(headline);
  if (!diagnosis.reason.empty())
    report.add("cause", formatted("{}, {}: {}", cause_words(diagnosis.cause), words_of(diagnosis.certainty),
                                  diagnosis.reason));
  if (diagnosis.missing > 0)
    report.add("short", formatted("by {} at least", format_bytes(diagnosis.missing)));
  for (const std::string& other : diagnosis.ruled_out) report.add("not", other);
  for (const std::string& note : diagnosis.notes) report.add("note", note);
  const std::vector<std::string> quotes = quotes_of(diagnosis);
  for (size_t i = 0; i < std::min(quotes.size(), kMostQuotes); ++i)
    report.add(i == 0 ? "seen" : "", quotes[i]);
  if (quotes.size() > kMostQuotes)
    report.add("", formatted("and {} more (--json)",
                             format_count(static_cast<int64_t>(quotes.size() - kMostQuotes))));
  for (size_t i = 0; i < diagnosis.steps.size(); ++i) {
    const Step& step = diagnosis.steps[i];
    report.add(i == 0 ? "do" : "", step_text(step), std::to_string(i + 1) + ". ");
    if (!step.command.empty()) report.text += formatted("{}{}\n", std::string(13, ' '), step.command);
  }
  if (std::any_of(diagnosis.steps.begin(), diagnosis.steps.end(),
                  [](const Step& step) { return step.shrinks; }))
    report.add("", "--recipe FILE plans these, with the bytes that each saves");
  if (evidence.skipped > 0)
    report.add("skipped", format_count(evidence.skipped) +
                              " places that begin like a message: there are too many to look at each");
  if (!diagnosis.message && evidence.lines > 0) report.add("read", format_count(evidence.lines) + " lines");
  return report.text;
}

}  // namespace plimsoll::doctor
