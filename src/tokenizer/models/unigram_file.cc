// Unigram as tokenizer.json writes it.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "tokenizer/models/unigram.h"

namespace plimsoll {
namespace {

// The distance from the worst piece's score to that of an unknown character.
constexpr double kUnknownPenalty = 10;

// The reference's JSON reader is off by a last bit in some numbers, which decides between ways to write a
// word that have equal sums: it rounds the digits, taken as a whole number, to double, and then divides by a
// power of ten. The digits here are the shortest that give `value`, as the reference and Python write them.
double as_reference_reads(double value) {
  char text[32] = {};
  const auto end =
      std::to_chars(std::begin(text), std::end(text), std::abs(value), std::chars_format::scientific).ptr;
  uint64_t digits = 0;
  int exponent = 0;
  const char* p = text;
  for (bool fraction = false; p != end && *p != 'e'; ++p) {
    if (*p == '.') {
      fraction = true;
    } else {
      digits = digits * 10 + static_cast<uint64_t>(*p - '0');  // 17 at most
      exponent -= fraction ? 1 : 0;
    }
  }
  int scale = 0;
  if (p != end) {
    ++p;
    std::from_chars(p + (*p == '+' ? 1 : 0), end, scale);
  }
  exponent += scale;
  // Outside the exact range it works in steps: scores never get there.
  constexpr int kLargestPower = 308;
  if (std::abs(exponent) > kLargestPower) return value;
  const double power = std::stod("1e" + std::to_string(std::abs(exponent)));
  const double whole = static_cast<double>(digits);
  return std::copysign(exponent < 0 ? whole / power : whole * power, value);
}

}  // namespace

std::unique_ptr<Model> make_unigram(const TokenizerFile& file) {
  const JsonPart model = file.model();
  if (!file.vocab_is_list || file.scores.size() != file.vocab.size())
    model.at("vocab").damaged("expected a list of [piece, score]");
  UnigramOptions options;
  options.byte_fallback = model.flag_or("byte_fallback", false);
  if (const auto unk = model.find("unk_id")) {
    options.unk_id = unk->id();
    if (unk->count() >= file.vocab.size()) unk->damaged("is outside the vocabulary");
  }
  options.unk_score = std::numeric_limits<double>::infinity();
  std::vector<double> scores;
  scores.reserve(file.scores.size());
  for (const double score : file.scores) {
    scores.push_back(as_reference_reads(score));
    options.unk_score = std::min(options.unk_score, scores.back());
  }
  options.unk_score -= kUnknownPenalty;
  std::vector<int32_t> matched(file.vocab.size());
  std::iota(matched.begin(), matched.end(), 0);
  return std::make_unique<Unigram>(PieceTable(file.vocab, file.name), std::move(scores), matched, options);
}

}  // namespace plimsoll
