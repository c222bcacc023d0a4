// Runs of every kind of variant on tiny models, from one state and on the same batches.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "cpu/describe.h"
#include "cpu/isa.h"
#include "data/batch/micro_batch.h"
#include "plan/program/experiment.h"
#include "runtime/executor.h"
#include "runtime/run_memory.h"
#include "train/batch_writer.h"
#include "weights/test_machine.h"
#include "weights/weights.h"

namespace plimsoll::test {

inline constexpr int64_t kLayers = 3;
inline constexpr int64_t kLength = 12;
// Tensors of the tiny models move from here on; norms and scales of blocks do not.
inline constexpr int64_t kSmallest = 256;

struct Case {
  const char* name;
  const char* family;
  bool lora;
  TrainPrecision precision;
  OptimizerKind optimizer = OptimizerKind::adamw;
  int64_t vocab = 64;
  bool nf4 = false;
  bool whole_way = false;  // DoRA, a module saved whole, noise on embeddings, an adapter of another rank
  std::vector<std::string> targets = {};
  int64_t hidden = 32;  // from 64 on 8-bit states have a matrix
  bool int8 = false;
};

inline const TrainPrecision kFp32 = {};
inline const TrainPrecision kBf16 = {DType::bf16, DType::f32, DType::f32, false, true};
inline const TrainPrecision kBf16Master = {DType::bf16, DType::f32, DType::f32, true, false};
inline const TrainPrecision kFp16 = {DType::f16, DType::f32, DType::f32, true, false};
inline const TrainPrecision kBf16Pure = {DType::bf16, DType::bf16, DType::bf16, false, true};

inline Experiment experiment_of(const Case& c, int64_t accumulation, bool clips) {
  Experiment experiment;
  experiment.model = parse_model_spec({{"model_type", c.family},
                                       {"hidden_size", c.hidden},
                                       {"intermediate_size", c.hidden * 3 / 2},
                                       {"num_hidden_layers", kLayers},
                                       {"num_attention_heads", 4},
                                       {"num_key_value_heads", 2},
                                       {"head_dim", 8},
                                       {"vocab_size", c.vocab},
                                       {"tie_word_embeddings", true}},
                                      "test");
  experiment.lora = c.lora;
  experiment.lora_options = {.r = 4, .alpha = 8, .dropout = 0.25, .targets = c.targets};
  if (c.whole_way) {
    experiment.lora_options.dora = true;
    experiment.lora_options.dropout = c.nf4 || c.int8 ? 0.0 : 0.25;
    experiment.lora_options.modules_to_save = {"lm_head"};
    experiment.lora_options.rank_pattern = {{"layers\\.1\\..*", 2}};
    experiment.noise = 5.0;
  }
  experiment.quantised = c.nf4 || c.int8;
  if (c.int8) experiment.quantisation.format = WeightFormat::int8;
  experiment.precision = c.precision;
  experiment.optimizer.kind = c.optimizer;
  experiment.optimizer.weight_decay = 0.1;
  experiment.optimizer.max_grad_norm = clips ? 0.5 : 0.0;
  experiment.effective_batch = 2 * accumulation;
  experiment.max_length = kLength;
  return experiment;
}

inline Variant variant_of(const Experiment& experiment) {
  Variant variant;
  variant.micro_batch = 2;
  variant.accumulation = experiment.effective_batch / variant.micro_batch;
  variant.loss_chunk = 16;
  return variant;
}

// Two sequences that leave a part of the token axis empty.
inline MicroBatch batch_of(int step, int64_t micro) {
  MicroBatch batch(2, kLength);
  for (int32_t sample = 0; sample < 2; ++sample) {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 7 + sample; ++i)
      ids.push_back((5 * i + 11 * sample + 3 * step + 7 * static_cast<int32_t>(micro)) % 64);
    batch.append(ids, ids, sample + 2 * static_cast<int32_t>(micro));
  }
  return batch;
}

// A device with an arena of its own: what waits on the host comes and goes by transfers, as from disk.
inline DeviceDescription own_memory_device(const CpuSettings& cpu) {
  DeviceDescription device = describe_cpu(cpu.isa, cpu.threads);
  device.reaches_host = false;
  return device;
}

// The loss scale of a step in fp16, and one with which every gradient overflows.
inline constexpr double kScale = 1024, kScaleThatOverflows = 0x1p100;

// The start values of a run, and its inputs in each micro-step: the same for all variants of an experiment.
struct Material {
  Persistent weights;
  std::vector<std::vector<Inputs>> steps;  // by step and micro-step
};

// `overflows`: the steps, from 1 on, whose gradients overflow fp16.
inline Material material_of(const Experiment& experiment, const CpuSettings& cpu, int steps,
                            const std::set<int>& overflows) {
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
  for (int step = 1; step <= steps; ++step) {
    auto& micro_steps = material.steps.emplace_back();
    const double scale = !experiment.precision.scales_loss() ? 1
                         : overflows.contains(step)          ? kScaleThatOverflows
                                                             : kScale;
    for (int64_t micro = 0; micro < experiment.effective_batch / 2; ++micro) {
      writer.write(batch_of(step, micro));
      writer.set_seed(7);
      writer.set(StepValue::optimizer_step, step);
      writer.set(StepValue::learning_rate, 0.02);
      writer.set(StepValue::first_micro_step, micro == 0 ? 1.0 : 0.0);
      writer.set(StepValue::loss_scale, scale / static_cast<double>(13 * experiment.effective_batch / 2));
      writer.set(StepValue::gradient_scale, scale);
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
// squares in addition.
using Result = std::map<std::string, std::vector<std::byte>>;

// Bit i of `parts` moves part i.
inline OffloadChoice choice_of(int parts, int64_t prefetch, Space target = Space::disk) {
  const auto space = [&](int part) { return (parts >> part & 1) != 0 ? target : Space::device; };
  return {.states = space(0),
          .gradients = space(1),
          .weights = space(2),
          .activations = space(3),
          .prefetch = prefetch,
          .slice_elements = 65536,
          .smallest_bytes = kSmallest};
}

// The disk's file in memory where there is such a folder: what is compared is bits, not the disk.
inline std::filesystem::path disk_in_memory() {
  const std::filesystem::path memory = "/dev/shm";
  return std::filesystem::exists(memory) ? memory : std::filesystem::temp_directory_path();
}

inline double norm_in(const Result& result) {
  double norm = 0;
  std::memcpy(&norm, result.at(kGradNormTensor).data(), sizeof norm);
  return norm;
}

class Bench {
 public:
  explicit Bench(const Experiment& experiment, int steps = 3, const std::set<int>& overflows = {})
      : experiment_(experiment),
        cpu_{std::min(effective_isa(std::nullopt), Isa::avx512_bf16), 1},
        device_(cpu_),
        material_(material_of(experiment, cpu_, steps, overflows)) {}

  Result run(const Variant& variant, Transfers transfers) {
    const std::vector<Graph> graphs = build_programs(experiment_, variant, own_memory_device(cpu_));
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
  Result run_on_arenas(const Variant& variant,
                       const std::filesystem::path& disk_folder = std::filesystem::temp_directory_path()) {
    return run_on(device_, own_memory_device(cpu_), variant, disk_folder);
  }

  // The same on another device.
  Result run_on(Device& device, const DeviceDescription& description, const Variant& variant,
                const std::filesystem::path& disk_folder, int captures = 0) {
    const std::vector<Graph> graphs = build_programs(experiment_, variant, description);
    const ArenaLayout layout = lay_out(graphs);
    validate(graphs, layout);
    const RunMemory memory(device, layout, disk_folder);
    const PersistentState state(layout, memory.arenas());
    for (const TableRow& row : layout.persistent) {
      const auto found = material_.weights.find(row.name);
      if (found != material_.weights.end()) state.write(row, 0, found->second.bytes());
    }
    std::deque<Executor> programs;
    for (size_t i = 0; i < graphs.size(); ++i)
      programs.emplace_back(graphs[i], layout.programs[i], device, memory.arenas(),
                            ExecutorOptions{.poison = true, .graphs = captures});
    for (const auto& micro_steps : material_.steps) {
      for (const Inputs& inputs : micro_steps) run(programs[0], layout.programs[0], inputs);
      if (programs.size() > 1) run(programs[1], layout.programs[1], micro_steps.back());
    }
    Result result;
    for (const TableRow& row : layout.persistent) {
      if (!counts(row.name, row.role)) continue;
      result[row.name].resize(static_cast<size_t>(row.bytes));
      state.read(row, 0, result[row.name]);
    }
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

  static void run(const Executor& program, const ProgramLayout& layout, const Inputs& inputs) {
    for (const TableRow& row : layout.rows) {
      if (row.role != Role::input) continue;
      const std::vector<std::byte>& from = inputs.at(row.name);
      const auto to = row.dtype == DType::f64 ? std::as_writable_bytes(program.input<double>(row.name))
                                              : std::as_writable_bytes(program.input<int32_t>(row.name));
      std::copy(from.begin(), from.end(), to.begin());
    }
    program.run();
  }

  Experiment experiment_;
  CpuSettings cpu_;
  CpuDevice device_;
  Material material_;
};

}  // namespace plimsoll::test
