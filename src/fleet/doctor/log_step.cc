// Finds a run's step in its log, as logs print it: "1322/5000 [", "step 1322", "'step': 1322", "iteration
// 100/ 1000".
#include <algorithm>
#include <array>

#include "fleet/doctor/log_scanner.h"

namespace plimsoll::doctor {
namespace {

constexpr int64_t kMostSteps = 1'000'000'000;

// A whole number at `at`, moved behind it; -1: none, or too large to be one of steps.
int64_t number_at(std::string_view text, size_t& at) {
  const size_t begin = at;
  int64_t value = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    if (value < kMostSteps) value = value * 10 + (text[at] - '0');
    ++at;
  }
  return at == begin || value >= kMostSteps ? -1 : value;
}

size_t skip(std::string_view text, size_t at, std::string_view what, size_t most) {
  for (size_t i = 0; i < most && at < text.size() && what.find(text[at]) != what.npos; ++i) ++at;
  return at;
}

}  // namespace

std::string_view LogScanner::place_of_bar(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin != text.npos && text.substr(begin).starts_with("Loading") ? "while the model was loaded" : "";
}

// Bars of what is loaded, downloaded and prepared count other things than steps.
bool LogScanner::is_bar_of_steps(std::string_view text) {
  static constexpr std::array<std::string_view, 17> kOthers = {
      "Loading",    "Downloading",       "Fetching", "Map",      "Filter",    "Tokeniz",
      "Generating", "Running tokenizer", "Saving",   "Casting",  "Resolving", "Computing",
      "Converting", "Evaluat",           "Packing",  "Applying", "Adding"};
  const size_t begin = text.find_first_not_of(" \t");
  return begin == text.npos || std::ranges::none_of(kOthers, [&](std::string_view other) {
           return text.substr(begin).starts_with(other);
         });
}

void LogScanner::read_step(const LogPiece& piece, std::string_view text, size_t at, bool bar) {
  int64_t step = -1;
  int64_t of = -1;
  if (bar) {
    // The pair of numbers before the bracket at `at`.
    size_t begin = text.find_last_not_of(" 0123456789/", at == 0 ? 0 : at - 1);
    begin = begin == text.npos ? 0 : begin + 1;
    begin = skip(text, begin, " ", 16);
    step = number_at(text, begin);
    if (begin >= text.size() || text[begin] != '/') return;
    of = number_at(text, ++begin);
    if (of < 0) return;
  } else {
    // "Total steps = 60", "accumulation steps = 4": settings, unless a step stands before their number.
    const bool plural = at + 1 < text.size() && text[at + 1] == 's';
    size_t begin = skip(text, at + 1, "s\"'_ =:[#", 6);
    step = number_at(text, begin);
    begin = skip(text, begin, " ", 8);
    if (step >= 0 && begin < text.size() && text[begin] == '/') {
      begin = skip(text, begin + 1, " ", 8);
      of = number_at(text, begin);
    }
    if (plural && of < 0) return;
  }
  if (step < 0) return;
  step_ = step;
  of_steps_ = of >= 0 ? of : of_steps_;
  step_line_ = piece.line;
}

}  // namespace plimsoll::doctor
