// The end of a run: its folder becomes the model or adapter, with a record and a model card.
#pragma once

#include "train/trainer.h"

namespace plimsoll {

// The record of what this process has measured so far.
RunRecord record_of(const TrainerParts& parts, const TrainerState& current, bool finished);

// The run is finished and saved: publishes its best or last checkpoint, and says what it did.
void end_run(const RunWish& wish, const TrainerParts& parts, const TrainerState& current);

}  // namespace plimsoll
