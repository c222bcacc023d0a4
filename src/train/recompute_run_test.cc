// Recomputation changes no bit: a few steps with every point, mixtures and segments, run with dead values
// poisoned.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/describe.h"
#include "cpu/isa.h"
#include "data/batch/micro_batch.h"
#include "models/test_specs.h"
#include "plan/program/experiment.h"
#include "runtime/device.h"
#include "runtime/executor.h"
#include "train/batch_writer.h"
#include "weights/weights.h"

namespace plimsoll {
namespace {

using enum RecomputePoint;

constexpr int64_t kLayers = 4;
constexpr int64_t kLength = 12;
constexpr int kSteps = 3;

struct Case {
  const char* family;
  bool lora;
  DType compute;
};

Experiment experiment_of(const Case& c) {
  Experiment experiment;
  experiment.model = test_spec({.family = c.family, .mlp = 48, .layers = kLayers, .vocab = 64});
  experiment.lora = c.lora;
  experiment.lora_options = {.r = 4, .alpha = 8, .dropout = 0.25};
  experiment.precision = {c.compute, DType::f32, DType::f32, false, c.compute == DType::bf16};
  experiment.effective_batch = 2;
  experiment.max_length = kLength;
  return experiment;
}

// Two sequences that leave a part of the token axis empty.
MicroBatch batch_of_step(int step) {
  MicroBatch batch(2, kLength);
  for (int32_t sample = 0; sample < 2; ++sample) {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 7 + sample; ++i) ids.push_back((5 * i + 11 * sample + 3 * step) % 64);
    batch.append(ids, ids, sample);
  }
  return batch;
}

void run_step(const Executor& train, const Executor& update, const ModelSpec& model, int step) {
  BatchWriter writer(train, model);
  writer.write(batch_of_step(step));
  writer.set_seed(7);
  writer.set(StepValue::optimizer_step, step);
  writer.set(StepValue::first_micro_step, 1);
  writer.set(StepValue::loss_scale, 1.0 / 13);
  train.run();
  const auto values = update.input<double>(kStepTensor);
  std::fill(values.begin(), values.end(), 0.0);
  values[static_cast<size_t>(StepValue::optimizer_step)] = step;
  values[static_cast<size_t>(StepValue::learning_rate)] = 0.02;
  values[static_cast<size_t>(StepValue::seed_low)] = 7;
  update.run();
}

// Every persistent byte (weights, gradients, states, metrics) after the last step.
std::vector<std::byte> bytes_after_training(const Case& c, const RecomputeChoice& choice) {
  const CpuSettings cpu{std::min(effective_isa(std::nullopt), Isa::avx512_bf16), 2};
  const Experiment experiment = experiment_of(c);
  Variant variant;
  variant.micro_batch = 2;
  variant.loss_chunk = 16;
  variant.recompute = choice;
  const std::vector<Graph> programs = build_programs(experiment, variant, describe_cpu(cpu.isa, cpu.threads));
  const ArenaLayout layout = lay_out(programs);
  validate(programs, layout);
  CpuDevice device(cpu);
  const auto memory = device.map(layout.arena_bytes());
  const PersistentState state(layout, memory->data());
  init_base_weights(state, experiment.model, 1);
  if (c.lora) init_adapters(state, 1);
  const Executor train(programs[0], layout.programs[0], device, *memory, {.poison = true});
  const Executor update(programs[1], layout.programs[1], device, *memory, {.poison = true});
  for (int step = 1; step <= kSteps; ++step) run_step(train, update, experiment.model, step);
  const auto loss = train.result<double>(kLossTensor);
  EXPECT_TRUE(std::isfinite(loss[0]) && loss[0] > 0) << loss[0];
  return {memory->data(), memory->data() + layout.persistent_bytes};
}

std::vector<RecomputeChoice> choices() {
  std::vector<RecomputeChoice> all;
  for (int p = 1; p < kNumRecomputePoints; ++p)
    all.push_back({std::vector(kLayers, static_cast<RecomputePoint>(p)), 1});
  all.push_back({{block, attention, mlp, cheap}, 1});
  all.push_back({{none, act, block, none}, 1});
  all.push_back({{block, block, block, block}, 2});
  all.push_back({{block, block, block, block}, 4});
  all.push_back({{block, block, block, cheap}, 3});
  return all;
}

std::string text_of(const RecomputeChoice& choice) {
  std::string text;
  for (const RecomputePoint point : choice.layers) text += std::string(to_string(point)) + " ";
  return text + "segment " + std::to_string(choice.segment);
}

class RecomputeRun : public ::testing::TestWithParam<Case> {};

TEST_P(RecomputeRun, every_choice_gives_the_bits_of_keeping_everything) {
  const std::vector<std::byte> expected = bytes_after_training(GetParam(), {});
  for (const RecomputeChoice& choice : choices()) {
    const std::vector<std::byte> bytes = bytes_after_training(GetParam(), choice);
    ASSERT_EQ(bytes.size(), expected.size()) << text_of(choice);
    EXPECT_EQ(std::memcmp(bytes.data(), expected.data(), bytes.size()), 0) << text_of(choice);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RecomputeRun,
                         ::testing::Values(Case{"qwen2", false, DType::f32}, Case{"qwen2", true, DType::f32},
                                           Case{"qwen3", false, DType::bf16},
                                           Case{"qwen3", true, DType::bf16},
                                           Case{"llama", true, DType::bf16}),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           return std::string(info.param.family) + (info.param.lora ? "_lora_" : "_full_") +
                                  std::string(to_string(info.param.compute));
                         });

}  // namespace
}  // namespace plimsoll
