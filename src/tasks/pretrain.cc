// Every token from those before it.
#include "tasks/rules.h"

namespace plimsoll {

const TaskRule pretrain_task{
    .task = Task::pretrain, .prompts = Prompts::none, .unit = "target tokens", .loss = build_next_token_loss};

}  // namespace plimsoll
