#include "infer/beam_search.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace plimsoll {
namespace {

// The score of a sequence without a chance, or without one yet: far below every sum of log-probabilities.
constexpr float kHopeless = -1e9F;

float log_of_sum(std::span<const float> logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x - top));
  return top + static_cast<float>(std::log(sum));
}

}  // namespace

BeamSearch::BeamSearch(const BeamOptions& options, int64_t vocab, std::vector<int32_t> end_tokens,
                       int64_t longest)
    : options_(options),
      vocab_(vocab),
      end_tokens_(std::move(end_tokens)),
      longest_(longest),
      running_(static_cast<size_t>(options.beams)),
      scores_(running_.size(), kHopeless),
      tokens_(running_.size()),
      parents_(running_.size()) {
  check_internal(options.beams >= 1 && options.best <= options.beams && longest >= 1, "beam search");
  std::sort(end_tokens_.begin(), end_tokens_.end());
  end_tokens_.erase(std::unique(end_tokens_.begin(), end_tokens_.end()), end_tokens_.end());
  scores_[0] = 0;  // the beams are the same at the start: one of them counts
}

bool BeamSearch::ends(const Candidate& one) const {
  return length_ == longest_ || std::binary_search(end_tokens_.begin(), end_tokens_.end(), one.token);
}

// Enough candidates to continue as many as there are beams, whatever ends.
void BeamSearch::find_candidates(std::span<const float> logits) {
  const auto beams = static_cast<size_t>(options_.beams);
  const size_t wanted =
      std::min(std::max<size_t>(2, 1 + end_tokens_.size()) * beams, beams * static_cast<size_t>(vocab_));
  const auto better = [](const Candidate& a, const Candidate& b) {
    if (a.score != b.score) return a.score > b.score;
    return a.beam != b.beam ? a.beam < b.beam : a.token < b.token;
  };
  candidates_.clear();
  for (int32_t beam = 0; beam < static_cast<int32_t>(beams); ++beam) {
    const auto row =
        logits.subspan(static_cast<size_t>(beam) * static_cast<size_t>(vocab_), static_cast<size_t>(vocab_));
    const float all = log_of_sum(row);
    for (int32_t token = 0; token < static_cast<int32_t>(vocab_); ++token) {
      const Candidate one{(row[static_cast<size_t>(token)] - all) + scores_[static_cast<size_t>(beam)], beam,
                          token};
      if (candidates_.size() == wanted && !better(one, candidates_.front())) continue;
      if (candidates_.size() == wanted) {
        std::pop_heap(candidates_.begin(), candidates_.end(), better);
        candidates_.pop_back();
      }
      candidates_.push_back(one);
      std::push_heap(candidates_.begin(), candidates_.end(), better);
    }
  }
  std::sort_heap(candidates_.begin(), candidates_.end(), better);
}

bool BeamSearch::step(std::span<const float> logits) {
  check_internal(length_ < longest_, "a beam search beyond its end");
  find_candidates(logits);
  ++length_;
  finish();
  if (std::all_of(candidates_.begin(), candidates_.end(), [&](const auto& one) { return ends(one); }))
    return false;
  go_on();
  const bool full = static_cast<int64_t>(finished_.size()) == options_.beams;
  return may_improve() && !(full && options_.early_stopping == EarlyStopping::when_full);
}

// Keeps the candidates that end, of those among the first `beams`.
void BeamSearch::finish() {
  const auto beams = static_cast<size_t>(options_.beams);
  const double divisor = std::pow(static_cast<double>(length_), options_.length_penalty);
  for (size_t i = 0; i < std::min(beams, candidates_.size()); ++i) {
    const Candidate& one = candidates_[i];
    if (!ends(one) || one.score <= kHopeless / 2) continue;
    Hypothesis made{running_[static_cast<size_t>(one.beam)], static_cast<double>(one.score) / divisor};
    made.ids.push_back(one.token);
    const auto behind = std::find_if(finished_.begin(), finished_.end(),
                                     [&](const Hypothesis& other) { return other.score < made.score; });
    finished_.insert(behind, std::move(made));
    if (finished_.size() > beams) finished_.pop_back();
  }
}

void BeamSearch::go_on() {
  std::stable_partition(candidates_.begin(), candidates_.end(), [&](const auto& one) { return !ends(one); });
  std::vector<std::vector<int32_t>> next(running_.size());
  for (size_t i = 0; i < running_.size(); ++i) {
    // If too few continue, the last ones are there but have no chance.
    const Candidate& one = candidates_[std::min(i, candidates_.size() - 1)];
    next[i] = running_[static_cast<size_t>(one.beam)];
    next[i].push_back(one.token);
    scores_[i] = ends(one) ? one.score + kHopeless : one.score;
    tokens_[i] = one.token;
    parents_[i] = one.beam;
  }
  running_ = std::move(next);
}

bool BeamSearch::may_improve() const {
  if (static_cast<int64_t>(finished_.size()) < options_.beams) return true;
  const bool at_longest = options_.early_stopping == EarlyStopping::never && options_.length_penalty > 0;
  const auto length = static_cast<double>(at_longest ? longest_ : length_);
  return scores_[0] / std::pow(length, options_.length_penalty) > finished_.back().score;
}

std::vector<Hypothesis> BeamSearch::best() const {
  const auto count = std::min(finished_.size(), static_cast<size_t>(options_.best));
  return {finished_.begin(), finished_.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace plimsoll
