// Scores of whole sequences as JSON lines, a row each, in the order in which they were read.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "data/batch/effective_batch.h"
#include "tasks/task.h"

namespace plimsoll {

class ScoreLines {
 public:
  using Write = std::function<void(const nlohmann::ordered_json&)>;
  // `labels`: names of the classes; empty: their numbers. `rewards`: one number is the score of an answer.
  ScoreLines(const TaskSpec& task, std::vector<std::string> labels, Write write, bool rewards = false)
      : task_(task), labels_(std::move(labels)), write_(std::move(write)), rewards_(rewards) {}

  // The live sequences of a micro-batch with their scores [B, outputs]. A line says the
  // row's number in the data set and, for pairs, `chosen` and `rejected`; for one answer `score`; for one
  // class of several `label` and `probabilities`; for any of several `labels` and `probabilities`; for
  // numbers `values`.
  void add(const EffectiveBatch& batch, const MicroBatch& micro, std::span<const float> scores);

 private:
  TaskSpec task_;
  std::vector<std::string> labels_;
  Write write_;
  bool rewards_;
};

}  // namespace plimsoll
