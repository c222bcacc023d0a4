// Scores of whole sequences as JSON lines, a row each, in the order in which they were read.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/effective_batch.h"
#include "tasks/task.h"
#include "tensor/tensor.h"
#include "train/answer_file.h"

namespace plimsoll {

class ScoreFile {
 public:
  // `labels`: names of the classes; empty: their numbers. Throws as OutLines does.
  ScoreFile(const std::filesystem::path& path, const TaskSpec& task, std::vector<std::string> labels)
      : lines_(path), task_(task), labels_(std::move(labels)) {}

  // The live sequences of a micro-batch with their scores [B, outputs], of type `dtype`. A line says the
  // row's number in the data set and, for pairs, `chosen` and `rejected`; for one class of several `label`
  // and `probabilities`; for any of several `labels` and `probabilities`; for numbers `values`.
  void add(const EffectiveBatch& batch, const MicroBatch& micro, std::span<const std::byte> scores,
           DType dtype);

 private:
  OutLines lines_;
  TaskSpec task_;
  std::vector<std::string> labels_;
};

}  // namespace plimsoll
