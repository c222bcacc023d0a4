// Offload and the update in the backward pass change no bit, whether transfers are fast or slow, and on the
// arenas of a real run.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "train/test_bench.h"

namespace plimsoll::test {
namespace {

void expect_learned(const Result& result) {
  double loss[2];
  std::memcpy(loss, result.at(kLossTensor).data(), sizeof(loss));
  EXPECT_TRUE(std::isfinite(loss[0]) && loss[0] > 0) << loss[0];
}

std::string text_of(const Variant& variant, const char* how) {
  const OffloadChoice& o = variant.offload;
  return "states " + std::string(to_string(o.states.of(0))) + ", gradients " +
         std::string(to_string(o.gradients.of(0))) + ", weights " + std::string(to_string(o.weights.of(0))) +
         ", activations " + std::string(to_string(o.activations.of(0))) + ", prefetch " +
         std::to_string(o.prefetch) + ", accumulation " + std::to_string(variant.accumulation) +
         (variant.recompute.layers.empty() ? "" : ", recomputed") +
         (variant.update_in_backward ? ", update in backward, " : ", ") + how;
}

void expect_same(const Result& result, const Result& expected, const std::string& what) {
  ASSERT_EQ(result.size(), expected.size()) << what;
  for (const auto& [name, bytes] : result) ASSERT_EQ(bytes, expected.at(name)) << name << ": " << what;
}

void expect_same_bits(Bench& bench, const Variant& variant, const Result& expected) {
  expect_same(bench.run(variant, Transfers::when_they_start), expected, text_of(variant, "early"));
  expect_same(bench.run(variant, Transfers::when_they_are_waited_for), expected, text_of(variant, "late"));
}

class OffloadRun : public ::testing::TestWithParam<Case> {};

TEST_P(OffloadRun, every_set_of_parts_gives_the_bits_of_keeping_all) {
  for (const int64_t accumulation : {1, 3}) {
    const Experiment experiment = experiment_of(GetParam(), accumulation, true);
    Bench bench(experiment);
    Variant variant = variant_of(experiment);
    const Result expected = bench.run(variant, Transfers::when_they_start);
    expect_learned(expected);
    for (int parts = 1; parts < 16; ++parts) {
      variant.offload = choice_of(parts, parts % 3);
      variant.recompute.layers.assign(parts % 2 == 0 ? 0 : kLayers, RecomputePoint::block);
      expect_same_bits(bench, variant, expected);
    }
  }
}

TEST_P(OffloadRun, an_update_in_the_backward_pass_gives_the_bits_of_one_after_it) {
  const Experiment experiment = experiment_of(GetParam(), 1, false);
  Bench bench(experiment);
  Variant variant = variant_of(experiment);
  const Result expected = bench.run(variant, Transfers::when_they_start);
  variant.update_in_backward = true;
  for (const int parts : {0, 1, 4, 5, 8, 13}) {
    variant.offload = choice_of(parts, parts % 3);
    variant.recompute.layers.assign(parts % 2 == 0 ? 0 : kLayers, RecomputePoint::block);
    expect_same_bits(bench, variant, expected);
  }
}

// In fp16 a step whose gradients overflow leaves everything as it was, wherever it lives. The tables have
// 134,400 elements, three slices.
class SkippedStep : public ::testing::TestWithParam<OptimizerTraits> {};

TEST_P(SkippedStep, of_every_set_of_parts_gives_the_bits_of_keeping_all) {
  Case c{"", "llama", false, kFp16, GetParam().kind, 2100};
  c.hidden = 64;
  const std::set<int> first{1}, later{2}, both{1, 3};
  for (const std::set<int>& overflows : {first, later, both}) {
    const int64_t accumulation = overflows == both ? 2 : 1;
    Experiment experiment = experiment_of(c, accumulation, overflows != later);
    experiment.optimizer.momentum = 0.9;
    Variant variant = variant_of(experiment);
    Bench ends(experiment, *overflows.rbegin(), overflows);
    const Result skipped = ends.run(variant, Transfers::when_they_start);
    EXPECT_FALSE(std::isfinite(norm_in(skipped)));
    Bench goes_on(experiment, *overflows.rbegin() + 1, overflows);
    const Result expected = goes_on.run(variant, Transfers::when_they_start);
    EXPECT_TRUE(std::isfinite(norm_in(expected)));
    expect_learned(expected);
    for (int parts = 1; parts < 16; ++parts) {
      variant.offload = choice_of(parts, parts % 3);
      expect_same(ends.run(variant, Transfers::when_they_are_waited_for), skipped,
                  text_of(variant, "skipped"));
      expect_same_bits(goes_on, variant, expected);
    }
  }
}

std::string optimizer_name(const ::testing::TestParamInfo<OptimizerTraits>& info) {
  return std::string(info.param.name);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, SkippedStep, ::testing::ValuesIn(kOptimizers), optimizer_name);

std::string name_of(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Models, OffloadRun,
    ::testing::Values(
        Case{"full_fp32", "qwen2", false, kFp32},
        Case{"full_fp32_of_masked_words", "modernbert", false, kFp32},
        Case{"lora_fp32", "qwen2", true, kFp32}, Case{"full_bf16", "qwen3", false, kBf16},
        Case{"full_bf16_master", "llama", false, kBf16Master},
        Case{"full_bf16_pure", "qwen2", false, kBf16Pure}, Case{"lora_bf16", "llama", true, kBf16},
        Case{"qlora", "llama", true, kBf16, OptimizerKind::adamw, 64, true},
        Case{.name = "qlora_int8", .family = "llama", .lora = true, .precision = kBf16, .int8 = true},
        Case{"adamw8bit", "llama", false, kBf16, OptimizerKind::adamw8bit},
        Case{"lion", "llama", false, kBf16Pure, OptimizerKind::lion},
        Case{"sgd", "llama", false, kFp32, OptimizerKind::sgd},
        Case{"adafactor", "llama", false, kBf16, OptimizerKind::adafactor}),
    name_of);

// Few cases: each transfer waits for a real disk.
class OffloadOnArenas : public ::testing::TestWithParam<Case> {};

TEST_P(OffloadOnArenas, homes_on_host_and_disk_give_the_bits_of_keeping_all) {
  const Experiment experiment = experiment_of(GetParam(), 2, true);
  Bench bench(experiment);
  Variant variant = variant_of(experiment);
  const Result expected = bench.run_on_arenas(variant);
  expect_learned(expected);
  variant.recompute.layers.assign(kLayers, RecomputePoint::mlp);
  for (const OffloadChoice& choice :
       {choice_of(15, 0), choice_of(15, 1), choice_of(15, 1, Space::host), choice_of(6, 1, Space::host)}) {
    variant.offload = choice;
    expect_same(bench.run_on_arenas(variant), expected, text_of(variant, "on arenas"));
  }
}

TEST_P(OffloadOnArenas, updates_in_the_backward_pass_fetch_and_store_their_states) {
  const Experiment experiment = experiment_of(GetParam(), 1, false);
  Bench bench(experiment);
  Variant variant = variant_of(experiment);
  const Result expected = bench.run_on_arenas(variant);
  variant.update_in_backward = true;
  for (const OffloadChoice& choice : {choice_of(13, 1), choice_of(13, 1, Space::host)}) {
    variant.offload = choice;
    expect_same(bench.run_on_arenas(variant), expected, text_of(variant, "on arenas"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, OffloadOnArenas,
    ::testing::Values(Case{"full_bf16_pure", "qwen2", false, kBf16Pure},
                      Case{"qlora", "llama", true, kBf16, OptimizerKind::adamw, 64, true},
                      Case{"adamw8bit", "llama", false, kBf16, OptimizerKind::adamw8bit}),
    name_of);

// Tables of 67,200 elements: their updates run in two slices.
TEST(OffloadRunSlices, give_the_bits_of_whole_updates) {
  for (const TrainPrecision& precision : {kBf16, kBf16Master, kBf16Pure}) {
    const Case c{"", "llama", false, precision, OptimizerKind::adamw, 2100};
    const Experiment experiment = experiment_of(c, 1, true);
    Bench bench(experiment);
    Variant variant = variant_of(experiment);
    const Result expected = bench.run(variant, Transfers::when_they_start);
    for (const int parts : {1, 2, 3}) {
      variant.offload = choice_of(parts, 1);
      expect_same_bits(bench, variant, expected);
    }
  }
}

}  // namespace
}  // namespace plimsoll::test
