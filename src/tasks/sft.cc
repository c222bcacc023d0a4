// Every target token from those before it; prompts are no targets.
#include "tasks/rules.h"

namespace plimsoll {

Graph build_next_token_loss(const LossRequest& r) {
  return build_loss(r.model, r.shape, r.dtype, r.chunk, r.mode, r.loss_name);
}

const TaskRule sft_task{.task = Task::sft, .unit = "target tokens", .loss = build_next_token_loss};

}  // namespace plimsoll
