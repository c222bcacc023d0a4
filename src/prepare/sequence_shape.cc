#include "prepare/sequence_shape.h"

#include "tasks/task.h"

namespace plimsoll {

SequenceShape eval_shape(const Experiment& experiment) {
  // A target begins with a token that is no part of it.
  const int64_t starts = experiment.has_targets() ? 1 : 0;
  return {.tokens = experiment.sample_tokens() + starts,
          .documents = experiment.sample_sequences(),
          .targets = targets_of(experiment.task),
          .shares_prefixes = experiment.shares_prefixes,
          .of_row = experiment.sample_sequences(),
          .labels_in_place = rule_of(experiment.task.task).masks};
}

SequenceShape train_shape(const Experiment& experiment) {
  SequenceShape shape = eval_shape(experiment);
  shape.documents *= experiment.documents;
  shape.longest_alike = experiment.shares_prefixes && experiment.noise > 0;
  return shape;
}

}  // namespace plimsoll
