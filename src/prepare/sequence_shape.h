// Determines how long the sequences of an experiment are, and how many of them a place of a micro-batch
// takes.
#pragma once

#include "data/batch/packer.h"
#include "plan/program/experiment.h"

namespace plimsoll {

// The contents of a place of a micro-batch: a sample, in training with packing several.
SequenceShape train_shape(const Experiment& experiment);
SequenceShape eval_shape(const Experiment& experiment);

}  // namespace plimsoll
