#include "infer/bleu.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "unicode/utf8.h"

namespace plimsoll {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_point(char c) { return c == '.' || c == ','; }

// ASCII punctuation that always stands alone: all but ' , - .
bool stands_alone(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
         (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
}

void replace_all(std::string& text, std::string_view old, std::string_view replacement) {
  for (size_t at = text.find(old); at != std::string::npos; at = text.find(old, at + replacement.size()))
    text.replace(at, old.size(), replacement);
}

// Pairs of bytes for which `match` holds are replaced; a pair consumes both, as a regular expression does.
// Bytes do for characters: what is tested is ASCII, and negations hold for every byte of the others.
template <class Match>
std::string replace_pairs(const std::string& text, Match match, bool blank_before) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 == text.size() || !match(text[i], text[i + 1])) {
      result += text[i];
      continue;
    }
    if (blank_before) {
      result += {' ', text[i], ' ', text[i + 1]};
    } else {
      result += {text[i], ' ', text[i + 1], ' '};
    }
    ++i;
  }
  return result;
}

// The length of the blank at `at` that Python's str.split() splits at; 0 where there is none.
size_t blank_bytes(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return byte == ' ' || (byte >= 0x09 && byte <= 0x0D) || (byte >= 0x1C && byte <= 0x1F);
  constexpr std::string_view kWide[] = {"\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80",
                                        "\xE2\x80\x81", "\xE2\x80\x82", "\xE2\x80\x83", "\xE2\x80\x84",
                                        "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87", "\xE2\x80\x88",
                                        "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8", "\xE2\x80\xA9",
                                        "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};
  for (const std::string_view blank : kWide)
    if (text.substr(at).starts_with(blank)) return blank.size();
  return 0;
}

std::vector<std::string> split_at_blanks(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  for (size_t at = 0; at < text.size();) {
    const size_t blank = blank_bytes(text, at);
    if (blank == 0) {
      word += text[at++];
      continue;
    }
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
    at += blank;
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

std::string_view without_blanks_behind(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t blank = blank_bytes(text, at);
    at += std::max<size_t>(blank, 1);
    if (blank == 0) end = at;
  }
  return text.substr(0, end);
}

using Counts = std::map<std::string, int64_t>;

// Runs of `order` words. No word holds a blank, so that blanks tell them apart.
Counts count_runs(const std::vector<std::string>& words, size_t order) {
  Counts counts;
  for (size_t first = 0; first + order <= words.size(); ++first) {
    std::string run = words[first];
    for (size_t i = 1; i < order; ++i) run += " " + words[first + i];
    ++counts[run];
  }
  return counts;
}

}  // namespace

std::vector<std::string> bleu_words(std::string_view text) {
  const std::string valid = replace_invalid_utf8(text);
  std::string line(without_blanks_behind(valid));
  replace_all(line, "<skipped>", "");
  replace_all(line, "-\n", "");
  replace_all(line, "\n", " ");
  replace_all(line, "&quot;", "\"");
  replace_all(line, "&amp;", "&");
  replace_all(line, "&lt;", "<");
  replace_all(line, "&gt;", ">");
  std::string apart = " ";
  for (const char c : line) {
    if (stands_alone(c)) {
      apart += {' ', c, ' '};
    } else {
      apart += c;
    }
  }
  apart += ' ';
  apart = replace_pairs(
      apart, [](char a, char b) { return !is_digit(a) && is_point(b); }, false);
  apart = replace_pairs(
      apart, [](char a, char b) { return is_point(a) && !is_digit(b); }, true);
  apart = replace_pairs(
      apart, [](char a, char b) { return is_digit(a) && b == '-'; }, false);
  return split_at_blanks(apart);
}

void CorpusBleu::add(std::string_view answer, std::string_view reference) {
  const std::vector<std::string> answered = bleu_words(answer), expected = bleu_words(reference);
  answer_words_ += static_cast<int64_t>(answered.size());
  reference_words_ += static_cast<int64_t>(expected.size());
  for (size_t n = 0; n < kBleuOrders; ++n) {
    const Counts theirs = count_runs(expected, n + 1);
    for (const auto& [run, count] : count_runs(answered, n + 1)) {
      total_[n] += count;
      const auto found = theirs.find(run);
      if (found != theirs.end()) correct_[n] += std::min(count, found->second);
    }
  }
}

BleuScore CorpusBleu::score() const {
  BleuScore result;
  result.answer_words = answer_words_;
  result.reference_words = reference_words_;
  result.longest_runs = total_.back();
  if (answer_words_ < reference_words_)
    result.brevity_penalty =
        answer_words_ == 0
            ? 0.0
            : std::exp(1.0 - static_cast<double>(reference_words_) / static_cast<double>(answer_words_));
  if (std::all_of(correct_.begin(), correct_.end(), [](int64_t c) { return c == 0; })) return result;
  double smoothing = 1, logs = 0;
  bool zero = false;
  for (size_t n = 0; n < kBleuOrders; ++n) {
    if (total_[n] == 0) {
      zero = true;  // no answer is that long
      break;
    }
    if (correct_[n] == 0) smoothing *= 2;
    const double found = correct_[n] == 0 ? 1.0 / smoothing : static_cast<double>(correct_[n]);
    result.precisions[n] = 100.0 * found / static_cast<double>(total_[n]);
    logs += std::log(result.precisions[n]);
  }
  if (!zero) result.score = result.brevity_penalty * std::exp(logs / static_cast<double>(kBleuOrders));
  return result;
}

}  // namespace plimsoll
