#include "tools/inspect.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "autodiff/autodiff.h"
#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "base/units.h"
#include "cpu/threads.h"
#include "data/batch/micro_steps.h"
#include "data/encode/ids.h"
#include "files/json.h"
#include "formats/safetensors.h"
#include "infer/generator.h"
#include "infer/sampling.h"
#include "prepare/host_needs.h"
#include "prepare/shared_prefixes.h"
#include "runtime/device.h"
#include "train/batch_writer.h"
#include "train/run_programs.h"
#include "weights/adapter_start.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int32_t>;

Ids ids_of(const nlohmann::json& list) { return get_wholes<int32_t>(list); }

struct Dumped {
  TensorSpec spec;
  std::vector<std::byte> bytes;
};

struct BatchFile {
  EffectiveBatch batch;
  std::vector<Ids> prompts;
};

// {"samples": [{"sequences": [ids, ..], "targets": [number of each, ..]}]} of tasks that score sequences,
// with "second", where a second text begins; of dpo "labels" instead of targets.
BatchFile read_samples(const nlohmann::json& samples, const Experiment& experiment) {
  BatchFile read{EffectiveBatch(static_cast<int64_t>(samples.size()), eval_shape(experiment)), {}};
  for (const auto& sample : samples) {
    Example example;
    for (const auto& sequence : sample.at("sequences")) {
      auto ids = ids_of(sequence);
      if (rule_of(experiment.task.task).scores && !experiment.model.value_head)
        drop_padding(experiment.model.pad_token, ids);
      example.ids.insert(example.ids.end(), ids.begin(), ids.end());
      example.ends.push_back(static_cast<int64_t>(example.ids.size()));
    }
    if (rule_of(experiment.task.task).scores) {
      example.labels.assign(example.ids.size(), kIgnoreLabel);
      example.values = sample.at("targets").get<std::vector<float>>();
      example.second = sample.contains("second") ? get_whole<int64_t>(sample, "second") : -1;
    } else {
      for (const auto& sequence : sample.at("labels")) {
        const auto labels = ids_of(sequence);
        example.labels.insert(example.labels.end(), labels.begin(), labels.end());
      }
      if (targets_of(experiment.task) > 0) example.values = sample.at("targets").get<std::vector<float>>();
      if (example.labels.size() != example.ids.size())
        throw UsageError("a sample of the batch has other labels than ids");
    }
    example.targets = 1;
    read.batch.add(example);
  }
  return read;
}

// {"pairs": [{"source": ids, "target": ids}]} of an encoder and a decoder.
BatchFile read_pairs(const nlohmann::json& pairs, const Experiment& experiment) {
  BatchFile read{EffectiveBatch(static_cast<int64_t>(pairs.size()), eval_shape(experiment)), {}};
  for (const auto& pair : pairs) {
    Example example;
    append_source(ids_of(pair.at("source")), example);
    append_target(ids_of(pair.at("target")), decoder_tokens(*experiment.model.encoder_decoder), example);
    read.batch.add(example);
  }
  return read;
}

BatchFile read_batch(const fs::path& file, const Experiment& experiment) {
  const nlohmann::json json = read_json(file, 16 * kMiB);
  try {
    if (rule_of(experiment.task.task).scores || rule_of(experiment.task.task).pairs)
      return read_samples(json.at("samples"), experiment);
    if (experiment.model.encoder_decoder) return read_pairs(json.at("pairs"), experiment);
    const auto& sequences = json.at("sequences");
    BatchFile read{EffectiveBatch(static_cast<int64_t>(sequences.size()), eval_shape(experiment)), {}};
    for (const auto& sequence : sequences) {
      Example example{ids_of(sequence.at("input_ids")), ids_of(sequence.at("labels")), 0, 0};
      example.whole_length = static_cast<int64_t>(example.ids.size());
      if (example.ids.size() != example.labels.size() || example.whole_length > experiment.max_length)
        throw UsageError(file.string() + ": a sequence is longer than data.max_length or than its labels");
      const bool counts_first = rule_of(experiment.task.task).masks || example.labels.empty();
      example.targets = std::count_if(example.labels.begin() + (counts_first ? 0 : 1), example.labels.end(),
                                      [](int32_t l) { return l != kIgnoreLabel; });
      read.batch.add(example);
    }
    if (json.contains("prompts"))
      for (const auto& prompt : json["prompts"]) read.prompts.push_back(ids_of(prompt));
    return read;
  } catch (const nlohmann::json::exception& error) {
    throw DamagedError(formatted("{}: {}", file.string(), error.what()));
  }
}

std::string exported_name(const PersistentState& state, const TableRow& weight) {
  return is_beside_adapters(state, weight) ? "base_model.model." + weight.name : weight.name;
}

Dumped copied(std::string name, DType dtype, Shape shape, std::span<const std::byte> bytes) {
  return {{std::move(name), dtype, std::move(shape)}, {bytes.begin(), bytes.end()}};
}

// As its weight is saved.
Dumped exported_gradient(const PersistentState& state, const TableRow& weight, const TableRow& gradient) {
  const std::string name = "grad." + exported_name(state, weight);
  if (weight.parameter.adapter != AdapterPart::embedding_a)
    return copied(name, gradient.dtype, gradient.shape, state.bytes(gradient));
  check_internal(gradient.dtype == DType::f32, "gradients of adapters are f32");
  std::vector<float> values(static_cast<size_t>(gradient.shape.elements()));
  std::memcpy(values.data(), state.bytes(gradient).data(), values.size() * sizeof(float));
  const std::vector<float> turned = transposed(values, gradient.shape[1]);
  return copied(name, DType::f32, saved_shape(state, weight), std::as_bytes(std::span(turned)));
}

void load_weights(const PersistentState& state, const Recipe& recipe, const Experiment& experiment,
                  const CpuSettings& cpu) {
  const auto seed = static_cast<uint64_t>(recipe.seed);
  init_fresh_weights(state, experiment.model, seed);
  if (recipe.init == Init::random) {
    init_base_weights(state, experiment.model, seed);
  } else {
    load_base_weights(state, recipe.model, {}, FreshHead::stays);
  }
  if (recipe.adapter) {
    load_adapters(state, *recipe.adapter);
  } else if (experiment.lora) {
    init_adapters(state, seed);
    start_adapters(state, experiment.lora_options, cpu, seed);
    take_out_starts(state, experiment.lora_options);
  }
}

// The micro-step program and one that keeps all logits, over the same weights.
class BatchInspection {
 public:
  BatchInspection(const Recipe& recipe, const Experiment& experiment, const CpuSettings& cpu, int64_t micro)
      : experiment_(experiment),
        seed_(static_cast<uint64_t>(recipe.seed)),
        plan_(make_plan(request_of(recipe, experiment, cpu, micro))),
        device_(cpu),
        memory_(device_.map(plan_.arena_bytes())),
        state_(plan_.layout, memory_->data()),
        steps_({micro}, eval_shape(experiment), experiment.effective_batch) {
    load_weights(state_, recipe, experiment, cpu);
  }

  void run(const EffectiveBatch& batch, std::vector<Dumped>& out) {
    accumulate(batch, out);
    for (const TableRow& row : plan_.layout.persistent) {
      if (row.role != Role::gradient) continue;
      const std::string weight = row.name.substr(0, row.name.size() - gradient_name("").size());
      out.push_back(exported_gradient(state_, *state_.find(weight), row));
    }
    keep_logits(batch, out);
  }

 private:
  [[nodiscard]] bool scores() const { return rule_of(experiment_.task.task).scores; }
  static PlanRequest request_of(const Recipe& recipe, const Experiment& experiment, const CpuSettings& cpu,
                                int64_t micro) {
    PlanRequest request;
    request.workload = {.experiment = experiment, .use = Use::inspect};
    request.choices.micro_batch = micro;
    if (recipe.memory.loss_chunk != kAuto) request.choices.loss_chunk = recipe.memory.loss_chunk;
    request.target = answering_target({cpu}, experiment);
    return request;
  }

  void accumulate(const EffectiveBatch& batch, std::vector<Dumped>& out) {
    const Executor train(plan_.programs.front(), plan_.layout.programs.front(), device_, *memory_);
    BatchWriter writer(train, experiment_.model);
    steps_.cut(batch);
    for (int64_t i = 0; i < steps_.count(); ++i) {
      const MicroBatch& micro = steps_.fill(i);
      writer.write(micro);
      writer.set(StepValue::first_micro_step, i == 0 ? 1.0 : 0.0);
      writer.set_seed(seed_);
      writer.set(StepValue::optimizer_step, 1.0);
      writer.set(StepValue::loss_scale, 1.0 / static_cast<double>(batch.target_tokens()));
      train.run();
    }
    const auto sums = train.result<double>(kLossTensor);
    const double loss = sums[0] / sums[1];
    out.push_back(copied("loss", DType::f64, {1}, std::as_bytes(std::span(&loss, 1))));
  }

  // Logits of every token, or scores of every sequence.
  void keep_logits(const EffectiveBatch& batch, std::vector<Dumped>& out) {
    const Executor program(plan_.programs.back(), plan_.layout.programs.back(), device_, *memory_);
    const TableRow& row = *plan_.layout.find_persistent(kLogitsTensor);
    const int64_t width = row.shape.last();
    const int64_t row_bytes = width * size_of(row.dtype);
    BatchWriter writer(program, experiment_.model);
    int64_t kept = 0;
    Dumped logits{{kLogitsTensor, row.dtype, {0, width}}, {}};
    const bool two = experiment_.model.encoder_decoder.has_value();
    steps_.cut(batch);
    for (int64_t i = 0; i < steps_.count(); ++i) {
      const MicroBatch& micro = steps_.fill(i);
      writer.write(micro);
      program.run();
      const int64_t rows = scores() ? micro.live_sequences
                           : two    ? live_tokens(program.input<double>(kStepTensor).data(), kFirstAxis + 1)
                                    : micro.live_tokens;
      kept += rows;
      const auto live = state_.bytes(row).first(static_cast<size_t>(rows * row_bytes));
      logits.bytes.insert(logits.bytes.end(), live.begin(), live.end());
    }
    logits.spec.shape = {kept, width};
    out.push_back(std::move(logits));
  }

  const Experiment& experiment_;
  uint64_t seed_;
  Plan plan_;
  CpuDevice device_;
  std::unique_ptr<DeviceMemory> memory_;
  PersistentState state_;
  MicroSteps steps_;
};

void answer(const std::vector<Ids>& prompts, const Recipe& recipe, const Experiment& experiment,
            const InspectOptions& options, const CpuSettings& cpu, std::vector<Dumped>& out) {
  size_t longest = 0;
  for (const Ids& prompt : prompts) longest = std::max(longest, prompt.size());
  GenerationRequest request;
  request.model = experiment.model;
  request.compute = experiment.precision.compute;
  request.context = static_cast<int64_t>(longest) + options.max_new_tokens;
  if (experiment.lora) request.lora = experiment.lora_options;
  if (experiment.quantised) request.quantisation = experiment.quantisation;
  Generator generator(plan_generation(std::move(request), {cpu}));
  load_weights(generator.state(), recipe, experiment, cpu);
  for (size_t i = 0; i < prompts.size(); ++i) {
    Ids ids;
    generator.generate(
        prompts[i], options.max_new_tokens,
        [](std::span<const float> logits, int64_t) { return argmax(logits); },
        [&](int32_t id) {
          ids.push_back(id);
          return true;
        });
    out.push_back(copied("generated." + std::to_string(i), DType::i32, {static_cast<int64_t>(ids.size())},
                         std::as_bytes(std::span(ids))));
  }
}

void write(const fs::path& file, const std::vector<Dumped>& tensors) {
  std::vector<TensorSpec> specs;
  for (const Dumped& tensor : tensors) specs.push_back(tensor.spec);
  if (fs::is_regular_file(file)) fs::remove(file);  // the writer makes new files
  SafetensorsWriter writer(file, specs, {{"format", "pt"}});
  for (const Dumped& tensor : tensors) writer.write(tensor.spec.name, tensor.bytes);
  writer.finish();
}

}  // namespace

void write_inspection(const Resolved& resolved, const InspectOptions& options) {
  const Recipe& recipe = resolved.recipe;
  Experiment experiment = read_experiment(resolved);
  experiment.evaluates = false;
  experiment.shares_prefixes = shares_prefixes(recipe, experiment, nullptr);
  const BatchFile file = read_batch(options.batch, experiment);
  if (file.batch.target_tokens() == 0)
    throw UsageError(options.batch.string() + ": no token of the batch is a target");
  experiment.effective_batch = file.batch.packed_sequences();
  const CpuSettings cpu = cpu_settings(options.machine);
  start_threads(cpu.threads);
  const int64_t micro = recipe.batch.micro == kAuto ? experiment.effective_batch : recipe.batch.micro;
  std::vector<Dumped> tensors;
  BatchInspection(recipe, experiment, cpu, micro).run(file.batch, tensors);
  if (options.max_new_tokens > 0) answer(file.prompts, recipe, experiment, options, cpu, tensors);
  write(options.out, tensors);
}

}  // namespace plimsoll
