// Saves the rows of the batch at which a run had to stop, so that they can be examined.
#pragma once

#include <filesystem>
#include <string>

#include "data/batch/effective_batch.h"
#include "files/run_folder.h"

namespace plimsoll {

// Writes `stopped-at-step-<step>.jsonl` into the run folder: one line a sequence with `row` (its number in
// the data, from 0), `input_ids` and `labels` as the step saw them; itself data of the format input-ids.
std::filesystem::path save_stopped_batch(const EffectiveBatch& batch, RunFolder& output, int64_t step);

// Saves the rows and returns words about the place, for the message of the stop. Never fails: without disk
// space the words report that.
std::string stopped_batch_words(const EffectiveBatch& batch, RunFolder& output, int64_t step);

}  // namespace plimsoll
