// Tests of what recomputation saves: the lower bound of the micro-step's memory, point by point and layer by
// layer.
#include <gtest/gtest.h>

#include "layout/program_layout.h"
#include "layout/test_bounds.h"
#include "models/test_specs.h"
#include "plan/program/experiment.h"

namespace plimsoll {
namespace {

using enum RecomputePoint;

Experiment experiment_of(int64_t layers, bool lora) {
  Experiment experiment;
  experiment.model = test_spec({.family = "qwen2", .hidden = 64, .mlp = 192, .layers = layers});
  experiment.lora = lora;
  experiment.lora_options = {.r = 4, .alpha = 8, .dropout = 0.1};
  experiment.max_length = 2048;
  return experiment;
}

int64_t bytes(const Experiment& experiment, const RecomputeChoice& choice) {
  Variant variant;
  variant.recompute = choice;
  std::vector<Graph> programs = build_programs(experiment, variant, reference_description());
  programs.resize(1);
  return arena_lower_bound(programs);
}

RecomputeChoice all(RecomputePoint point, size_t layers, int64_t segment = 1) {
  return {std::vector(layers, point), segment};
}

TEST(RecomputedBytes, fall_from_point_to_point) {
  for (const bool lora : {false, true}) {
    const Experiment experiment = experiment_of(4, lora);
    int64_t before = bytes(experiment, {});
    for (int p = 1; p < kNumRecomputePoints; ++p) {
      const auto point = static_cast<RecomputePoint>(p);
      const int64_t now = bytes(experiment, all(point, 4));
      EXPECT_LT(now, before) << to_string(point) << (lora ? " lora" : " full");
      before = now;
    }
  }
}

TEST(RecomputedBytes, fall_with_every_further_layer_counted_from_the_first) {
  for (const bool lora : {false, true}) {
    const Experiment experiment = experiment_of(6, lora);
    for (int p = 1; p < kNumRecomputePoints; ++p) {
      RecomputeChoice choice = all(none, 6);
      int64_t before = bytes(experiment, choice);
      for (size_t k = 0; k < 5; ++k) {
        choice.layers[k] = static_cast<RecomputePoint>(p);
        const int64_t now = bytes(experiment, choice);
        EXPECT_LT(now, before) << to_string(choice.layers[k]) << " " << k << (lora ? " lora" : " full");
        before = now;
      }
    }
  }
}

TEST(RecomputedBytes, of_segments_are_below_those_of_single_blocks) {
  const Experiment experiment = experiment_of(16, false);
  const int64_t single = bytes(experiment, all(block, 16));
  const int64_t pairs = bytes(experiment, all(block, 16, 2));
  const int64_t fours = bytes(experiment, all(block, 16, 4));
  EXPECT_LT(pairs, single);
  EXPECT_LT(fours, pairs);
}

}  // namespace
}  // namespace plimsoll
