// Declares the rule of each task.
#pragma once

#include "tasks/task.h"

namespace plimsoll {

#define TASK(name, meaning) extern const TaskRule name##_task;
#include "tasks/tasks.def"
#undef TASK

// The fused head and loss over next tokens, or over the words that are masked.
Graph build_next_token_loss(const LossRequest& request);

// Appends the op of a loss over scores; `targets` numbers of each sequence are an input of the program.
Graph with_sequence_loss(const LossRequest& request, OpKind loss, int64_t targets, int64_t sums, Attrs attrs);

}  // namespace plimsoll
