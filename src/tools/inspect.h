// Writes out the engine's results for one effective batch, to be compared with another implementation.
#pragma once

#include <filesystem>

#include "prepare/setup.h"

namespace plimsoll {

struct InspectOptions {
  std::filesystem::path batch;  // {"sequences": [{"input_ids", "labels"}], "prompts": [ids]}
  std::filesystem::path out;    // safetensors
  int64_t max_new_tokens = 0;   // of the greedy answer to each prompt; 0: none
  MachineOptions machine;
};

// Runs every micro-step of the batch through the program that training runs, without an update, and writes
// `loss` f64 [1], `grad.NAME` for every gradient by its name in the checkpoint, `logits` [T, V] of all
// sequences one after the other, and `generated.N` i32 for every prompt.
void write_inspection(const Resolved& resolved, const InspectOptions& options);

}  // namespace plimsoll
