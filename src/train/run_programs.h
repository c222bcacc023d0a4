// The programs of a run, bound to its memory: an optimizer step over an effective batch, an evaluation over
// its rows.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "data/batch/loader.h"
#include "data/batch/micro_steps.h"
#include "plan/search/plan.h"
#include "prepare/sequence_shape.h"
#include "prepare/setup.h"
#include "ranks/run_ranks.h"
#include "runs/scored_rows.h"
#include "runtime/executor.h"
#include "runtime/run_memory.h"
#include "train/gradient_sums.h"
#include "train/profile.h"
#include "weights/persistent_state.h"

namespace plimsoll {

class BatchWriter;
class FrozenCache;

// The place in which programs run. All of it outlives them.
struct RunPlace {
  const Plan& plan;
  Device& device;
  const RunMemory& memory;
  bool poison = false;           // NaN where an owner died
  Recorder* recorder = nullptr;  // of all programs but evaluation
  RunRanks& ranks = no_other_ranks();
  // OptimizerStep::sum() of several ranks, for programs other than the training step.
  OrderedSum* sum = nullptr;

  [[nodiscard]] Rank rank() const { return {ranks.group().rank(), ranks.size()}; }
};

// Throws InternalError where the plan has no such program.
Executor bind_program(const RunPlace& place, const char* name);

// A program other than the training step, over weights that ranks may divide: then it gathers them, and every rank runs
// it as often as the others, within RunRanks::Exchange.
class GatheringProgram {
 public:
  // As bind_program().
  GatheringProgram(const RunPlace& place, const char* name);
  GatheringProgram(const GatheringProgram&) = delete;
  GatheringProgram& operator=(const GatheringProgram&) = delete;

  [[nodiscard]] const Executor& executor() const { return executor_; }
  [[nodiscard]] bool gathers() const { return !own_.ops().empty(); }
  // Ranks meet if it gathers, and exchange data until the result's done().
  [[nodiscard]] std::optional<RunRanks::Exchange> begin();
  // The runs of a rank that has `own` batches: where it gathers, the most of any rank.
  [[nodiscard]] int64_t rounds(int64_t own);

 private:
  RunRanks& ranks_;
  Graph own_;  // with the ranges of this rank; empty where it gathers nothing
  Executor executor_;
};

// The scores [B, outputs] that an evaluation program left of its last micro-batch, as f32 in `to`.
std::span<const float> read_scores(const PersistentState& state, std::vector<float>& to);

// Forward and backward passes over the micro-batches of an effective batch, and the update.
class OptimizerStep {
 public:
  explicit OptimizerStep(const RunPlace& place);
  OptimizerStep(const OptimizerStep&) = delete;
  OptimizerStep& operator=(const OptimizerStep&) = delete;

  struct Values {
    int64_t number = 1;  // counts from 1
    double learning_rate = 0;
    uint64_t seed = 0;
    int64_t update = 1;       // of the weights, counts from 1; fewer than steps where some updated nothing
    double loss_scale = 1.0;  // of runs in f16 (runs/loss_scale.h)
  };
  struct Result {
    double loss = 0;       // per target token, or what the task counts
    double grad_norm = 0;  // before clipping; of f16 not finite: it overflowed, and nothing was updated
    Metrics metrics = {};  // of the task
    int64_t micro_steps = 0;
    int64_t tokens = 0;  // that passed through the model: those that rows share once
    double sending = 0;  // seconds in which it waited for other ranks and for what they sent
  };
  // Micro-steps begin with what these hold; they outlive this.
  void begin_with(const FrozenCache& kept) { kept_ = &kept; }
  // To other ranks.
  [[nodiscard]] int64_t sent_bytes() const { return sent_; }
  // The memory for that on a GPU, in addition to its arena.
  [[nodiscard]] int64_t exchange_bytes() const { return gradients_.exchange_bytes(); }
  // For others that exchange what is large, between two steps.
  [[nodiscard]] OrderedSum& sum() { return gradients_.sum(); }
  // The batch has targets.
  Result run(const EffectiveBatch& batch, const Values& values);

 private:
  // Returns the tokens that passed through the model.
  int64_t accumulate(const EffectiveBatch& batch, const Values& values);
  // Counts the seconds in which ranks send each other something.
  template <class Work>
  void send(Work work);
  // Gradients (unless the backward pass has done that) and the sums of the loss become those of all ranks.
  void add_up();
  // The micro-steps that this rank runs: where ranks exchange something in each of them, the most of any of them.
  [[nodiscard]] int64_t rounds();
  // The exchange of ranks in front of an op of a program, and behind it.
  [[nodiscard]] OpHooks hooks_of(const Op& op);
  [[nodiscard]] ExecutorOptions hooked_options(const RunPlace& place, size_t program);
  // A micro-step of a rank that has no rows (left) for it: it adds nothing, and takes part in what the backward pass
  // exchanges.
  void run_without_rows(BatchWriter& writer, const EffectiveBatch& batch, const Values& values, bool first);
  void update(const Values& values);
  // Each rank updates its pieces of the weights.
  [[nodiscard]] bool divides_states() const;
  // Each rank keeps its pieces of the gradients, which are reduced in every micro-step.
  [[nodiscard]] bool divides_gradients() const;

  const Plan& plan_;
  RunRanks& ranks_;
  // The programs that update weights and that reduce gradients, with the ranges of this rank; empty where it has no such program.
  Graph own_, own_train_;
  Executor train_;
  std::optional<Executor> update_;  // unless it is a part of the backward pass
  MicroSteps steps_;
  const FrozenCache* kept_ = nullptr;
  GradientSums gradients_;
  std::vector<double> loss_;   // of this rank and then of all, where there are several
  bool without_rows_ = false;  // in this micro-step
  double sending_ = 0;         // seconds of the step so far
  int64_t sent_ = 0;           // bytes of all steps so far
};

// The loss over evaluation rows, and of a classifier how its answers agree with their labels.
class RunEvaluation {
 public:
  RunEvaluation(const RunPlace& place, DataSource source);

  struct Result {
    double loss = 0;  // per target token, or what the task counts
    int64_t target_tokens = 0;
    Metrics metrics = {};
  };
  // Nullopt where `interrupted` returns true between two batches, or no row has a target.
  std::optional<Result> run(const std::function<bool()>& interrupted);
  Loader& loader() { return loader_; }

 private:
  void run_batch(const EffectiveBatch& batch, int64_t before, bool& first, ScoredRows& rows);
  // For other ranks, so many times: sums and scores stay as they are.
  void run_without_rows(BatchWriter& writer, const EffectiveBatch& batch, int64_t runs);
  [[nodiscard]] std::vector<double> sums(bool any);

  const Plan& plan_;
  RunRanks& ranks_;
  GatheringProgram program_;
  PersistentState state_;
  std::vector<float> scores_;
  MicroSteps steps_;
  Loader loader_;
};

}  // namespace plimsoll
