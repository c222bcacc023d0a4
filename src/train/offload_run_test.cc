// Offload and the update in the backward pass change no bit, whether transfers are fast or slow, and on the
// arenas of a real run.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cpu/describe.h"
#include "cpu/isa.h"
#include "data/micro_batch.h"
#include "plan/experiment.h"
#include "runtime/executor.h"
#include "runtime/run_memory.h"
#include "train/batch_writer.h"
#include "train/test_machine.h"
#include "train/weights.h"

namespace plimsoll {
namespace {

using test::Inputs;
using test::Persistent;
using test::Transfers;

constexpr int64_t kLayers = 3;
constexpr int64_t kLength = 12;
constexpr int kSteps = 3;
// Tensors of the tiny models move from here on; norms and scales of blocks do not.
constexpr int64_t kSmallest = 256;

struct Case {
  const char* name;
  const char* family;
  bool lora;
  TrainPrecision precision;
  OptimizerKind optimizer = OptimizerKind::adamw;
  int64_t vocab = 64;
  bool nf4 = false;
};

const TrainPrecision kFp32 = {};
const TrainPrecision kBf16 = {DType::bf16, DType::f32, DType::f32, false, true};
const TrainPrecision kBf16Master = {DType::bf16, DType::f32, DType::f32, true, false};
const TrainPrecision kBf16Pure = {DType::bf16, DType::bf16, DType::bf16, false, true};

Experiment experiment_of(const Case& c, int64_t accumulation, bool clips) {
  Experiment experiment;
  experiment.model = parse_model_spec({{"model_type", c.family},
                                       {"hidden_size", 32},
                                       {"intermediate_size", 48},
                                       {"num_hidden_layers", kLayers},
                                       {"num_attention_heads", 4},
                                       {"num_key_value_heads", 2},
                                       {"head_dim", 8},
                                       {"vocab_size", c.vocab},
                                       {"tie_word_embeddings", true}},
                                      "test");
  experiment.lora = c.lora;
  experiment.lora_options = {.r = 4, .alpha = 8, .dropout = 0.25};
  experiment.nf4 = c.nf4;
  experiment.precision = c.precision;
  experiment.optimizer.kind = c.optimizer;
  experiment.optimizer.weight_decay = 0.1;
  experiment.optimizer.max_grad_norm = clips ? 0.5 : 0.0;
  experiment.effective_batch = 2 * accumulation;
  experiment.max_length = kLength;
  return experiment;
}

Variant variant_of(const Experiment& experiment) {
  Variant variant;
  variant.micro_batch = 2;
  variant.accumulation = experiment.effective_batch / variant.micro_batch;
  variant.loss_chunk = 16;
  return variant;
}

// Two sequences that leave a part of the token axis empty.
MicroBatch batch_of(int step, int64_t micro) {
  MicroBatch batch(2, kLength);
  for (int32_t sample = 0; sample < 2; ++sample) {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 7 + sample; ++i)
      ids.push_back((5 * i + 11 * sample + 3 * step + 7 * static_cast<int32_t>(micro)) % 64);
    batch.append(ids, ids, sample + 2 * static_cast<int32_t>(micro));
  }
  return batch;
}

// What a run starts from, and what it reads in each micro-step: the same for all variants of an experiment.
struct Material {
  Persistent weights;
  std::vector<std::vector<Inputs>> steps;  // by step and micro-step
};

Material material_of(const Experiment& experiment, const CpuSettings& cpu) {
  const std::vector<Graph> programs =
      build_programs(experiment, variant_of(experiment), describe_cpu(cpu.isa, cpu.threads));
  const ArenaLayout layout = lay_out(programs);
  CpuDevice device(cpu);
  const auto memory = device.map(layout.arena_bytes());
  const PersistentState state(layout, memory->data());
  init_base_weights(state, experiment.model, 1);
  if (experiment.lora) init_adapters(state, 1);
  Material material;
  for (const TableRow& row : state.rows()) {
    const auto from = state.bytes(row);
    std::copy(from.begin(), from.end(),
              material.weights.try_emplace(row.name, row.bytes).first->second.bytes().begin());
  }
  const Executor train(programs[0], layout.programs[0], device, *memory);
  BatchWriter writer(train, experiment.model);
  for (int step = 1; step <= kSteps; ++step) {
    auto& micro_steps = material.steps.emplace_back();
    for (int64_t micro = 0; micro < experiment.effective_batch / 2; ++micro) {
      writer.write(batch_of(step, micro));
      writer.set_seed(7);
      writer.set(StepValue::optimizer_step, step);
      writer.set(StepValue::learning_rate, 0.02);
      writer.set(StepValue::first_micro_step, micro == 0 ? 1.0 : 0.0);
      writer.set(StepValue::loss_scale, 1.0 / static_cast<double>(13 * experiment.effective_batch / 2));
      Inputs& inputs = micro_steps.emplace_back();
      for (const TableRow& row : layout.programs[0].rows) {
        if (row.role != Role::input) continue;
        const std::byte* from = memory->data() + row.offset;
        inputs[row.name] = {from, from + row.bytes};
      }
    }
  }
  return material;
}

// Weights, masters, states, loss and norm after the last step. Gradients are left out: there may be none, or
// squares beside them.
using Result = std::map<std::string, std::vector<std::byte>>;

class Bench {
 public:
  explicit Bench(const Experiment& experiment)
      : experiment_(experiment),
        cpu_{std::min(effective_isa(std::nullopt), Isa::avx512_bf16), 1},
        device_(cpu_),
        material_(material_of(experiment, cpu_)) {}

  Result run(const Variant& variant, Transfers transfers) {
    const std::vector<Graph> graphs =
        build_programs(experiment_, variant, describe_cpu(cpu_.isa, cpu_.threads));
    Persistent persistent = material_.weights;
    std::deque<test::Program> programs;
    for (const Graph& graph : graphs) programs.emplace_back(graph, device_, persistent, transfers);
    for (const auto& micro_steps : material_.steps) {
      for (const Inputs& inputs : micro_steps) programs[0].run(inputs);
      if (programs.size() > 1) programs[1].run(micro_steps.back());
    }
    return result_of(graphs, persistent);
  }

  // On the arenas of a real run, dead values poisoned.
  Result run_on_arenas(const Variant& variant) {
    const std::vector<Graph> graphs =
        build_programs(experiment_, variant, describe_cpu(cpu_.isa, cpu_.threads));
    const ArenaLayout layout = lay_out(graphs);
    validate(graphs, layout);
    const RunMemory memory(device_, layout, std::filesystem::temp_directory_path());
    const Arenas arenas = memory.arenas();
    for (const TableRow& row : layout.persistent) {
      const auto found = material_.weights.find(row.name);
      if (found != material_.weights.end()) write(arenas, row, found->second.bytes());
    }
    std::deque<Executor> programs;
    for (size_t i = 0; i < graphs.size(); ++i)
      programs.emplace_back(graphs[i], layout.programs[i], device_, arenas, ExecutorOptions{.poison = true});
    const auto run = [&](size_t program, const Inputs& inputs) {
      for (const TableRow& row : layout.programs[program].rows)
        if (row.role == Role::input) write(arenas, row, inputs.at(row.name));
      programs[program].run();
    };
    for (const auto& micro_steps : material_.steps) {
      for (const Inputs& inputs : micro_steps) run(0, inputs);
      if (programs.size() > 1) run(1, micro_steps.back());
    }
    Result result;
    for (const TableRow& row : layout.persistent)
      if (counts(row.name, row.role)) read(arenas, row, result[row.name]);
    return result;
  }

 private:
  static bool counts(const std::string& name, Role role) {
    return is_persistent(role) && role != Role::gradient && name.find(kGradSquareSuffix) == std::string::npos;
  }

  static Result result_of(const std::vector<Graph>& graphs, Persistent& persistent) {
    Result result;
    for (const Graph& graph : graphs) {
      for (const Tensor& tensor : graph.tensors()) {
        if (!counts(tensor.name, tensor.role)) continue;
        const auto bytes = persistent.at(tensor.name).bytes();
        result[tensor.name] = {bytes.begin(), bytes.end()};
      }
    }
    return result;
  }

  static void write(const Arenas& arenas, const TableRow& row, std::span<const std::byte> from) {
    if (row.space == Space::disk)
      arenas.disk->write(row.offset, from);
    else
      std::copy(from.begin(), from.end(), arenas.address(row));
  }

  static void read(const Arenas& arenas, const TableRow& row, std::vector<std::byte>& to) {
    to.resize(static_cast<size_t>(row.bytes));
    if (row.space == Space::disk)
      arenas.disk->read(row.offset, to);
    else
      std::copy_n(arenas.address(row), to.size(), to.begin());
  }

  Experiment experiment_;
  CpuSettings cpu_;
  CpuDevice device_;
  Material material_;
};

void expect_learned(const Result& result) {
  double loss[2];
  std::memcpy(loss, result.at(kLossTensor).data(), sizeof(loss));
  EXPECT_TRUE(std::isfinite(loss[0]) && loss[0] > 0) << loss[0];
}

// Bit i of `parts` moves part i.
OffloadChoice choice_of(int parts, int64_t prefetch, Space home = Space::disk) {
  const auto space = [&](int part) { return (parts >> part & 1) != 0 ? home : Space::device; };
  return {.states = space(0),
          .gradients = space(1),
          .weights = space(2),
          .activations = space(3),
          .prefetch = prefetch,
          .slice_elements = 65536,
          .smallest_bytes = kSmallest};
}

std::string text_of(const Variant& variant, const char* how) {
  const OffloadChoice& o = variant.offload;
  return "states " + std::string(to_string(o.states)) + ", gradients " + std::string(to_string(o.gradients)) +
         ", weights " + std::string(to_string(o.weights)) + ", activations " +
         std::string(to_string(o.activations)) + ", prefetch " + std::to_string(o.prefetch) +
         ", accumulation " + std::to_string(variant.accumulation) +
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

std::string name_of(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Models, OffloadRun,
    ::testing::Values(Case{"full_fp32", "qwen2", false, kFp32}, Case{"lora_fp32", "qwen2", true, kFp32},
                      Case{"full_bf16", "qwen3", false, kBf16},
                      Case{"full_bf16_master", "llama", false, kBf16Master},
                      Case{"full_bf16_pure", "qwen2", false, kBf16Pure},
                      Case{"lora_bf16", "llama", true, kBf16},
                      Case{"qlora", "llama", true, kBf16, OptimizerKind::adamw, 64, true},
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
}  // namespace plimsoll
