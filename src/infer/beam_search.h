// Beam search as transformers has it (generation/utils.py, _beam_search): the sequences that are likeliest as
// a whole, not token by token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace plimsoll {

// The rule by which a search ends before the longest length: once there are as many finished sequences as
// beams; or (heuristic) once the unfinished ones, at their length, are no better than the worst of them; or
// (never) once they could not become better at any length.
enum class EarlyStopping : uint8_t { heuristic, when_full, never };

struct BeamOptions {
  int64_t beams = 1;            // 1: no search
  double length_penalty = 1.0;  // scores are divided by length ^ this
  EarlyStopping early_stopping = EarlyStopping::heuristic;
  int64_t best = 1;  // sequences that are returned, at most as many as beams
};

struct Hypothesis {
  std::vector<int32_t> ids;  // an end token included, where it ended with one
  double score = 0;          // sum of the log-probabilities, divided as said
};

class BeamSearch {
 public:
  // `longest`: tokens of a sequence, at least 1. `end_tokens` may be empty.
  BeamSearch(const BeamOptions& options, int64_t vocab, std::vector<int32_t> end_tokens, int64_t longest);

  // Takes the logits [beams, vocab] of what follows each beam, of which the first alone counts at the start;
  // false once nothing better can come. Then beam i continues with tokens()[i] behind what beam parents()[i]
  // was.
  bool step(std::span<const float> logits);
  [[nodiscard]] std::span<const int32_t> tokens() const { return tokens_; }
  [[nodiscard]] std::span<const int32_t> parents() const { return parents_; }

  // The finished sequences, best first.
  [[nodiscard]] std::vector<Hypothesis> best() const;

 private:
  struct Candidate {
    float score;
    int32_t beam, token;
  };
  void find_candidates(std::span<const float> logits);
  [[nodiscard]] bool ends(const Candidate& one) const;
  void go_on();
  void finish();
  [[nodiscard]] bool may_improve() const;

  BeamOptions options_;
  int64_t vocab_;
  std::vector<int32_t> end_tokens_;
  int64_t longest_;
  int64_t length_ = 0;  // tokens of the running sequences
  std::vector<std::vector<int32_t>> running_;
  std::vector<float> scores_;          // of running_
  std::vector<Candidate> candidates_;  // best first
  std::vector<int32_t> tokens_, parents_;
  std::vector<Hypothesis> finished_;  // best first, at most as many as beams
};

}  // namespace plimsoll
