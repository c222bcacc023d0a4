// Builds a model of any family as forward graphs over a flat token axis, one for each use.
//
// Inputs: input_ids, labels, positions, samples i32 [T]; seq_starts i32 [B+1]; inv_freq f32 [B, D/2+1]; step
// f64 [16]; with shared prefixes parents i32 [B] of their segments, label_rows i32 [T] and label_weights f32
// [T] or label_sequences i32 [T]; for a decoder after an encoder `decoder.input_ids` and so on. Parameters
// carry their Hugging Face names; all are born frozen, passes decide what trains.
#pragma once

#include "models/builder.h"

namespace plimsoll {

// Forward pass with the fused head and loss; adds to the metric `loss_name`. Labels are next tokens; an encoder's are
// the words that are masked where they stand. `chunk`: rows of logits at a
// time.
Graph build_loss(const ModelSpec& spec, const BatchShape& shape, DType dtype, int64_t chunk, Mode mode,
                 const std::string& loss_name);

// The reason why sequences of up to `longest` tokens cannot share prefixes in such a model, as words behind its name;
// empty: they can.
std::string why_no_shared_prefixes(const ModelSpec& spec, int64_t longest);

// Forward pass whose logits [T, V] remain, as the metric tensor `logits`: for inspection, not for training.
Graph build_logits(const ModelSpec& spec, const BatchShape& shape, DType dtype);

struct GenerationShape {
  int64_t capacity = 0;   // positions of each sequence that is written
  int64_t chunk = 1;      // tokens of a prompt that go through the layers at once
  int64_t sequences = 1;  // W, written at once after one prompt
  int64_t source = 0;     // longest text that an encoder reads, where there is one
};

// The two programs of generation. A decoder's: `prefill`, a chunk of the prompt into the cache of the first
// sequence, and `decode`, a token of each sequence. With an encoder: `encode`, the keys and values that every
// layer of the decoder reads of the source, and `decode`. The logits [W, V] of rows `last_row` i32 [W] remain
// as the metric `logits`.
std::vector<Graph> build_generation(const ModelSpec& spec, const GenerationShape& shape, DType dtype);

// Forward pass to `outputs` scores of each sequence, by a head such as `score.weight` [outputs, H] that
// is fresh where the checkpoint has none, or by the words' rows of the head for next tokens. It reads the
// rows that input `sequences.scored_rows` i32 [B] names: of a decoder the last of each sequence, of an
// encoder the first.
struct ScoredGraph {
  Graph graph;
  TensorId scores = kNoTensor;  // [B, outputs]
};
// `scores_name`: of a metric tensor that the scores remain in; empty: an activation.
ScoredGraph build_scores(const ModelSpec& spec, const BatchShape& shape, DType dtype, int64_t outputs,
                         Mode mode, const std::string& scores_name);

// The module of a value head (ModelSpec::value_head).
inline constexpr std::string_view kValueHead = "v_head.summary";

// The module of that head in a checkpoint, and what stands there before the names of the model below it.
std::string score_module(const ModelSpec& spec);
std::string_view score_prefix(const ModelSpec& spec);

// Forward pass to the log-probabilities of each sequence's labels: their sums f32 [B, 2] and numbers of
// tokens [B, 2], of answers and of prompts (ops/loss/linear_log_prob.h). `chunk`: rows of logits at a time.
struct LogProbGraph {
  Graph graph;
  TensorId logps = kNoTensor, tokens = kNoTensor;
};
LogProbGraph build_log_probs(const ModelSpec& spec, const BatchShape& shape, DType dtype, int64_t chunk,
                             Mode mode);

// Number of parameters (a tied head counts once); with `scores` those of a model that scores sequences so.
int64_t count_parameters(const ModelSpec& spec, int64_t scores = 0);

}  // namespace plimsoll
