// Several ranks as threads of one process: whatever they divide and wherever tensors are, steps have the same bits.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "ranks/mpi_group.h"
#include "train/rank_bench.h"

namespace plimsoll::test {
namespace {

class RanksRun : public ::testing::TestWithParam<Case> {
 protected:
  // The relative error that another order of sums makes of a loss; of a norm ten times as much.
  static double tolerance() { return GetParam().precision.compute == DType::f32 ? 1e-5 : 5e-3; }
};

TEST_P(RanksRun, stages_and_offload_change_no_bit) {
  const bool divides = GetParam().optimizer != OptimizerKind::adafactor;
  for (const int ranks : {2, 3}) {
    Experiment experiment = experiment_of(large(GetParam()), 2, true);
    experiment.effective_batch = 5;
    Ranks whole(experiment, ranks, ShardStage::none);
    const Variant variant = whole.variant();
    const RankedResult want = whole.run(variant);
    for (const double loss : want.losses) EXPECT_TRUE(std::isfinite(loss) && loss > 0);
    for (const bool divided : {false, true}) {
      if (divided && !divides) continue;
      Ranks run(experiment, ranks, divided ? ShardStage::states : ShardStage::none);
      if (divided) expect_same(run.run(variant), want, "divided");
      for (const int parts : {2, 7, 15}) {
        if (ranks == 3 && parts != 7) continue;
        Variant moved = variant;
        moved.offload = choice_of(parts, parts % 3);
        moved.recompute.layers.assign(parts % 2 == 0 ? 0 : kLayers, RecomputePoint::block);
        expect_same(
            run.run(moved), want,
            "offload " + std::to_string(parts) + (divided ? ", divided, " : ", ") + std::to_string(ranks));
      }
    }
  }
}

// With one micro-step there is one order of sums: that of ranks. With several, sums over ranks are added up.
TEST_P(RanksRun, divided_gradients_have_the_bits_of_whole_ones_wherever_the_order_of_sums_is_theirs) {
  if (GetParam().optimizer == OptimizerKind::adafactor) GTEST_SKIP() << "is not divided";
  for (const int ranks : {2, 3}) {
    Experiment experiment = experiment_of(large(GetParam()), 2, true);
    experiment.effective_batch = 5;
    Ranks states(experiment, ranks, ShardStage::states), gradients(experiment, ranks, ShardStage::gradients);
    Variant several = states.variant(), one = several;
    one.micro_batch = experiment.samples_each();
    one.accumulation = 1;
    const RankedResult whole = states.run(several);
    const RankedResult want[] = {states.run(one), gradients.run(several)};
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(want[1].losses[step], whole.losses[step], tolerance() * whole.losses[step]);
      EXPECT_NEAR(want[1].norms[step], whole.norms[step], 10 * tolerance() * whole.norms[step]);
    }
    expect_same(gradients.run(one), want[0], "one micro-step");
    for (const int parts : {2, 7, 15}) {
      if (ranks == 3 && parts != 7) continue;
      for (const bool is_one : {true, false}) {
        Variant moved = is_one ? one : several;
        moved.offload = choice_of(parts, parts % 3);
        moved.recompute.layers.assign(parts % 2 == 0 ? 0 : kLayers, RecomputePoint::block);
        expect_same(gradients.run(moved), want[is_one ? 0 : 1], "offload " + std::to_string(parts));
      }
    }
  }
}

// Whatever is gathered where it is read, and however often.
TEST_P(RanksRun, divided_weights_have_the_bits_of_divided_gradients) {
  if (GetParam().optimizer == OptimizerKind::adafactor) GTEST_SKIP() << "is not divided";
  for (const int ranks : {2, 3}) {
    Experiment experiment = experiment_of(large(GetParam()), 2, true);
    experiment.effective_batch = 5;
    Ranks gradients(experiment, ranks, ShardStage::gradients),
        weights(experiment, ranks, ShardStage::weights);
    Variant variant = gradients.variant();
    const RankedResult want = gradients.run(variant);
    const RankedResult got = weights.run(variant);
    expect_same(got, want, "divided weights");
    EXPECT_GT(got.sent, want.sent);
    for (const int parts : {2, 4, 15}) {
      if (ranks == 3 && parts != 15) continue;
      Variant moved = variant;
      moved.offload = choice_of(parts, parts % 3);
      moved.recompute.layers.assign(parts == 2 ? 0 : kLayers, RecomputePoint::block);
      expect_same(weights.run(moved), want, "offload " + std::to_string(parts));
    }
  }
}

TEST_P(RanksRun, one_copy_of_what_is_frozen_changes_no_bit) {
  if (!GetParam().lora) GTEST_SKIP() << "nothing is frozen";
  for (const int ranks : {2, 3}) {
    Experiment experiment = experiment_of(large(GetParam()), 2, true);
    experiment.effective_batch = 5;
    Ranks apart(experiment, ranks, ShardStage::states), together(experiment, ranks, ShardStage::states);
    const Variant variant = apart.variant();
    const RankedResult want = apart.run(variant);
    expect_same(together.with_one_copy().run(variant), want, "one copy");
    for (const int parts : {4, 15}) {
      Variant moved = variant;
      moved.offload = choice_of(parts, parts % 3);
      expect_same(together.run(moved), want, "offload " + std::to_string(parts));
    }
  }
}

TEST_P(RanksRun, updates_in_the_backward_pass_change_no_bit) {
  if (GetParam().lora || GetParam().precision.scales_loss()) GTEST_SKIP() << "has no such updates";
  for (const int ranks : {2, 3}) {
    Experiment experiment = experiment_of(large(GetParam()), 1, false);
    experiment.effective_batch = ranks;
    for (const ShardStage stage : {ShardStage::none, ShardStage::gradients, ShardStage::weights}) {
      if (stage != ShardStage::none && GetParam().optimizer == OptimizerKind::adafactor) continue;
      if (stage == ShardStage::weights && ranks == 3) continue;
      Ranks run(experiment, ranks, stage);
      Variant variant = run.variant();
      const RankedResult want = run.run(variant);
      variant.update_in_backward = true;
      for (const int parts : {0, 8}) {
        variant.offload = choice_of(parts, 1);
        expect_same(run.run(variant), want, "in the backward pass, offload " + std::to_string(parts));
      }
    }
  }
}

// tests/several_devices_test.py compares the files: of threads, and of processes that mpirun starts.
TEST(RanksBits, go_to_files_whoever_moves_them) {
  const char* const file = std::getenv("PLIMSOLL_TEST_BITS");
  if (file == nullptr) GTEST_SKIP() << "run by tests/several_devices_test.py";
  const StartedBy started = who_started_me();
  constexpr int kThreads = 3;
  const int count = started.ranks > 1 ? started.ranks : kThreads;
  Experiment experiment = experiment_of(large({"full_bf16_master", "llama", false, kBf16Master}), 2, true);
  experiment.effective_batch = 5;
  std::optional<MpiGroup> processes;
  if (started.ranks > 1) processes.emplace(started);
  for (const bool divided : {false, true}) {
    const std::string own = std::string(file) + (divided ? "-divided" : "-whole");
    const auto rank = [&](Group& group) {
      Ranks ranks(experiment, count, divided ? ShardStage::states : ShardStage::none);
      ranks.run_as(group, ranks.variant(), own);
    };
    if (processes)
      rank(*processes);
    else
      run_as_threads(count, rank);
  }
  if (processes) processes->ends_together();
}

INSTANTIATE_TEST_SUITE_P(
    Models, RanksRun,
    ::testing::Values(Case{"full_fp32", "qwen2", false, kFp32},
                      Case{"full_bf16_master", "llama", false, kBf16Master},
                      Case{"full_bf16_pure", "qwen2", false, kBf16Pure},
                      Case{"full_fp16", "llama", false, kFp16}, Case{"lora_bf16", "llama", true, kBf16},
                      Case{"adamw8bit", "llama", false, kBf16, OptimizerKind::adamw8bit},
                      Case{"adafactor", "llama", false, kBf16, OptimizerKind::adafactor}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace plimsoll::test
