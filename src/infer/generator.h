// Planned generation: one prompt at a time over a key-value cache whose size is fixed before anything runs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "infer/beam_search.h"
#include "models/model.h"
#include "passes/lora.h"
#include "passes/quantise.h"
#include "prepare/inference_device.h"
#include "runtime/executor.h"
#include "train/session.h"
#include "weights/weights.h"

namespace plimsoll {

// Tokens of a prompt that go through the layers at once: enough rows for full matrix products, few enough
// that their activations stay small compared with the weights.
inline constexpr int64_t kPrefillTokens = 64;

struct GenerationRequest {
  ModelSpec model;
  std::optional<LoraOptions> lora;
  DType compute = DType::f32;
  int64_t context = 0;  // tokens that a prompt and its answer may have together; of a decoder beside an
                        // encoder an answer alone
  int64_t prefill = kPrefillTokens;
  std::optional<QuantiseOptions> quantisation = std::nullopt;  // of the base model's layers
  int64_t sequences = 1;                                       // written at once: beams
  int64_t source = 0;                                          // tokens of a prompt that an encoder reads

  [[nodiscard]] GenerationShape shape() const { return {context, prefill, sequences, source}; }
};

struct GenerationPlan {
  GenerationRequest request;
  InferenceDevice device;
  Plan plan;  // of two programs: prefill or encode, and decode
  // Memory of the captured graphs of the programs.
  [[nodiscard]] OutsidePart graphs() const { return graphs_part(plan.graphs, plan.request.target.device); }
};
GenerationPlan plan_generation(GenerationRequest request, const InferenceDevice& device);

// Throws DoesNotFitError unless the plan fits into what is free and what RLIMIT_DATA allows.
void require_fit(const GenerationPlan& plan);

// The next token of the logits; `number` counts the answer's tokens from 0.
using ChooseToken = std::function<int32_t(std::span<const float> logits, int64_t number)>;
// Called with each token of the answer as it is chosen; false ends the answer.
using OnToken = std::function<bool(int32_t token)>;

class Generator {
 public:
  // Opens the device and maps what is planned; weights are for the caller to fill. What that may wait for is
  // reported to the observer.
  explicit Generator(GenerationPlan plan, RunObserver& observer = nobody());
  Generator(const Generator&) = delete;  // bound calls point into it
  Generator& operator=(const Generator&) = delete;

  [[nodiscard]] const PersistentState& state() const { return session_.state; }
  [[nodiscard]] const GenerationPlan& plan() const { return plan_; }
  [[nodiscard]] const Device& device() const { return *session_.device; }

  // Answers a prompt with at most `max_new` tokens, fewer where the context is full. Whole chunks that the
  // prompt before began with too are not recomputed: the same bits. With `go_on` nothing is that the cache
  // holds of the prompt's beginning: the same values, but for the last bits of tokens that were generated one
  // by one. Throws UsageError for an empty prompt, one beyond the context, or ids that the vocabulary lacks.
  void generate(std::span<const int32_t> prompt, int64_t max_new, const ChooseToken& choose,
                const OnToken& on_token, bool go_on = false);

  // Tokens of prompts that passed through the model so far; others were in the cache.
  [[nodiscard]] int64_t prompt_tokens_computed() const { return computed_; }

  // The answers that are likeliest as a whole, best first, by as many beams as the plan has sequences. Throws
  // as generate.
  std::vector<Hypothesis> search(std::span<const int32_t> prompt, int64_t max_new, const BeamOptions& options,
                                 const std::vector<int32_t>& end_tokens);

 private:
  [[nodiscard]] bool encodes() const { return plan_.request.model.encoder_decoder.has_value(); }
  void check_prompt(std::span<const int32_t> prompt) const;
  // True of texts of that length by longrope's frequencies for long ones; answers that continue past the limit are read
  // again from their beginning, since cached keys are turned by the others.
  [[nodiscard]] bool is_far(int64_t length) const;
  void write_next(int32_t token);
  // Throws UsageError where beams would continue past it.
  void require_one_rope(int64_t prompt, int64_t max_new) const;
  // Reads the prompt; leaves the logits of what follows it, for every sequence.
  void begin(std::span<const int32_t> prompt, bool go_on);
  void read_source(std::span<const int32_t> source);
  void prefill(std::span<const int32_t> prompt, bool go_on);
  // Runs a program over the next tokens: of the first sequence those of a chunk, or of each sequence one;
  // leaves the last one's logits. `sequence`: the tokens known so far, which dynamic RoPE depends on.
  void feed(const Executor& program, std::span<const int32_t> ids, int64_t sequence);
  // Sequence i becomes what sequence parents[i] was.
  void reorder(std::span<const int32_t> parents);
  void read_logits();

  GenerationPlan plan_;
  Session session_;
  std::unique_ptr<DeviceMemory> spare_;  // of one tensor of the cache
  Executor first_, decode_;
  std::vector<float> logits_;             // of every sequence
  std::vector<std::byte> stored_logits_;  // as a card has them
  std::vector<const TableRow*> cache_;    // what has a part for each sequence
  int64_t length_ = 0;                    // cached tokens of each sequence
  int64_t source_length_ = 0;             // of what the encoder read
  std::vector<int32_t> cached_;           // which ones, where there is one sequence
  size_t whole_chunks_ = 0;               // of cached_ what was read in whole chunks from the first token on
  int64_t computed_ = 0;
};

}  // namespace plimsoll
