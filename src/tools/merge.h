// Folds an adapter into its base model: W + scale * B A, one tensor at a time, in bounded memory.
#pragma once

#include <filesystem>
#include <optional>

#include "passes/quantise.h"
#include "tensor/tensor.h"

namespace plimsoll {

// The base as a QLoRA run had it: which weights were quantised and how, and what it computed in.
struct TrainedBase {
  QuantiseOptions quantisation;
  DType compute = DType::f32;
};

struct MergeOptions {
  std::filesystem::path adapter;              // PEFT folder
  std::optional<std::filesystem::path> base;  // model folder; none: the one that adapter_config.json names
  std::filesystem::path out;                  // must not exist yet
  std::optional<TrainedBase> trained = {};    // merge into these; none: into the weights as they are stored
  std::optional<DType> dtype = {};            // of the weights; none: as the base stores them
};

struct MergeResult {
  std::filesystem::path base;
  int64_t merged = 0;   // weights that an adapter changed
  int64_t tensors = 0;  // written in all
  int64_t bytes = 0;
};

// Writes a model folder with the base's shards, config and tokenizer. Sums are formed in f32 and rounded once. The folder appears whole or not at all. Throws UsageError for an adapter that does not belong
// to the base and for a quantised base, StoppedError when the disk has no room.
MergeResult merge(const MergeOptions& options);

}  // namespace plimsoll
