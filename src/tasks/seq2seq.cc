// A target text of a source text: the encoder reads the one, the decoder writes the other.
#include "tasks/rules.h"

namespace plimsoll {

const TaskRule seq2seq_task{
    .task = Task::seq2seq, .sequences = 2, .unit = "target tokens", .loss = build_next_token_loss};

}  // namespace plimsoll
