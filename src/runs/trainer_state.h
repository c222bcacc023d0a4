// The manifest of a checkpoint, trainer_state.json: where the run stands and which experiment it belongs to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/batch/effective_batch.h"
#include "passes/optimizers.h"
#include "runs/loss_scale.h"

namespace plimsoll {

struct TrainerState {
  int64_t step = 0;  // finished optimizer steps
  DataPosition position;
  std::string fingerprint;  // of the experiment (runs/fingerprint.h)
  // Instruction set and threads, and the order in which sums are formed: bits are promised within them.
  std::string kernels;
  int64_t micro_batch = 0, loss_chunk = 0;
  int64_t micro_tokens = 0;  // 0: micro-steps in rows
  bool shares_prefixes = false;
  int64_t ranks = 1;                    // processes whose gradients were added up
  bool reduces_each = false;            // in every micro-step of several, not once a step
  std::optional<ShardStage> shard;      // what they divide; earlier versions did not record it
  int64_t common_begin = 0;             // tokens that micro-steps have once, whatever their rows are
  std::optional<LossScale> loss_scale;  // of runs in fp16
  int64_t total_steps = 0;
  double last_loss = 0.0;
  std::optional<double> eval_loss;                                // of an evaluation at this step
  std::vector<std::pair<std::string, double>> eval_metrics = {};  // and the other metrics of that evaluation

  // The evaluation's loss, or one of its metrics; nullopt where it has no such metric.
  [[nodiscard]] std::optional<double> evaluated(std::string_view goal) const;
};

std::string to_text(const TrainerState& state);
// Throws DamagedError, starting with `where`, for what no run writes.
TrainerState parse_trainer_state(std::string_view text, const std::string& where);

}  // namespace plimsoll
