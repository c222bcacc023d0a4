// Words that are hidden in a text, from those on both sides of them.
#include "tasks/rules.h"

namespace plimsoll {

const TaskRule mlm_task{.task = Task::mlm,
                        .prompts = Prompts::none,
                        .masks = true,
                        .unit = "target tokens",
                        .loss = build_next_token_loss,
                        .result = {"fill-mask", "it scores no sequences"}};

}  // namespace plimsoll
