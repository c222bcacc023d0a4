// Beam search over logits made by hand; compared with transformers in tests/parity/seq2seq.py.
#include "infer/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace plimsoll {
namespace {

using Ids = std::vector<int32_t>;
constexpr int64_t kVocab = 5;
constexpr int32_t kEnd = 4;

// Log-probabilities that depend on the text so far, the same on every machine.
std::vector<float> log_probabilities(const Ids& text) {
  uint32_t state = 17;
  for (const int32_t id : text) state = state * 1664525U + static_cast<uint32_t>(id) * 97U + 1013904223U;
  std::vector<float> logits;
  double sum = 0;
  for (int64_t i = 0; i < kVocab; ++i) {
    state = state * 1664525U + 1013904223U;
    logits.push_back(static_cast<float>(state >> 24U) / 64.0F);
    sum += std::exp(static_cast<double>(logits.back()));
  }
  for (float& x : logits) x -= static_cast<float>(std::log(sum));
  return logits;
}

std::vector<Hypothesis> search(const BeamOptions& options, int64_t longest, int64_t* steps = nullptr) {
  BeamSearch beams(options, kVocab, {kEnd}, longest);
  std::vector<Ids> texts(static_cast<size_t>(options.beams));
  for (;;) {
    std::vector<float> logits;
    for (const Ids& text : texts) {
      const auto row = log_probabilities(text);
      logits.insert(logits.end(), row.begin(), row.end());
    }
    if (steps != nullptr) ++*steps;
    if (!beams.step(logits)) return beams.best();
    std::vector<Ids> next;
    for (size_t i = 0; i < texts.size(); ++i) {
      next.push_back(texts[static_cast<size_t>(beams.parents()[i])]);
      next.back().push_back(beams.tokens()[i]);
    }
    texts = next;
  }
}

// Every text that ends, or is as long as one may be, with its score.
void all_texts(const Ids& text, double sum, int64_t longest, double penalty, std::vector<Hypothesis>& found) {
  const auto row = log_probabilities(text);
  for (int32_t id = 0; id < kVocab; ++id) {
    Ids longer = text;
    longer.push_back(id);
    const double score = sum + row[static_cast<size_t>(id)];
    if (id == kEnd || static_cast<int64_t>(longer.size()) == longest)
      found.push_back({longer, score / std::pow(static_cast<double>(longer.size()), penalty)});
    else
      all_texts(longer, score, longest, penalty, found);
  }
}

TEST(BeamSearch, with_a_beam_for_every_text_finds_the_best_of_all) {
  for (const double penalty : {0.0, 1.0, 2.0}) {
    std::vector<Hypothesis> all;
    all_texts({}, 0, 4, penalty, all);
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
    const auto found = search({.beams = 256, .length_penalty = penalty, .best = 20}, 4);
    ASSERT_EQ(found.size(), 20U);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].ids, all[i].ids) << penalty << " " << i;
      EXPECT_NEAR(found[i].score, all[i].score, 1e-5);
    }
  }
}

TEST(BeamSearch, one_beam_is_greedy) {
  const auto found = search({.beams = 1}, 6);
  ASSERT_EQ(found.size(), 1U);
  Ids text;
  while (text.size() < 6 && (text.empty() || text.back() != kEnd)) {
    const auto row = log_probabilities(text);
    text.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
  }
  EXPECT_EQ(found[0].ids, text);
}

TEST(BeamSearch, answers_are_sorted_and_differ_and_early_stopping_takes_fewer_steps) {
  std::map<EarlyStopping, int64_t> steps;
  for (const auto stopping : {EarlyStopping::when_full, EarlyStopping::heuristic, EarlyStopping::never}) {
    const BeamOptions options{.beams = 4, .early_stopping = stopping, .best = 4};
    const auto found = search(options, 30, &steps[stopping]);
    ASSERT_EQ(found.size(), 4U);
    for (size_t i = 1; i < found.size(); ++i) {
      EXPECT_GE(found[i - 1].score, found[i].score);
      EXPECT_NE(found[i - 1].ids, found[i].ids);
    }
  }
  EXPECT_LE(steps[EarlyStopping::when_full], steps[EarlyStopping::heuristic]);
  EXPECT_LE(steps[EarlyStopping::heuristic], steps[EarlyStopping::never]);
}

}  // namespace
}  // namespace plimsoll
