#include "train/setup.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/system_memory.h"
#include "base/units.h"
#include "calibrate/rates_cache.h"
#include "cpu/describe.h"
#include "cpu/isa.h"
#include "cpu/threads.h"
#include "io/json_values.h"
#include "io/load.h"
#include "io/model_folder.h"
#include "train/quantised_weights.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

TrainPrecision precision_of(const Precision& recipe) {
  return {recipe.weights, recipe.gradients, recipe.states, recipe.master,
          recipe.rounding == Rounding::stochastic};
}

OptimizerKind kind_of(OptimizerName name) {
  switch (name) {
    case OptimizerName::adamw:
      return OptimizerKind::adamw;
    case OptimizerName::adamw8bit:
      return OptimizerKind::adamw8bit;
    case OptimizerName::lion:
      return OptimizerKind::lion;
    case OptimizerName::sgd:
      return OptimizerKind::sgd;
    case OptimizerName::adafactor:
      return OptimizerKind::adafactor;
  }
  throw InternalError("kind_of: no such optimizer");
}

OptimizerOptions optimizer_of(const Recipe::Optimizer& recipe) {
  return {.beta1 = recipe.betas[0],
          .beta2 = recipe.betas[1],
          .eps = recipe.eps,
          .weight_decay = recipe.weight_decay,
          .max_grad_norm = recipe.max_grad_norm,
          .kind = kind_of(recipe.name),
          .momentum = recipe.momentum};
}

LoraOptions lora_of(const Recipe::Method& method) {
  return {method.r, method.alpha, method.dropout, method.rslora, method.targets};
}

int64_t thread_stack_bytes() {
  rlimit limit{};
  constexpr int64_t kUsual = 8 * kMiB;
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUsual;
  return static_cast<int64_t>(limit.rlim_cur);
}

int64_t limit_bytes(const MemoryLimit& limit, int64_t free, int64_t taken, double headroom_percent) {
  if (limit.kind == MemoryLimit::Kind::bytes) return limit.bytes;
  const double share = limit.kind == MemoryLimit::Kind::percent ? limit.percent / 100.0 : 1.0;
  const double usable = static_cast<double>(free) * share * (1.0 - headroom_percent / 100.0);
  return std::max<int64_t>(0, static_cast<int64_t>(usable) - taken);
}

std::string limit_source(const char* key, const MemoryLimit& limit, const FreeMemory& free) {
  switch (limit.kind) {
    case MemoryLimit::Kind::bytes:
      return std::string(key) + ": " + format_bytes(limit.bytes);
    case MemoryLimit::Kind::percent:
      return std::string(key) + ": " + std::to_string(static_cast<int>(limit.percent)) + " % of " +
             format_bytes(free.bytes) + " less headroom";
    case MemoryLimit::Kind::automatic:
      break;
  }
  return std::string(key) + ": auto, free by " + free.source + " less headroom";
}

}  // namespace

void read_adapter_config(const fs::path& folder, LoraOptions& lora) {
  constexpr int64_t kMostRank = 1 << 20;        // as wide as models are
  constexpr int64_t kLargestScale = 1'000'000;  // those in use are below 1,000
  const nlohmann::json config = read_config(folder, "adapter_config.json");
  const std::string where = (folder / "adapter_config.json").string();
  const auto refuse = [&](const char* key, bool set) {
    if (set) throw UsageError(where + ": '" + std::string(key) + "' is not supported");
  };
  read_values(where, [&] {
    if (config.value("peft_type", "") != "LORA") throw UsageError(where + ": peft_type must be LORA");
    refuse("use_dora", config.value("use_dora", false));
    refuse("bias", config.value("bias", "none") != "none");
    for (const char* key : {"rank_pattern", "alpha_pattern"})
      refuse(key, config.contains(key) && !config[key].is_null() && !config[key].empty());
    refuse("modules_to_save", config.contains("modules_to_save") && !config["modules_to_save"].is_null() &&
                                  !config["modules_to_save"].empty());
    lora.r = config.at("r").get<int64_t>();
    if (!config["r"].is_number_integer() || lora.r < 1 || lora.r > kMostRank)
      throw DamagedError(where + ": 'r' is " + config["r"].dump() + ", a whole number from 1 to " +
                         std::to_string(kMostRank) + " is expected");
    lora.alpha = config.at("lora_alpha").get<double>();
    lora.rslora = config.value("use_rslora", false);
    const auto r = static_cast<double>(lora.r);
    if (!(std::abs(lora.alpha / (lora.rslora ? std::sqrt(r) : r)) <= kLargestScale))
      throw DamagedError(where + ": 'lora_alpha' is " + config["lora_alpha"].dump() + ", with rank " +
                         std::to_string(lora.r) + " more than " + format_count(kLargestScale) +
                         " times the adapter's values");
    const auto& targets = config.at("target_modules");
    lora.targets = targets.is_string() ? std::vector<std::string>{} : targets.get<std::vector<std::string>>();
    if (targets.is_string() && targets != "all-linear")
      throw UsageError(where + ": 'target_modules' as a pattern is not supported; list the modules");
  });
}

QuantiseOptions nf4_of(const Recipe& recipe) {
  const auto stored = stored_quantisation(recipe.model);
  const bool qlora = recipe.method.type == MethodType::qlora;
  if (stored && !qlora && recipe.init == Init::weights)
    throw UsageError(recipe.model +
                     ": holds its weights in 4 bits (bitsandbytes), which only method.type: qlora "
                     "reads");
  return stored ? *stored : QuantiseOptions{recipe.method.double_quant};
}

Experiment read_experiment(const Recipe& recipe) {
  Experiment experiment;
  experiment.model = read_model_spec(fs::path(recipe.model) / "config.json");
  experiment.lora = recipe.method.type != MethodType::full;
  experiment.nf4 = recipe.method.type == MethodType::qlora;
  experiment.nf4_options = nf4_of(recipe);
  if (experiment.lora) {
    experiment.lora_options = lora_of(recipe.method);
    if (recipe.adapter) read_adapter_config(*recipe.adapter, experiment.lora_options);
  }
  experiment.precision = precision_of(recipe.precision);
  const TrainPrecision& types = experiment.precision;
  const bool rounds_bf16 = (types.compute == DType::bf16 && !types.master) || types.states == DType::bf16;
  if (!experiment.lora && rounds_bf16 && !types.stochastic) {
    throw UsageError(
        "precision.rounding: nearest is not supported for bf16 weights without a master copy, nor for bf16 "
        "states: "
        "small updates would be lost; use stochastic, or precision: bf16-master");
  }
  experiment.optimizer = optimizer_of(recipe.optimizer);
  experiment.effective_batch = recipe.batch.effective;
  experiment.max_length = recipe.data.max_length;
  if (recipe.data.packing) experiment.documents = packed_documents(recipe.data.max_length);
  experiment.evaluates = recipe.data.eval.kind != EvalSource::Kind::none;
  if (experiment.max_length > experiment.model.max_positions &&
      experiment.model.rope.type != RopeType::dynamic) {
    throw UsageError("data.max_length: " + format_count(experiment.max_length) + " tokens, but " +
                     recipe.model + " knows " + format_count(experiment.model.max_positions) +
                     " positions (max_position_embeddings in config.json)");
  }
  return experiment;
}

CpuSettings cpu_settings(const MachineOptions& options) {
  CpuSettings cpu;
  cpu.isa = effective_isa(options.max_isa);
  cpu.threads = options.threads > 0 ? static_cast<int>(options.threads) : available_cpus();
  if (cpu.threads > available_cpus()) {
    throw UsageError("threads: " + std::to_string(cpu.threads) + " asked for, this process may use " +
                     std::to_string(available_cpus()) + " CPUs");
  }
  return cpu;
}

HostNeeds host_needs(const Recipe& recipe, const Experiment& experiment, const CpuSettings& cpu,
                     const DataSetup* data) {
  const ProcessMemory now = process_memory();
  HostNeeds needs;
  needs.baseline_data_bytes = now.data;
  // Measured: `plan` is the same binary as `train`. What is loaded already (tokenizer, file indices) is part
  // of it.
  needs.components.push_back({"process", now.rss});
  // Code pages and heaps of the thread pool and the libraries that the first step brings in.
  needs.components.push_back({"threads and libraries", 4 * kMiB + cpu.threads * kMiB / 2});

  if (const auto tokenizer = Tokenizer::find_file(recipe.model); data == nullptr && tokenizer)
    needs.components.push_back({"tokenizer", Tokenizer::estimated_bytes(*tokenizer)});
  int64_t virtual_only = 0;
  if (data != nullptr && data->train) {
    for (const auto* source : {&data->train, &data->eval}) {
      if (!*source) continue;
      const LoaderMemory memory =
          plan_loader_memory((*source)->dataset, (*source)->rows, recipe.data.max_length, (*source)->loader);
      const bool train = source == &data->train;
      needs.components.push_back({train ? "rows" : "evaluation rows", memory.rows_bytes});
      needs.components.push_back({train ? "batches" : "evaluation batches", memory.queue_bytes});
      virtual_only += memory.slack_bytes + memory.thread_stack_bytes;
    }
  }
  const int64_t scales = experiment.nf4 ? nf4_scales_bytes(experiment.model) : 0;
  needs.components.push_back({"staging", kLoadStagingBytes + scales});
  // Stacks at their full size, as VmData counts them, and heap arenas of the threads.
  needs.extra_data_bytes = virtual_only + cpu.threads * (thread_stack_bytes() + 2 * kMiB) + 8 * kMiB;
  return needs;
}

Budget read_budget(const Recipe& recipe, int64_t host_bytes) {
  const FreeMemory free = free_memory();
  const Recipe::Memory& memory = recipe.memory;
  // What this process holds already is free in the sense of the plan, which counts it in the host's needs.
  // Its file pages (the program itself) are free in the kernel's sense already.
  const FreeMemory usable{free.bytes + process_memory().held, free.source};
  Budget budget;
  budget.free_bytes = usable.bytes;
  const bool device_auto = memory.device.kind == MemoryLimit::Kind::automatic;
  const bool host_auto = memory.host.kind == MemoryLimit::Kind::automatic;
  budget.device_bytes =
      limit_bytes(memory.device, usable.bytes, device_auto ? host_bytes : 0, memory.headroom_percent);
  budget.host_bytes = limit_bytes(memory.host, usable.bytes, 0, memory.headroom_percent);
  budget.disk_bytes = memory.disk_bytes;
  // Both are this machine's memory; sizes that are stated may be those of another machine.
  if (device_auto || host_auto)
    budget.process_bytes = limit_bytes({}, usable.bytes, 0, memory.headroom_percent);
  budget.device_source = limit_source("memory.device", memory.device, usable);
  budget.host_source = limit_source("memory.host", memory.host, usable);
  return budget;
}

namespace {

// Where offloaded tensors may go. The host is another memory than the device only where the device's size is
// stated.
std::vector<Space> offload_homes(const Recipe::Memory& memory) {
  std::vector<Space> homes;
  if (memory.device.kind != MemoryLimit::Kind::automatic) homes.push_back(Space::host);
  if (memory.disk_bytes > 0) homes.push_back(Space::disk);
  return homes;
}

// On one device a tier says which of states, gradients and weights leave it (docs/planner.md).
std::optional<OffloadParts> tier_parts(const std::string& tier) {
  if (tier == "deepspeed") return OffloadParts{};
  if (tier == "stage2_offload") return OffloadParts{.states = true};
  if (tier == "stage3") return OffloadParts{.states = true, .gradients = true};
  return OffloadParts{.states = true, .gradients = true, .weights = true};
}

std::optional<OffloadParts> offload_parts(const Recipe::Memory& memory, const std::vector<Space>& homes) {
  std::optional<OffloadParts> parts;
  if (memory.tier) {
    if (memory.offload)
      throw UsageError("memory.tier and memory.offload both say what leaves the device; set one of them");
    parts = tier_parts(*memory.tier);
  } else if (memory.offload) {
    parts.emplace();
    for (const std::string& name : *memory.offload) {
      parts->states |= name == "states";
      parts->gradients |= name == "gradients";
      parts->weights |= name == "weights";
      parts->activations |= name == "activations";
    }
  }
  if (parts && parts->any() && homes.empty())
    throw UsageError(std::string(memory.tier ? "memory.tier" : "memory.offload") +
                     ": what leaves the device has no place to go; state memory.disk (such as 20GiB), or "
                     "memory.device as a size, so that the rest of the memory is the host's");
  return parts;
}

Preset preset_of(const std::optional<std::string>& name) {
  if (!name) return Preset::none;
  return *name == "a" ? Preset::a : *name == "b" ? Preset::b : Preset::c;
}

}  // namespace

PlanRequest plan_request(const Recipe& recipe, const CpuSettings& cpu, const DataSetup* data) {
  PlanRequest request;
  request.experiment = read_experiment(recipe);
  const auto given = [](int64_t value) {
    return value == kAuto ? std::nullopt : std::optional<int64_t>(value);
  };
  request.micro_batch = given(recipe.batch.micro);
  request.eval_micro_batch = given(recipe.eval.micro);
  request.loss_chunk = given(recipe.memory.loss_chunk);
  if (recipe.memory.recompute) request.recompute = parse_recompute_point(*recipe.memory.recompute);
  request.homes = offload_homes(recipe.memory);
  request.offload = offload_parts(recipe.memory, request.homes);
  request.preset = preset_of(recipe.memory.plan);
  request.device = describe_cpu(cpu.isa, cpu.threads);
  request.device.rates = calibrated_or_shipped(cpu, request.device.rates);
  request.host = host_needs(recipe, request.experiment, cpu, data);
  if (data != nullptr) request.data = data->summary;
  request.budget = read_budget(recipe, request.host.total());
  return request;
}

}  // namespace plimsoll
