// A plan with everything that runs it: the open device, the memory that the plan lays out, and the tensors in
// it. Training, evaluation and answers begin with one.
#pragma once

#include <filesystem>
#include <memory>

#include "plan/search/plan.h"
#include "prepare/inference_device.h"
#include "runs/observer.h"
#include "runtime/device.h"
#include "runtime/run_memory.h"
#include "train/card_use.h"
#include "weights/persistent_state.h"

namespace plimsoll {

// The plan outlives it.
struct Session {
  const Plan& plan;
  std::unique_ptr<Device> device;
  CardUse card;
  RunMemory memory;
  PersistentState state;
};

// Opens the device and maps the plan's memory; `disk_folder` holds the arena on disk, where there is one.
// Weights are for the caller to fill. Throws UsageError, before any memory is asked for, where the device has
// no kernel for what the plan computes. The observer hears what binding ops may wait for.
// `ranks`: the processes of the run; the state has the pieces of this one.
Session open_session(const Plan& plan, const InferenceDevice& wish, const std::filesystem::path& disk_folder,
                     RunObserver& observer, RunRanks& ranks = no_other_ranks());

}  // namespace plimsoll
