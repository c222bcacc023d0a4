#include "prepare/setup.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "calibrate/rates_cache.h"
#include "cpu/describe.h"
#include "cpu/isa.h"
#include "cpu/threads.h"
#include "formats/load.h"
#include "models/family.h"
#include "prepare/host_needs.h"
#include "prepare/memory_budget.h"
#include "prepare/model_paths.h"
#include "prepare/planned_card.h"
#include "prepare/schedule.h"
#include "prepare/shared_prefixes.h"
#include "recipe/known_model.h"
#include "weights/adapter_config.h"

namespace plimsoll {
namespace {

TrainPrecision precision_of(const Precision& recipe) {
  return {
      recipe.weights, recipe.gradients, recipe.states, recipe.master, recipe.rounding == Rounding::stochastic,
      recipe.tf32};
}

OptimizerOptions optimizer_of(const Recipe::Optimizer& recipe) {
  return {.beta1 = recipe.betas[0],
          .beta2 = recipe.betas[1],
          .eps = recipe.eps,
          .weight_decay = recipe.weight_decay,
          .max_grad_norm = recipe.max_grad_norm,
          .kind = recipe.name,
          .momentum = recipe.momentum};
}

LoraOptions lora_of(const Recipe::Method& method) {
  const std::string& init = method.init;
  const size_t number = init.find_first_of("0123456789");
  return {.r = method.r,
          .alpha = method.alpha,
          .dropout = method.dropout,
          .rslora = method.rslora,
          .dora = method.dora,
          .targets = method.targets,
          .rank_pattern = method.rank_pattern,
          .alpha_pattern = method.alpha_pattern,
          .layers = method.layers,
          .layers_pattern = method.layers_pattern,
          .modules_to_save = method.modules_to_save,
          .start = init == "lora"    ? AdapterStart::lora
                   : init == "olora" ? AdapterStart::olora
                                     : AdapterStart::pissa,
          .start_iterations = number == std::string::npos ? 0 : std::stoll(init.substr(number))};
}

void refuse_start(const Experiment& experiment, const Recipe& recipe) {
  if (!experiment.lora || experiment.lora_options.start == AdapterStart::lora) return;
  const std::string where = "method.init: " + recipe.method.init;
  if (experiment.quantised)
    throw UsageError(
        where +
        " takes a part out of the weights, which 4 or 8 bits hold no longer exactly; say method.type: lora");
  if (experiment.lora_options.dora)
    throw UsageError(
        where + " beside method.dora cannot be saved as an adapter of the model as it is; say one of them");
  if (experiment.task.preference.reference == Preference::Reference::computed)
    throw UsageError(where +
                     " takes a part out of the weights, which are the reference of task: dpo; say lora");
}

// PEFT trains adapters of embeddings at a rate of their own there.
void refuse_loraplus(const Experiment& experiment, const Recipe& recipe) {
  if (recipe.method.loraplus_ratio != 1.0 && adapts_embedding(experiment))
    throw UsageError(
        "method.loraplus_ratio: applies to adapters of linear layers, and method.targets names "
        "an embedding; leave one of them out");
}

// The number of scores may be the model's alone to say.
void require_goal(const Recipe& recipe, const TaskSpec& task) {
  if (recipe.save.best && !is_goal(task, *recipe.save.best))
    throw UsageError(formatted("save.best: '{}' is not a metric of {} numbers a row; use loss",
                               *recipe.save.best, task.outputs));
}

}  // namespace

bool adapts_embedding(const Experiment& experiment) {
  const auto& targets = experiment.lora_options.targets;
  const std::string table = embedding_module(experiment.model);
  return std::any_of(targets.begin(), targets.end(), [&](const std::string& target) {
    return table == target || table.ends_with("." + target);
  });
}

void require_frozen_reference(const Experiment& experiment) {
  const bool computed = experiment.task.preference.reference == Preference::Reference::computed;
  if (experiment.lora && computed && !experiment.lora_options.modules_to_save.empty())
    throw UsageError(
        "method.modules_to_save: task: dpo compares with the base under the adapter, and what trains whole "
        "is no longer the base; leave it out, or say dpo.loss: orpo, which needs no reference");
}

std::string random_base_note(const Recipe& recipe) {
  if (recipe.init == Init::weights || recipe.method.type == MethodType::full) return "";
  return formatted(
      "init: random puts the adapter over new random weights, which are not saved: nothing "
      "will be able to use it. To fine-tune the model remove init: random{}; to train a new "
      "one say method.type: full",
      has_weights(recipe.model) ? "" : " and put its weights into " + recipe.model);
}

void require_base(const Recipe& recipe) {
  const std::string note = random_base_note(recipe);
  if (!note.empty() && has_weights(recipe.model))
    throw UsageError(
        formatted("{}: has weights, which init: random does not read: {} (--set init=weights, or --method "
                  "full)",
                  recipe.model, note));
}

Experiment read_experiment(const Resolved& resolved) {
  const Recipe& recipe = resolved.recipe;
  Experiment experiment;
  experiment.model = resolved.model;
  experiment.task = resolved.task;
  require_goal(recipe, experiment.task);
  experiment.lora = recipe.method.type != MethodType::full;
  experiment.quantised = recipe.method.type == MethodType::qlora;
  experiment.quantisation = quantisation_of(resolved);
  if (experiment.lora) {
    experiment.lora_options = lora_of(recipe.method);
    if (recipe.adapter)
      read_adapter_config(*recipe.adapter, experiment.lora_options, rule_of(experiment.task.task).scores);
    require_frozen_reference(experiment);
    refuse_start(experiment, recipe);
    refuse_loraplus(experiment, recipe);
    if (!recipe.method.freeze.empty())
      throw UsageError(
          "method.freeze: beside adapters every weight of the model stays as it is; leave it out, or say "
          "method.type: full");
  }
  experiment.frozen = recipe.method.freeze;
  experiment.precision = precision_of(recipe.precision);
  const TrainPrecision& types = experiment.precision;
  const bool rounds_bf16 = (types.compute == DType::bf16 && !types.master) || types.states == DType::bf16;
  if (!experiment.lora && rounds_bf16 && !types.stochastic) {
    throw UsageError(
        "precision.rounding: nearest is not supported for bf16 weights without a master copy, nor for bf16 "
        "states: small updates would be lost; use stochastic, or precision: bf16-master");
  }
  experiment.noise = recipe.method.neftune_alpha;
  experiment.optimizer = optimizer_of(recipe.optimizer);
  experiment.optimizer.adapter_out_ratio = recipe.method.loraplus_ratio;
  experiment.effective_batch = recipe.batch.effective;
  experiment.ranks = recipe.devices;
  experiment.optimizer.shard = shard_stage(recipe);
  experiment.max_length = recipe.data.max_length;
  if (experiment.model.encoder_decoder) experiment.target_length = recipe.data.targets_at_most();
  if (recipe.data.packing) experiment.documents = packed_documents(recipe.data.max_length);
  experiment.evaluates = recipe.data.eval.kind != EvalSource::Kind::none;
  const std::optional<int64_t> longest = experiment.model.longest_text();
  if (longest && experiment.max_length > *longest) {
    throw UsageError(formatted(
        "data.max_length: {} tokens, but {} knows {} positions (max_position_embeddings in "
        "config.json): say data.max_length: {}, or less",
        format_count(experiment.max_length), shown_model(recipe.model), format_count(*longest), *longest));
  }
  return experiment;
}

CpuSettings cpu_settings(const MachineOptions& options) {
  CpuSettings cpu;
  cpu.isa = effective_isa(options.max_isa);
  cpu.threads = options.threads > 0 ? static_cast<int>(options.threads) : available_cpus();
  if (cpu.threads > available_cpus()) {
    throw UsageError(
        formatted("threads: {} asked for, this process may use {} CPUs", cpu.threads, available_cpus()));
  }
  return cpu;
}

PlannedMachine planned_machine(const MachineOptions& options, const std::string& file) {
  PlannedMachine machine;
  machine.link = options.link;
  machine.nodes = options.nodes;
  machine.on_node = options.on_node;
  if (!file.empty()) {
    const MeasuredMachine measured = read_machine(file);
    machine.cpu.isa = parse_isa(measured.machine.isa, file);
    machine.cpu.threads = measured.machine.threads;
    if (options.threads > 0 && options.threads != machine.cpu.threads)
      throw UsageError(
          formatted("--machine: {} was measured with {} threads, not with {}; measure that too: plimsoll "
                    "calibrate --threads {} --export FILE",
                    file, machine.cpu.threads, options.threads, options.threads));
    if (options.max_isa && *options.max_isa != machine.cpu.isa)
      throw UsageError(
          formatted("--machine: {} was measured with {}; leave --max-isa out", file, measured.machine.isa));
    machine.rates = std::make_shared<DeviceRates>(measured.rates);
    machine.elsewhere = true;
    return machine;
  }
  machine.cpu.isa = effective_isa(options.max_isa);
  machine.cpu.threads = options.threads > 0 ? static_cast<int>(options.threads) : available_cpus();
  machine.elsewhere = machine.cpu.threads > available_cpus();
  return machine;
}

namespace {

Preset preset_of(const std::optional<std::string>& name) {
  if (!name || *name == "fastest") return Preset::none;
  return *name == "a" ? Preset::a : *name == "b" ? Preset::b : Preset::c;
}

// Rows that were cut to less tell nothing of how long they are.
void take_lengths(const Recipe& recipe, const RowLengths& rows, Experiment& experiment) {
  if (recipe.data.max_length > rows.max_length || recipe.data.packing || recipe.data.joined) return;
  experiment.max_length = std::min(experiment.max_length, rows.longest_sequence);
  experiment.target_length = std::min(experiment.target_length, rows.longest_target);
  if (experiment.has_targets()) return;
  const int64_t most = experiment.max_length * experiment.sample_sequences();
  experiment.longest_sample = std::min(rows.longest_sample, most);
  experiment.longest_shared = std::min(rows.longest_shared, most);
  // Rows whose left ends are cut shorter than they were when they were read may begin with other tokens.
  if (recipe.data.max_length == rows.max_length || recipe.data.truncation != Truncation::left)
    experiment.common_begin = rows.common_begin;
}

void require_bf16(const PlannedCard& planned, DType compute) {
  const Card& card = planned.card;
  if (compute != DType::bf16 || has_bf16(card)) return;
  throw UsageError(
      formatted("precision: the {} (compute capability {}.{}) does not compute in bf16, which needs 8.0 "
                "(RTX 30, A100); use precision: fp16 (--precision fp16)",
                planned.words(), card.compute_capability / 10, card.compute_capability % 10));
}

// Refuses TF32 on a CPU, whose products keep their bits, and on cards before Ampere, which have no such
// products.
void require_tf32(const Recipe& recipe, const std::optional<PlannedCard>& card) {
  if (!recipe.precision.tf32) return;
  constexpr int kFirstWithTf32 = 80;
  if (!recipe.is_of_card() && recipe.device != DeviceChoice::emulated)
    throw UsageError(
        "precision.tf32: applies to matrix products on GPUs, and a CPU computes in fp32; leave "
        "it out (--set precision.tf32=false)");
  if (card && card->card.compute_capability < kFirstWithTf32)
    throw UsageError(
        formatted("precision.tf32: the {} does not compute in TF32, which needs compute capability 8.0; "
                  "leave it out",
                  card->words()));
}

}  // namespace

void require_card_computes(const Recipe& recipe) {
  const PlannedCard card = planned_card(recipe);
  require_tf32(recipe, card);
  require_bf16(card, recipe.precision.weights);
}

namespace {

// A card's rates say nothing of the disk of the machine that it is in, which the machine's own do.
void take_known_disk(const Recipe& recipe, const PlannedMachine& machine, DeviceRates& rates) {
  if (machine.rates && machine.rates->disk_measured) {
    rates.disk_read = machine.rates->disk_read;
    rates.disk_write = machine.rates->disk_write;
    rates.disk_measured = true;
  } else if (!machine.rates && recipe.device == DeviceChoice::cuda && known_card_here() != nullptr) {
    take_disk_rates(machine.cpu, rates);
  }
}

}  // namespace

DeviceDescription device_of(const Recipe& recipe, const std::optional<PlannedCard>& card, DType compute,
                            const PlannedMachine& machine) {
  require_tf32(recipe, card);
  DeviceDescription device = describe_cpu(machine.cpu.isa, machine.cpu.threads);
  if (recipe.is_of_card() && card) {
    const PlannedCard& planned = *card;
    require_bf16(planned, compute);
    DeviceDescription named =
        describe_card(planned.card, is_whole_card(recipe.memory, planned.card), planned.known());
    if (!planned.note.empty()) named.rates.note = planned.note;
    if (planned.emulated) named.card_name = planned.words();
    named.isa = device.isa;
    named.threads = device.threads;
    take_known_disk(recipe, machine, named.rates);
    return named;
  }
  device.reaches_host = !recipe.is_of_card();
  if (recipe.is_of_card()) device.kind = "card";
  if (recipe.device == DeviceChoice::emulated) device = as_emulated(device);
  device.rates = machine.rates ? *machine.rates : calibrated_or_shipped(machine.cpu, device.rates);
  return device;
}

namespace {

// The percentage of time that a plan may lose to use less memory (docs/decisions/25-ties.md). A preset has a
// share of its own.
double tie_percent(const Recipe::Memory& memory, const DeviceRates& rates) {
  constexpr double kMeasured = 1, kGuessed = 5;
  return memory.tie_percent.value_or(rates.calibrated || memory.plan ? kMeasured : kGuessed);
}

std::string stated_rows_note(const StatedRows& stated, const Recipe& recipe) {
  return formatted(
      "no rows are read: {} of {} tokens on average are stated (--rows, --tokens), any of them "
      "as long as data.max_length ({})",
      format_count(stated.rows), format_count(stated.tokens), format_count(recipe.data.max_length));
}

void require_longest_row_fits(const Recipe& recipe, const Experiment& experiment) {
  const int64_t longest = experiment.longest_row().tokens;
  if (recipe.batch.micro_tokens == kAuto || recipe.batch.micro_tokens >= longest) return;
  throw UsageError(
      formatted("batch.micro_tokens: {} tokens, but rows are never split and the longest may have {}; say "
                "at least that, or auto",
                format_count(recipe.batch.micro_tokens), format_count(longest)));
}

}  // namespace

namespace {

// Each of several processes would keep all rows; sequences of joined texts are no rows; other words are hidden in every
// epoch.
KeepFrozen keep_frozen_of(const Recipe& recipe) {
  const bool differ = recipe.devices > 1 || recipe.data.joined || rule_of(recipe.task).masks;
  return differ ? KeepFrozen::off : recipe.memory.keep_frozen;
}

// Takes over the choices of the planner that the recipe states.
void state_choices(const Recipe& recipe, PlanRequest& request) {
  const auto given = [](int64_t value) {
    return value == kAuto ? std::nullopt : std::optional<int64_t>(value);
  };
  request.choices.micro_batch = given(recipe.batch.micro);
  request.choices.micro_tokens = given(recipe.batch.micro_tokens);
  request.choices.eval_micro_batch = given(recipe.eval.micro);
  request.choices.loss_chunk = given(recipe.memory.loss_chunk);
  request.choices.keep_frozen = keep_frozen_of(recipe);
  request.choices.graphs = recipe.memory.graphs;
  request.choices.recompute = stated_recompute(recipe.memory, request.workload.experiment.model.layers);
  request.target.own_memory = recipe.is_of_card();
  request.target.targets = offload_spaces(recipe);
  request.choices.offload = offload_parts(recipe, request.target.targets);
  request.choices.targets =
      stated_targets(recipe.memory, request.target.targets, request.workload.experiment.model.layers);
  request.choices.prefetch = recipe.memory.prefetch;
  request.choices.offload_of_tier = recipe.memory.tier.has_value();
  request.choices.preset = preset_of(recipe.memory.plan);
}

}  // namespace

PlanRequest plan_request(const Resolved& resolved, const PlannedMachine& machine, const DataSetup* data) {
  const Recipe& recipe = resolved.recipe;
  PlanRequest request;
  request.workload.experiment = read_experiment(resolved);
  refuse_with_several_devices(recipe, data);
  const bool summarised = data != nullptr && data->summary;
  request.workload.experiment.shares_prefixes =
      shares_prefixes(recipe, request.workload.experiment, summarised ? &*data->summary : nullptr);
  request.choices.may_stop_sharing =
      request.workload.experiment.shares_prefixes && recipe.data.share_prefixes == SharePrefixes::automatic;
  if (data != nullptr && data->lengths) take_lengths(recipe, *data->lengths, request.workload.experiment);
  require_longest_row_fits(recipe, request.workload.experiment);
  request.workload.same_rows =
      std::all_of(recipe.data.train.begin(), recipe.data.train.end(),
                  [](const TrainSource& source) { return source.weight == std::floor(source.weight); });
  if (data != nullptr && data->train) request.workload.dataset_rows = data->train->dataset.rows();
  state_choices(recipe, request);
  request.target.device =
      device_of(recipe, resolved.card, request.workload.experiment.precision.compute, machine);
  take_link(recipe, machine, request.target);
  take_node_copy(recipe, machine, request);
  request.choices.tie = tie_percent(recipe.memory, request.target.device.rates) / 100.0;
  request.target.host = host_needs(resolved, request.workload.experiment, machine.cpu, data);
  if (data != nullptr) request.workload.data = data->summary;
  request.workload.run = run_steps(recipe, data, resolved.stated);
  if (resolved.stated) request.notes.push_back({stated_rows_note(*resolved.stated, recipe)});
  if (const std::string note = random_base_note(recipe); !note.empty()) request.notes.push_back({note});
  if (const auto& run = request.workload.run)
    if (const std::string note = still_note(recipe, run->steps); !note.empty())
      request.notes.push_back({note});
  for (std::string& note : unused_memory_notes(recipe)) request.notes.push_back({std::move(note)});
  if (const std::string note = data == nullptr ? "" : unprinted_tools_note(*data); !note.empty())
    request.notes.push_back({note});
  request.target.budget = read_budget(recipe, resolved.card, machine.nodes, machine.on_node,
                                      machine.free_bytes, machine.card_free_bytes);
  // A card that this machine does not have is in another one, of which nothing is known: as much as the card
  // has.
  if (request.target.own_memory && recipe.device != DeviceChoice::cuda)
    request.target.likely_host_bytes =
        resolved.card ? resolved.card->card.memory_mib * kMiB : memory_budget(request);
  if (machine.elsewhere) {
    if (request.target.budget.of_free)
      throw UsageError(
          "memory: state the other machine's memory as a size (--memory 64GiB): its free memory is "
          "not known here");
    request.target.budget.free_bytes = 0;
  }
  return request;
}

}  // namespace plimsoll
