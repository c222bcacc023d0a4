// Tests of what offloading and the update in the backward pass save: lower bounds of real programs.
#include <gtest/gtest.h>

#include "base/units.h"
#include "layout/program_layout.h"
#include "layout/test_bounds.h"
#include "models/test_specs.h"
#include "plan/program/experiment.h"

namespace plimsoll {
namespace {

// Qwen2.5-0.5B.
Experiment half_a_billion() {
  Experiment experiment;
  experiment.model = test_spec(half_billion());
  experiment.precision = {DType::bf16, DType::f32, DType::f32, false, true};
  experiment.effective_batch = 16;
  experiment.max_length = 1024;
  return experiment;
}

Variant small_variant(const OffloadChoice& offload) {
  Variant variant;
  variant.accumulation = 16;
  variant.loss_chunk = 128;
  variant.recompute = {std::vector(24, RecomputePoint::block), 1};
  variant.offload = offload;
  return variant;
}

struct Bytes {
  int64_t device, disk;
};

int64_t gib(double n) { return static_cast<int64_t>(n * static_cast<double>(kGiB)); }

Bytes bytes_of(const Experiment& experiment, const Variant& variant) {
  const auto programs = build_programs(experiment, variant, reference_description());
  return {arena_lower_bound(programs, Space::device), arena_lower_bound(programs, Space::disk)};
}

TEST(OffloadBytes, every_part_that_leaves_the_device_makes_room_there) {
  const Experiment experiment = half_a_billion();
  const auto disk = Space::disk;
  const auto device = Space::device;
  const std::vector<OffloadChoice> more_and_more = {{},
                                                    {disk, device, device, device},
                                                    {disk, disk, device, device},
                                                    {disk, disk, disk, device},
                                                    {disk, disk, disk, disk}};
  Bytes before{INT64_MAX, -1};
  for (const OffloadChoice& choice : more_and_more) {
    const Bytes bytes = bytes_of(experiment, small_variant(choice));
    EXPECT_LT(bytes.device, before.device);
    EXPECT_GT(bytes.disk, before.disk);
    before = bytes;
  }
}

// 14 bytes a parameter; on the device stay the weights (0.92 GiB) and, from the head to the lookup, the tied
// table's gradient (0.51 GiB).
TEST(OffloadBytes, half_a_billion_parameters_train_in_two_gibibytes) {
  OffloadChoice choice;
  choice.states = choice.gradients = Space::disk;
  const Bytes bytes = bytes_of(half_a_billion(), small_variant(choice));
  EXPECT_LT(bytes.device, gib(1.7));
}

// One micro-step a step and no clipping: gradients need no offload target at all.
TEST(OffloadBytes, an_update_in_the_backward_pass_keeps_one_layers_gradients) {
  Experiment experiment = half_a_billion();
  experiment.effective_batch = 1;
  experiment.optimizer.max_grad_norm = 0;
  OffloadChoice choice;
  choice.states = Space::disk;
  Variant variant = small_variant(choice);
  variant.accumulation = 1;
  const Bytes after = bytes_of(experiment, variant);
  variant.update_in_backward = true;
  const Bytes within = bytes_of(experiment, variant);
  EXPECT_EQ(within.disk, after.disk);
  EXPECT_LT(within.device, gib(1.7));
  EXPECT_GT(after.device, gib(2.8));
}

}  // namespace
}  // namespace plimsoll
