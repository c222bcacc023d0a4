// Runs on the emulated card, with memory that the host does not reach: what is offloaded to the host and to
// disk gives the bits of keeping all, in every order of the card's queues.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "runtime/emulated_device.h"
#include "train/test_bench.h"

namespace plimsoll::test {
namespace {

using gpu::EmulatedOrder;
using gpu::emulated::When;

OffloadChoice all_of(Space target, int64_t prefetch) {
  return {.states = target,
          .gradients = target,
          .weights = target,
          .activations = target,
          .prefetch = prefetch,
          .slice_elements = 65536,
          .smallest_bytes = kSmallest};
}

void expect_same(const Result& result, const Result& expected, const std::string& where) {
  ASSERT_EQ(result.size(), expected.size());
  for (const auto& [name, bytes] : result) ASSERT_EQ(bytes, expected.at(name)) << name << ", " << where;
}

class EmulatedRun : public ::testing::TestWithParam<Case> {
 protected:
  static Result run(Bench& bench, const Variant& variant, EmulatedOrder order, int graphs = 0) {
    EmulatedDevice device(order);
    Result result =
        bench.run_on(device, as_emulated(reference_description()), variant, disk_in_memory(), graphs);
    const bool on_disk = variant.offload.weights == Space::disk;
    EXPECT_EQ(device.graph_use().graphs > 0, graphs > 0 && !on_disk);
    return result;
  }
};

TEST_P(EmulatedRun, homes_on_host_and_disk_give_the_bits_of_keeping_all_in_every_order) {
  const Experiment experiment = experiment_of(GetParam(), 2, true);
  Bench bench(experiment, 2);
  Variant variant = variant_of(experiment);
  const Result expected = run(bench, variant, {When::at_once});
  double loss[2];
  std::memcpy(loss, expected.at(kLossTensor).data(), sizeof loss);
  EXPECT_TRUE(std::isfinite(loss[0]) && loss[0] > 0) << loss[0];
  expect_same(run(bench, variant, {When::shuffled, 3}, 1), expected, "captured");
  variant.recompute.layers.assign(kLayers, RecomputePoint::mlp);
  uint64_t seed = 1;
  for (const Space target : {Space::host, Space::disk})
    for (const EmulatedOrder& order : {EmulatedOrder{When::late}, EmulatedOrder{When::shuffled, seed++}}) {
      variant.offload = all_of(target, static_cast<int64_t>(seed % 2));
      const std::string where = "homes on " + std::string(to_string(target)) + ", order " +
                                std::to_string(static_cast<int>(order.when)) + " " +
                                std::to_string(order.seed);
      for (const int graphs : target == Space::host ? std::vector<int>{0, 1} : std::vector<int>{1})
        expect_same(run(bench, variant, order, graphs), expected, where + (graphs > 0 ? ", captured" : ""));
    }
}

// Parts that are on the device, the host and the disk at once, layer by layer.
TEST_P(EmulatedRun, parts_in_part_in_several_homes_give_the_bits_of_keeping_all) {
  const Experiment experiment = experiment_of(GetParam(), 2, true);
  Bench bench(experiment, 2);
  Variant variant = variant_of(experiment);
  const Result expected = run(bench, variant, {When::at_once});
  constexpr int64_t kAll = PartTarget::kEveryBlock;
  const std::vector<OffloadTargets> several = {
      {PartTarget{1, 1}, PartTarget{0, 1}, PartTarget{1, kAll}, PartTarget{0, 2}},
      {PartTarget{0, 2}, PartTarget{2, kAll}, PartTarget{0, 1}, PartTarget{1, 1}},
      {PartTarget{Space::host}, PartTarget{1, 0}, PartTarget{Space::disk}, PartTarget{}},
      {PartTarget{2, 0}, PartTarget{Space::host}, PartTarget{1, 1}, PartTarget{Space::disk}}};
  uint64_t seed = 1;
  for (const OffloadTargets& targets : several) {
    for (const int64_t prefetch : {static_cast<int64_t>(seed % 3)}) {
      variant.offload = all_of(Space::host, prefetch);
      variant.offload.set_targets(targets);
      for (const EmulatedOrder& order : {EmulatedOrder{When::late}, EmulatedOrder{When::shuffled, seed++}}) {
        EmulatedDevice device(order);
        const Result result =
            bench.run_on(device, as_emulated(reference_description()), variant, disk_in_memory());
        expect_same(result, expected,
                    "homes " + std::to_string(seed) + ", prefetch " + std::to_string(prefetch));
      }
    }
  }
}

// In fp16 a step whose gradients overflow leaves everything as it was, wherever it lives.
class EmulatedSkippedStep : public ::testing::TestWithParam<OptimizerTraits> {};

TEST_P(EmulatedSkippedStep, of_every_set_of_parts_gives_the_bits_of_keeping_all) {
  Case c{"", "llama", false, kFp16, GetParam().kind};
  if (c.optimizer == OptimizerKind::adamw8bit) c.hidden = 64;
  Experiment experiment = experiment_of(c, 1, true);
  experiment.optimizer.momentum = 0.9;
  Bench bench(experiment, 3, {1, 3});
  Variant variant = variant_of(experiment);
  const auto run = [&](EmulatedOrder order) {
    EmulatedDevice device(order);
    return bench.run_on(device, as_emulated(reference_description()), variant, disk_in_memory());
  };
  const Result expected = run({When::at_once});
  EXPECT_FALSE(std::isfinite(norm_in(expected)));
  // Every set has both offload targets with one optimizer or another.
  constexpr int kWeights = 4;
  for (int parts = 1; parts < 16; ++parts) {
    if ((parts & kWeights) == 0 && GetParam().kind != OptimizerKind::adamw) continue;  // the CPU has those
    const bool on_host = (parts + static_cast<int>(GetParam().kind)) % 2 == 0;
    variant.offload = choice_of(parts, parts % 3, on_host ? Space::host : Space::disk);
    const Result result = run({When::shuffled, static_cast<uint64_t>(parts)});
    expect_same(result, expected, "parts " + std::to_string(parts));
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, EmulatedSkippedStep, ::testing::ValuesIn(kOptimizers),
                         [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Models, EmulatedRun,
    ::testing::Values(Case{"full_bf16_pure", "qwen2", false, kBf16Pure},
                      Case{"masked_words", "modernbert", false, kBf16},
                      Case{"qlora_of_fused_matrices", "phi3", true, kBf16, OptimizerKind::adamw, 64, true},
                      Case{.name = "qlora_int8_of_fused_matrices",
                           .family = "phi3",
                           .lora = true,
                           .precision = kBf16,
                           .int8 = true},
                      Case{"adamw8bit", "llama", false, kBf16, OptimizerKind::adamw8bit}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace plimsoll::test
