// A target text of a source text: the encoder reads the one, the decoder writes the other.
#include "tasks/rules.h"

namespace plimsoll {

const TaskRule seq2seq_task{.task = Task::seq2seq,
                            .sequences = 2,
                            .has_targets = true,
                            .sequence_names = {"source", "target"},
                            .unit = "target tokens",
                            .loss = build_next_token_loss,
                            .result = {.pipeline_tag = "text2text-generation"}};

}  // namespace plimsoll
