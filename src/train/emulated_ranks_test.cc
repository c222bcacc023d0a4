// Several ranks as threads of one process, each with an emulated card: whatever they divide, wherever tensors are and
// whenever the cards' queues run, steps have the same bits.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "base/format.h"
#include "base/test_slice.h"
#include "runtime/emulated_device.h"
#include "train/rank_bench.h"

namespace plimsoll::test {
namespace {

using gpu::EmulatedOrder;
using gpu::emulated::When;

// Every rank's queues have an order of their own.
RankDevices cards(EmulatedOrder order, ExchangeWay exchange = ExchangeWay::staged) {
  return {as_emulated(reference_description()),
          {Space::host, Space::disk},
          [order](int rank) {
            const EmulatedOrder own = {order.when, order.seed + 100 * static_cast<uint64_t>(rank)};
            return std::make_unique<EmulatedDevice>(own);
          },
          exchange};
}

class CardsAsRanks : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int kSeeds = 20;
  CardsAsRanks() {
    experiment_.effective_batch = 5;
    setenv("PLIMSOLL_NCCL", PLIMSOLL_FAKE_NCCL, 1);
  }

  [[nodiscard]] bool is_f32() const { return GetParam().precision.compute == DType::f32; }
  // That of a stage with one micro-step, in which all stages add up in one order.
  static Variant one_micro_step(const Ranks& ranks, const Experiment& experiment) {
    Variant variant = ranks.variant();
    variant.micro_batch = experiment.samples_each();
    variant.accumulation = 1;
    return variant;
  }

  // Cut at two ranks and at three; kernels of an emulated card take long for more.
  static Case small(Case c) {
    c.vocab = 640;
    c.hidden = 64;
    return c;
  }

  Experiment experiment_ = experiment_of(small(GetParam()), 2, true);
};

// Each seed has another stage, other parts off the card and another order of the queues; some exchange by NCCL.
TEST_P(CardsAsRanks, have_the_same_bits_in_every_stage_wherever_tensors_are_and_in_every_order) {
  constexpr std::array kStages = {ShardStage::states, ShardStage::gradients, ShardStage::weights,
                                  ShardStage::none};
  constexpr std::array kParts = {0, 15, 1, 2, 7};
  experiment_.ranks = 2;
  Ranks first(experiment_, 2, ShardStage::none, cards({When::at_once}));
  const Variant variant = one_micro_step(first, experiment_);
  const RankedResult want = first.run(variant);
  for (const double loss : want.losses) EXPECT_TRUE(std::isfinite(loss) && loss > 0);
  for (int seed = 1; seed <= kSeeds; ++seed) {
    if (!in_slice("emulated_ranks", static_cast<size_t>(seed))) continue;
    const ShardStage stage = kStages[static_cast<size_t>(seed) % kStages.size()];
    const When when = seed == 3 || seed == 6 ? When::late : When::shuffled;
    const ExchangeWay exchange = seed / 4 % 2 == 1 ? ExchangeWay::nccl : ExchangeWay::staged;
    Ranks ranks(experiment_, 2, stage, cards({when, static_cast<uint64_t>(seed)}, exchange));
    Variant moved = variant;
    const int parts = kParts[static_cast<size_t>(seed) % kParts.size()];
    if (parts > 0) moved.offload = choice_of(parts, seed % 3, seed % 2 == 0 ? Space::host : Space::disk);
    if (seed % 3 == 0) moved.recompute.layers.assign(kLayers, RecomputePoint::block);
    expect_same(ranks.run(moved), want,
                formatted("seed {}: memory.shard: {}, offload {}{}", seed, to_string(stage), parts,
                          exchange == ExchangeWay::nccl ? ", by NCCL" : ""));
  }
}

// Gradients are reduced, and weights gathered, in each of several micro-steps; three ranks, the last piece shorter.
TEST_P(CardsAsRanks, with_several_micro_steps_differ_by_the_order_of_sums_alone) {
  if (is_f32()) {  // pieces of several slices
    experiment_ = experiment_of(large(GetParam()), 2, true);
    experiment_.effective_batch = 5;
  }
  Ranks states(experiment_, 3, ShardStage::states, cards({When::shuffled, 1}));
  Ranks gradients(experiment_, 3, ShardStage::gradients, cards({When::shuffled, 2}, ExchangeWay::nccl));
  Ranks weights(experiment_, 3, ShardStage::weights, cards({When::late}));
  const Variant variant = states.variant();
  const RankedResult whole = states.run(variant), want = gradients.run(variant);
  const double close = is_f32() ? 1e-5 : 5e-3;
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(want.losses[step], whole.losses[step], close * whole.losses[step]);
    EXPECT_NEAR(want.norms[step], whole.norms[step], 10 * close * whole.norms[step]);
  }
  expect_same(weights.run(variant), want, "divided weights");
  weights.compute_on(cpus());
  const RankedResult there = weights.run(variant);
  for (int step = 0; step < kSteps; ++step)
    EXPECT_NEAR(there.losses[step], want.losses[step], (is_f32() ? close : 0.02) * want.losses[step])
        << "on CPUs, whose kernels round otherwise";
}

TEST_P(CardsAsRanks, fetch_one_copy_of_frozen_weights_from_the_host_with_the_same_bits) {
  if (!GetParam().lora) GTEST_SKIP() << "nothing is frozen";
  for (const int ranks : {2, 3}) {
    Ranks apart(experiment_, ranks, ShardStage::states, cards({When::at_once}));
    Variant variant = apart.variant();
    variant.offload = choice_of(4, 1, Space::host);
    const RankedResult want = apart.run(variant);
    for (const When when : {When::shuffled, When::late}) {
      Ranks once(experiment_, ranks, ShardStage::states, cards({when, 3}));
      EXPECT_GT(plan_variant(once.with_one_copy(Space::host).request(), variant).layout.shared.bytes, 0);
      expect_same(once.run(variant), want, formatted("one copy for {}", ranks));
    }
  }
}

TEST_P(CardsAsRanks, update_in_the_backward_pass_with_the_same_bits) {
  if (GetParam().lora || GetParam().precision.scales_loss()) GTEST_SKIP() << "has no such updates";
  Experiment experiment = experiment_of(small(GetParam()), 1, false);
  experiment.effective_batch = 2;
  for (const ShardStage stage : {ShardStage::none, ShardStage::gradients, ShardStage::weights}) {
    Ranks ranks(experiment, 2, stage, cards({When::shuffled, 5}));
    Variant variant = ranks.variant();
    const RankedResult want = ranks.run(variant);
    variant.update_in_backward = true;
    ranks.compute_on(cards({When::shuffled, 6}, ExchangeWay::nccl));
    expect_same(ranks.run(variant), want, std::string(to_string(stage)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, CardsAsRanks,
    ::testing::Values(Case{"full_fp32", "qwen2", false, kFp32},
                      Case{"full_bf16_master", "llama", false, kBf16Master},
                      Case{"full_fp16", "llama", false, kFp16}, Case{"lora_bf16", "llama", true, kBf16},
                      Case{"adamw8bit", "llama", false, kBf16, OptimizerKind::adamw8bit}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace plimsoll::test
