// The experiment (what a run computes) and the variant (how it is cut to fit). A variant never changes the
// result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "device/description.h"
#include "graph/graph.h"
#include "models/spec.h"
#include "passes/name_pattern.h"
#include "passes/offload.h"
#include "passes/quantise.h"
#include "passes/recompute.h"
#include "passes/train.h"
#include "tasks/micro_capacity.h"
#include "tasks/task.h"

namespace plimsoll {

struct Variant;

struct Experiment {
  ModelSpec model;
  TaskSpec task;
  double noise = 0.0;                    // NEFTune's alpha: noise on embeddings while training
  bool lora = false;                     // otherwise every weight trains
  std::vector<std::string> frozen = {};  // but for these
  LoraOptions lora_options;
  bool quantised = false;  // frozen weights of the layers in 4 or 8 bits, beside LoRA (QLoRA)
  QuantiseOptions quantisation;
  TrainPrecision precision;
  OptimizerOptions optimizer;
  int64_t effective_batch = 16;  // samples per optimizer step
  int64_t max_length = 1024;     // tokens of the longest sequence; of an encoder and a decoder, of a source
  int64_t target_length = 0;     // of a decoder beside an encoder: tokens of the longest target
  int64_t longest_sample = 0;    // tokens of a sample's sequences together; 0: each may be the longest
  bool shares_prefixes = false;  // what sequences begin with alike is computed once (docs/decisions/17)
  int64_t longest_shared = 0;    // the same of a sample that shares within itself; 0: as longest_sample
  int64_t common_begin = 0;      // tokens that every sequence of every sample is sure to begin with
  int64_t documents = 1;         // of a sample in training: several with packing
  bool evaluates = false;
  int64_t ranks = 1;  // processes that share each effective batch

  // Samples of an optimizer step that one of them has at most.
  [[nodiscard]] int64_t samples_each() const { return (effective_batch + ranks - 1) / ranks; }

  [[nodiscard]] Sharding sharding() const { return {ranks, optimizer.shard, lora}; }

  // A pattern of names that names no layer by its number.
  static bool names_no_layer(const std::string& pattern) {
    return is_plain_name(pattern) && pattern.find_first_not_of("0123456789") != std::string::npos;
  }
  // True if the layers of a stack repeat, so that a few of them stand for all.
  [[nodiscard]] bool layers_are_alike() const {
    return !model.delta_net && (!lora || lora_options.blocks_are_alike()) &&
           (!quantised || quantisation.blocks_are_alike()) &&
           std::all_of(frozen.begin(), frozen.end(), names_no_layer);
  }

  // True if a sample is a source and a target of it. If such a model scores, the decoder reads the text
  // again.
  [[nodiscard]] bool has_targets() const { return model.encoder_decoder && !rule_of(task.task).scores; }

  // Sequences that a sample keeps together, and the tokens that it may have.
  [[nodiscard]] int64_t sample_sequences() const { return rule_of(task.task).sequences; }
  [[nodiscard]] int64_t sample_tokens() const {
    if (has_targets()) return max_length + target_length;
    return longest_sample > 0 ? longest_sample : max_length * sample_sequences();
  }
  // The tokens of a micro-step that the longest sample takes by itself, its target apart where targets have
  // an axis of their own.
  [[nodiscard]] RowSize longest_row() const {
    if (has_targets()) return {max_length, target_length};
    return {shares_prefixes && longest_shared > 0 ? longest_shared : sample_tokens(), 0};
  }
  // Tokens that a micro-step has once for all of its samples.
  [[nodiscard]] int64_t begin_once() const {
    return shares_prefixes ? std::min(common_begin, longest_row().tokens) : 0;
  }
  // The tokens that a sample of that size takes in addition to them, no more than the longest.
  [[nodiscard]] RowSize capacity_of(const RowSize& size) const;
  // Room for so many longest samples, without their targets.
  [[nodiscard]] int64_t tokens_of(int64_t samples) const {
    return begin_once() + samples * (longest_row().tokens - begin_once());
  }
  // The capacity of a micro-step of `samples`: so many longest ones, or `tokens` and, where targets have an
  // axis of their own, so many of those as the longest row has of each.
  [[nodiscard]] MicroCapacity capacity(int64_t samples, int64_t tokens = 0) const;
  [[nodiscard]] MicroCapacity train_capacity(const Variant& variant) const;
  [[nodiscard]] MicroCapacity eval_capacity(const Variant& variant) const;
  // The shape of one program, whose samples have so many documents each.
  [[nodiscard]] BatchShape batch_shape(const MicroCapacity& capacity, int64_t documents_each) const;
  // Rows with logits, where the task has some.
  [[nodiscard]] int64_t logit_rows(const MicroCapacity& capacity) const;
};

struct Variant {
  int64_t micro_batch = 1;  // samples per micro-step, at most
  int64_t micro_tokens =
      0;  // of them together, without targets that have room of their own; 0: all may be long
  int64_t accumulation = 1;  // micro-steps per optimizer step, at most; the last one may be partly empty
  int64_t eval_micro_batch = 1;
  int64_t eval_micro_tokens = 0;
  int64_t loss_chunk = 512;  // rows of logits that exist at a time
  RecomputeChoice recompute;
  OffloadChoice offload;
  bool keep_frozen = false;         // what blocks below all that trains say of a row is read, not computed
  bool update_in_backward = false;  // each weight is updated as soon as its gradient is complete

  friend bool operator==(const Variant&, const Variant&) = default;
};

// The number of micro-steps that `effective` samples need, when each has room for `micro` of them.
int64_t accumulation_for(int64_t effective, int64_t micro);
// The most that any samples of the experiment need with this room.
int64_t most_micro_steps(const Experiment& experiment, const MicroCapacity& capacity);

// Rows of logits at a time where the recipe leaves it open: larger where the head trains, since every chunk
// then reads and writes the head's whole gradient.
int64_t default_loss_chunk(const Experiment& experiment, int64_t tokens);

// Names of the programs, also those of the phases in reports.
inline constexpr const char* kTrainProgram = "micro-step";
inline constexpr const char* kUpdateProgram = "update";
inline constexpr const char* kEvalProgram = "evaluation";
inline constexpr const char* kLossTensor = "loss";
inline constexpr const char* kEvalLossTensor = "eval_loss";
// The scores of an evaluation of tasks that score sequences: [B, outputs].
inline constexpr const char* kScoresTensor = "scores";

// The forward pass of a micro-step with its adapters, before autodiff.
Graph build_forward(const Experiment& experiment, const Variant& variant);

// The run's programs: micro-step, update (unless that is a part of the backward pass) and, where the
// experiment evaluates, evaluation. Each program is verified where all are built: one by itself is measured,
// and what is chosen by that is built anew.
enum class Programs : uint8_t { all, micro_step, evaluation, update };
std::vector<Graph> build_programs(const Experiment& experiment, const Variant& variant,
                                  const DeviceDescription& device, Programs which = Programs::all);

// The evaluation program by itself, over weights that do not train; quantised ones need no adapters here.
std::vector<Graph> build_evaluation_programs(const Experiment& experiment, const Variant& variant,
                                             const DeviceDescription& device);

// The programs of build_generation for the experiment's model, with its
// adapters and quantised weights.
std::vector<Graph> build_generation_programs(const Experiment& experiment, const GenerationShape& shape,
                                             const DeviceDescription& device);

// The tensor in which build_inspection_programs leaves the logits of every token, or the scores of every
// sequence.
inline constexpr const char* kLogitsTensor = "logits";
// The programs of training, and one after them over the same weights that keeps
// all logits or scores.
std::vector<Graph> build_inspection_programs(const Experiment& experiment, const Variant& variant,
                                             const DeviceDescription& device);

}  // namespace plimsoll
